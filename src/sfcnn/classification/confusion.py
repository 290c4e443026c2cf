"""A figure of the confusion matrix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST = 24  # characters of a name on an axis


def confusion_figure(confusion: Tensor, classes: Sequence[str], title: str = "") -> "Figure":
    """Rows are true classes, columns predicted ones; colours are fractions of a row, numbers are image counts.

    Args:
        confusion: (K, K), images of class i classified as j.
        classes: K names.
        title: of the figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("pictures need the package matplotlib: pip install 'sfcnn[plot]'") from error
    count, digits = len(classes), len(str(int(confusion.max())))
    shares = confusion / confusion.sum(1, keepdim=True).clamp_min(1)
    side = min(max(3.2, 0.42 * count), 25.0)  # inches, all squares together
    figure = Figure(figsize=(side + 2.4, side + 1.6), layout="constrained")  # room for names beside them
    axes = figure.subplots()
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    names, size = [_shortened(name) for name in classes], min(9.0, 50 * side / count)  # points; an inch has 72
    style: dict[str, Any] = {"fontsize": size, "parse_math": False}  # names may contain dollar signs
    slant: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 2 else {}
    )
    axes.set_xticks(range(count), names, **style, **slant)
    axes.set_yticks(range(count), names, **style)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(title, fontsize=9, parse_math=False)
    number_size = min(9.0, 72 * side / count / digits)  # a digit is about as wide as half its height
    for row, column in confusion.nonzero().tolist():
        color = "white" if shares[row, column] > 0.5 else "black"
        number = str(int(confusion[row, column]))
        axes.text(column, row, number, ha="center", va="center", color=color, fontsize=number_size)
    figure.colorbar(image, label="fraction of the true class", shrink=0.8, aspect=30)
    return figure


def _shortened(name: str) -> str:
    """Shorten a long name in the middle, since similar names often differ at the end."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 + 1 :]}"
