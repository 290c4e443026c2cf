"""Volumes that are read one slice at a time: OME-Zarr or a TIFF stack."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfcnn.io.files import is_zarr
from sfcnn.io.pages import StackPages
from sfcnn.io.pixelsize import PixelSize
from sfcnn.io.stacks import TIFF, as_fraction
from sfcnn.io.zarr_volumes import MICROMETRES, VoxelSize, ZarrVolume
from sfcnn.segmentation import Segmenter
from sfcnn.segmentation.neighbours import window


class Slices(Protocol):
    """A volume that is read slice by slice."""

    shape: tuple[int, int, int]  #: (Z, H, W)
    dtype: np.dtype[Any]

    def read(self, z: int) -> NDArray[Any]:
        """Slice z as stored: (H, W), or (H, W, 3) for colour."""


def open_volume(path: Path, *, colour: bool = False, fill_missing: bool = False) -> tuple[Slices, VoxelSize]:
    """The slices of an OME-Zarr volume or a TIFF stack, and its voxel size; see `ZarrVolume`."""
    if is_zarr(path):
        volume = ZarrVolume(path, colour=colour, fill_missing=fill_missing)
        return volume, volume.voxel
    if path.suffix.lower() not in TIFF:
        raise ValueError(f"{path} is not a volume, expected an OME-Zarr directory or a TIFF stack")
    pages = StackPages(path, colour=colour)
    return pages, _voxel(pages.pixels)


def _voxel(pixels: PixelSize) -> VoxelSize:
    """The voxel size from the pixel size and slice spacing in a TIFF file."""
    width = pixels.micrometres
    if not width or pixels.resolution is None:
        return VoxelSize()
    across, down = pixels.resolution
    micrometre = width * across  # of the unit that resolutions are in
    spacing = pixels.lengths.get("spacing")
    depth = float(spacing) * micrometre if isinstance(spacing, int | float) and spacing > 0 else width
    return VoxelSize((depth, micrometre / down, width), next(u for u, size in MICROMETRES.items() if size == 1))


def read_fraction(slices: Slices, z: int, name: object, channels: int) -> NDArray[np.float32]:
    """Slice z from 0 (black) to 1 (white), as the network expects it: (H, W), or (H, W, 3) for 3 channels."""
    fraction = as_fraction(slices.read(z), f"{name} at z = {z}")
    if channels == 3 and fraction.ndim == 2:
        return np.repeat(fraction[..., None], 3, axis=-1)
    return fraction


def read_window(slices: Slices, z: int, name: object, network: Segmenter) -> NDArray[np.float32]:
    """Slice z and the n neighbours on each side that the network sees: (2n + 1, H, W), or with a last axis of 3.

    Slices beyond the ends of the volume are repeated, as in training.
    """
    places = window(z, slices.shape[0], network.neighbours)
    found = {index: read_fraction(slices, index, name, network.channels) for index in set(places)}
    return np.stack([found[index] for index in places])
