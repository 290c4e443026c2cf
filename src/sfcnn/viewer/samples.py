"""Sample images for trying the plugin without a file."""

from typing import Any

from sfcnn.segmentation.synthetic import synthetic_membranes


def membranes() -> list[tuple[Any, dict[str, Any], str]]:
    """Four 8-bit slices (4, 256, 256) of synthetic membranes, as a napari layer tuple: data, options, type.

    >>> [(stack, options, kind)] = membranes()
    >>> stack.shape, stack.dtype.name, options["name"], kind
    ((4, 256, 256), 'uint8', 'synthetic slices', 'image')
    """
    images = synthetic_membranes(4, 256, seed=1).images
    return [((255 * images).round().byte().numpy(), {"name": "synthetic slices"}, "image")]
