"""`sfcnn classify train`: train a classifier from settings, in its own directory."""

from typing import TYPE_CHECKING, Any

from sfcnn.cli.training import run_training, training_parser

if TYPE_CHECKING:
    from sfcnn.cli.settings_parser import SettingsParser


def parser(prog: str) -> "SettingsParser":
    """Every setting is an option."""
    from sfcnn.classification.config import ClassificationConfig

    return training_parser(
        prog,
        ClassificationConfig,
        "Train an image classifier; its best weights, logs and checkpoints are written to a directory.\n"
        "For your own images, make a folder with one subfolder of images for each class.",
        (
            f"{prog} --images.dataset folder --images.path photos --images.augmentation continuous --out runs/photos",
            f"{prog} --images.dataset folder --images.path photos --model.network resnet18 --model.orientations 8 \\",
            "            --out runs/resnet",
            f"{prog} --images.dataset digits-rot --model.width 0.25 --model.orientations 4 --out runs/small \\",
            "            --optimization.epochs 2 --optimization.batch_size 20 --optimization.learning_rate 0.005",
            f"{prog} --out runs/small --resume --optimization.epochs 4",
            f"{prog} --start mnist-rot --images.dataset folder --images.path photos --images.channels 1 \\",
            "            --optimization.learning_rate 0.002 --out runs/tuned",
            f"{prog} --config my.yaml --data ~/data --out runs/mine",
            f"{prog} --print_config > my.yaml",
        ),
    )


def run(prog: str, arguments: Any) -> None:
    """Train, or resume."""
    from sfcnn.classification.config import ClassificationConfig
    from sfcnn.classification.task import train

    run_training(prog, arguments, ClassificationConfig, train)
