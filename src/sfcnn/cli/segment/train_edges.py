"""`sfcnn segment train-edges`: learn which edges between superpixels are borders of cells."""

import argparse
from pathlib import Path

from sfcnn.cli.parser import Parser, add_overwrite
from sfcnn.cli.segment.inputs import (
    add_probabilities,
    add_superpixels,
    check_outputs,
    check_sizes,
    read_images,
    read_probabilities,
    read_true_cells,
    superpixel_settings,
    typed,
)


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment train-edges`."""
    edges = Parser(
        prog,
        description="Train a random forest that predicts whether there is a cell border between two touching\n"
        "superpixels. `sfcnn segment cells --forest` uses it instead of the mean probability.\n\n"
        "PROBABILITIES is a TIFF stack, 8 or 16 bits from black to white, or floats from 0 to 1. TRUTH has its\n"
        "size, and is a mask of two values, white inside cells and black on membranes. Use slices that the\n"
        "network was not trained on; on its training slices, its probabilities are unrealistically good.",
        examples=(
            f"{prog} membranes.tif truth.tif --out edges.safetensors",
            f"{prog} membranes.tif truth.tif --image raw.tif --out edges.safetensors --trees 200",
        ),
    )
    add_probabilities(edges)
    edges.add_argument("truth", type=Path, metavar="TRUTH", help="TIFF stack of the true cells")
    edges.add_argument("--truth-labels", action="store_true", help="TRUTH has a number for each cell, 0 on membranes")
    edges.add_argument("--out", type=Path, required=True, metavar="FOREST.safetensors", help="file for the forest")
    add_overwrite(edges)
    edges.add_argument("--image", type=Path, metavar="RAW.tif", help="also learn from the images themselves")
    forest = edges.add_argument_group("forest")
    forest.add_argument("--trees", type=int, metavar="N", help="number of trees (default: 1000)")
    forest.add_argument(
        "--depth", type=int, metavar="N", help="maximum depth of the trees, 0 for no limit (default: 0)"
    )
    forest.add_argument("--seed", type=int, metavar="S", help="random seed (default: 0)")
    add_superpixels(edges)
    return edges


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Check and read everything, learn, write."""
    from sfcnn.cells import ForestConfig, learn_forest
    from sfcnn.cli.console import make_console, progress

    superpixels = superpixel_settings(arguments)
    settings = ForestConfig(**typed(arguments, ("trees", "depth", "seed")))
    inputs = (arguments.probabilities, arguments.truth, arguments.image)
    check_outputs([arguments.out], inputs, overwrite=arguments.overwrite)
    probabilities = read_probabilities(arguments.probabilities, interior=arguments.interior)
    truth = read_true_cells(arguments.truth, labels=arguments.truth_labels)
    raw = None if arguments.image is None else read_images(arguments.image)
    for path, stack in ((arguments.truth, truth), (arguments.image, raw)):
        if stack is not None:
            check_sizes(path, stack.shape, arguments.probabilities, probabilities.shape)
    console = make_console()
    with progress(console) as report:
        learned = learn_forest(probabilities, truth, raw, superpixels, settings, report)
    used = learned.borders + learned.within
    console.print(
        f"{used} edges to learn from in {len(truth)} slice{'s' if len(truth) > 1 else ''}: {learned.borders} borders "
        f"and {learned.within} within cells; {learned.ignored} ignored, where the truth is mixed or missing"
    )
    console.print(f"misclassified by the mean probability along the edge: {learned.mean_error:.2%} of {used} edges")
    console.print(
        f"misclassified by the trees grown without the edge (out of bag): {learned.error:.2%} of {used} edges; "
        "new images are harder, since these trees have seen other edges of the same slices"
    )
    learned.forest.save(arguments.out)
    console.print(f"wrote {arguments.out}")
