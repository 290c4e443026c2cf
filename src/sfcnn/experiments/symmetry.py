"""Compare symmetries on the same digits and time budget: rotations, reflections, pixel filters, or none.

Networks with about the same number of parameters are trained on the same digits for about the same time, with the same
augmentation and recipe. First an epoch of each is timed (`sfcnn.experiments.timing`) to find its number of epochs:

    epochs = max(2, round(budget_seconds / seconds of an epoch))

The times are stored in times.json in the directory of the sweep, so that a resumed sweep trains as before. The results
contain the epochs; with these as settings, the runs can be repeated on any machine, however fast.

A mirrored digit is a different digit, or not a digit at all. Networks with reflections therefore drop them after a
convolution (`restrict_after`): the layers up to there treat mirrored strokes alike, those after it distinguish a 2 from
its mirror image.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.evaluate import error_rate
from sfcnn.classification.labelled import LabelledImages, first_images
from sfcnn.experiments.common import digit_splits, on_test_images, train_digits
from sfcnn.experiments.matched import NETWORKS, make_model
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_text
from sfcnn.experiments.timing import keep_times, kept_times
from sfcnn.models.classifier import BENCHMARK, check_restriction
from sfcnn.models.views import MeanProbability, check_view_count
from sfcnn.train.config import recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEWEST_EPOCHS = 2


@dataclass(frozen=True)
class SymmetryConfig:
    """Networks with different symmetries, trained for the same time.

    Args:
        networks: which of "C8", "D4", "D8", "C16", "p4", "p4m", "plain", "TI-pooling" to train; train.model.width is
            that of C8, the widths of the others are chosen to match its number of parameters
        budget_seconds: training time of each run, which determines its number of epochs
        epochs: epochs by network, to replace those that follow from the budget; the results of a sweep contain them
        restrict_after: drop the reflections of D4, D8 and p4m after this convolution, 0 for never
        views: also test the plain network with the mean over this many rotations of each image, 1 to skip this
        seeds: seeds of the runs, over which mean and deviation are taken
        test_images: number of test images to use, 0 for all
        train: all other settings of the runs
    """

    networks: tuple[str, ...] = ("C8", "D4", "D8", "C16", "p4", "p4m", "plain")
    budget_seconds: float = 90.0
    epochs: dict[str, int] = field(default_factory=dict)
    restrict_after: int = 5
    views: int = 8
    seeds: tuple[int, ...] = (0, 1, 2)
    test_images: int = 5000
    train: ClassificationConfig = field(
        default_factory=lambda: ClassificationConfig(
            model=ModelConfig(network="benchmark", orientations=8, width=0.5),
            images=ImagesConfig(
                train_images=900, validation_images=100, join_validation=True, augmentation="continuous"
            ),
            optimization=recipe("fast", batch_size=50),
        )
    )

    def __post_init__(self) -> None:
        """Check the choices, and that every list and number makes sense."""
        check_settings(self)
        for network in self.networks:
            if network not in NETWORKS:
                raise ValueError(f"unknown network {network!r}, choose one of {list(NETWORKS)}")
        for network, count in self.epochs.items():
            if network not in self.networks:
                raise ValueError(f"epochs are set for {network!r}, expected one of the networks {list(self.networks)}")
            if count < 1:
                raise ValueError(f"epochs of {network} must be at least 1, got {count}")
        if not 0 < self.budget_seconds < math.inf:
            raise ValueError(f"budget_seconds must be positive and finite, got {self.budget_seconds}")
        check_restriction(self.restrict_after, True, len(BENCHMARK.channels))
        check_view_count(self.views)


def make_configs(settings: SymmetryConfig) -> dict[str, ClassificationConfig]:
    """Settings of a run of each network, except for seed and epochs."""
    return {
        network: replace(settings.train, model=make_model(network, settings.train.model, settings.restrict_after))
        for network in settings.networks
    }


def runs(settings: SymmetryConfig) -> list[SweepRun]:
    """One run for each seed and network."""
    found = []
    configs = make_configs(settings)
    for seed in settings.seeds:
        for network, config in configs.items():
            epochs = settings.epochs.get(network, config.optimization.epochs)
            train = replace(config, optimization=replace(config.optimization, epochs=epochs), seed=seed)
            test = {"test_images": settings.test_images}
            if network == "plain":
                test["views"] = settings.views
            found.append(SweepRun(f"{network}-s{seed}", {"network": network, "seed": seed}, train, test))
    return found


def prepare(settings: SymmetryConfig, directory: Path, data: Path | None, tell: Callable[[str], None]) -> None:
    """Time an epoch of each network whose number of epochs is not known yet, and store it in times.json."""
    unknown = [network for network in settings.networks if network not in recall(settings, directory).epochs]
    if not unknown:
        return
    splits = digit_splits(settings.train.images, data)
    first_images(splits.test, settings.test_images, "test_images")  # fail before the training, not after it
    configs = make_configs(settings)
    tell(f"timing epochs of {', '.join(unknown)}")
    keep_times(directory / "times.json", {network: configs[network] for network in unknown}, splits)


def recall(settings: SymmetryConfig, directory: Path) -> SymmetryConfig:
    """The settings with the epochs that follow from the budget and the times stored in the directory."""
    unset = {name: config for name, config in make_configs(settings).items() if name not in settings.epochs}
    times = kept_times(directory / "times.json", unset)
    follow = {name: max(_FEWEST_EPOCHS, round(settings.budget_seconds / seconds)) for name, seconds in times.items()}
    return replace(settings, epochs=settings.epochs | follow)


def measure(run: SweepRun, net: nn.Module, test: LabelledImages) -> Result:
    """Error and time on the test images; for a plain network also with the mean over several views of each."""
    views = run.test.get("views", 1)
    nets = {1: net}
    if views > 1:
        nets[views] = MeanProbability(net, views, mode=run.train.images.resampling).eval()
    tests = []
    for count, tested in nets.items():
        start = time.perf_counter()
        error = error_rate(tested, test)
        tests.append({"views": count, "error": error, "seconds": time.perf_counter() - start})
    return {"tests": tests}


class Row(NamedTuple):
    """A network and a way to test it, over all seeds."""

    name: str
    symmetry: str
    parameters: int
    epochs: int
    seconds: float  #: of training, mean over seeds
    errors: list[float]  #: per cent, by seed
    test_milliseconds: float  #: per image


def compare(results: list[Result]) -> list[Row]:
    """The rows of the table, in the order of `NETWORKS`."""
    rows = []
    for network in NETWORKS:
        runs = sorted((run for run in results if run["network"] == network), key=lambda run: run["seed"])
        for index, test in enumerate(runs[0]["tests"] if runs else ()):
            tests = [run["tests"][index] for run in runs]
            rows.append(
                Row(
                    network if test["views"] == 1 else f"{network}, {test['views']} views",
                    _symmetry(runs[0]["train"]["model"], test["views"]),
                    runs[0]["run"]["parameters"],
                    runs[0]["run"]["epochs"],
                    fmean(run["run"]["seconds"] for run in runs),
                    [test["error"] for test in tests],
                    fmean(1000 * test["seconds"] / run["test_images"] for run, test in zip(runs, tests, strict=True)),
                )
            )
    return rows


def _symmetry(model: dict[str, Any], views: int) -> str:
    """The symmetry of a network, in words."""
    if model["kind"] != "steerable":
        if model["views"] > 1:
            return f"none; maximum over {model['views']} rotations of an image"
        return "none" if views == 1 else f"none; mean over {views} rotations of an image"
    text = f"{model['orientations']} rotations"
    if model["reflections"]:
        text += " and reflections"
        text += f" up to convolution {model['restrict_after']}" if model["restrict_after"] else ""
    return f"{text}, pixel filters" if model["basis"] == "pixels" else text


def _title(settings: SymmetryConfig, results: list[Result]) -> str:
    run, count = results[0]["run"], len(settings.seeds)
    return f"{run['dataset']}, {run['train_images']:,} training images, {count} {'seed' if count == 1 else 'seeds'}"


def table(settings: SymmetryConfig, results: list[Result]) -> Table:
    """One row per network, and one for the plain network with views."""
    rows = [
        [
            row.name,
            row.symmetry,
            f"{row.parameters:,}",
            f"{row.epochs}",
            f"{row.seconds:.0f}",
            mean_text(row.errors, 2),
            f"{row.test_milliseconds:.1f}",
        ]
        for row in compare(results)
    ]
    columns = ["network", "symmetry", "parameters", "epochs", "seconds", "test error (%)", "test, ms an image"]
    return Table(f"The same digits for the same time: {_title(settings, results)}", columns, rows)


def draw(settings: SymmetryConfig, results: list[Result], directory: object) -> "Figure":
    """One column of points per row of the table, with its mean."""
    from sfcnn.experiments.figures import error_points

    points = {f"{row.name}\n{row.epochs} epochs, {row.seconds:.0f} s": row.errors for row in compare(results)}
    return error_points(points, _title(settings, results))


EXPERIMENT = Experiment(
    "symmetry",
    SymmetryConfig,
    runs,
    train_digits,
    on_test_images(measure),
    table,
    draw,
    prepare=prepare,
    recall=recall,
)
