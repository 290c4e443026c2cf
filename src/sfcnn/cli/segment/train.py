"""`sfcnn segment train`: train a U-Net from settings, in its own directory."""

from typing import TYPE_CHECKING, Any

from sfcnn.cli.training import run_training, training_parser

if TYPE_CHECKING:
    from sfcnn.cli.settings_parser import SettingsParser


def parser(prog: str) -> "SettingsParser":
    """Every setting is an option."""
    from sfcnn.segmentation.config import SegmentationConfig

    return training_parser(
        prog,
        SegmentationConfig,
        "Train a U-Net that predicts the class of every pixel, from a folder with images/ and masks/ of the same file\n"
        "names, grey or RGB, or from a TIFF stack and the stack of its masks. In a mask, 0 is background, and the\n"
        "foreground is one other value, or 1, 2 … for several classes. By default, the images are synthetic\n"
        "membranes and the network is as large as the paper's, which needs a GPU; the first example is for a CPU.",
        (
            f"{prog} --out runs/vessels --images.source pairs --images.path vessels --images.classes '[vessels]' \\",
            "     --model.orientations 8 --model.channels 6 --model.levels 3 --crops.size 128 --crops.margin 16",
            f"{prog} --out runs/em --images.source stack --images.path em.tif --images.masks masks.tif \\",
            "     --images.invert_masks true --images.classes '[membranes]'",
            f"{prog} --out runs/tuned --start isbi2012-affinities --images.source stack --images.path em.tif \\",
            "     --images.masks masks.tif --images.invert_masks true --optimization.learning_rate 0.002",
            f"{prog} --out runs/em --resume",
        ),
    )


def run(prog: str, arguments: Any) -> None:
    """Train, or resume."""
    from sfcnn.segmentation.config import SegmentationConfig
    from sfcnn.segmentation.task import train

    run_training(prog, arguments, SegmentationConfig, train)
