"""A U-Net on one's own folder of images: read, train on random crops, write a probability for every pixel.

The folder has two folders inside, `images` and `masks`, with PNG or TIFF files of the same names; in a mask 0 is what
is looked for and another value the rest. Call `main` with your folder and larger numbers, for example
`main(Path("my-images"), channels=8, levels=4, orientations=8, steps=2000, crop=128)`. Without a folder it draws one.
`sfcnn segment train` does the same from the command line, with checkpoints, validation and elastic deformations.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from sfcnn.data.pairs import read_pairs
from sfcnn.data.stacks import as_fraction
from sfcnn.models import UNet, membrane_unet
from sfcnn.segmentation.tiles import predict_image


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
        Image.fromarray(np.where(lines, 0, 255).astype(np.uint8)).save(folder / "masks" / f"{number}.png")


def random_crops(images: list[Tensor], targets: list[Tensor], count: int, size: int) -> tuple[Tensor, Tensor]:
    """Crops (count, 1, size, size) of images and of what is looked for.

    They need not be turned, the network is equivariant. Mirror images are something else: half of the crops are.
    """
    pairs = []
    for index in torch.randint(len(images), (count,)).tolist():
        height, width = images[index].shape
        top, left = (int(torch.randint(length - size + 1, ())) for length in (height, width))
        pair = torch.stack([images[index], targets[index]])[:, top : top + size, left : left + size]
        pairs.append(pair.flip(-1) if torch.rand(()) < 0.5 else pair)
    inputs, outputs = torch.stack(pairs).unbind(1)
    return inputs[:, None], outputs[:, None]


def train(net: UNet, images: list[Tensor], targets: list[Tensor], steps: int, batch_size: int, crop: int) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    net.train()
    for step in range(1, steps + 1):
        inputs, outputs = random_crops(images, targets, batch_size, crop)
        loss = nn.functional.binary_cross_entropy_with_logits(net(inputs), outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step}, loss {loss.item():.3f}")


def main(
    folder: Path | None = None,
    results: Path = Path("probabilities"),
    *,
    channels: int = 2,
    levels: int = 2,
    orientations: int = 4,
    steps: int = 40,
    batch_size: int = 4,
    crop: int = 32,
) -> None:
    torch.manual_seed(0)
    if folder is None:
        folder = Path("drawn")
        draw_folder(folder)
    pairs = read_pairs(folder)
    images = [torch.from_numpy(as_fraction(pair.image, pair.name)) for pair in pairs]
    targets = [torch.from_numpy(~pair.interior).float() for pair in pairs]
    # Height and width of a crop must be divisible by 2^(levels − 1). Prediction takes images of any size.
    net = membrane_unet(orientations, channels=channels, levels=levels, kernel_size=5, input_kernel_size=7, dropout=0.0)
    held_out = len(images) - 1  # the last image is for testing only
    train(net, images[:held_out], targets[:held_out], steps, batch_size, crop)

    net.eval()
    results.mkdir(exist_ok=True)
    for pair, image in zip(pairs, images, strict=True):
        probability = predict_image(net, image[None])[0]  # tile by tile, as if the whole image went through at once
        Image.fromarray((255 * probability).byte().numpy()).save(results / f"{pair.name}.png")
    wrong = 100 * ((probability > 0.5) != (targets[held_out] > 0.5)).double().mean().item()
    print(f"{wrong:.1f} % of the pixels of {pairs[held_out].name} are wrong; probabilities are in {results}")


if __name__ == "__main__":
    main()
