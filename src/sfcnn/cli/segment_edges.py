"""`sfcnn segment train-edges`: learn which edges between superpixels are borders of cells."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.segment_inputs import (
    add_probabilities,
    add_superpixels,
    check_outputs,
    check_sizes,
    read_images,
    read_probabilities,
    read_truth,
    superpixel_settings,
    typed,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from sfcnn.segmentation.features import Features
    from sfcnn.segmentation.superpixels import SuperpixelsConfig

    Examples = list[tuple[Features, NDArray[np.int8]]]


def add(actions: Any) -> None:
    """Add `train-edges` and its options to the actions of `sfcnn segment`."""
    edges = actions.add_parser(
        "train-edges",
        help="learn from labelled slices where the borders of cells are",
        description="Grow a random forest that tells, for two superpixels that touch, whether there is a border of\n"
        "cells between them. `sfcnn segment cells --forest` uses it in place of the mean probability, with\n"
        "superpixels made as here.\n\n"
        "PROBABILITIES is a TIFF stack, 8 or 16 bits from black to white, or floats from 0 to 1. TRUTH has its\n"
        "size, and is a mask of two values, white inside cells and black on membranes. Probabilities of slices\n"
        "that the network was not trained on are better to learn from: on the others they are too good.",
        examples=(
            "sfcnn segment train-edges membranes.tif truth.tif --out edges.safetensors",
            "sfcnn segment train-edges membranes.tif truth.tif --image raw.tif --out edges.safetensors --trees 200",
        ),
    )
    add_probabilities(edges)
    edges.add_argument("truth", type=Path, metavar="TRUTH", help="TIFF stack of the true cells")
    edges.add_argument("--truth-labels", action="store_true", help="TRUTH has a number for each cell, 0 on membranes")
    edges.add_argument("--out", type=Path, required=True, metavar="FOREST.safetensors", help="file for the forest")
    edges.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    edges.add_argument("--image", type=Path, metavar="RAW.tif", help="learn from the images of the probabilities too")
    forest = edges.add_argument_group("forest")
    forest.add_argument("--trees", type=int, metavar="N", help="number of trees (default: 1000)")
    forest.add_argument("--depth", type=int, metavar="N", help="of the trees at most, 0 for no limit (default: 0)")
    forest.add_argument("--seed", type=int, metavar="S", help="of the random choices (default: 0)")
    add_superpixels(edges)
    edges.set_defaults(carry_out=_train_edges)


def _train_edges(arguments: argparse.Namespace) -> None:
    """Check and read everything, learn, write."""
    from sfcnn.console import make_console, progress
    from sfcnn.segmentation.forest import ForestConfig, grow_and_test

    settings = superpixel_settings(arguments)
    growth = ForestConfig(**typed(arguments, ("trees", "depth", "seed")))
    inputs = (arguments.probabilities, arguments.truth, arguments.image)
    check_outputs([arguments.out], inputs, overwrite=arguments.overwrite)
    probabilities = read_probabilities(arguments.probabilities, interior=arguments.interior)
    truth, raw = read_truth(arguments.truth, labels=arguments.truth_labels), read_images(arguments.image)
    for path, stack in ((arguments.truth, truth), (arguments.image, raw)):
        if stack is not None:
            check_sizes(path, stack.shape, arguments.probabilities, probabilities.shape)
    console = make_console()
    examples = _describe(probabilities, truth, raw, settings, console)
    used = _show_edges(examples, console)
    with progress(console) as report:
        forest, error = grow_and_test(examples, growth, lambda done: report("trees", done))
    console.print(
        f"wrong, by the trees grown without the edge (out of bag): {error:.2%} of {used} edges; "
        "new images are harder, since these trees have seen other edges of the same slices"
    )
    replace(forest, superpixels=settings).save(arguments.out)
    console.print(f"wrote {arguments.out}")


def _describe(
    probabilities: "NDArray[np.float32]",
    truth: "NDArray[np.int64]",
    raw: "NDArray[np.float32] | None",
    settings: "SuperpixelsConfig",
    console: "Console",
) -> "Examples":
    """Features and targets of the edges of each slice."""
    from sfcnn.console import progress
    from sfcnn.segmentation.cells import CellsConfig, describe
    from sfcnn.segmentation.forest import edge_targets

    examples = []
    with progress(console) as report:
        for index, (image, cells) in enumerate(zip(probabilities, truth, strict=True)):
            regions, graph, features = describe(image, CellsConfig(settings), None if raw is None else raw[index])
            examples.append((features, edge_targets(graph, regions, cells)))
            report("slices", (index + 1) / len(truth))
    return examples


def _show_edges(examples: "Examples", console: "Console") -> int:
    """Print how many edges there are of each kind, and how well the mean probability tells them; return those used."""
    import numpy as np

    targets = np.concatenate([part for _, part in examples])
    borders, within = (int((targets == kind).sum()) for kind in (1, 0))
    used = borders + within
    console.print(
        f"{used} edges to learn from in {len(examples)} slice{'s' if len(examples) > 1 else ''}: {borders} borders and "
        f"{within} within cells; {len(targets) - used} ignored, where the truth is mixed or missing"
    )
    if used:
        column = examples[0][0].names.index("probability value edge mean")
        means = np.concatenate([features.values[:, column] for features, _ in examples])
        wrong = ((means > 0.5) != targets)[targets >= 0].mean()
        console.print(f"wrong, by the mean probability along the edge: {wrong:.2%} of {used} edges")
    return used
