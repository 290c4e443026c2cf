"""The benchmark on rotated MNIST: HeInit, CoeffInit, and CoeffInit with augmentation (§4.1, table 1)."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sfcnn.classification.config import ClassificationConfig, ModelConfig
from sfcnn.experiments.common import on_test_images, train_digits
from sfcnn.experiments.orientations import measure
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows of table 1 that are measured here: initial weights, augmentation, name, and the paper's error in per cent.
VARIANTS = {
    "he": ("he", "none", "HeInit", (0.957, 0.025)),
    "coeff": ("coeff", "none", "CoeffInit", (0.880, 0.029)),
    "coeff-augmented": ("coeff", "continuous", "CoeffInit, augmentation", (0.714, 0.022)),
}

#: The other rows: method and published error in per cent on mnist-rot, trained on 12,000 images.
PUBLISHED = (
    ("Marcos et al. 2016, test time augmentation", "1.01"),
    ("Marcos et al. 2016", "1.09"),
    ("Laptev et al. 2016", "1.2"),
    ("Worrall et al. 2016", "1.69"),
    ("Cohen and Welling 2016, G-CNN", "2.28 ± 0.0004"),
    ("Schmidt and Roth 2012", "4.0"),
    ("Sohn and Lee 2012", "4.2"),
    ("Cohen and Welling 2016, conventional CNN", "5.03 ± 0.0020"),
    ("Larochelle et al. 2007", "10.4 ± 0.27"),
)


@dataclass(frozen=True)
class BenchmarkConfig:
    """The sweep over rows of the table.

    Args:
        variants: which of "he", "coeff", "coeff-augmented" to train
        seeds: seeds of the runs, over which mean and deviation are taken
        test_images: number of test images to use, 0 for all
        train: all other settings of the runs
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    test_images: int = 0
    train: ClassificationConfig = field(
        default_factory=lambda: ClassificationConfig(model=ModelConfig(network="benchmark"))
    )

    def __post_init__(self) -> None:
        """Check the choices, and that every list and number makes sense."""
        check_settings(self)
        for variant in self.variants:
            if variant not in VARIANTS:
                raise ValueError(f"unknown variant {variant!r}, choose one of {list(VARIANTS)}")


def runs(settings: BenchmarkConfig) -> list[SweepRun]:
    """One run for each seed and variant."""
    found = []
    for seed in settings.seeds:
        for variant in settings.variants:
            init, augmentation, _, _ = VARIANTS[variant]
            train = replace(
                settings.train,
                model=replace(settings.train.model.resolved(), init=init),
                images=replace(settings.train.images, augmentation=augmentation),
                seed=seed,
            )
            place = {"variant": variant, "seed": seed}
            found.append(SweepRun(f"{variant}-s{seed}", place, train, {"test_images": settings.test_images}))
    return found


def errors(results: list[Result]) -> dict[str, list[float]]:
    """Test errors by variant, in the order of the seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    for result in sorted(results, key=lambda result: (list(VARIANTS).index(result["variant"]), result["seed"])):
        found[result["variant"]].append(result["test_error"])
    return found


def table(settings: BenchmarkConfig, results: list[Result]) -> Table:
    """Our results next to the paper's, then the other rows of the paper's table."""
    rows = []
    for variant, values in errors(results).items():
        paper, spread = VARIANTS[variant][3]
        rows.append([VARIANTS[variant][2], mean_text(values, 3), f"{paper:.3f} ± {spread:.3f}"])
    rows += [[method, "", value] for method, value in PUBLISHED]
    run = results[0]["run"]
    here = f"{run['dataset']}, {run['train_images']:,} training images, {run['epochs']} epochs"
    return Table(f"Test error (%): {here}", ["method", "measured here", "published, mnist-rot"], rows)


def draw(settings: BenchmarkConfig, results: list[Result], directory: object) -> "Figure":
    """One column of points per variant, with its mean."""
    from sfcnn.experiments.figures import error_points

    run = results[0]["run"]
    points = {VARIANTS[variant][2]: values for variant, values in errors(results).items()}
    return error_points(points, f"{run['dataset']}, {run['train_images']:,} training images, {run['epochs']} epochs")


EXPERIMENT = Experiment("benchmark", BenchmarkConfig, runs, train_digits, on_test_images(measure), table, draw)
