"""Random crops of images and targets: rotated, flipped and deformed, then padded by reflection (§4.2, App. C.2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from kornia.geometry.transform import elastic_transform2d
from torch import Tensor


@dataclass(frozen=True)
class CropConfig:
    """How crops are drawn; the defaults are the paper's where it states them.

    Args:
        size: side of a crop, in pixels
        margin: pixels of reflection padding on each side of the image: 256 + 2 · 32 = 320
        rotate: rotate by random multiples of π/2
        reflect: flip half of the crops
        bend: typical displacement of the elastic deformation, in pixels; 0 for none
        bend_scale: number of pixels over which the displacement varies
    """

    size: int = 256
    margin: int = 32
    rotate: bool = True
    reflect: bool = True
    bend: float = 3.0
    bend_scale: float = 12.0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        if self.size < 2:
            raise ValueError(f"size must be at least 2, got {self.size}")
        if not 0 <= self.margin < self.size:
            raise ValueError(f"margin must be in [0, size), because it is reflected from the crop, got {self.margin}")
        if self.bend < 0 or self.bend_scale <= 0:
            raise ValueError(f"bend must be at least 0 and bend_scale above 0, got {self.bend} and {self.bend_scale}")


def standardize(image: Tensor) -> Tensor:
    """Scale an image (…, H, W) to mean 0 and standard deviation 1, to remove differences in brightness and contrast.

    >>> standardize(torch.tensor([[0.2, 0.4]]))
    tensor([[-1.,  1.]])
    """
    exact = image.double()  # so that the result does not depend on the order of the pixels
    deviation, mean = torch.std_mean(exact, correction=0)
    return ((exact - mean) / deviation.clamp_min(1e-6)).float()


def random_crops(
    images: Sequence[Tensor],
    masks: Sequence[Tensor],
    classes: int,
    count: int,
    config: CropConfig,
    generator: torch.Generator,
    labels: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Images (C, H, W), masks (H, W) → crops (count, C, S + 2M, S + 2M), masks (count, S, S), from one generator.

    S is `config.size` and M is `config.margin`. Masks have no margin, because the network crops it from its output.
    Masks hold the class numbers 0, …, `classes` − 1. If label images (H, W) are given, the second result holds masks
    and labels, (count, 2, S, S).
    """
    size = config.size
    parts = []
    for _ in range(count):
        z = int(torch.randint(len(images), (), generator=generator))
        row, column = (int(torch.randint(side - size + 1, (), generator=generator)) for side in masks[z].shape)
        window = slice(row, row + size), slice(column, column + size)
        shares = F.one_hot(masks[z][window], classes).movedim(-1, 0)  # (K, S, S)
        numbers = [] if labels is None else [labels[z][window][None]]  # float32, like the rest: exact up to 2²⁴
        part = torch.cat([images[z][:, *window], shares, *numbers])
        turns, mirror = torch.randint(4, (2,), generator=generator).tolist()
        part = part.rot90(turns, (-2, -1)) if config.rotate else part
        parts.append(part.flip(-1) if config.reflect and mirror % 2 else part)
    crops = torch.stack(parts)
    discrete = 0 if labels is None else 1
    if config.bend:
        crops = bend(crops, config.bend, config.bend_scale, generator, discrete=discrete)
    pictures, shares, cells = crops.split([crops.shape[1] - classes - discrete, classes, discrete], dim=1)
    found = shares.argmax(1)
    targets = torch.cat([found[:, None], cells.long()], dim=1) if discrete else found
    return F.pad(pictures, (config.margin,) * 4, mode="reflect"), targets


def bend(maps: Tensor, pixels: float, scale: float, generator: torch.Generator, *, discrete: int = 0) -> Tensor:
    """Elastic deformation of maps (B, C, S, S), with displacements of about `pixels` that vary over `scale` pixels.

    The last `discrete` channels are sampled at the nearest pixel, the others bilinearly.
    """
    size = maps.shape[-1]
    noise = torch.rand(len(maps), 2, *maps.shape[-2:], generator=generator) * 2 - 1
    kernel = min(2 * math.ceil(3 * scale) + 1, 2 * (size // 2) - 1)
    # Smoothing uniform noise (standard deviation 1/√3) with a Gaussian scales its deviation by 1/(2 √π σ); kornia
    # measures displacements in half sides of the map.
    deviation = 1 / (math.sqrt(3) * 2 * math.sqrt(math.pi) * scale)
    alpha = pixels * 2 / size / deviation
    parts = {"bilinear": maps[:, : maps.shape[1] - discrete], "nearest": maps[:, maps.shape[1] - discrete :]}
    bent = [
        elastic_transform2d(
            part, noise, (kernel, kernel), (scale, scale), (alpha, alpha), mode=mode, padding_mode="reflection"
        )
        for mode, part in parts.items()
        if part.shape[1]
    ]
    return torch.cat(bent, dim=1)
