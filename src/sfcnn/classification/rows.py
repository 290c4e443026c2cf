"""Predictions for files, one row each, for tables and CSV files."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sfcnn.classification.predict import Predictions

#: One row, by column; a missing orientation is None.
Row = dict[str, Any]


def prediction_rows(files: Sequence[Path], predictions: Predictions) -> list[Row]:
    """File, class, probability and orientation in degrees; and the angle, if there is one."""
    probabilities = [round(probability, 6) for probability in predictions.probabilities.tolist()]
    columns: dict[str, Sequence[Any]] = {
        "file": list(map(str, files)),
        "class": predictions.names,
        "probability": probabilities,
        "orientation": _degrees(predictions.orientations) or [None] * len(files),
    }
    if predictions.angles is not None:
        columns["angle"] = _degrees(predictions.angles)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _degrees(angles: Tensor | None) -> list[float]:
    """Radians to degrees with one decimal, below 360; empty if there are none."""
    return [] if angles is None else [round(math.degrees(angle), 1) % 360 for angle in angles.tolist()]


def as_csv(rows: list[Row]) -> str:
    """Rows as the text of a CSV file.

    >>> as_csv([{"file": "a.png", "class": "7", "orientation": None}])
    'file,class,orientation\\na.png,7,\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # None is written as an empty field
    return text.getvalue()
