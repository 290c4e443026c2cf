"""Apply a U-Net to images of any size tile by tile, with the same result as on the whole image at once.

Each tile is computed from a window around it. If the window extends beyond the tile by the receptive field
(`receptive_radius`), begins at a multiple of the coarsest pixel, and ends where the image ends, every pixel of the tile
equals the result on the whole image, up to rounding. Memory is that of one window, regardless of the image size.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from sfcnn.models.affinity_head import split_affinities
from sfcnn.models.padding import margins, pad_by_reflection
from sfcnn.models.unet import UNet
from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.segmentation.affinities import turn_affinities

#: Views of an image whose predictions can be averaged: each is (quarter turns, mirrored).
AVERAGES: dict[str, tuple[tuple[int, bool], ...]] = {
    "none": ((0, False),),
    "rotations": tuple((turns, False) for turns in range(4)),
    "all": tuple((turns, mirrored) for mirrored in (False, True) for turns in range(4)),
}


def _radius(module: nn.Module) -> int:
    """Receptive radius of a chain of convolutions, in pixels of its own resolution."""
    radius = 0
    for part in module.modules():
        if isinstance(part, LiftConv2d | GroupConv2d):
            radius += part.geometry.dilation * (part.kernel_size // 2)
        elif isinstance(part, nn.Conv2d):
            sides = zip(part.kernel_size, part.dilation, strict=True)
            radius += max(dilation * (kernel // 2) for kernel, dilation in sides)
    return radius


def coarsest_pixel(net: UNet) -> int:
    """Side of a pixel of the lowest level, in image pixels."""
    return 2 ** (len(net.encoder) - 1)


def receptive_radius(net: UNet) -> int:
    """The largest distance at which an input pixel can influence an output pixel.

    A pixel at level l covers 2^l image pixels; pooling and upsampling add one pixel at each level.
    """
    levels = range(len(net.encoder))
    down = sum(2**level * _radius(net.encoder[level]) for level in levels)
    up = sum(
        2**level * (_radius(decode) + _radius(merge))
        for level, decode, merge in zip(reversed(levels[:-1]), net.decoder, net.merge, strict=True)
    )
    return down + up + max(map(_radius, _heads(net))) + 2 * (coarsest_pixel(net) - 1)


def _heads(net: UNet) -> list[nn.Module]:
    return [net.head] if net.affinity_head is None else [net.head, net.affinity_head]


#: Default memory for one window, in bytes.
MEMORY = 2e9

_MAPS = 9  # peak memory in units of the first level's features; 7 to 8.5 measured
_READOUT_MAPS = 3  # peak memory in units of a wide readout's features; 2.6 measured
_SMALLEST = 64  # smallest tile, even if memory is short: below it, nearly all work would go into the halo


def largest_tile(net: UNet, memory: float = MEMORY, halo: int | None = None) -> int:
    """Side of the largest tile whose window takes about `memory` bytes, but at least 64.

    >>> from sfcnn.models import membrane_unet
    >>> net = membrane_unet(8, channels=6, levels=3, kernel_size=5)
    >>> largest_tile(net, 1e9), largest_tile(net, 4e9)
    (558, 1217)
    """
    reach = receptive_radius(net) if halo is None else halo
    first = next(part for part in net.encoder[0].modules() if isinstance(part, LiftConv2d | nn.Conv2d))
    maps = first.out_channels * (first.orientations if isinstance(first, LiftConv2d) else 1)
    layers = (part for head in _heads(net) for part in head.modules())
    wide = [part.out_channels * part.orientations for part in layers if isinstance(part, GroupConv2d)]
    held = max(_MAPS * maps, _READOUT_MAPS * max(wide, default=0))
    window = math.isqrt(int(memory / (held * 4)))
    return max(window - 2 * reach, _SMALLEST)


def _spans(length: int, tile: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, tile):
        yield start, min(start + tile, length)


def _window(span: tuple[int, int], length: int, unit: int, margin: int, reach: int) -> tuple[slice, slice]:
    """The window of a tile's span in the padded image, and the tile's place in the window's output."""
    before, after = margins(length, margin, unit)
    start, stop = (end + before for end in span)
    first = max(0, (start - reach) // unit * unit)
    last = min(before + length + after, math.ceil((stop + reach) / unit) * unit)
    return slice(first, last), slice(start - first - margin, stop - first - margin)


def probabilities(logits: Tensor) -> Tensor:
    """(1 or K, H, W) → probabilities of the same shape."""
    return logits.sigmoid() if len(logits) == 1 else logits.softmax(0)


def _all_probabilities(net: UNet, maps: Tensor) -> Tensor:
    """Probabilities of classes and affinities, (K + D·Λ, H, W) → the same shape."""
    assert net.affinity_head is not None
    logits, affinities = split_affinities(maps, net.affinity_head.radii, net.affinity_head.orientations)
    return torch.cat([probabilities(logits), affinities.sigmoid().flatten(0, 1)])


def _undo(net: UNet, maps: Tensor, turns: int, mirrored: bool, affinities: bool) -> Tensor:
    """Map the result on a rotated and then flipped image back to the original image."""
    if affinities:
        assert net.affinity_head is not None
        classes, pairs = split_affinities(maps, net.affinity_head.radii, net.affinity_head.orientations)
        pairs = turn_affinities(pairs, -turns, mirrored=mirrored)
        return torch.cat([_undo(net, classes, turns, mirrored, False), pairs.flatten(0, 1)])
    maps = maps.flip(-1) if mirrored else maps
    return maps.rot90(-turns, (-2, -1))


@torch.inference_mode()
def predict_tiles(
    net: UNet,
    image: Tensor,
    *,
    tile: int | None = None,
    margin: int = 0,
    halo: int | None = None,
    affinities: bool = False,
    progress: Callable[[float], None] = lambda done: None,
) -> Tensor:
    """Probabilities (1 or K, H, W) of an image (C, H, W), on the CPU: sigmoid for one class, softmax for several.

    Args:
        net: in eval mode.
        image: any size.
        tile: side of a tile; its window is larger by twice the halo. By default `largest_tile`.
        margin: pixels that the network crops from each side; the image is padded there by reflection.
        halo: how far a window extends beyond its tile; by default `receptive_radius`, so that tiling has no effect.
        affinities: also return the affinities, after the classes: (K + D·Λ, H, W).
        progress: called with the fraction that is done.
    """
    if image.dim() != 3:
        raise ValueError(f"expected an image (C, H, W), got shape {tuple(image.shape)}")
    tile = largest_tile(net, halo=halo) if tile is None else tile
    if tile < 1 or margin < 0:
        raise ValueError(f"tile must be at least 1 and margin at least 0, got {tile} and {margin}")
    unit = coarsest_pixel(net)
    reach = max(receptive_radius(net) if halo is None else halo, margin)
    padded = pad_by_reflection(image, margin, unit)
    like = next(net.parameters())
    height, width = image.shape[-2:]
    whole: Tensor | None = None
    tiles = [(rows, columns) for rows in _spans(height, tile) for columns in _spans(width, tile)]
    for number, spans in enumerate(tiles, start=1):
        places = [_window(*pair, unit, margin, reach) for pair in zip(spans, (height, width), strict=True)]
        window, inside = ((slice(None), *slices) for slices in zip(*places, strict=True))
        maps = net(padded[window].unsqueeze(0).to(like), affinities)[0][inside].float()
        part = (_all_probabilities(net, maps) if affinities else probabilities(maps)).cpu()
        if whole is None:
            whole = torch.empty(len(part), height, width)
        whole[(slice(None), *(slice(*span) for span in spans))] = part
        progress(number / len(tiles))
    assert whole is not None  # every image has at least one tile
    return whole


def predict_image(
    net: UNet,
    image: Tensor,
    *,
    average: str = "none",
    tile: int | None = None,
    margin: int = 0,
    halo: int | None = None,
    affinities: bool = False,
    progress: Callable[[float], None] = lambda done: None,
) -> Tensor:
    """`predict_tiles`, averaged over the views of the image selected by `average`: "none", "rotations" or "all"."""
    if average not in AVERAGES:
        raise ValueError(f"unknown average {average!r}, choose one of {list(AVERAGES)}")
    views = AVERAGES[average]
    total = torch.zeros(())
    for number, (turns, mirrored) in enumerate(views):
        view = image.rot90(turns, (-2, -1))
        view = view.flip(-1) if mirrored else view
        answer = predict_tiles(
            net,
            view,
            tile=tile,
            margin=margin,
            halo=halo,
            affinities=affinities,
            progress=lambda done, number=number: progress((number + done) / len(views)),  # type: ignore[misc]
        )
        total = total + _undo(net, answer, turns, mirrored, affinities)
    return total / len(views)
