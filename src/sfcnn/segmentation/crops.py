"""Random crops of images and targets: rotated, flipped and deformed, then padded by reflection (§4.2, App. C.2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from kornia.filters import gaussian_blur2d
from torch import Tensor

from sfcnn.group import inverse_rotations
from sfcnn.segmentation.neighbours import without_neighbours


@dataclass(frozen=True)
class CropConfig:
    """How crops are drawn; the defaults are the paper's where it states them.

    Args:
        size: side of a crop, in pixels
        margin: pixels of reflection padding on each side of the image: 256 + 2 · 32 = 320
        rotate: rotate by random multiples of π/2
        any_angle: rotate by any angle instead; useful for plain networks, whereas steerable ones already know most
            rotations
        reflect: flip half of the crops
        bend: typical displacement of the elastic deformation, in pixels; 0 for none
        bend_scale: number of pixels over which the displacement varies
        contrast: change contrast and brightness at random, each by up to about this fraction of an image's standard
            deviation, independently for each channel and neighbouring slice
        noise: add noise, with a standard deviation of up to this fraction of the image's, drawn for each crop
        alone: fraction of crops whose neighbouring slices are replaced by the slice itself, so that a network trained
            with images.neighbours also works on single images
    """

    size: int = 256
    margin: int = 32
    rotate: bool = True
    any_angle: bool = False
    reflect: bool = True
    bend: float = 3.0
    bend_scale: float = 12.0
    contrast: float = 0.0
    noise: float = 0.0
    alone: float = 0.0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        if self.size < 2:
            raise ValueError(f"size must be at least 2, got {self.size}")
        if not 0 <= self.margin < self.size:
            raise ValueError(f"margin must be in [0, size), because it is reflected from the crop, got {self.margin}")
        if self.bend < 0 or self.bend_scale <= 0:
            raise ValueError(f"bend must be at least 0 and bend_scale above 0, got {self.bend} and {self.bend_scale}")
        if self.any_angle and not self.rotate:
            raise ValueError("any_angle rotates crops, so rotate must not be false")
        for name in ("contrast", "noise", "alone"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be at least 0 and at most 1, got {getattr(self, name)}")

    @property
    def window(self) -> int:
        """Side of the part of an image that a crop is made from: a square that contains the crop at any angle."""
        return math.ceil(math.sqrt(2) * self.size) if self.any_angle else self.size


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
    neighbours: int = 0,
) -> tuple[Tensor, Tensor]:
    """Images (C, H, W), masks (H, W) → crops (count, C, S + 2M, S + 2M), masks (count, S, S), from one generator.

    S is `config.size` and M is `config.margin`. Masks have no margin, because the network crops it from its output.
    Masks hold the class numbers 0, …, `classes` − 1. If label images (H, W) are given, the second result holds masks
    and labels, (count, 2, S, S). `neighbours` states how many slices on each side are among the channels.
    """
    side = config.window
    parts = []
    for _ in range(count):
        z = int(torch.randint(len(images), (), generator=generator))
        row, column = (int(torch.randint(length - side + 1, (), generator=generator)) for length in masks[z].shape)
        window = slice(row, row + side), slice(column, column + side)
        shares = F.one_hot(masks[z][window], classes).movedim(-1, 0)  # (K, W, W)
        numbers = [] if labels is None else [labels[z][window][None]]  # float32, like the rest: exact up to 2²⁴
        part = torch.cat([images[z][:, *window], shares, *numbers])
        turns, mirror = torch.randint(4, (2,), generator=generator).tolist()
        part = part.rot90(turns, (-2, -1)) if config.rotate else part
        parts.append(part.flip(-1) if config.reflect and mirror % 2 else part)
    crops = torch.stack(parts)
    discrete = 0 if labels is None else 1
    if config.bend or config.any_angle:
        angles = (torch.rand(count, generator=generator) - 0.5) * (math.pi / 2) if config.any_angle else None
        bends = random_bends(config.bend, config.bend_scale, count, config.size, generator)
        crops = deform(crops, bends, angles, discrete=discrete)
    pictures, shares, cells = crops.split([crops.shape[1] - classes - discrete, classes, discrete], dim=1)
    found = shares.argmax(1)
    targets = torch.cat([found[:, None], cells.long()], dim=1) if discrete else found
    if config.alone:
        pictures = without_neighbours(pictures, neighbours, torch.rand(count, generator=generator) < config.alone)
    if config.contrast or config.noise:
        pictures = vary_brightness(pictures, config.contrast, config.noise, generator)
    return F.pad(pictures, (config.margin,) * 4, mode="reflect"), targets


def random_bends(pixels: float, scale: float, count: int, size: int, generator: torch.Generator) -> Tensor:
    """u: displacements (count, S, S, 2) of about `pixels`, to the right and down, that vary over `scale` pixels."""
    noise = torch.rand(count, 2, size, size, generator=generator) * 2 - 1
    kernel = min(2 * math.ceil(3 * scale) + 1, 2 * (size // 2) - 1)
    smooth = gaussian_blur2d(noise, (kernel, kernel), (scale, scale), border_type="constant")
    # Smoothing uniform noise (standard deviation 1/√3) with a Gaussian scales its deviation by 1/(2 √π σ).
    deviation = 1 / (math.sqrt(3) * 2 * math.sqrt(math.pi) * scale)
    return smooth.movedim(1, -1) * (pixels / deviation)


def vary_brightness(crops: Tensor, contrast: float, noise: float, generator: torch.Generator) -> Tensor:
    """x ↦ e^a x + b + s ε with a, b uniform in ±contrast per channel, s in [0, noise] per crop, ε standard normal.

    Crops (B, C, H, W) come from standardised images, so that all of these are fractions of a standard deviation.

    >>> crops = torch.ones(1, 2, 4, 4)
    >>> varied = vary_brightness(crops, 0.2, 0.0, torch.Generator().manual_seed(0))
    >>> bool((varied.amax((2, 3)) == varied.amin((2, 3))).all()), bool((varied != crops).all())
    (True, True)
    """
    draws = torch.rand(2, *crops.shape[:2], 1, 1, generator=generator) * 2 - 1
    strength = torch.rand(len(crops), 1, 1, 1, generator=generator) * noise
    grain = torch.randn(crops.shape, generator=generator)
    return crops * (contrast * draws[0]).exp() + contrast * draws[1] + strength * grain


def deform(maps: Tensor, bends: Tensor, angles: Tensor | None = None, *, discrete: int = 0) -> Tensor:
    """Sample maps at ρ_{−φ} (x + u(x)), from their centre: (B, C, W, W), u (B, S, S, 2), φ (B,) → (B, C, S, S).

    Rotation and deformation share one resampling, since each blurs. The last `discrete` channels are sampled at the
    nearest pixel, the others bilinearly. Beyond the maps, they are reflected.

    >>> image = torch.arange(9.0).view(1, 1, 3, 3)
    >>> deform(image, torch.zeros(1, 3, 3, 2), torch.tensor([math.pi / 2])).round()
    tensor([[[[2., 5., 8.],
              [1., 4., 7.],
              [0., 3., 6.]]]])
    """
    count, size, whole = len(maps), bends.shape[1], maps.shape[-1]
    still = torch.eye(2, 3, dtype=maps.dtype, device=maps.device).expand(count, 2, 3)
    points = F.affine_grid(still, [count, 1, size, size], align_corners=False) + bends * (2 / size)
    if angles is not None:
        points = torch.einsum("bij, bxyj -> bxyi", inverse_rotations(angles.to(maps)), points)
    points = points * (size / whole)
    kinds = maps.split([maps.shape[1] - discrete, discrete], dim=1)
    found = [
        F.grid_sample(part, points, mode=mode, padding_mode="reflection", align_corners=False)
        for part, mode in zip(kinds, ("bilinear", "nearest"), strict=True)
        if part.shape[1]
    ]
    return torch.cat(found, dim=1)
