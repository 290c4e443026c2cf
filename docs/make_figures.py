"""The figures of the documentation, drawn with the library itself: `python docs/make_figures.py` writes docs/figures/.

The figures of borders and speed show the results of benchmarks/borders.py and benchmarks/speed.py. The figure
"cells" is drawn only if named: it needs the files of the ISBI 2012 challenge in the directory SFCNN_DATA.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sfcnn
from sfcnn import Basis, GroupConv2d, LiftConv2d, OrientationPool, equivariance_error, rotate
from sfcnn.harmonics import resolve_basis
from sfcnn.pictures import atoms_table, save_figure
from sfcnn.steering import orientation_angles, steer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORIENTATIONS = 8
KERNEL = 9


def new_figure(width: float, height: float) -> "Figure":
    """A figure that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def show(axes: "Axes", image: Tensor, limit: float, title: str = "") -> None:
    """A map from −limit, blue, to limit, red."""
    axes.imshow(image.double().numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8, pad=3)


def letter(size: int) -> Tensor:
    """The letter F, which looks different at every angle, with soft edges: (1, 1, size, size)."""
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, size),) * 2, indexing="ij")

    def bar(left: float, right: float, top: float, bottom: float) -> Tensor:
        edges = (x - left, right - x, y - top, bottom - y)
        return torch.stack([torch.sigmoid(edge * size / 3) for edge in edges]).prod(0)

    bars = (bar(-0.35, -0.12, -0.62, 0.62), bar(-0.23, 0.4, -0.62, -0.4), bar(-0.23, 0.2, -0.1, 0.12))
    return torch.stack(bars).amax(0)[None, None]


def weight_index(basis: Basis, ring: int, frequency: int) -> int:
    """The index of the weight of an atom, of its real part if it has two."""
    before = basis.harmonics[: basis.harmonics.index((ring, frequency))]
    return sum(2 if k else 1 for _, k in before)


def edge_detector(layer: LiftConv2d) -> None:
    """Set the first filter of a layer to the atom k = 1 on the ring of radius 2: a directed edge detector."""
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0, weight_index(layer.basis, 2, 1)] = 1.0


def steering_figure(kernel_size: int = KERNEL) -> "Figure":
    """A filter as a sum of atoms, and the rotated filter as the sum of the same atoms with shifted phases."""
    basis = resolve_basis("bandlimited", kernel_size)
    atoms = ((2, 0, 0.6), (2, 1, 1.0), (3, 2, 0.8))  # ring, frequency, weight
    weights = torch.zeros(len(atoms), basis.size, dtype=torch.float64)
    for row, (ring, frequency, value) in enumerate(atoms):
        weights[row, weight_index(basis, ring, frequency)] = value
    angles = (0, 30, 60)
    figure = new_figure(7.2, 5.4)
    grid = figure.subplots(len(angles), len(atoms) + 1)
    for axes_row, angle in zip(grid, angles, strict=True):
        parts = steer(weights, basis, kernel_size, [math.radians(angle)])[:, 0]  # (atoms, s, s)
        limit = float(parts.sum(0).abs().max())
        for axes, part, (ring, frequency, _) in zip(axes_row, parts, atoms, strict=False):
            phase = str(-frequency * angle).replace("-", "−")
            show(axes, part, limit, f"μ = {ring}, k = {frequency}: phase {phase}°")
        show(axes_row[-1], parts.sum(0), limit, f"their sum: the filter at {angle}°")
        axes_row[0].set_ylabel(f"rotated by {angle}°", fontsize=8)
    return figure


