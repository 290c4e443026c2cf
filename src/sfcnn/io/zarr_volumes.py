"""Volumes in OME-Zarr, read and written slice by slice: metadata of NGFF 0.4 and 0.5 in, 0.5 out.

A volume is a group whose multiscales list arrays of the same image, each level half as wide as the one before it. What
is written here halves height and width only, since slices of microscopes are far apart, so that a slice and all its
levels are chunks of their own: they can be written by any process in any order.
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

#: Side of a chunk that is written, and of the smallest level.
CHUNK, SMALLEST = 1024, 256

#: OME's names of units, in micrometres.
MICROMETRES = {"angstrom": 1e-4, "nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4}

_VERSION = "0.5"
_LONGEST_REASON = 300  # characters


@dataclass(frozen=True)
class VoxelSize:
    """How large a voxel is."""

    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)  #: along z, y and x
    unit: str = ""  #: OME's name of the unit; nothing if it is not known

    @property
    def micrometres(self) -> float:
        """Width of a pixel, 0 if it is not known."""
        return self.scale[2] * MICROMETRES.get(self.unit, 0.0)


class ZarrVolume:
    """A volume in a directory, of which one slice at a time is read.

    Args:
        path: of an OME-Zarr image of version 0.4 or 0.5, of which the first multiscale and its largest level are read,
            or of an array with the axes (Z, H, W) or (H, W).
        colour: read three channels as colours.
        fill_missing: take chunks that are not there for what Zarr says they are, its fill value. By default a slice
            with such a chunk cannot be read: files that were lost look the same.
    """

    def __init__(self, path: Path, *, colour: bool = False, fill_missing: bool = False) -> None:
        self.path, self.fill_missing = path, fill_missing
        if not path.is_dir():
            raise ValueError(f"{path} does not exist" if not path.exists() else f"{path} is no directory of Zarr")
        try:
            node: Any = zarr.open(store=str(path), mode="r")
            axes, self.voxel, array = _image(path, node)
        except ValueError as error:
            raise error if str(error).startswith(str(path)) else _unreadable(path, error) from error
        except Exception as error:  # metadata can be wrong in many ways
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
        """Slice z as it is stored: (H, W), or (H, W, 3) of colours."""
        every = slice(None)
        where = {"t": 0, "c": every if self._colours else 0, "z": z, "y": every, "x": every}
        place = tuple(where[name] for name in self._axes)
        try:
            if not self.fill_missing:
                self._check_chunks(place)
            image = np.asarray(self._array[place])
        except Exception as error:  # decoders raise errors of many kinds
            raise ValueError(f"{self.path} cannot be read at z = {z}: {_reason(error)}") from error
        return checked_pixels(self.path, np.moveaxis(image, 0, -1) if self._colours else image)

    def _check_chunks(self, place: tuple[Any, ...]) -> None:
        """Raise if one of the chunks at a place is not there."""
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
    return ValueError(f"{path} is no OME-Zarr volume that can be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _image(path: Path, node: Any) -> tuple[list[str], VoxelSize, Any]:
    """Names of the axes, size of a voxel and array of the largest level."""
    if isinstance(node, zarr.Array):
        if node.ndim not in (2, 3):
            raise ValueError(f"{path} is an array {node.shape} without names of axes, expected (Z, H, W) or (H, W)")
        return list("zyx"[-node.ndim :]), VoxelSize(), node
    attributes = node.attrs.asdict()
    metadata = attributes.get("ome", attributes)
    if "multiscales" not in metadata:
        if "bioformats2raw.layout" in metadata:  # a collection, whose first image has the name 0
            return _image(path, node["0"])
        arrays = ", ".join(sorted(node.keys())[:8]) or "nothing"
        raise ValueError(f"{path} is a Zarr group without an OME-Zarr image in it, it has {arrays}: name one of these")
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

    arrays: tuple[Any, ...]  #: of Zarr, from the largest on
    nearest: bool  #: whether a coarser pixel is one of the finer ones, as it has to be for labels, or their mean

    def write(self, z: int, image: NDArray[Any]) -> None:
        """Write slice z (…, H, W) and its smaller copies, each chunk whole or not at all."""
        for array, level in zip(self.arrays, self.levels(image), strict=True):
            array[..., z, :, :] = level

    def levels(self, image: NDArray[Any]) -> list[NDArray[Any]]:
        """An image (…, H, W) and its smaller copies."""
        levels = [image]
        while len(levels) < len(self.arrays):
            levels.append(halve(levels[-1], nearest=self.nearest))
        return levels

    def read(self, z: int) -> list[NDArray[Any]]:
        """What is stored of slice z, level by level."""
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
    """Make the empty levels of an image (Z, H, W) or (C, Z, H, W) below `prefix`, and return its multiscales.

    Chunks are one slice deep and packed with a checksum.
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
    """An empty array whose chunks are all written, also those with nothing but zeros, and tell if they are damaged."""
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
    """The levels that `create_pyramid` made, to write to."""
    arrays: list[Any] = []
    while f"{prefix}{len(arrays)}" in group:
        arrays.append(group[f"{prefix}{len(arrays)}"].with_config({"write_empty_chunks": True}))
    return Pyramid(tuple(arrays), nearest)


def image_attributes(multiscales: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The attributes of the group of an image; `more` stands beside its multiscales, as `image-label` does."""
    return {"ome": {"version": _VERSION, "multiscales": [multiscales], **more}}


def labels_attributes(names: Sequence[str]) -> dict[str, Any]:
    """The attributes of the group `labels` of an image."""
    return {"ome": {"version": _VERSION, "labels": list(names)}}


def remove_partial_chunks(array: Any, root: Path, z: int) -> None:
    """Remove the files that a process left of slice z when it was killed while it wrote."""
    chunks = array.metadata.encode_chunk_key((0,) * array.ndim).split("/")  # c, 0 …
    channels = array.shape[0] if array.ndim == 4 else None
    firsts: list[list[str]] = [[]] if channels is None else [[str(channel)] for channel in range(channels)]
    for first in firsts:
        directory = (root / array.path).joinpath(*chunks[: -array.ndim], *first, str(z))
        for file in [*directory.glob("*.partial"), *directory.glob("*/*.partial")]:
            file.unlink(missing_ok=True)
