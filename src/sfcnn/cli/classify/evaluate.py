"""`sfcnn classify evaluate`: test the network of a run."""

import argparse
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import Parser, add_batch_size, add_data, add_device, add_overwrite, add_views

if TYPE_CHECKING:
    from torch import Tensor

    from sfcnn.classification import Classifier, Evaluation, LabelledImages


def parser(prog: str) -> Parser:
    """Options of the command."""
    parser = Parser(
        prog,
        description="Test the best network of a run on held-out images, or on another folder of labelled images. With\n"
        "--angles, every image is also rotated by evenly spaced angles: the error is shown for each angle, and the\n"
        "class scores are taken over all angles. With --views, the error with test-time augmentation is shown\n"
        "separately. If the run predicts angles (`sfcnn classify pose`) and the true angles are known, the angle\n"
        "errors are shown as well.",
        examples=(
            f"{prog} runs/photos",
            f"{prog} runs/photos --folder more-photos --confusion confusion.png",
            f"{prog} runs/small --angles 24 --images 1000 --out angles.json",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory of `sfcnn classify train`, or mnist-rot")
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="which images (default test)")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="test on the images in this folder, with a subfolder for each class, or train/, validation/ and test/",
    )
    parser.add_argument("--images", type=int, metavar="N", help="use only N of the images")
    parser.add_argument("--angles", type=int, metavar="N", help="rotate the images by 0, 1/N, 2/N … of a full circle")
    add_views(parser)
    add_batch_size(parser)
    parser.add_argument("--confusion", type=Path, metavar="FILE", help="draw the confusion matrix (PNG, PDF or SVG)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the numbers to this JSON file")
    add_data(parser)
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Load the run and its data, count the errors, print and write them."""
    from sfcnn.classification import load
    from sfcnn.classification.confusion import confusion_figure
    from sfcnn.classification.evaluate import even_degrees
    from sfcnn.cli.console import make_console, progress
    from sfcnn.cli.tables import angle_table, class_table, error_table
    from sfcnn.io.files import check_output, write_json
    from sfcnn.models.views import check_view_count
    from sfcnn.pictures import save_figure
    from sfcnn.pretrained import find_run

    for output in filter(None, (arguments.out, arguments.confusion)):
        check_output(output, overwrite=arguments.overwrite)
    if arguments.images is not None and arguments.images < 1:
        raise ValueError(f"--images must be at least 1, got {arguments.images}")
    check_view_count(arguments.views)  # fail before images are read
    degrees = even_degrees(1 if arguments.angles is None else arguments.angles)
    classifier = load(find_run(arguments.run), arguments.device)
    labelled, angles, name = _images(classifier, arguments)
    what = f"images of {name}" if arguments.folder else f"{arguments.split} images of {name}"

    console = make_console()
    with progress(console) as report:
        tested = partial(report, f"testing {arguments.run}")
        options = {"batch_size": arguments.batch_size, "progress": tested}
        evaluation = classifier.evaluate(labelled, degrees, angles=angles, **options)
        columns = {str(arguments.run): evaluation.errors}
        if arguments.views > 1:
            averaged = classifier.evaluate(labelled, degrees, views=arguments.views, **options)
            columns[f"mean of {arguments.views} views"] = averaged.errors
    if arguments.angles is None:
        print(f"error {evaluation.errors[0]:.2f} % on {evaluation.images:,} {what}")
        for column, errors in list(columns.items())[1:]:
            print(f"error {errors[0]:.2f} % by the {column}")
    else:
        print(f"{evaluation.images:,} {what}, all rotated by each angle")
        console.print(error_table(degrees, columns))
        print("all angles together:")
    console.print(class_table(evaluation.scores()))
    if evaluation.angle_errors is not None:
        off = evaluation.angle_errors
        console.print(angle_table(off.scores()))
        print(f"angles off by {off.mean:.1f}° on average, median {off.median:.1f}°")
    if arguments.confusion is not None:
        figure = confusion_figure(evaluation.confusion, evaluation.classes, f"{evaluation.images:,} {what}")
        save_figure(figure, arguments.confusion, overwrite=arguments.overwrite)
        print(f"wrote {arguments.confusion}")
    if arguments.out is not None:
        numbers = _numbers(arguments, name, evaluation)
        if arguments.views > 1:
            numbers |= {"views": arguments.views, "errors_of_views": averaged.errors}
        write_json(arguments.out, numbers, overwrite=arguments.overwrite)
        print(f"wrote {arguments.out}")


def _images(classifier: "Classifier", arguments: argparse.Namespace) -> "tuple[LabelledImages, Tensor | None, str]":
    """The images to test on, their rotation angles if known, and the name of the data set."""
    from sfcnn.classification import LabelledImages, load_folder, load_splits

    images = classifier.config.images
    if arguments.folder is not None:
        labelled, name = load_folder(arguments.folder, images, arguments.split), str(arguments.folder)
        angles = None
    else:
        splits = load_splits(images, arguments.data)
        labelled, name = getattr(splits, arguments.split), splits.name
        angles = splits.angles_of(arguments.split)
    chosen = LabelledImages(*(part[: arguments.images] for part in labelled))
    return chosen, None if angles is None else angles[: arguments.images], name


def _numbers(arguments: argparse.Namespace, name: str, evaluation: "Evaluation") -> dict[str, Any]:
    """The results as JSON values; NaN, which JSON does not support, becomes None."""
    errors = evaluation.errors
    scores = [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in asdict(score).items()}
        for score in evaluation.scores()
    ]
    numbers = {
        "run": str(arguments.run),
        "dataset": name,
        "split": None if arguments.folder else arguments.split,
        "images": evaluation.images,
        "degrees": evaluation.degrees,
        "errors": errors,
        "mean": sum(errors) / len(errors),
        "worst": max(errors),
        "classes": scores,
        "confusion": evaluation.confusion.tolist(),
    }
    return numbers if evaluation.angle_errors is None else numbers | {"angle_error": evaluation.angle_errors.as_dict()}
