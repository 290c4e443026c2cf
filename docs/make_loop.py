"""The animation: a slice of electron microscopy rotates, and two networks detect its membranes.

`python docs/make_loop.py --volume isbi2012/test-volume.tif` writes docs/figures/turning.webp. Each prediction is
rotated back and compared with that of the upright slice; differences are red. The SFCNN is the pretrained isbi2012. The
U-Net, isbi2012-plain, has as many parameters and was trained with the same settings, for as many steps, on crops that
were rotated at random like those of the SFCNN:

    sfcnn segment train --config src/sfcnn/pretrained/isbi2012-plain/config.yaml --out unet
"""

import argparse
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import sfcnn
from sfcnn.io.files import new_file
from sfcnn.io.stacks import as_fraction, read_stack
from sfcnn.segmentation import Segmenter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
SIDE = 256  # of the disk shown
SEEN = 320  # of the networks' input, so that its border is far from the disk
FRAMES, MILLISECONDS = 60, 85
GROUND, INK, FAINT = "#14171c", "#e8eaed", "#8b929b"
COLORS = {"SFCNN": "#56b4e9", "plain U-Net": "#e69f00"}
OFF = "#ff5a36"  # colour of differences from the upright prediction

Pictures = NDArray[np.float32]


def degrees(frames: int = FRAMES) -> list[float]:
    """Angles of the frames: every 6°, most of them between the eight orientations of the network."""
    return [360 * index / frames for index in range(frames)]


def rotate(image: Pictures, angle: float) -> Pictures:
    """Rotate an image (H, W) counter-clockwise by an angle in degrees."""
    return sfcnn.rotate(torch.from_numpy(image), math.radians(angle)).numpy()


def centre(image: Pictures, side: int) -> Pictures:
    """The square in the middle of an image."""
    top, left = ((length - side) // 2 for length in image.shape)
    return image[top : top + side, left : left + side]


def disk(side: int) -> NDArray[np.bool_]:
    """The pixels (side, side) that are visible at every angle."""
    axis = np.arange(side) - (side - 1) / 2
    return axis[:, None] ** 2 + axis**2 <= (side / 2 - 1) ** 2


def turned_back(
    predict: Callable[[Pictures], Pictures],
    image: Pictures,
    angles: Sequence[float],
    seen: int = SEEN,
    side: int = SIDE,
) -> Pictures:
    """Predictions (A, side, side) for the middle of an image rotated by each angle, rotated back by that angle."""
    found = [rotate(predict(centre(rotate(image, angle), seen)), -angle) for angle in angles]
    return np.stack([centre(one, side) for one in found])


def errors(found: Pictures) -> NDArray[np.float64]:
    """Mean |p_φ − p_0| in the disk, in per cent: (A,), for predictions (A, side, side), the first one upright."""
    inside = disk(found.shape[-1])
    return 100 * np.abs(found - found[0])[:, inside].mean(1, dtype=np.float64)


def in_disk(colours: NDArray[Any]) -> NDArray[Any]:
    """An image (H, W, 3) of values in [0, 1], cropped to a disk on the background colour."""
    from matplotlib.colors import to_rgb

    return np.where(disk(len(colours))[..., None], colours.clip(0, 1), to_rgb(GROUND))


def tinted(found: Pictures, upright: Pictures) -> NDArray[Any]:
    """Probabilities in grey, with differences from the upright prediction in colour: (H, W, 3)."""
    from matplotlib.colors import to_rgb

    part = np.clip(2 * np.abs(found - upright), 0, 1)[..., None]
    return in_disk((1 - part) * found[..., None].clip(0, 1) + part * np.array(to_rgb(OFF)))


def _picture(axes: "Axes", picture: NDArray[Any], title: str, color: str, below: str, below_color: str) -> None:
    axes.imshow(picture, interpolation="bilinear")
    axes.set_axis_off()
    axes.set_title(title, color=color, fontsize=11, pad=5, fontweight="bold")
    axes.text(0.5, -0.03, below, transform=axes.transAxes, color=below_color, fontsize=10, ha="center", va="top")


def draw(
    index: int, image: Pictures, angles: Sequence[float], found: Mapping[str, Pictures], side: int = SIDE
) -> "Figure":
    """One frame: the rotated slice, each network's membranes rotated back, and the error against the angle."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.6), dpi=100, facecolor=GROUND)
    top = [figure.add_axes((0.015 + 0.333 * column, 0.36, 0.303, 0.56)) for column in range(3)]
    turned = centre(rotate(image, angles[index]), side)
    grey = np.repeat(turned[..., None], 3, axis=-1)
    _picture(top[0], in_disk(grey), "rotated slice", INK, f"{angles[index]:.0f}°", INK)
    axes = figure.add_axes((0.075, 0.1, 0.9, 0.15), facecolor=GROUND)
    for place, (name, pictures) in zip(top[1:], found.items(), strict=True):
        values, color = errors(pictures), COLORS[name]
        shown = tinted(pictures[index], pictures[0])
        _picture(place, shown, f"{name}, rotated back", color, f"{values[index]:.1f} % off", OFF)
        axes.plot([*angles, 360], [*values, values[0]], color=color, linewidth=1.2, alpha=0.55)
        axes.plot(angles[: index + 1], values[: index + 1], color=color, linewidth=2)
        axes.plot(angles[index], values[index], "o", color=color, markersize=5, clip_on=False)
    most = max(float(errors(pictures).max()) for pictures in found.values())
    axes.set(xlim=(0, 360), ylim=(0, 1.15 * most), xticks=range(0, 361, 45))
    axes.set_xticklabels([f"{angle}°" for angle in range(0, 361, 45)])
    axes.tick_params(colors=FAINT, labelsize=8, length=2)
    axes.set_ylabel("% off", color=FAINT, fontsize=8)
    axes.grid(alpha=0.15)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def render(figure: "Figure") -> Image.Image:
    """Render a figure to an image."""
    page = io.BytesIO()
    figure.savefig(page, format="png", facecolor=figure.get_facecolor())
    return Image.open(page).convert("RGB")


def main() -> None:
    """Predict at every angle, draw, and write the loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--volume", type=Path, required=True, help="TIFF stack, 4 nm per pixel, slices of 512×512")
    parser.add_argument("--slice", type=int, default=15, help="its number, counted from 1")
    parser.add_argument("--plain", default="isbi2012-plain", help="run of the plain U-Net")
    parser.add_argument("--out", type=Path, default=HERE / "figures" / "turning.webp")
    arguments = parser.parse_args()
    image = as_fraction(read_stack(arguments.volume), arguments.volume)[arguments.slice - 1]
    networks: dict[str, Segmenter] = {"SFCNN": sfcnn.load("isbi2012"), "plain U-Net": sfcnn.load(arguments.plain)}
    angles = degrees()
    found = {name: turned_back(network.predict, image, angles) for name, network in networks.items()}
    for name, pictures in found.items():
        values = errors(pictures)
        print(f"{name}: mean {values.mean():.2f} %, worst {values.max():.2f} % at {angles[int(values.argmax())]:g}°")
    frames = [render(draw(index, image, angles, found)) for index in range(len(angles))]
    with new_file(arguments.out, overwrite=True) as temporary:
        rest = {"save_all": True, "append_images": frames[1:], "duration": MILLISECONDS, "loop": 0}
        frames[0].save(temporary, "WEBP", quality=72, method=4, **rest)
    print(f"wrote {arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
