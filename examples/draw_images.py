"""Draw images to try the commands on: three kinds of shapes, one folder per class, and thin vessels with their masks.

    my-images/{cross,ell,tee}/     upright shapes to train a classifier on
    new-images/                    the same kinds of shapes at random angles, to classify
    vessels/images, vessels/masks  bright curved lines on noise, to train a segmentation network on
    new-vessels/                   another image of this kind

docs/own-images.md explains the commands. Existing files are never overwritten: the script then stops with exit code 2.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

#: Strokes in a square of 32×32 pixels: left, top, right, bottom.
SHAPES = {
    "cross": [(14, 6, 17, 26), (6, 14, 26, 17)],
    "ell": [(10, 6, 13, 26), (10, 23, 22, 26)],
    "tee": [(6, 6, 26, 9), (14, 6, 17, 26)],
}


def shape(name: str, angle: float, generator: np.random.Generator) -> Image.Image:
    """One shape of uneven brightness, rotated counter-clockwise, with noise."""
    image = Image.new("L", (32, 32), 30)
    for stroke in SHAPES[name]:
        ImageDraw.Draw(image).rectangle(stroke, fill=int(generator.integers(150, 230)))
    turned = np.asarray(image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=30), dtype=float)
    return Image.fromarray((turned + generator.normal(0, 12, turned.shape)).clip(0, 255).astype(np.uint8))


def vessels(size: int, generator: np.random.Generator) -> tuple[Image.Image, Image.Image]:
    """An image and its mask."""
    y, x = np.mgrid[:size, :size] / size
    a, b, phase = generator.uniform(-8, 8, 3)
    lines = np.abs(np.sin(a * x + b * y + 3 * x * y + phase)) < 0.25
    image = np.clip(0.3 + 0.4 * lines + generator.normal(0, 0.1, lines.shape), 0, 1)
    return Image.fromarray((255 * image).astype(np.uint8)), Image.fromarray(np.where(lines, 255, 0).astype(np.uint8))


def draw(count: int) -> Iterator[tuple[Path, Image.Image]]:
    """Yield all images and their file names."""
    generator = np.random.default_rng(0)
    for name in SHAPES:
        for number in range(count):
            yield Path("my-images", name, f"{number}.png"), shape(name, 0, generator)
        for number in range(3):
            angle = float(generator.uniform(0, 360))
            yield Path("new-images", f"{name}-{number}.png"), shape(name, angle, generator)
    for number in range(6):
        image, mask = vessels(64, generator)
        yield Path("vessels", "images", f"{number}.png"), image
        yield Path("vessels", "masks", f"{number}.png"), mask
    yield Path("new-vessels", "0.png"), vessels(96, generator)[0]


def main(folder: Path = Path(), count: int = 24) -> None:
    """Draw all images into a folder, unless one of the files exists."""
    images = {folder / path: image for path, image in draw(count)}
    for path in images:
        if path.exists():
            print(f"{path} already exists: move it away, or run this in another directory", file=sys.stderr)
            raise SystemExit(2)
    for path, image in images.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            image.save(file, "png")
    for path, number in sorted(Counter(path.parent.resolve() for path in images).items()):
        print(f"wrote {number} {'image' if number == 1 else 'images'} to {path}")


if __name__ == "__main__":
    main()
