"""Images to try the plugin on without a file."""

from typing import Any

from sfcnn.segmentation.synthetic import synthetic_membranes


def membranes() -> list[tuple[Any, dict[str, Any], str]]:
    """Four slices (4, 256, 256) of synthetic membranes, 8 bits, as napari takes layers: data, options, type.

    >>> [(stack, options, kind)] = membranes()
    >>> stack.shape, stack.dtype.name, options["name"], kind
    ((4, 256, 256), 'uint8', 'synthetic slices', 'image')
    """
    images = synthetic_membranes(4, 256, seed=1).images
    return [((255 * images).round().byte().numpy(), {"name": "synthetic slices"}, "image")]
