"""Charts as SVG and images as PNG, embedded in the page: fast to draw, and no files to clean up."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: Colour-blind-safe colours (Okabe and Ito) for both kinds of network.
COLORS = {"steerable": "#0072b2", "plain": "#d55e00"}

_LEFT, _TOP, _BOTTOM = 34, 12, 24  # margins of charts, in their units


def picture(pixels: NDArray[Any], width: int, title: str = "") -> str:
    """An image (H, W) or (H, W, 3), uint8, as an <img> of `width` pixels, without smoothing."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<img alt="{escape(title)}" width="{width}" style="image-rendering:pixelated;border-radius:6px;max-width:100%"'
        f' src="data:image/png;base64,{data}">'
    )


def legend(names: Sequence[str]) -> str:
    """The colours of the networks, on one line."""
    parts = (
        '<span style="white-space:nowrap"><svg width="12" height="12" style="display:inline">'
        f'<rect width="12" height="12" rx="3" fill="{COLORS[name]}"/></svg> {escape(name)}</span>'
        for name in names
    )
    return f'<div style="display:flex;gap:16px">{"".join(parts)}</div>'


def bars(groups: Sequence[str], series: Mapping[str, Sequence[float]], title: str) -> str:
    """Probabilities in [0, 1] as bars, side by side within each group."""
    width, height = 420, 170
    step = (width - _LEFT - 18) / len(groups)
    thick = 0.76 * step / len(series)
    drawn = []
    for row, (name, values) in enumerate(series.items()):
        for column, value in enumerate(values):
            x = _LEFT + step * (column + 0.12) + row * thick
            tall = (height - _TOP - _BOTTOM) * float(value)
            drawn.append(
                f'<rect x="{x:.1f}" y="{height - _BOTTOM - tall:.1f}" width="{thick:.1f}" height="{tall:.1f}" '
                f'rx="1.5" fill="{COLORS[name]}"><title>{escape(name)}, {escape(groups[column])}: {value:.3f}</title>'
                "</rect>"
            )
    for column, group in enumerate(groups):
        drawn.append(_text(_LEFT + step * (column + 0.5), height - 8, group, "middle"))
    return _chart(width, height, title, drawn)


def curves(
    degrees: Sequence[float], series: Mapping[str, Sequence[float]], at: float, title: str, exact: Sequence[float] = ()
) -> str:
    """Probabilities in [0, 1] against the angle from 0° to 360°, with a mark `at` one and lines at `exact` angles."""
    width, height = 640, 210
    inner, tall = width - _LEFT - 18, height - _TOP - _BOTTOM

    def x(angle: float) -> float:
        return _LEFT + inner * angle / 360

    drawn = [
        f'<line x1="{x(angle):.1f}" x2="{x(angle):.1f}" y1="{_TOP}" y2="{_TOP + tall}" stroke="currentColor" '
        'stroke-opacity="0.35" stroke-dasharray="2 3"/>'
        for angle in exact
    ]
    for name, values in series.items():
        closed = [*zip(degrees, values, strict=True), (360.0, values[0])]
        points = " ".join(f"{x(angle):.1f},{_TOP + tall * (1 - float(value)):.1f}" for angle, value in closed)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="2.5"/>')
        for angle, value in closed:
            drawn.append(
                f'<circle cx="{x(angle):.1f}" cy="{_TOP + tall * (1 - float(value)):.1f}" r="3" fill="{COLORS[name]}">'
                f"<title>{escape(name)}, {angle:g}°: {value:.3f}</title></circle>"
            )
    drawn.append(
        f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP - 6}" y2="{_TOP + tall}" stroke="currentColor" '
        'stroke-width="1.5"/>'
    )
    drawn += [_text(x(angle), height - 8, f"{angle}°", "middle") for angle in range(0, 361, 45)]
    return _chart(width, height, title, drawn)


def _chart(width: int, height: int, title: str, drawn: Sequence[str]) -> str:
    """A chart on a grid of probabilities."""
    grid = []
    for value in (0.0, 0.5, 1.0):
        y = _TOP + (height - _TOP - _BOTTOM) * (1 - value)
        grid.append(
            f'<line x1="{_LEFT}" x2="{width - 18}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            'stroke-opacity="0.2"/>' + _text(_LEFT - 6, y + 4, f"{value:g}", "end")
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        f'style="width:100%;max-width:{width * 1.3:.0f}px;display:block">{"".join(grid)}{"".join(drawn)}</svg>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="11" fill="currentColor">{escape(words)}</text>'


def as_bytes(fraction: NDArray[Any]) -> NDArray[np.uint8]:
    """Values from 0 to 1 as bytes; values outside are clipped."""
    return (255 * np.asarray(fraction, np.float64).clip(0, 1)).round().astype(np.uint8)


def paint_labels(grey: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.uint8]:
    """An image (H, W) in [0, 1] with each label in its own colour and label 0 uncoloured: (H, W, 3)."""
    hues = np.arange(int(labels.max()) + 1) * 0.618034 % 1  # the golden ratio keeps consecutive hues apart
    wheel = np.abs((hues[:, None] * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1
    colors = 0.3 + 0.7 * wheel.clip(0, 1)
    colors[0] = 1.0
    return as_bytes(0.5 * grey[..., None] + 0.5 * colors[labels] * (0.4 + 0.6 * grey[..., None]))
