"""Draw the images that the commands of the documentation use, from shapes and digits to slices of membranes.

    my-images/{cross,ell,tee}/     upright shapes to train a classifier on
    more-images/{cross,ell,tee}/   others at random angles, to evaluate it on
    new-images/                    unsorted ones at random angles, to classify
    my-digits/                     printed digits at random angles, dark on bright
    vessels/images, vessels/masks  bright curved lines on noise, to train a segmentation network on
    new-vessels/                   another image of this kind
    em.tif, masks.tif              slices with dark membranes between cells, and masks that are white inside cells

docs/own-images.md explains the commands. Existing files are never overwritten: the script then stops with exit code 2.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

#: Strokes in a square of 32×32 pixels: left, top, right, bottom.
SHAPES = {
    "cross": [(14, 6, 17, 26), (6, 14, 26, 17)],
    "ell": [(10, 6, 13, 26), (10, 23, 22, 26)],
    "tee": [(6, 6, 26, 9), (14, 6, 17, 26)],
}

#: What a file contains: an image, or the slices of a stack.
Pages = list[Image.Image]


def shape(name: str, angle: float, generator: np.random.Generator) -> Image.Image:
    """One shape of uneven brightness, rotated counter-clockwise, with noise."""
    image = Image.new("L", (32, 32), 30)
    for stroke in SHAPES[name]:
        ImageDraw.Draw(image).rectangle(stroke, fill=int(generator.integers(150, 230)))
    turned = np.asarray(image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=30), dtype=float)
    return Image.fromarray((turned + generator.normal(0, 12, turned.shape)).clip(0, 255).astype(np.uint8))


def digit(number: int, angle: float) -> Image.Image:
    """A printed digit, rotated counter-clockwise."""
    image = Image.new("L", (80, 80), 230)
    ImageDraw.Draw(image).text((40, 40), str(number), fill=40, anchor="mm", font=ImageFont.load_default(48))
    return image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=230)


def vessels(size: int, generator: np.random.Generator) -> tuple[Image.Image, Image.Image]:
    """An image and its mask."""
    y, x = np.mgrid[:size, :size] / size
    a, b, phase = generator.uniform(-8, 8, 3)
    lines = np.abs(np.sin(a * x + b * y + 3 * x * y + phase)) < 0.25
    image = np.clip(0.3 + 0.4 * lines + generator.normal(0, 0.1, lines.shape), 0, 1)
    return Image.fromarray((255 * image).astype(np.uint8)), Image.fromarray(np.where(lines, 255, 0).astype(np.uint8))


def membranes(slices: int, size: int, generator: np.random.Generator) -> tuple[Pages, Pages]:
    """Slices and their masks. Cells are the points nearest to one of several centres, which move between slices."""
    images, masks = [], []
    pixels = np.moveaxis(np.mgrid[:size, :size], 0, -1)[:, :, None]  # (H, W, 1, 2)
    coarse = np.moveaxis(np.mgrid[-20 : size + 20 : 32, -20 : size + 20 : 32], 0, -1).reshape(-1, 2)
    centres = coarse + generator.uniform(-10, 10, coarse.shape)
    for _ in range(slices):
        nearest = np.partition(np.linalg.norm(pixels - centres, axis=-1), 1)
        inside = nearest[..., 1] - nearest[..., 0] > 3
        image = np.clip(0.25 + 0.4 * inside + generator.normal(0, 0.06, inside.shape), 0, 1)
        images.append(Image.fromarray((255 * image).astype(np.uint8)))
        masks.append(Image.fromarray(np.where(inside, 255, 0).astype(np.uint8)))
        centres = centres + generator.normal(0, 1.5, centres.shape)
    return images, masks


def draw(count: int) -> Iterator[tuple[Path, Pages]]:
    """Yield all file names and what they contain."""
    generator = np.random.default_rng(0)
    for name in SHAPES:
        for number in range(count):
            yield Path("my-images", name, f"{number}.png"), [shape(name, 0, generator)]
        for number in range(3):
            angle = float(generator.uniform(0, 360))
            yield Path("new-images", f"{name}-{number}.png"), [shape(name, angle, generator)]
    for number in range(6):
        image, mask = vessels(64, generator)
        yield Path("vessels", "images", f"{number}.png"), [image]
        yield Path("vessels", "masks", f"{number}.png"), [mask]
    yield Path("new-vessels", "0.png"), [vessels(96, generator)[0]]
    for name in SHAPES:
        for number in range(4):
            angle = float(generator.uniform(0, 360))
            yield Path("more-images", name, f"{number}.png"), [shape(name, angle, generator)]
    for number in (2, 3, 4, 5, 7):
        angle = int(generator.integers(0, 360))
        yield Path("my-digits", f"{number}-at-{angle}.png"), [digit(number, angle)]
    images, masks = membranes(6, 160, generator)
    yield from ((Path("em.tif"), images), (Path("masks.tif"), masks))


def main(folder: Path = Path(), count: int = 24) -> None:
    """Draw all images into a folder, unless one of the files exists."""
    files = {folder / path: pages for path, pages in draw(count)}
    for path in files:
        if path.exists():
            print(f"{path} already exists: move it away, or run this in another directory", file=sys.stderr)
            raise SystemExit(2)
    for path, pages in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x+b") as file:
            if path.suffix == ".tif":
                pages[0].save(file, "tiff", save_all=True, append_images=pages[1:])
            else:
                pages[0].save(file, "png")
    for directory, number in sorted(Counter(path.parent.resolve() for path in files).items()):
        print(f"wrote {number} {'file' if number == 1 else 'files'} to {directory}")


if __name__ == "__main__":
    main()
