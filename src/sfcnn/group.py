"""The action of rotations and of a mirror on images and features, and how well a network commutes with it (§2, App. A).

    ρ_φ I(x) = I(ρ_{−φ} x)                    on images: turn the picture counter-clockwise by φ
    R_φ ζ(x, θ) = ρ_φ ζ(x, θ − φ)             on features: turn every map and shift the orientations by φ
    m I(x, y) = I(−x, y)                      on images: exchange left and right
    M ζ(x, r_θ m^s) = m ζ(x, r_{−θ} m^{1−s})  on features with reflections: mirror every map, exchange the halves of
                                              the orientations and reverse each, since m r_θ = r_{−θ} m

An orientation r_θ m^s is mirrored first (if s = 1) and then turned, so that R_φ shifts both halves alike. Multiples of
90° and the mirror move pixels onto pixels and are exact. Other angles resample the map.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.subgroups import split_orientations

_RIGHT_ANGLE = math.pi / 2


def _whole_steps(angle: float, step: float) -> int | None:
    """How many times `step` fits into `angle`, None if not a whole number of times."""
    steps = round(angle / step)
    return steps if math.isclose(steps * step, angle, rel_tol=0, abs_tol=1e-6) else None


def _centred_pixels(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every pixel of maps (…, H, W), counted from the centre: two tensors (H, W)."""
    axes = (torch.arange(n, dtype=maps.dtype, device=maps.device) - (n - 1) / 2 for n in maps.shape[-2:])
    row, column = torch.meshgrid(*axes, indexing="ij")
    return row, column


def rotate(maps: Tensor, angle: float, mode: str = "bicubic") -> Tensor:
    """ρ_φ: turn maps (…, H, W) counter-clockwise about their centre by `angle` (radians).

    Exact for multiples of 90° (height and width swap for odd ones); otherwise resampled with `mode` ("bilinear" or
    "bicubic") on the same grid, with zeros outside the original image.

    >>> rotate(torch.tensor([[1, 2], [3, 4]]), math.pi / 2)
    tensor([[2, 4],
            [1, 3]])
    """
    if maps.dim() < 2:
        raise ValueError(f"rotate expects maps of shape (…, H, W), got {tuple(maps.shape)}")
    if mode not in ("bilinear", "bicubic"):
        raise ValueError(f"unknown mode {mode!r}, choose one of ['bicubic', 'bilinear']")
    quarter_turns = _whole_steps(angle, _RIGHT_ANGLE)
    if quarter_turns is not None:
        return torch.rot90(maps, quarter_turns, (-2, -1))
    height, width = maps.shape[-2:]
    row, column = _centred_pixels(maps)
    cos, sin = math.cos(angle), math.sin(angle)
    # Each pixel looks where it came from: turned clockwise by the angle, rows growing downward.
    source = torch.stack([cos * column - sin * row, sin * column + cos * row], dim=-1)
    scale = torch.tensor([max(width - 1, 1), max(height - 1, 1)], device="cpu").to(source) / 2
    flat = maps.reshape(1, -1, height, width)
    turned = F.grid_sample(flat, (source / scale)[None], mode=mode, padding_mode="zeros", align_corners=True)
    return turned.reshape(maps.shape)


def inverse_rotations(angles: Tensor) -> Tensor:
    """ρ_{−φ} for each angle φ, in the coordinates of `grid_sample`, x to the right and y down: (B,) → (B, 2, 2).

    A map sampled at the points ρ_{−φ} x is rotated by φ. That y points down reverses the sense of rotation.
    """
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def reflect(maps: Tensor) -> Tensor:
    """m: exchange left and right of maps (…, H, W).

    >>> reflect(torch.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if maps.dim() < 2:
        raise ValueError(f"reflect expects maps of shape (…, H, W), got {tuple(maps.shape)}")
    return maps.flip(-1)


def ground(images: Tensor) -> Tensor:
    """The median of each image's border, by channel: (B, C, H, W) → (B, C, 1, 1), zero for digits.

    Rotations fill in zeros from outside. Subtracting the ground before and adding it afterwards fills in the ground.
    """
    border = [images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]]
    return torch.cat(border, -1).median(-1).values[..., None, None]


def rotate_features(features: Tensor, angle: float, mode: str = "bicubic", *, reflections: bool = False) -> Tensor:
    """R_φ: turn feature maps (B, C, Λ, H, W) by `angle`, a multiple of 2π/Λ, and shift their orientations with it.

    With `reflections`, features are (B, C, 2Λ, H, W) and both halves shift.
    """
    if features.dim() != 5:
        raise ValueError(f"rotate_features expects shape (B, C, Λ, H, W), got {tuple(features.shape)}")
    orientations = split_orientations(features.shape[2], reflections)
    steps = _whole_steps(angle, 2 * math.pi / orientations)
    if steps is None:
        raise ValueError(
            f"angle {angle:g} is not a sampled orientation: with Λ = {orientations} it must be a multiple of "
            f"2π/{orientations} = {2 * math.pi / orientations:g}"
        )
    return rotate(features, angle, mode).unflatten(2, (-1, orientations)).roll(steps, dims=3).flatten(2, 3)


def reflect_features(features: Tensor) -> Tensor:
    """M: mirror feature maps (B, C, 2Λ, H, W), exchange the halves of their orientations and reverse each."""
    if features.dim() != 5:
        raise ValueError(f"reflect_features expects shape (B, C, 2Λ, H, W), got {tuple(features.shape)}")
    orientations = split_orientations(features.shape[2], True)
    halves = reflect(features).unflatten(2, (2, orientations))
    return halves.flip(2, 3).roll(1, dims=3).flatten(2, 3)  # θ → −θ leaves the first of each half in its place


def _act(output: Tensor, angle: float, mode: str, reflections: bool, mirror: bool) -> Tensor:
    """The action on a network's output, determined by its rank: features, maps, or numbers that must not change."""
    if output.dim() == 5:
        if mirror and not reflections:
            raise ValueError("only features with reflections can be mirrored: pass reflections=True if these have them")
        mirrored = reflect_features(output) if mirror else output
        return rotate_features(mirrored, angle, mode, reflections=reflections)
    if output.dim() != 4:
        return output
    return rotate(reflect(output) if mirror else output, angle, mode)