def responses(images: Tensor, kernel_size: int = KERNEL) -> tuple[Tensor, Tensor, Tensor]:
    """Features after lifting, features after a group convolution, and their maximum: two (Λ, H, W) and one (H, W)."""
    options = {"padding": "same", "bias": False}
    lift = LiftConv2d(1, 1, kernel_size, ORIENTATIONS, **options)  # type: ignore[arg-type]
    edge_detector(lift)
    torch.manual_seed(3)
    group = GroupConv2d(1, 1, kernel_size, ORIENTATIONS, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        lifted = lift(images).relu()
        grouped = group(lifted).relu()
        return lifted[0, 0], grouped[0, 0], OrientationPool("max")(grouped)[0, 0]


def responses_figure(size: int = 65, kernel_size: int = KERNEL) -> "Figure":
    """The output of each layer for an image, and for the image rotated by one orientation step."""
    step = 2 * math.pi / ORIENTATIONS
    image = letter(size)
    pictures = (("the image", image), (f"rotated by {math.degrees(step):g}°", rotate(image, step)))
    found = {name: (picture[0, 0], *responses(picture, kernel_size)) for name, picture in pictures}
    limits = [max(float(part.abs().max()) for part in parts) for parts in zip(*found.values(), strict=True)]
    figure = new_figure(11, 4.9)
    grid = figure.subplots(4, ORIENTATIONS + 2)
    for number, (name, (picture, *parts)) in enumerate(found.items()):
        for layer, label in ((0, "lifted"), (1, "group\nconvolution")):
            row = grid[2 * number + layer]
            for axes in row:
                axes.set_axis_off()
            for index, axes in enumerate(row[1:-1]):
                axes.set_axis_on()
                degrees = math.degrees(float(orientation_angles(ORIENTATIONS)[index]))
                show(axes, parts[layer][index], limits[layer + 1], f"θ = {degrees:g}°")
            row[1].set_ylabel(label, fontsize=8)
        first, last = grid[2 * number, 0], grid[2 * number + 1, -1]
        first.set_axis_on()
        show(first, picture, limits[0], name)
        last.set_axis_on()
        show(last, parts[2], limits[3], "max over θ")
    return figure


def soft_noise(size: int, count: int) -> Tensor:
    """Smooth random images: (count, 1, size, size)."""
    coarse = torch.rand(count, 1, size // 4 + 1, size // 4 + 1)
    return F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=True)


def steerable(orientations: int, basis: str = "bandlimited") -> nn.Module:
    """Three steerable layers with random weights and the maximum over orientations."""
    return nn.Sequential(
        LiftConv2d(1, 4, 7, orientations, padding="same", basis=basis),
        nn.ReLU(),
        GroupConv2d(4, 4, 7, orientations, padding="same", basis=basis),
        nn.ReLU(),
        GroupConv2d(4, 4, 5, orientations, padding="same", basis=basis),
        OrientationPool("max"),
    )


def plain() -> nn.Module:
    """Three ordinary convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 7, padding="same"),
        nn.ReLU(),
        nn.Conv2d(16, 16, 7, padding="same"),
        nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding="same"),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ordinary convolutions": plain,
    "sfcnn, Λ = 4": lambda: steerable(4),
    "sfcnn, Λ = 8": lambda: steerable(8),
    "sfcnn, Λ = 16": lambda: steerable(16),
    "sfcnn, Λ = 16, basis averaged": lambda: steerable(16, "averaged"),
}


def errors_by_angle(degrees: list[float], size: int, seeds: int) -> dict[str, list[float]]:
    """Relative equivariance error of each network at each angle, mean over random weights."""
    found: dict[str, list[float]] = {}
    for name, make in NETWORKS.items():
        sums = [0.0] * len(degrees)
        for seed in range(seeds):
            torch.manual_seed(seed)
            net, images = make().eval(), soft_noise(size, 2)
            for index, angle in enumerate(degrees):
                sums[index] += equivariance_error(net, images, math.radians(angle), radius=size / 5) / seeds
        found[name] = sums
    return found


def errors_figure(step: float = 3.75, size: int = 61, seeds: int = 5) -> "Figure":
    """Equivariance error against the angle, from 0° to 180°; the scale is logarithmic."""
    degrees = [step * index for index in range(round(180 / step) + 1)]
    styles = ("k:", "C1-", "C0-", "C2-", "C3--")
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    for (name, errors), style in zip(errors_by_angle(degrees, size, seeds).items(), styles, strict=True):
        axes.plot(degrees, [max(error, 1e-7) for error in errors], style, label=name)  # log of 0 cannot be drawn
    axes.set_yscale("log")
    axes.set_xticks(range(0, 181, 45))
    axes.set(xlabel="rotation of the image (degrees)", ylabel="relative equivariance error", xlim=(0, 180))
    axes.set_ylim(1e-7, 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))
    return figure


#: Variants of benchmarks/borders.py, and their names in the figure.
VARIANTS = {
    "none": "square maps, 2×2 maximum",
    "disk-blur": "maps masked to a disk, blurred maximum",
    "disk-blur-moves": "… and training digits shifted by up to 2 pixels",
}
BORDERS = Path(__file__).parents[1] / "benchmarks" / "results" / "borders.json"


def around_the_circle(values: list[float]) -> list[float]:
    """Extend values of the first quarter to the full circle, including 360°: quarter turns are exact."""
    return [*values * 4, values[0]]


def borders_panel(axes: "Axes", results: list[dict[str, Any]], key: str, title: str) -> None:
    """Error against the angle, with the mean over seeds in bold."""
    for number, (variant, name) in enumerate(VARIANTS.items()):
        found = [r for r in results if (r["variant"], r["basis"], r["kind"]) == (variant, "averaged", "steerable")]
        runs = [around_the_circle(r[key]) for r in found if key in r]
        if not runs:
            continue
        degrees = [360 * index / (len(runs[0]) - 1) for index in range(len(runs[0]))]
        for run in runs:
            axes.plot(degrees, run, f"C{number}-", alpha=0.35, linewidth=0.7)
        means = [fmean(values) for values in zip(*runs, strict=True)]
        axes.plot(degrees, means, f"C{number}o-", markersize=3, label=f"{name} ({len(runs)} seeds)")
    axes.set_xticks(range(0, 361, 90))
    axes.set(xlabel="rotation of the digits (degrees)", xlim=(0, 360))
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)


def borders_figure(path: Path = BORDERS) -> "Figure":
    """Test error at 24 angles after training on upright digits; on the right, without the digits 6 and 9."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    figure = new_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2)
    borders_panel(left, results, "errors", "all digits")
    borders_panel(right, results, "errors_without_6_9", "without 6 and 9")
    left.set_ylabel("test error (%)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside upper center", ncols=2)
    return figure


def atoms_figure(kernel_size: int = KERNEL) -> "Figure":
    """All atoms of the default preset."""
    return atoms_table("bandlimited", kernel_size)


#: The filter in the figure: a channel of the first layer of the pretrained network for digits.
CHANNEL = 4


def filter_figure() -> "Figure":
    """A learned filter at all orientations, with its response to a digit below each."""
    from sfcnn.classification.digits import load_digits

    network = sfcnn.load("mnist-rot", device="cpu").network
    lift = next(module for module in network.modules() if isinstance(module, LiftConv2d))
    angles = orientation_angles(lift.orientations)
    filters = steer(lift.weight.detach()[CHANNEL, 0].double(), lift.basis, lift.kernel_size, angles)  # (Λ, s, s)
    digits = load_digits()
    image = digits.images[digits.labels == 3][:1]
    with torch.no_grad():
        found = F.conv2d(image, filters[:, None].float(), padding="same")[0].relu()  # (Λ, H, W)
    columns = lift.orientations // 2
    figure = new_figure(1.05 * (columns + 1), 5.0)
    grid = figure.subplots(4, columns + 1)
    for axes in grid[:, 0]:
        axes.set_axis_off()
    grid[0, 0].imshow(image[0, 0].numpy(), cmap="gray_r")
    grid[0, 0].set_title("a digit", fontsize=8, pad=3)
    limit = float(filters.abs().max())
    for index, angle in enumerate(angles):
        upper, lower = (grid[2 * (index // columns) + part, 1 + index % columns] for part in (0, 1))
        show(upper, filters[index], limit, f"{math.degrees(float(angle)):g}°")
        upper.images[0].set_interpolation("bicubic")
        lower.imshow(found[index].numpy(), cmap="magma", vmin=0, vmax=float(found.max()))
        lower.set_xticks([])
        lower.set_yticks([])
    for row, label in zip(grid, ("filter", "response") * 2, strict=True):
        row[1].set_ylabel(label, fontsize=8)
    title = f"A learned filter ({lift.kernel_size}×{lift.kernel_size} pixels) at its {lift.orientations} orientations"
    figure.suptitle(title, fontsize=9)
    return figure


def cells_figure(number: int = 24, trees: int = 200) -> "Figure":
    """A held-out slice: membranes, cells and errors of the pretrained SFCNN isbi2012 and of isbi2012-plain.

    The cells of both are found by multicut with a forest trained on slices 1 to 20, like the networks.
    """
    from sfcnn.cells import ForestConfig, find_cells, learn_forest, truth_cells
    from sfcnn.cells.apply import run_forest
    from sfcnn.experiments.figures import segmentation_rows
    from sfcnn.segmentation import SlicesConfig, load_slices

    slices = load_slices(SlicesConfig("isbi", invert_masks=True), None)
    images = np.stack([image[0].numpy() for image in slices.images])
    truth = truth_cells(np.stack([mask.numpy() == 0 for mask in slices.masks]))
    learned, shown = slice(0, 20), number - 1
    rows = {}
    for name, run in {"SFCNN": "isbi2012", "U-Net, same parameters": "isbi2012-plain"}.items():
        network = sfcnn.load(run)
        forest = run_forest(network)
        if forest is None:
            settings = ForestConfig(trees=trees)
            probabilities = network.predict(images[learned])
            forest = learn_forest(probabilities, truth[learned], images[learned], settings=settings).forest
        membranes = network.predict(images[shown])
        rows[name] = membranes, find_cells(membranes, None, forest, images[shown])
        print(f"{name}: V_rand {sfcnn.cells.score(rows[name][1], truth[shown], 'labels').v_rand.best:.4f}")
    title = f"ISBI 2012, slice {number}, not trained on; 1,400 steps each"
    return segmentation_rows(images[shown], truth[shown], rows, title)


def speed_figure(section: str) -> "Figure":
    """Time of a training step of each engine, from the latest measurements."""
    benchmarks = BORDERS.parents[1]
    sys.path.insert(0, str(benchmarks))
    import report

    sections = json.loads((benchmarks / "results" / "speed.json").read_text(encoding="utf-8"))["sections"]
    return report.section_figure(sections, section)


FIGURES: dict[str, Callable[[], "Figure"]] = {
    "atoms": atoms_figure,
    "filter": filter_figure,
    "steering": steering_figure,
    "responses": responses_figure,
    "equivariance": errors_figure,
    "borders": borders_figure,
    "speed_orientations": lambda: speed_figure("orientations"),
    "speed_size": lambda: speed_figure("size"),
}

#: Drawn only if named: they take minutes and need files that are not in the repository.
ON_DEMAND: dict[str, Callable[[], "Figure"]] = {"cells": cells_figure}


def main() -> None:
    """Draw all figures, or those named."""
    known = FIGURES | ON_DEMAND
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)} (default: all but cells)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures", help="directory")
    arguments = parser.parse_args()
    for name in arguments.names or FIGURES:
        if name not in known:
            parser.error(f"unknown figure {name!r}, choose one of {list(known)}")
        path = arguments.out / f"{name}.png"
        save_figure(known[name](), path, overwrite=True)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
