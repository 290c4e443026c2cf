"""Pictures of the atoms and of a filter at all orientations. Requires matplotlib."""

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfcnn.harmonics import BasisLike, complex_atoms, preset_name, resolve_basis
from sfcnn.io.files import new_file
from sfcnn.steering import orientation_angles, steer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = "RdBu_r"  # red positive, white zero, blue negative


def new_figure(width: float, height: float) -> "Figure":
    """A figure without pyplot: no window system, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("pictures need the package matplotlib: pip install 'sfcnn[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path, *, overwrite: bool = False) -> None:
    """Write a figure as PNG, PDF or SVG, depending on the file extension, atomically."""
    endings = (".pdf", ".png", ".svg")
    if path.suffix.lower() not in endings:
        raise ValueError(f"picture {path} must end in one of {list(endings)}")
    with new_file(path, overwrite=overwrite) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())


def _show(axes: "Axes", image: Tensor, limit: float) -> None:
    axes.imshow(image.double().numpy(), cmap=_COLORS, vmin=-limit, vmax=limit)
    axes.set_xticks([])
    axes.set_yticks([])


def atoms_table(basis: BasisLike, kernel_size: int, title: str = "") -> "Figure":
    """The sampled atoms ψ_jk, rings upward and frequencies to the right, real and imaginary parts (figure 2)."""
    resolved = resolve_basis(basis, kernel_size)
    atoms = complex_atoms(resolved, kernel_size)
    # The real atoms of each ring, or of each shell of pixels, in their order.
    sizes = Counter(j for j, k in resolved.harmonics for _ in range(2 if k else 1))
    rings, columns = len(sizes), max(sizes.values())
    filled = dict.fromkeys(sizes, 0)
    figure = new_figure(1.4 + 0.62 * columns, 0.9 + 0.72 * rings)
    grid = figure.subplots(rings, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for atom, (j, k) in zip(atoms, resolved.harmonics, strict=True):
        limit = float(torch.view_as_real(atom).abs().max())
        for part, image in (("Re", atom.real), ("Im", atom.imag))[: 2 if k else 1]:
            column = filled[j]
            filled[j] += 1
            axes = grid[rings - 1 - j, column]
            axes.set_axis_on()
            _show(axes, image, limit)
            axes.set_title(f"{part} k={k}", fontsize=6, pad=2)
            if column == 0 and not resolved.is_pixels:
                axes.set_ylabel(f"μ = {resolved.radii[j]:g}", fontsize=7)
    name = preset_name(resolved, kernel_size) or "a basis of its own"
    about = f"Atoms of {name} on a {kernel_size}×{kernel_size} grid, K = {list(resolved.cutoffs)}"
    figure.suptitle(title or about, fontsize=9)
    return figure


def steered_filter(weight: Tensor, basis: BasisLike, kernel_size: int, orientations: int, title: str = "") -> "Figure":
    """One filter with weights (Q,), rotated to all orientations θ_a = 2πa/Λ."""
    angles = orientation_angles(orientations)
    filters = steer(weight.detach().double(), basis, kernel_size, angles)  # (Λ, s, s)
    columns = min(orientations, 8)
    rows = math.ceil(orientations / columns)
    figure = new_figure(0.4 + 1.1 * columns, 0.6 + 1.3 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    limit = float(filters.abs().max()) or 1.0
    for axes, image, angle in zip(grid.flat, filters, angles, strict=False):
        axes.set_axis_on()
        _show(axes, image, limit)
        axes.set_title(f"{math.degrees(float(angle)):.4g}°", fontsize=8, pad=3)
    figure.suptitle(title or f"A steerable filter at {orientations} orientations", fontsize=9)
    return figure
