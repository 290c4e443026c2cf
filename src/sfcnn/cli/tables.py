"""Tables that several commands print."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sfcnn.classification.angles import AngleScore
    from sfcnn.classification.evaluate import ClassScore


def error_table(degrees: Sequence[float], errors: Mapping[str, Sequence[float]], title: str | None = None) -> Table:
    """Errors in per cent, one column for each name and one row for each angle, followed by mean and maximum."""
    table = Table("angle", *(f"{name}\nerror (%)" for name in errors), title=title)
    for angle, *row in zip(degrees, *errors.values(), strict=True):
        table.add_row(f"{angle:g}°", *(f"{error:.1f}" for error in row))
    table.add_section()
    table.add_row("mean", *(f"{sum(curve) / len(curve):.1f}" for curve in errors.values()))
    table.add_row("worst", *(f"{max(curve):.1f}" for curve in errors.values()))
    return table


def class_table(scores: Sequence["ClassScore"]) -> Table:
    """How well each class is recognised, in per cent; a dash where nothing was counted."""
    table = Table("class")
    for column in ("images", "error (%)", "precision (%)", "recall (%)"):
        table.add_column(column, justify="right")
    for score in scores:
        numbers = (score.error, score.precision, score.recall)
        shown = ("–" if math.isnan(number) else f"{number:.1f}" for number in numbers)
        table.add_row(Text(score.name), f"{score.images:,}", *shown)  # a name may look like rich markup
    return table


def angle_table(scores: Sequence["AngleScore"]) -> Table:
    """Angle errors of each class, in degrees; a dash where nothing was measured."""
    table = Table("class")
    for column in ("images", "mean (°)", "median (°)"):
        table.add_column(column, justify="right")
    for score in scores:
        shown = ("–" if math.isnan(number) else f"{number:.1f}" for number in (score.mean, score.median))
        table.add_row(Text(score.name), f"{score.images:,}", *shown)
    return table
