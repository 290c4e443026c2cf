"""Training recipes compared: how many minutes the same network needs to reach an error on the validation digits.

A recipe is one of `sfcnn.train.config.RECIPES`. The paper's schedule is constant for 14 of 40 epochs and then falls by
0.8 per epoch (App. C.1); for another number of epochs it keeps its shape:

    decay from epoch max(1, round(15 E / 40)), and a learning rate of 0.8²⁶ times the initial one at the end
"""

from collections import defaultdict
from collections.abc import Sequence
from csv import DictReader
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.experiments.common import on_test_images, train_digits
from sfcnn.experiments.orientations import measure as measure_error
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_text
from sfcnn.train.config import RECIPES, OptimizationConfig, recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RecipesConfig:
    """The same network, trained with several recipes.

    Args:
        recipes: recipes to compare
        epochs: epochs by recipe, for those that differ from the recipe's own
        thresholds: validation errors in per cent; the table lists the minutes to reach each
        seeds: seeds of the runs, over which means are taken
        test_images: number of test images to use, 0 for all
        train: all other settings of the runs, of whose optimisation only the batch size is used
    """

    recipes: tuple[str, ...] = tuple(RECIPES)
    epochs: dict[str, int] = field(default_factory=dict)
    thresholds: tuple[float, ...] = (1.0, 0.75)
    seeds: tuple[int, ...] = (0,)
    test_images: int = 0
    train: ClassificationConfig = field(
        default_factory=lambda: ClassificationConfig(
            model=ModelConfig(network="benchmark"), images=ImagesConfig(augmentation="continuous")
        )
    )

    def __post_init__(self) -> None:
        """Check the choices, and that every list and number makes sense."""
        check_settings(self)
        for name in self.recipes:
            recipe(name)
        for name, count in self.epochs.items():
            if name not in self.recipes:
                raise ValueError(f"epochs are set for {name!r}, expected one of the recipes {list(self.recipes)}")
            if count < 1:
                raise ValueError(f"epochs of {name} must be at least 1, got {count}")
        for threshold in self.thresholds:
            if not 0 < threshold < 100:
                raise ValueError(f"thresholds must be between 0 and 100 per cent, got {threshold}")


def scaled(optimization: OptimizationConfig, epochs: int) -> OptimizationConfig:
    """The same schedule in another number of epochs.

    >>> scaled(OptimizationConfig(), 10).decay_from, round(scaled(OptimizationConfig(), 10).decay, 2)
    (4, 0.44)
    """
    if optimization.schedule != "exponential":  # all others depend on the fraction of steps that is done
        return replace(optimization, epochs=epochs)
    decays = optimization.epochs - optimization.decay_from + 1
    first = max(1, round(optimization.decay_from * epochs / optimization.epochs))
    decay = optimization.decay ** (decays / (epochs - first + 1))
    return replace(optimization, epochs=epochs, decay_from=first, decay=decay)


def runs(settings: RecipesConfig) -> list[SweepRun]:
    """One run for each seed and recipe."""
    found = []
    for seed in settings.seeds:
        for name in settings.recipes:
            optimization = recipe(name, batch_size=settings.train.optimization.batch_size)
            optimization = scaled(optimization, settings.epochs.get(name, optimization.epochs))
            model = settings.train.model.resolved()
            train = replace(settings.train, model=model, optimization=optimization, seed=seed)
            place = {"recipe": name, "seed": seed}
            found.append(SweepRun(f"{name}-s{seed}", place, train, {"test_images": settings.test_images}))
    return found


def measure(run: SweepRun, directory: Path, data: Path | None) -> Result:
    """The error on the test images, and time and validation error of every epoch from the log."""
    with (directory / "log.csv").open(encoding="utf-8", newline="") as file:
        rows = list(DictReader(file))
    minutes = accumulate(float(row["seconds"]) / 60 for row in rows)
    history = [[passed, float(row["validation_error"])] for passed, row in zip(minutes, rows, strict=True)]
    return on_test_images(measure_error)(run, directory, data) | {"history": history}


def minutes_to(threshold: float, history: Sequence[Sequence[float]]) -> float | None:
    """Minutes until the end of the first epoch with at most this validation error, or None if there is no such epoch.

    >>> minutes_to(1.0, [[2.0, 1.5], [4.0, 0.9], [6.0, 1.1]])
    4.0
    """
    return next((minutes for minutes, error in history if error <= threshold), None)


def _by_recipe(results: list[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda result: (list(RECIPES).index(result["recipe"]), result["seed"])):
        found[result["recipe"]].append(result)
    return found


def _minutes_text(threshold: float, group: list[Result]) -> str:
    """Mean over seeds, or a dash if a run does not get there."""
    found = [minutes_to(threshold, result["history"]) for result in group]
    reached = [minutes for minutes in found if minutes is not None]
    return f"{fmean(reached):.1f}" if len(reached) == len(found) else "–"


def _title(results: list[Result]) -> str:
    run = results[0]["run"]
    return f"{run['dataset']}, {run['train_images']:,} training images, {run['validation_images']:,} for validation"


def table(settings: RecipesConfig, results: list[Result]) -> Table:
    """One row per recipe."""
    rows = []
    for name, group in _by_recipe(results).items():
        rows.append(
            [
                name,
                f"{group[0]['run']['epochs']}",
                f"{fmean(result['run']['seconds'] / 60 for result in group):.1f}",
                *(_minutes_text(threshold, group) for threshold in settings.thresholds),
                mean_text([min(error for _, error in result["history"]) for result in group], 2),
                mean_text([result["test_error"] for result in group], 2),
            ]
        )
    columns = ["recipe", "epochs", "minutes", *(f"minutes to {threshold:g} %" for threshold in settings.thresholds)]
    return Table(_title(results), [*columns, "least validation error (%)", "test error (%)"], rows)


def draw(settings: RecipesConfig, results: list[Result], directory: object) -> "Figure":
    """Validation error against training time, one line per run."""
    from sfcnn.experiments.figures import error_against_time

    series = {
        name if len(group) == 1 else f"{name}, seed {result['seed']}": result["history"]
        for name, group in _by_recipe(results).items()
        for result in group
    }
    return error_against_time(series, settings.thresholds, _title(results))


EXPERIMENT = Experiment("recipes", RecipesConfig, runs, train_digits, measure, table, draw)
