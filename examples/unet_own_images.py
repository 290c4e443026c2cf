"""Train a U-Net on a folder of your own images, load it, segment images, and print the error.

The folder contains two folders, `images` and `masks`, with files of the same names. In a mask, 0 is background and any
other value is foreground. Call `main` with your folder and larger numbers, for example
`main(Path("my-images"), Path("results"), channels=8, levels=4, orientations=8, steps=200, epochs=10, crop=128)`.
Without a folder it draws one. `sfcnn segment train` and `sfcnn segment predict` do the same from the command line.
"""

from pathlib import Path

import numpy as np
from PIL import Image

import sfcnn
from sfcnn.segmentation import CropConfig, SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.train.config import OptimizationConfig


def draw_folder(folder: Path, count: int = 3, size: int = 48) -> None:
    """Bright curved lines on noise, to have something to train on."""
    generator = np.random.default_rng(0)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:size, :size] / size
    for number in range(count):
        a, b, phase = generator.uniform(-8, 8, 3)
        lines = np.abs(np.sin(a * x + b * y + 3 * x * y + phase)) < 0.25
        image = np.clip(0.3 + 0.4 * lines + generator.normal(0, 0.1, lines.shape), 0, 1)
        Image.fromarray((255 * image).astype(np.uint8)).save(folder / "images" / f"{number}.png")
        Image.fromarray(np.where(lines, 255, 0).astype(np.uint8)).save(folder / "masks" / f"{number}.png")


def main(
    folder: Path = Path("drawn"),
    results: Path = Path("results"),
    *,
    orientations: int = 4,
    channels: int = 3,
    levels: int = 2,
    crop: int = 32,
    steps: int = 20,
    epochs: int = 1,
) -> None:
    if not folder.exists():
        draw_folder(folder)
    config = SegmentationConfig(
        model=UNetConfig("steerable", orientations, channels, levels, input_kernel_size=7, kernel_size=5, dropout=0.0),
        images=SlicesConfig("pairs", str(folder), validation=1, classes=("lines",)),
        crops=CropConfig(crop, margin=8),
        optimization=OptimizationConfig(epochs, batch_size=4, learning_rate=0.02, schedule="cosine"),
        steps=steps,
    )
    sfcnn.segmentation.train(config, results / "run", resume=True)

    network = sfcnn.load(results / "run")
    for path in sorted((folder / "images").iterdir()):
        image = np.asarray(Image.open(path), np.float32) / 255
        found = sfcnn.cells.segment(network, image)  # any size: probabilities, and the class of each pixel
        Image.fromarray((255 * found.probabilities).astype(np.uint8)).save(results / path.name)
        truth = np.asarray(Image.open(folder / "masks" / path.name)) > 0
        print(f"{100 * np.mean(found.labels != truth):.1f} % of the pixels of {path.stem} are wrong")


if __name__ == "__main__":
    main()
