"""Tables that more than one command prints."""

from collections.abc import Mapping, Sequence

from rich.table import Table


def error_table(degrees: Sequence[float], errors: Mapping[str, Sequence[float]], title: str | None = None) -> Table:
    """Errors in per cent, one column for each name and one row for each angle, then their mean and the worst."""
    table = Table("angle", *(f"{name}\nerror (%)" for name in errors), title=title)
    for angle, *row in zip(degrees, *errors.values(), strict=True):
        table.add_row(f"{angle:g}°", *(f"{error:.1f}" for error in row))
    table.add_section()
    table.add_row("mean", *(f"{sum(curve) / len(curve):.1f}" for curve in errors.values()))
    table.add_row("worst", *(f"{max(curve):.1f}" for curve in errors.values()))
    return table
