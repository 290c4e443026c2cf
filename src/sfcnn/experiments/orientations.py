"""Test error against the number of orientations Λ, for several sizes of the training set (§4.1, figure 4 left)."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import nn

from sfcnn.data.digits import Digits
from sfcnn.evaluation import error_rate
from sfcnn.experiments.digits import on_test_images, train_digits
from sfcnn.experiments.sweep import Cell, Experiment, Result, Table, check_settings, mean_and_deviation
from sfcnn.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class OrientationsConfig:
    """The sweep over Λ.

    Args:
        orientations: the numbers Λ to try
        train_images: the sizes of the training set
        seeds: of the runs, which give mean and deviation
        test_images: how many test images to use, 0 for all
        train: everything else about the runs
    """

    orientations: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 20)
    train_images: tuple[int, ...] = (1250, 2500, 5000, 10000)
    seeds: tuple[int, ...] = (0, 1, 2)
    test_images: int = 0
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        """Check that every list and number makes sense."""
        check_settings(self)


def cells(settings: OrientationsConfig) -> list[Cell]:
    """One run for each seed, size and Λ, the short ones first."""
    found = []
    for seed in settings.seeds:
        for count in settings.train_images:
            for orientations in settings.orientations:
                train = replace(
                    settings.train,
                    model=replace(settings.train.model, orientations=orientations),
                    images=replace(settings.train.images, train_images=count),
                    seed=seed,
                )
                place = {"orientations": orientations, "train_images": count, "seed": seed}
                found.append(
                    Cell(f"n{count}-L{orientations}-s{seed}", place, train, {"test_images": settings.test_images})
                )
    return found


def measure(cell: Cell, net: nn.Module, test: Digits) -> Result:
    """The error on the test images."""
    return {"test_error": error_rate(net, test)}


def curves(results: list[Result]) -> dict[int, dict[int, tuple[float, float]]]:
    """Mean and deviation over seeds, by size of the training set and by Λ."""
    errors: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        errors[result["train_images"]][result["orientations"]].append(result["test_error"])
    return {
        count: {orientations: mean_and_deviation(values) for orientations, values in sorted(by_orientations.items())}
        for count, by_orientations in sorted(errors.items())
    }


def table(settings: OrientationsConfig, results: list[Result]) -> Table:
    """One row per size, one column per Λ."""
    found = curves(results)
    rows = [
        [f"{count:,}", *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in by_orientations.values())]
        for count, by_orientations in found.items()
    ]
    columns = ["training images", *(f"Λ = {orientations}" for orientations in sorted(settings.orientations))]
    return Table(f"Test error (%), {results[0]['run']['dataset']}, {len(settings.seeds)} seeds", columns, rows)


def draw(settings: OrientationsConfig, results: list[Result], directory: object) -> "Figure":
    """Lines over Λ, one per size."""
    from sfcnn.pictures import error_against_orientations

    series = {f"{count:,} training images": points for count, points in curves(results).items()}
    return error_against_orientations(series, f"{results[0]['run']['dataset']}, {len(settings.seeds)} seeds")


EXPERIMENT = Experiment(
    "orientations",
    OrientationsConfig,
    cells,
    train_digits,
    on_test_images(measure),
    table,
    draw,
)
