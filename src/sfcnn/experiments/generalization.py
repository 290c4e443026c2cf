"""Train on upright digits, test at every angle: steerable and plain, augmented or not (§4.1, figure 4 right)."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import nn

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.evaluate import errors_by_angle, even_degrees
from sfcnn.classification.labelled import LabelledImages
from sfcnn.experiments.common import on_test_images, train_digits
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_and_deviation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "steerable": "SFCNN",
    "plain-channels": "CNN, same channels",
    "plain-effective-channels": "CNN, same effective channels",
    "plain-parameters": "CNN, same parameters",
}
_AUGMENTATIONS = {
    "none": "none",
    "quarter-turns": "π/2",
    "eighth-turns": "π/4",
    "continuous": "continuous",
    "between-orientations": "[0, 2π/Λ)",
}


@dataclass(frozen=True)
class GeneralizationConfig:
    """The sweep over networks and augmentation.

    Args:
        kinds: kinds of networks, see train.model.kind
        augmentations: augmentations of the training images, see train.images.augmentation
        seeds: seeds of the runs
        angles: number of angles to test at, evenly spaced over the circle
        test_images: number of test images to use at each angle, 0 for all
        train: all other settings of the runs
    """

    kinds: tuple[str, ...] = ("steerable", "plain-channels", "plain-parameters")
    augmentations: tuple[str, ...] = ("none", "quarter-turns", "eighth-turns", "continuous")
    seeds: tuple[int, ...] = (0,)
    angles: int = 72
    test_images: int = 0
    train: ClassificationConfig = field(default_factory=ClassificationConfig)

    def __post_init__(self) -> None:
        """Check that every list and number makes sense."""
        check_settings(self)
        even_degrees(self.angles)


def runs(settings: GeneralizationConfig) -> list[SweepRun]:
    """One run for each seed, augmentation and network."""
    found = []
    test = {"angles": settings.angles, "test_images": settings.test_images}
    for seed in settings.seeds:
        for augmentation in settings.augmentations:
            for kind in settings.kinds:
                train = replace(
                    settings.train,
                    model=replace(settings.train.model.resolved(), kind=kind),
                    images=replace(settings.train.images, augmentation=augmentation),
                    seed=seed,
                )
                place = {"kind": kind, "augmentation": augmentation, "seed": seed}
                found.append(SweepRun(f"{kind}-{augmentation}-s{seed}", place, train, test))
    return found


def measure(run: SweepRun, net: nn.Module, test: LabelledImages) -> Result:
    """The error on the test images at each angle."""
    angles = even_degrees(run.test["angles"])
    errors = list(errors_by_angle(net, test, angles, mode=run.train.images.resampling))
    return {"angles": list(angles), "errors": errors}


def curves(results: list[Result]) -> dict[tuple[str, str], list[float]]:
    """Mean error over seeds at each angle, by network and augmentation, in the paper's order."""
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for result in results:
        found[result["kind"], result["augmentation"]].append(result["errors"])
    return {
        key: [mean_and_deviation(values)[0] for values in zip(*runs, strict=True)]
        for key, runs in sorted(found.items(), key=lambda item: _order(*item[0]))
    }


def _order(kind: str, augmentation: str) -> tuple[int, int]:
    return list(_NAMES).index(kind), list(_AUGMENTATIONS).index(augmentation)


def table(settings: GeneralizationConfig, results: list[Result]) -> Table:
    """One row per network and augmentation."""
    parameters = {result["kind"]: result["run"]["parameters"] for result in results}
    rows = [
        [
            _NAMES[kind],
            _AUGMENTATIONS[augmentation],
            *(f"{value:.1f}" for value in (errors[0], max(errors), min(errors), sum(errors) / len(errors))),
            f"{parameters[kind]:,}",
        ]
        for (kind, augmentation), errors in curves(results).items()
    ]
    columns = ["network", "augmentation", "upright", "worst angle", "best angle", "mean", "parameters"]
    count = results[0]["run"]["train_images"]
    return Table(f"Test error (%), trained on {count:,} upright digits, {results[0]['run']['dataset']}", columns, rows)


def draw(settings: GeneralizationConfig, results: list[Result], directory: object) -> "Figure":
    """One panel per network, one line per augmentation, over the angle."""
    from sfcnn.experiments.figures import error_panels

    panels: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for (kind, augmentation), errors in curves(results).items():
        panels[_NAMES[kind]][_AUGMENTATIONS[augmentation]] = errors
    count = results[0]["run"]["train_images"]
    title = f"Trained on {count:,} upright digits of {results[0]['run']['dataset']}"
    return error_panels(results[0]["angles"], panels, title)


EXPERIMENT = Experiment(
    "generalization", GeneralizationConfig, runs, train_digits, on_test_images(measure), table, draw
)
