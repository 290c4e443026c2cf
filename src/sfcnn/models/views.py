"""A network on several views of its input, the usual way to make a plain one less sensitive to rotations.

With views g_1 … g_N of an image, rotations by 2πn/N and on request their mirror images, and a network f,

    classification: F(I) = pool_n f(g_n I)              dense outputs: F(I) = pool_n g_n⁻¹ f(g_n I)

where pool is the maximum or the mean. Trained this way and with the maximum of features this is TI-pooling; a mean
around a network that was trained without views is test-time augmentation. Either way it costs N times the network. A
network with Λ orientations sees nothing new in rotations by 2π/Λ: its views are spread over [0, 2π/Λ) instead.

Multiples of 90° move pixels onto pixels, so that F is exactly invariant (or equivariant) under quarter turns if N is
divisible by 4. Other angles are split into quarter turns and a remainder below 90°, which is resampled, with the ground
of the image (the median of its border) outside it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sfcnn.group import ground, rotate

VIEW_POOLS = ("max", "mean")

_MOST_VIEWS = 360
_SEEN = 0.999  # the part of a pixel from which on a resampled output counts as known


def check_view_count(views: int) -> None:
    """Raise unless `views` is a valid number of rotations."""
    if isinstance(views, bool) or not isinstance(views, int) or not 1 <= views <= _MOST_VIEWS:
        raise ValueError(f"views must be a whole number from 1 to {_MOST_VIEWS}, got {views!r}")


class View(NamedTuple):
    """A rotation by `turns` quarter turns and an angle of `rest` < π/2, after a reflection if `mirrored`."""

    turns: int
    rest: float
    mirrored: bool = False
    mode: str = "bilinear"  #: of resampling, as in `sfcnn.rotate`

    def apply(self, images: Tensor) -> Tensor:
        """Images (…, H, W) → the view of them."""
        images = images.flip(-1) if self.mirrored else images
        images = images.rot90(self.turns, (-2, -1)) if self.turns else images
        return self._turn(images, self.rest)

    def undo(self, maps: Tensor) -> Tensor:
        """Maps (…, H, W) on the view → maps on the image."""
        maps = self._turn(maps, -self.rest).rot90(-self.turns, (-2, -1))
        return maps.flip(-1) if self.mirrored else maps

    def _turn(self, maps: Tensor, angle: float) -> Tensor:
        return rotate(maps, angle, self.mode) if angle else maps


def make_views(views: int, mirrored: bool = False, orientations: int = 1, mode: str = "bilinear") -> list[View]:
    """Rotations by 2πn/(NΛ), n = 0 … N − 1, and on request their mirror images.

    >>> [(view.turns, round(math.degrees(view.rest))) for view in make_views(8)]
    [(0, 0), (0, 45), (1, 0), (1, 45), (2, 0), (2, 45), (3, 0), (3, 45)]
    """
    check_view_count(views)
    steps = views * orientations  # in a circle
    angles = [divmod(4 * n, steps) for n in range(views)]  # quarter turns, and what is left in parts of one
    sides = (False, True) if mirrored else (False,)
    return [View(turns, math.pi / 2 * left / steps, side, mode) for side in sides for turns, left in angles]


class ViewPool(nn.Module):
    """Pool the outputs of a network over views of its input.

    Shapes: images (B, C, H, W) → what `net` returns: (B, K), or with `dense` (B, K, H, W), turned back to the image.

    To average probabilities instead of logits, let the network end with them: `nn.Sequential(net, nn.Softmax(1))`.

    Args:
        net: a plain network, or its part before the head.
        views: N, rotations evenly spaced over the circle.
        mirrored: also use the mirror image of each, 2N views in all.
        pool: "max" or "mean".
        dense: the output is a map of the input's size. Pixels that some views at angles other than multiples of 90° do
            not cover are pooled over the remaining views.
        orientations: Λ of the network, 1 if it is a plain one: the views are spread over [0, 2π/Λ).
        mode: how images are resampled, "bilinear" or "bicubic".

    >>> net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    >>> images = torch.rand(2, 1, 9, 9)
    >>> invariant = ViewPool(net, 4)
    >>> bool(torch.allclose(invariant(images), invariant(images.rot90(1, (-2, -1)))))
    True
    """

    def __init__(
        self,
        net: nn.Module,
        views: int = 4,
        *,
        mirrored: bool = False,
        pool: str = "max",
        dense: bool = False,
        orientations: int = 1,
        mode: str = "bilinear",
    ) -> None:
        super().__init__()
        if pool not in VIEW_POOLS:
            raise ValueError(f"unknown pool {pool!r}, choose one of {list(VIEW_POOLS)}")
        self.views = make_views(views, mirrored, orientations, mode)
        self.net, self.pool, self.dense = net, pool, dense

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) → (B, K), or (B, K, H, W) if dense."""
        upright = [view for view in self.views if view.turns % 2 == 0]
        sideways = [view for view in self.views if view.turns % 2]  # whose height and width are exchanged
        outputs = [part for views in (upright, sideways) if views for part in self._outputs(views, images)]
        if not self.dense or not any(view.rest for view in self.views):
            stacked = torch.stack(outputs)
            return stacked.amax(0) if self.pool == "max" else stacked.mean(0)
        seen = torch.stack([view.undo(view.apply(torch.ones_like(images[:1, :1]))) for view in (*upright, *sideways)])
        known = seen > _SEEN
        if self.pool == "max":
            return torch.stack(outputs).masked_fill(~known, -math.inf).amax(0)
        return (torch.stack(outputs) * known).sum(0) / known.sum(0)

    def _outputs(self, views: list[View], images: Tensor) -> list[Tensor]:
        """The network's outputs for each view, computed as one batch."""
        if any(view.rest for view in views):
            behind = ground(images)
            inputs = [view.apply(images - behind) + behind for view in views]
        else:
            inputs = [view.apply(images) for view in views]
        joined = self.net(torch.cat(inputs)).unflatten(0, (len(views), -1))
        parts = [joined[number] for number in range(len(views))]  # not by iteration, which no exporter could follow
        if not self.dense:
            return parts
        return [view.undo(part) for view, part in zip(views, parts, strict=True)]

    def extra_repr(self) -> str:
        """Number of views and how they are pooled."""
        mirrored = any(view.mirrored for view in self.views)
        turned = len(self.views) // (1 + mirrored)
        return f"views={turned}, mirrored={mirrored}, pool={self.pool!r}, dense={self.dense}"


class MeanProbability(ViewPool):
    """ln of the mean probability over views, ln (1/N) Σ_n softmax f(g_n I): test-time averaging of a classifier.

    Shapes: images (B, C, H, W) → (B, classes), logits whose softmax is the mean.

    Arguments are those of `ViewPool`. It takes as much memory as the classifier, because it processes fewer images at a
    time.
    """

    def __init__(self, net: nn.Module, views: int, *, orientations: int = 1, mode: str = "bilinear") -> None:
        probabilities = nn.Sequential(net, nn.Softmax(1))
        super().__init__(probabilities, views, pool="mean", orientations=orientations, mode=mode)

    def forward(self, images: Tensor) -> Tensor:
        """Images → logarithms of probabilities."""
        parts = images.split(max(1, len(images) // len(self.views)))
        return torch.cat([super(MeanProbability, self).forward(part) for part in parts]).log()
