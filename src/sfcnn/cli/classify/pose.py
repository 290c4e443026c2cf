"""`sfcnn classify pose`: train a run to predict rotation angles."""

import argparse
from functools import partial
from pathlib import Path

from sfcnn.cli.parser import Parser, add_batch_size, add_data, add_device, add_overwrite


def parser(prog: str) -> Parser:
    """Options of the command."""
    parser = Parser(
        prog,
        description="Learn to predict the angle of an object from the features of a run's best network, which is not\n"
        "changed. `sfcnn classify predict` then has a column `angle`: the counter-clockwise rotation in degrees,\n"
        "relative to the objects in the training images. The training images are rotated by random angles to learn\n"
        "from. For mnist-rot-regenerated and digits-rot, the rotation of each digit is known, so 0° is an upright\n"
        "digit. The error is measured on validation images, rotated and shifted in the same way.\n\n"
        "The network needs at least 3 orientations. RUN/pose.safetensors and RUN/pose.json are written.",
        examples=(
            f"{prog} runs/photos",
            f"{prog} runs/best --data data --examples 20000",
            f"{prog} runs/rot --dataset mnist --data data",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory of `sfcnn classify train`")
    parser.add_argument(
        "--examples",
        type=int,
        default=10_000,
        metavar="N",
        help="number of rotated images to learn from (default 10000)",
    )
    parser.add_argument(
        "--shift",
        type=float,
        default=1.0,
        metavar="PIXELS",
        help="also shift them by up to this much in each direction (default 1)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the angles and shifts (default 0)")
    parser.add_argument(
        "--dataset",
        choices=("digits", "digits-rot", "mnist", "mnist-rot-regenerated"),
        help="learn from these digits, if the angles of the run's own images are not known (mnist-rot)",
    )
    add_batch_size(parser)
    add_data(parser)
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Load the run and its images, learn, write, and print the errors."""
    from dataclasses import replace

    from sfcnn.classification import load, load_splits
    from sfcnn.classification.pose import POSE_FILE, make_readout
    from sfcnn.classification.pose_learning import PoseConfig, learn_pose, save_learned
    from sfcnn.cli.console import make_console, progress
    from sfcnn.cli.tables import angle_table
    from sfcnn.io.files import check_output
    from sfcnn.pretrained import find_run

    settings = PoseConfig(arguments.examples, arguments.shift, seed=arguments.seed)
    if find_run(arguments.run) != arguments.run:
        raise ValueError(f"{arguments.run} is shipped with sfcnn and cannot be written to")
    for name in (POSE_FILE, "pose.json"):
        check_output(arguments.run / name, overwrite=arguments.overwrite)
    classifier = load(arguments.run, arguments.device, pose=False)
    make_readout(classifier.network, len(classifier.classes))  # fail before images are read
    images = classifier.config.images
    if arguments.dataset is not None:
        images = replace(images, dataset=arguments.dataset)
    splits = load_splits(images, arguments.data)
    console = make_console()
    with progress(console) as report:
        learning = partial(report, f"learning angles of {arguments.run}")
        learned = learn_pose(classifier, splits, settings, batch_size=arguments.batch_size, progress=learning)
    save_learned(arguments.run, learned, settings)
    console.print(angle_table(learned.errors.scores()))
    count = len(learned.errors.labels)
    print(
        f"angles off by {learned.errors.mean:.1f}° on average, median {learned.errors.median:.1f}°, "
        f"on {count:,} validation images of {learned.dataset}"
    )
    print(f"wrote {arguments.run / POSE_FILE}")
