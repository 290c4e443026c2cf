"""Test error against the number of orientations Λ, for several sizes of the training set (§4.1, figure 4 left)."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import nn

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.evaluate import error_rate
from sfcnn.classification.labelled import LabelledImages
from sfcnn.experiments.common import on_test_images, train_digits
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_and_deviation, mean_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class OrientationsConfig:
    """The sweep over Λ.

    Args:
        orientations: numbers of orientations Λ to compare
        train_images: sizes of the training set to compare
        seeds: seeds of the runs, over which mean and deviation are taken
        test_images: number of test images to use, 0 for all
        train: all other settings of the runs
    """

    orientations: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 20)
    train_images: tuple[int, ...] = (1250, 2500, 5000, 10000)
    seeds: tuple[int, ...] = (0, 1, 2)
    test_images: int = 0
    train: ClassificationConfig = field(default_factory=ClassificationConfig)

    def __post_init__(self) -> None:
        """Check that every list and number makes sense."""
        check_settings(self)


def runs(settings: OrientationsConfig) -> list[SweepRun]:
    """One run for each seed, size and Λ, the short ones first."""
    found = []
    for seed in settings.seeds:
        for count in settings.train_images:
            for orientations in settings.orientations:
                train = replace(
                    settings.train,
                    model=replace(settings.train.model.resolved(), orientations=orientations),
                    images=replace(settings.train.images, train_images=count),
                    seed=seed,
                )
                place = {"orientations": orientations, "train_images": count, "seed": seed}
                found.append(
                    SweepRun(f"n{count}-L{orientations}-s{seed}", place, train, {"test_images": settings.test_images})
                )
    return found


def measure(run: SweepRun, net: nn.Module, test: LabelledImages) -> Result:
    """The error on the test images."""
    return {"test_error": error_rate(net, test)}


def errors(results: list[Result]) -> dict[int, dict[int, list[float]]]:
    """Test errors of all seeds, by size of the training set and by Λ."""
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: (result["train_images"], result["orientations"])):
        found[result["train_images"]][result["orientations"]].append(result["test_error"])
    return found


def _title(settings: OrientationsConfig, results: list[Result]) -> str:
    count = len(settings.seeds)
    return f"{results[0]['run']['dataset']}, {count} {'seed' if count == 1 else 'seeds'}"


def table(settings: OrientationsConfig, results: list[Result]) -> Table:
    """One row per size, one column per Λ: mean and deviation over seeds."""
    rows = [
        [f"{count:,}", *(mean_text(values, 2) for values in by_orientations.values())]
        for count, by_orientations in errors(results).items()
    ]
    columns = ["training images", *(f"Λ = {orientations}" for orientations in sorted(settings.orientations))]
    return Table(f"Test error (%), {_title(settings, results)}", columns, rows)


def draw(settings: OrientationsConfig, results: list[Result], directory: object) -> "Figure":
    """Lines over Λ, one per size: mean and deviation over seeds."""
    from sfcnn.experiments.figures import error_against_orientations

    series = {
        f"{count:,} training images": {
            orientations: mean_and_deviation(values) for orientations, values in by_orientations.items()
        }
        for count, by_orientations in errors(results).items()
    }
    return error_against_orientations(series, _title(settings, results))


EXPERIMENT = Experiment("orientations", OrientationsConfig, runs, train_digits, on_test_images(measure), table, draw)
