"""`sfcnn segment tune`: choose the method and settings that find a network's cells, on slices with known cells."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfcnn.cli.parser import Parser, add_device, add_overwrite
from sfcnn.cli.segment.inputs import check_outputs, check_sizes, read_images, read_true_cells

if TYPE_CHECKING:
    from rich.table import Table

    from sfcnn.cells import MethodScore


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment tune`."""
    tune = Parser(
        prog,
        description="Choose how the cells of a network are found. Every method is tried with several settings on\n"
        "slices whose cells are known, and the one with the highest V_rand is stored in RUN/cells.yaml, which\n"
        "`sfcnn segment predict` uses from then on.\n\n"
        "IMAGES and TRUTH are TIFF stacks of the same size. TRUTH is a mask of two values, white inside cells\n"
        "and black on membranes. Use slices that the network was not trained on. One or two are enough.",
        examples=(f"{prog} runs/em images.tif truth.tif", f"{prog} runs/em images.tif labels.tif --truth-labels"),
    )
    tune.add_argument("run", metavar="RUN", help="run directory of `sfcnn segment train`")
    tune.add_argument("images", type=Path, metavar="IMAGES", help="TIFF stack of images")
    tune.add_argument("truth", type=Path, metavar="TRUTH", help="TIFF stack of their true cells")
    tune.add_argument("--truth-labels", action="store_true", help="TRUTH has a number for each cell, 0 on membranes")
    tune.add_argument("--invert", action="store_true", help="swap black and white before applying the network")
    tune.add_argument(
        "--average", default="none", help="average over rotated and mirrored images: none (default), rotations or all"
    )
    tune.add_argument("--out", type=Path, metavar="FILE", help="file for the settings (default: RUN/cells.yaml)")
    add_device(tune)
    add_overwrite(tune)
    return tune


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Check and read everything, predict, try all settings, write the best."""
    from sfcnn.cells import CellsConfig, choose_settings, predict_slices
    from sfcnn.cells.apply import SETTINGS_FILE, run_forest, wants_cells
    from sfcnn.cli.console import make_console
    from sfcnn.io.settings import write_settings
    from sfcnn.pretrained import find_run
    from sfcnn.segmentation import load

    network = load(find_run(arguments.run), device=arguments.device)
    wants_cells(network, True)
    out = arguments.out or network.directory / SETTINGS_FILE
    check_outputs([out], (arguments.images, arguments.truth), overwrite=arguments.overwrite)
    images = read_images(arguments.images)
    truth = read_true_cells(arguments.truth, labels=arguments.truth_labels)
    check_sizes(arguments.truth, truth.shape, arguments.images, images.shape)
    forest = run_forest(network)
    console = make_console()
    with console.status("predicting"):
        slices = predict_slices(network, 1 - images if arguments.invert else images, truth, arguments.average)
    with console.status("trying settings"):
        base = None if forest is None else CellsConfig(forest.superpixels)
        found = choose_settings(slices, settings=base, forest=forest)
    best = max(found, key=lambda method: found[method].scores.v_rand.best)
    console.print(_table(found, best))
    write_settings(out, found[best].config, overwrite=arguments.overwrite)
    console.print(f"wrote {out}: {best}, {found[best].settings}")


def _table(found: Mapping[str, "MethodScore"], best: str) -> "Table":
    """One row for each method, with its best settings; the best method is marked."""
    from rich.table import Table

    table = Table("method", "settings", "V_rand", "V_info")
    for method, score in found.items():
        numbers = (f"{value:.4f}" for value in (score.scores.v_rand.best, score.scores.v_info.best))
        table.add_row(f"{method} *" if method == best else method, score.settings, *numbers)
    return table
