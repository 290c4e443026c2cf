"""`sfcnn segment score`: compare a segmentation with the truth."""

import argparse
from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.segment_inputs import check_sizes, read_truth

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from sfcnn.segmentation.scoring import StackScores


def add(actions: Any) -> None:
    """Add `score` and its options to the actions of `sfcnn segment`."""
    score = actions.add_parser(
        "score",
        help="compare a segmentation with the truth",
        description="Compare a segmentation with the truth by the scores of the ISBI 2012 challenge, V_rand and\n"
        "V_info, slice by slice and over the stack. 1 is best.\n\n"
        "Both files are TIFF stacks of the same size. TRUTH is a mask of two values, white inside cells and\n"
        "black on membranes. PREDICTION holds probabilities (8 or 16 bits from black to white, or floats\n"
        "from 0 to 1), a mask, or labels. Unless said otherwise, probabilities are those of membrane, and\n"
        "masks are white inside cells. Probabilities are tried at the thresholds 0, 0.1, …, 1, and the borders\n"
        "of masks and probabilities are thinned; labels are taken as they are.",
        examples=(
            "sfcnn segment score membranes.tif truth.tif",
            "sfcnn segment score cells.tif truth.tif --labels --out scores.json",
            "sfcnn segment score membranes.tif truth.tif --overlay mistakes.png --image raw.tif --slice 3",
        ),
    )
    score.add_argument("prediction", type=Path, metavar="PREDICTION", help="TIFF stack to score")
    score.add_argument("truth", type=Path, metavar="TRUTH", help="TIFF stack to compare with")
    kind = score.add_mutually_exclusive_group()
    kind.add_argument("--interior", action="store_true", help="PREDICTION is bright inside cells")
    kind.add_argument("--membrane", action="store_true", help="PREDICTION is bright on membranes")
    kind.add_argument("--labels", action="store_true", help="PREDICTION has a number for each cell, 0 on membranes")
    score.add_argument("--truth-labels", action="store_true", help="TRUTH has a number for each cell, 0 on membranes")
    score.add_argument("--out", type=Path, metavar="FILE", help="write all scores to this JSON file")
    score.add_argument("--overlay", type=Path, metavar="FILE", help="draw where cells are split and merged, as PNG")
    score.add_argument("--image", type=Path, metavar="STACK", help="images to draw on (default: PREDICTION)")
    score.add_argument("--slice", type=int, metavar="N", help="slice to draw, from 1 (default: of smallest V_rand)")
    score.add_argument("--overwrite", action="store_true", help="replace files that exist")
    score.set_defaults(carry_out=_score)


def _score(arguments: argparse.Namespace) -> None:
    """Read, score, show and write."""
    from sfcnn.console import make_console
    from sfcnn.files import check_output, write_json
    from sfcnn.provenance import provenance
    from sfcnn.segmentation.overlay import check_picture

    if arguments.overlay is None and (arguments.image, arguments.slice) != (None, None):
        raise ValueError("--image and --slice say what --overlay FILE draws: pass it too")
    if arguments.out is not None:
        check_output(arguments.out, overwrite=arguments.overwrite)
    if arguments.overlay is not None:
        check_picture(arguments.overlay, overwrite=arguments.overwrite)
    read_as, prediction, truth = _read(arguments)
    if arguments.slice is not None and not 1 <= arguments.slice <= len(truth):
        raise ValueError(f"--slice must be in 1 … {len(truth)}, got {arguments.slice}")
    grey = None if arguments.overlay is None else _grey(arguments.image, prediction)
    console = make_console()
    console.print(f"{arguments.prediction} read as {read_as}")
    scores = _measure(prediction, truth, console)
    console.print(_table(scores))
    if arguments.out is not None:
        files = {"prediction": str(arguments.prediction), "truth": str(arguments.truth), "read_as": read_as}
        write_json(
            arguments.out, {**files, **scores.as_json(), "provenance": provenance()}, overwrite=arguments.overwrite
        )
        console.print(f"wrote {arguments.out}")
    if grey is not None:
        worst = scores.v_rand.slices.index(min(scores.v_rand.slices))
        index = worst if arguments.slice is None else arguments.slice - 1
        _draw(arguments.overlay, index, grey[index], prediction[index], truth[index], scores, arguments.overwrite)
        console.print(f"wrote {arguments.overlay}")


