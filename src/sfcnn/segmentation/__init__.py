"""From images to cells: inference by tiles, superpixels, multicut and the scores of the ISBI challenge (§4.2)."""
