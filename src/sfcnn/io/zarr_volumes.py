"""OME-Zarr volumes, read and written slice by slice: reads NGFF 0.4 and 0.5, writes 0.5.

A volume is a group whose multiscales list arrays of the same image, each level half as wide as the previous one. Files
written here are downsampled in height and width only, since microscope slices are far apart. A slice and all its levels
thus have their own chunks, which any process can write in any order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from sfcnn.io.stacks import checked_pixels

#: Side of a written chunk, and of the smallest level.
CHUNK, SMALLEST = 1024, 256

#: OME's unit names, in micrometres.
MICROMETRES = {"angstrom": 1e-4, "nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4}

_VERSION = "0.5"
_LONGEST_REASON = 300  # characters


@dataclass(frozen=True)
class VoxelSize:
    """The size of a voxel."""

    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)  #: along z, y and x
    unit: str = ""  #: OME's name of the unit; empty if unknown

    @property
    def micrometres(self) -> float:
        """Width of a pixel, 0 if unknown."""
        return self.scale[2] * MICROMETRES.get(self.unit, 0.0)


class ZarrVolume:
    """A volume in a directory, read one slice at a time.

    Args:
        path: of an OME-Zarr image of version 0.4 or 0.5, whose first multiscale is read at its largest level, or of
            an array with the axes (Z, H, W) or (H, W).
        colour: read three channels as colours.
        fill_missing: read missing chunks as the fill value, as Zarr does. By default a slice with a missing chunk
            raises an error, because lost files look the same.
    """

    def __init__(self, path: Path, *, colour: bool = False, fill_missing: bool = False) -> None:
        self.path, self.fill_missing = path, fill_missing
        if not path.is_dir():
            raise ValueError(f"{path} does not exist" if not path.exists() else f"{path} is not a Zarr directory")
        try:
            node: Any = zarr.open(store=str(path), mode="r")
            axes, self.voxel, array = _image(path, node)
        except ValueError as error:
            raise error if str(error).startswith(str(path)) else _unreadable(path, error) from error
        except Exception as error:  # metadata can be invalid in many ways
            raise _unreadable(path, error) from error
        self._array: Any = array
        sizes = dict(zip(axes, array.shape, strict=True))
        channels = sizes.get("c", 1)
        self._colours = colour and channels == 3
        if sizes.get("t", 1) != 1 or (channels != 1 and not self._colours):
            wanted = "1 or 3 channels" if colour else "1 channel"
            text = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise ValueError(f"{path} has the axes {text}, expected {wanted} and 1 point in time")
        self._axes = axes
        self.shape: tuple[int, int, int] = (sizes.get("z", 1), sizes["y"], sizes["x"])
        self.dtype: np.dtype[Any] = self._array.dtype
        if not all(self.shape):
            raise ValueError(f"{path} has no pixels: its size is {self.shape}")

    def read(self, z: int) -> NDArray[Any]:
        """Slice z as stored: (H, W), or (H, W, 3) for colours."""
        every = slice(None)
        where = {"t": 0, "c": every if self._colours else 0, "z": z, "y": every, "x": every}
        place = tuple(where[name] for name in self._axes)
        try:
            if not self.fill_missing:
                self._check_chunks(place)
            image = np.asarray(self._array[place])
        except Exception as error:  # decoders raise many kinds of error
            raise ValueError(f"{self.path} cannot be read at z = {z}: {_reason(error)}") from error
        return checked_pixels(self.path, np.moveaxis(image, 0, -1) if self._colours else image)

    def _check_chunks(self, place: tuple[Any, ...]) -> None:
        """Raise if one of the chunks at an index is missing."""
        grid = self._array.shards or self._array.chunks
        counts = [
            range(math.ceil(length / part)) if isinstance(index, slice) else [index // part]
            for index, length, part in zip(place, self._array.shape, grid, strict=True)
        ]
        for corner in np.stack(np.meshgrid(*counts, indexing="ij"), -1).reshape(-1, len(counts)).tolist():
            key = self._array.metadata.encode_chunk_key(tuple(corner))
            file = self.path / self._array.path / key
            if not file.is_file():
                raise ValueError(f"chunk {self._array.path}/{key} is missing".replace(" /", " "))


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is not an OME-Zarr volume that can be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _image(path: Path, node: Any) -> tuple[list[str], VoxelSize, Any]:
    """Axis names, voxel size, and the array of the largest level."""
    if isinstance(node, zarr.Array):
        if node.ndim not in (2, 3):
            raise ValueError(f"{path} is an array {node.shape} without axis names, expected (Z, H, W) or (H, W)")
        return list("zyx"[-node.ndim :]), VoxelSize(), node
    attributes = node.attrs.asdict()
    metadata = attributes.get("ome", attributes)
    if "multiscales" not in metadata:
        if "bioformats2raw.layout" in metadata:  # a collection, whose first image is named 0
            return _image(path, node["0"])
        arrays = ", ".join(sorted(node.keys())[:8]) or "nothing"
        raise ValueError(f"{path} is a Zarr group without an OME-Zarr image; it has {arrays}: name one of these")
    multiscale = metadata["multiscales"][0]
    dataset = multiscale["datasets"][0]
    axes = [axis["name"] if isinstance(axis, dict) else axis for axis in multiscale["axes"]]
    array = node[dataset["path"]]
    if not {"y", "x"} <= set(axes) <= set("tczyx") or len(axes) != array.ndim:
        raise ValueError(f"{path} has the axes {axes} and the size {array.shape}, expected some of t, c, z, y, x")
    scale = np.ones(len(axes))
    for part in (*dataset.get("coordinateTransformations", ()), *multiscale.get("coordinateTransformations", ())):
        if part["type"] == "scale":
            scale = scale * np.asarray(part["scale"], dtype=float)
    sizes = dict(zip(axes, scale.tolist(), strict=True))
    units = {axis["name"]: axis.get("unit", "") for axis in multiscale["axes"] if isinstance(axis, dict)}
    if not all(0 < size < math.inf for size in sizes.values()):
        return axes, VoxelSize(), array
    return axes, VoxelSize((sizes.get("z", 1.0), sizes["y"], sizes["x"]), units.get("x", "")), array


@dataclass(frozen=True)
class Pyramid:
    """Levels of an image or of labels (…, Z, H, W), written and read slice by slice."""

    arrays: tuple[Any, ...]  #: of Zarr, largest first
    nearest: bool  #: whether a coarse pixel is one of the finer ones, as needed for labels, or their mean

    def write(self, z: int, image: NDArray[Any]) -> None:
        """Write slice z (…, H, W) and its downsampled copies, each chunk atomically."""
        for array, level in zip(self.arrays, self.levels(image), strict=True):
            array[..., z, :, :] = level

    def levels(self, image: NDArray[Any]) -> list[NDArray[Any]]:
        """An image (…, H, W) and its downsampled copies."""
        levels = [image]
        while len(levels) < len(self.arrays):
            levels.append(halve(levels[-1], nearest=self.nearest))
        return levels

    def read(self, z: int) -> list[NDArray[Any]]:
        """The stored slice z at each level."""
        return [np.asarray(array[..., z, :, :]) for array in self.arrays]


def halve(image: NDArray[Any], *, nearest: bool = False) -> NDArray[Any]:
    """(…, H, W) → (…, ⌈H/2⌉, ⌈W/2⌉): the mean of four pixels, or one of them.

    >>> halve(np.array([[1.0, 3.0, 2.0]])), halve(np.array([[1, 3, 2]]), nearest=True)
    (array([[2., 2.]]), array([[1, 2]]))
    """
    if nearest:
        return image[..., ::2, ::2]
    odd = [(0, 0)] * (image.ndim - 2) + [(0, side % 2) for side in image.shape[-2:]]
    even = np.pad(image, odd, mode="edge")
    rows = even[..., ::2, :] + even[..., 1::2, :]
    return ((rows[..., ::2] + rows[..., 1::2]) / 4).astype(image.dtype)


def create_pyramid(
    group: Any, prefix: str, shape: Sequence[int], dtype: str, *, name: str, voxel: VoxelSize, nearest: bool = False
) -> dict[str, Any]:
    """Create the empty levels of an image (Z, H, W) or (C, Z, H, W) below `prefix`, and return its multiscales.

    Chunks are one slice deep and compressed with a checksum.
    """
    sides = [(shape[-2], shape[-1])]
    while max(sides[-1]) > SMALLEST:
        sides.append((math.ceil(sides[-1][0] / 2), math.ceil(sides[-1][1] / 2)))
    space: dict[str, Any] = {"type": "space"}
    axes = [{"name": axis} | space | ({"unit": voxel.unit} if voxel.unit else {}) for axis in "zyx"]
    first = [{"name": "c", "type": "channel"}] if len(shape) == 4 else []
    datasets = []
    for level, (height, width) in enumerate(sides):
        chunks = (*(1 for _ in shape[:-2]), min(height, CHUNK), min(width, CHUNK))
        create_array(group, f"{prefix}{level}", (*shape[:-2], height, width), dtype, chunks)
        ones = [1.0] * len(first)
        scale = [voxel.scale[0], *(2**level * size for size in voxel.scale[1:])]
        # The centre of a coarse pixel lies between those of the finer ones.
        shift = [0.0, *((2**level - 1) / 2 * size for size in voxel.scale[1:])]
        transforms: list[dict[str, Any]] = [{"type": "scale", "scale": ones + scale}]
        if level:
            transforms.append({"type": "translation", "translation": [0.0] * len(first) + shift})
        datasets.append({"path": f"{prefix}{level}", "coordinateTransformations": transforms})
    kind = "nearest" if nearest else "mean"
    return {"name": name, "axes": first + axes, "datasets": datasets, "type": kind}


def create_array(group: Any, name: str, shape: Sequence[int], dtype: str, chunks: Sequence[int]) -> Any:
    """An empty array whose chunks are always written, even if all zero, and have a checksum."""
    return group.create_array(
        name,
        shape=tuple(shape),
        dtype=dtype,
        chunks=tuple(chunks),
        compressors=[ZstdCodec(level=3, checksum=True)],
        fill_value=0,
        dimension_names=["c", "z", "y", "x"][-len(shape) :] if len(shape) > 2 else None,
        config={"write_empty_chunks": True},
    )


def open_pyramid(group: Any, prefix: str, *, nearest: bool = False) -> Pyramid:
    """The levels created by `create_pyramid`, for writing."""
    arrays: list[Any] = []
    while f"{prefix}{len(arrays)}" in group:
        arrays.append(group[f"{prefix}{len(arrays)}"].with_config({"write_empty_chunks": True}))
    return Pyramid(tuple(arrays), nearest)


def image_attributes(multiscales: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The attributes of an image's group; `more` is added next to its multiscales, for example `image-label`."""
    return {"ome": {"version": _VERSION, "multiscales": [multiscales], **more}}


def labels_attributes(names: Sequence[str]) -> dict[str, Any]:
    """The attributes of the group `labels` of an image."""
    return {"ome": {"version": _VERSION, "labels": list(names)}}


def remove_partial_chunks(array: Any, root: Path, z: int) -> None:
    """Remove partial files of slice z, left by a process that was killed while writing."""
    chunks = array.metadata.encode_chunk_key((0,) * array.ndim).split("/")  # c, 0 …
    channels = array.shape[0] if array.ndim == 4 else None
    firsts: list[list[str]] = [[]] if channels is None else [[str(channel)] for channel in range(channels)]
    for first in firsts:
        directory = (root / array.path).joinpath(*chunks[: -array.ndim], *first, str(z))
        for file in [*directory.glob("*.partial"), *directory.glob("*/*.partial")]:
            file.unlink(missing_ok=True)