def _read(arguments: argparse.Namespace) -> tuple[str, "NDArray[Any]", "NDArray[np.int64]"]:
    """How the prediction is read, it itself (Z, H, W), and the cells of the truth (Z, H, W).

    The prediction is labels (int64), a mask of interior (bool) or probabilities of interior (float32).
    """
    from sfcnn.data.stacks import as_fraction, read_labels, read_stack

    path, true_path = arguments.prediction, arguments.truth
    prediction: NDArray[Any] = read_labels(path) if arguments.labels else read_stack(path)
    truth = read_truth(true_path, labels=arguments.truth_labels)
    check_sizes(path, prediction.shape, true_path, truth.shape)
    if arguments.labels:
        return "labels", prediction, truth
    bright = prediction.max()
    if ((prediction == 0) | (prediction == bright)).all():
        if arguments.membrane:
            return f"a mask that is {bright:g} on membranes", prediction == 0, truth
        return f"a mask that is {bright:g} inside cells", prediction > 0, truth
    fraction = as_fraction(prediction, path)
    values = f"values from {prediction.min():g} to {bright:g}"
    if arguments.interior:
        return f"probabilities of the interior of cells, {values}", fraction, truth
    return f"probabilities of membrane, {values}", 1 - fraction, truth


def _grey(path: Path | None, prediction: "NDArray[Any]") -> "NDArray[Any]":
    """What is drawn on: images, else the prediction, of which labels show nothing."""
    import numpy as np

    from sfcnn.data.stacks import as_fraction, read_stack

    if path is None:
        return np.full(prediction.shape, 0.6) if prediction.dtype == np.int64 else prediction.astype(np.float64)
    images = as_fraction(read_stack(path), path)
    if images.shape != prediction.shape:
        raise ValueError(f"{path} is {images.shape}, but the prediction is {prediction.shape}, expected the same size")
    return images


def _measure(prediction: "NDArray[Any]", truth: "NDArray[np.int64]", console: "Console") -> "StackScores":
    import numpy as np

    from sfcnn.console import progress
    from sfcnn.segmentation.scoring import THRESHOLDS, score_labels, score_probabilities

    if prediction.dtype == np.int64:
        return score_labels(prediction, truth)
    thresholds = (0.0,) if prediction.dtype == np.bool_ else THRESHOLDS
    with progress(console) as report:
        return score_probabilities(prediction, truth, thresholds, lambda done: report("slices", done))


def _table(scores: "StackScores") -> "Table":
    """One row for each slice, then their mean and the threshold of each column."""
    from rich.table import Table

    columns: dict[str, tuple[Sequence[float], float | None]] = {}
    for name, cells in (("V_rand", scores.v_rand), ("V_info", scores.v_info)):
        columns[name] = cells.slices, cells.threshold
        columns[f"{name}\nprecision"] = cells.precision, cells.threshold
        columns[f"{name}\nrecall"] = cells.recall, cells.threshold
    for name, pixels in (("membrane\nF1", scores.f1), ("pixel\nerror", scores.pixel_error)):
        if pixels is not None:
            columns[name] = pixels.slices, pixels.threshold
    table = Table("slice", *columns)
    for number, row in enumerate(zip(*(values for values, _ in columns.values()), strict=True), start=1):
        table.add_row(str(number), *(f"{value:.4f}" for value in row))
    table.add_section()
    table.add_row("mean", *(f"{fsum(values) / len(values):.4f}" for values, _ in columns.values()))
    if len(scores.thresholds) > 1:
        table.add_row("threshold", *(f"{threshold:.1f}" for _, threshold in columns.values()))
    return table


def _draw(
    path: Path,
    index: int,
    grey: "NDArray[Any]",
    prediction: "NDArray[Any]",
    truth: "NDArray[np.int64]",
    scores: "StackScores",
    overwrite: bool,
) -> None:
    """Draw one slice, cut at the threshold of the best V_rand."""
    import numpy as np

    from sfcnn.segmentation.overlay import overlay, save_overlay
    from sfcnn.segmentation.thinning import thin_borders

    threshold = scores.v_rand.threshold
    labels = prediction if threshold is None else thin_borders(prediction.astype(np.float64) > threshold)
    title = f"slice {index + 1}: V_rand {scores.v_rand.slices[index]:.4f}, V_info {scores.v_info.slices[index]:.4f}"
    save_overlay(path, overlay(grey, labels, truth), title, overwrite=overwrite)
