"""Images to train on."""
