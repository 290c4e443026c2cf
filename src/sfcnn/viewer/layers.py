"""Read images from a napari layer, and place the results over it.

The axes of a layer are (…, H, W), or (…, H, W, 3 or 4) for colour. Each image (H, W) is segmented separately, like the
slices of a stack; results have the axes (…, H, W).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfcnn.io.stacks import as_fraction

if TYPE_CHECKING:
    from napari.components import Dims
    from napari.layers import Layer


@dataclass(frozen=True)
class Source:
    """A layer, or its visible slice, in a form that can be read in another thread."""

    name: str
    pixels: Any  #: an array (…, H, W), or (…, H, W, 3 or 4) for colour; it may be lazy
    colours: bool
    limits: tuple[float, float]  #: the values shown as black and white
    place: dict[str, Any]  #: the options that place another layer over it
    whole: Any = None  #: the same as `pixels`, but for the whole layer, if `pixels` are only the visible slice
    corner: tuple[int, ...] = ()  #: index of the first pixel of the visible slice in `whole`, without its last two axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the results."""
        shape = tuple(self.pixels.shape)
        return shape[:-1] if self.colours else shape

    def around(self, neighbours: int) -> tuple["Source", int]:
        """The source with up to this many slices above and below it, and the place of its first slice among them."""
        if self.whole is None or not self.corner or not neighbours:
            return self, 0
        first, (*outer, last) = len(self.corner) - 1, self.corner
        start = max(last - neighbours, 0)
        wide = (*(slice(index, index + 1) for index in outer), slice(start, last + self.shape[first] + neighbours))
        return replace(self, pixels=self.whole[wide]), last - start


def take_layer(layer: "Layer | None", dims: "Dims | None" = None) -> Source:
    """The current state of an image layer, or, given the viewer's `dims`, of its visible slice.

    A slice keeps its axes, each of length 1, and its position in the stack.
    """
    from napari.layers import Image
    from napari.utils.transforms import Affine

    if layer is None:
        raise ValueError("there is no image layer: open an image first")
    if not isinstance(layer, Image):
        raise ValueError(f"{layer.name} is a {type(layer).__name__.lower()} layer, expected an image layer")
    pixels = layer.data[0] if layer.multiscale else layer.data  # level 0 is the finest
    corner = np.zeros(layer.ndim)
    whole: Any = None
    visible: tuple[int, ...] = ()
    if dims is not None:
        whole, visible = pixels, tuple(_visible(layer, dims))
        for axis, index in enumerate(visible):
            corner[axis] = index
            pixels = pixels[(slice(None),) * axis + (slice(index, index + 1),)]
    to_physical = Affine(scale=layer.scale, translate=layer.translate, rotate=layer.rotate, shear=layer.shear)
    place = {
        "scale": layer.scale,
        "translate": to_physical(corner),
        "rotate": layer.rotate,
        "shear": layer.shear,
        "affine": layer.affine,
        "units": layer.units,
        "axis_labels": layer.axis_labels,
    }
    black, white = layer.contrast_limits
    return Source(layer.name, pixels, bool(layer.rgb), (float(black), float(white)), place, whole, visible)


def _visible(layer: "Layer", dims: "Dims") -> list[int]:
    """The index that the viewer shows on each axis before the last two."""
    hidden = layer.ndim - 2
    before = dims.ndim - layer.ndim  # axes that only other layers have
    if {axis - before for axis in dims.displayed} != {hidden, hidden + 1}:
        raise ValueError(
            f"the viewer does not show a slice of the last two axes of {layer.name}: "
            "go back to 2D and the usual order of axes, or segment all slices"
        )
    indices = np.round(layer.world_to_data(dims.point)).astype(int)[:hidden]
    for index, length in zip(indices, layer.data.shape, strict=False):
        if not 0 <= index < length:
            raise ValueError(f"{layer.name} has no slice at the viewer's position: move the slider")
    return [int(index) for index in indices]


def pixel_size(layer: "Layer | None") -> float:
    """Width of a layer's pixels in micrometres, 0 if its units are not lengths."""
    if layer is None:
        return 0.0
    width = abs(float(layer.scale[-1])) * layer.units[-1]
    return float(width.to("micrometer").magnitude) if width.is_compatible_with("micrometer") else 0.0


def read_images(source: Source, *, colours: bool, check: Callable[[], None] = lambda: None) -> NDArray[np.float32]:
    """All images of a source, (N, H, W) or with `colours` (N, H, W, 3), from 0 (black) to 1 (white).

    As for files, integers are divided by the largest value of their type, 255 or 65535, and floats in [0, 1] are used
    as they are. Floats outside [0, 1] are mapped linearly so that the layer's contrast limits become 0 and 1, without
    clipping.

    Args:
        source: from `take_layer`.
        colours: whether the network takes colour images; if so, grey is repeated, if not, only grey is accepted.
        check: called before each image is read; it may raise.
    """
    if 0 in source.shape:
        raise ValueError(f"{source.name} has no pixels: its shape is {source.shape}")
    images = []
    for index in np.ndindex(*source.shape[:-2]):
        check()
        images.append(_opaque(np.asarray(source.pixels[index]), source, colours=colours))
    return _brightness(np.stack(images), source)


def _opaque(image: NDArray[Any], source: Source, *, colours: bool) -> NDArray[Any]:
    """An image (H, W), or (H, W, 3) with `colours`."""
    if not source.colours:
        return np.repeat(image[..., None], 3, axis=-1) if colours else image
    if image.shape[-1] == 4:
        opaque = np.iinfo(image.dtype).max if image.dtype.kind == "u" else 1
        if image[..., 3].min() < opaque:
            raise ValueError(f"{source.name} has transparent pixels: make it opaque first")
        image = image[..., :3]
    if colours:
        return image
    if (image != image[..., :1]).any():
        raise ValueError(f"{source.name} is a colour image, but this network takes grey images: convert it to grey")
    return image[..., 0]


def _brightness(images: NDArray[Any], source: Source) -> NDArray[np.float32]:
    if images.dtype == np.bool_:
        return images.astype(np.float32)
    if images.dtype.kind != "f":
        return as_fraction(images.astype(images.dtype.newbyteorder("="), copy=False), source.name)
    if not np.isfinite(images).all():
        count = np.count_nonzero(~np.isfinite(images))
        raise ValueError(f"{source.name} has {count} pixels that are not numbers (NaN or infinite)")
    if images.min() >= 0 and images.max() <= 1:
        return images.astype(np.float32, copy=False)
    black, white = source.limits
    return ((images.astype(np.float64) - black) / (white - black)).astype(np.float32)