def _central_disk(output: Tensor, radius: float) -> Tensor:
    """Set everything further than `radius` pixels from the centre of maps (…, H, W) to zero."""
    row, column = _centred_pixels(output)
    return output * (row**2 + column**2 <= radius**2)


@torch.no_grad()
def equivariance_error(
    net: Callable[[Tensor], Tensor],
    inputs: Tensor,
    angle: float,
    *,
    radius: float | None = None,
    mode: str = "bicubic",
    reflections: bool = False,
    mirror: bool = False,
) -> float:
    """‖f(ρ_φ x) − ρ_φ f(x)‖₂ / ‖ρ_φ f(x)‖₂: 0 for a network f that commutes with the rotation by φ.

    With `mirror` it is ‖f(ρ_φ m x) − ρ_φ m f(x)‖₂ / ‖ρ_φ m f(x)‖₂: input and output are mirrored, then turned.

    Args:
        net: a layer or network in eval mode. Its input may be images (B, C, H, W) or features (B, C, Λ, H, W), its
            output features, maps (B, C, H, W), or numbers (B, …) that are to stay the same.
        inputs: what to apply it to.
        angle: φ in radians; with features, a multiple of 2π/Λ.
        radius: compare only within this distance of the centre, in output pixels. Use it for angles that are not
            multiples of 90°, where the corners of the input leave the image.
        mode: how maps are resampled at those angles.
        reflections: whether features, if the input or the output are such, have mirrored orientations (B, C, 2Λ, H, W).
        mirror: whether to mirror as well.
    """
    if inputs.dim() not in (4, 5):
        raise ValueError(f"inputs must be images (B, C, H, W) or features (B, C, Λ, H, W), got {tuple(inputs.shape)}")
    act = partial(_act, angle=angle, mode=mode, reflections=reflections, mirror=mirror)
    expected, actual = act(net(inputs)), net(act(inputs))
    if radius is not None and expected.dim() >= 4:
        expected, actual = _central_disk(expected, radius), _central_disk(actual, radius)
    scale = torch.linalg.vector_norm(expected)
    return float(torch.linalg.vector_norm(actual - expected) / scale.clamp_min(torch.finfo(expected.dtype).tiny))


#: Largest relative error that counts as rounding, by precision.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def assert_equivariant(
    net: Callable[[Tensor], Tensor],
    inputs: Tensor,
    angles: Iterable[float] = (_RIGHT_ANGLE, 2 * _RIGHT_ANGLE, 3 * _RIGHT_ANGLE),
    *,
    tolerance: float | None = None,
    radius: float | None = None,
    reflections: bool = False,
) -> None:
    """Raise AssertionError unless `equivariance_error` stays within `tolerance` at every angle.

    With `reflections` mirror images are checked too, as they are and turned by every angle; features then have mirrored
    orientations, (B, C, 2Λ, H, W).

    By default the angles are the exact ones, multiples of 90°, and the tolerance is rounding at the inputs'
    precision (1e-5 in float32, 1e-10 in float64). Pass a larger tolerance for other angles, where sampling adds an
    error of a few per cent.
    """
    limit = TOLERANCES[inputs.dtype] if tolerance is None else tolerance
    turns = tuple(angles)
    actions = [(angle, False) for angle in turns] + [(angle, True) for angle in (0.0, *turns) if reflections]
    for angle, mirror in actions:
        error = equivariance_error(net, inputs, angle, radius=radius, reflections=reflections, mirror=mirror)
        if not error <= limit:
            where = f"{math.degrees(angle):g}°" + (" of the mirror image" if mirror else "")
            raise AssertionError(f"relative error {error:.2e} at {where} exceeds {limit:.0e}")
