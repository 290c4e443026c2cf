"""A small network that has learned nothing, and a small volume in OME-Zarr."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from segmentation.test_predict import make_run
from sfcnn.io.zarr_volumes import VoxelSize, create_pyramid, image_attributes, open_pyramid
from sfcnn.segmentation import Segmenter, synthetic_membranes

#: Of the volume.
SHAPE = (4, 64, 64)


def make_volume(path: Path, images: NDArray[Any], voxel: VoxelSize | None = None) -> None:
    """Write slices (Z, H, W) as an OME-Zarr volume."""
    group = zarr.create_group(str(path))
    voxel = VoxelSize((0.05, 0.004, 0.004), "micrometer") if voxel is None else voxel
    multiscales = create_pyramid(group, "", images.shape, str(images.dtype), name="em", voxel=voxel)
    group.attrs.update(image_attributes(multiscales))
    pyramid = open_pyramid(group, "")
    for z, image in enumerate(images):
        pyramid.write(z, image)


@pytest.fixture(scope="session")
def images() -> NDArray[np.uint8]:
    """Synthetic slices."""
    slices = synthetic_membranes(*SHAPE[:2], seed=2, cell=16).images.numpy()
    return (255 * slices).astype(np.uint8)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    """Of a run that looks for membranes."""
    return make_run(tmp_path_factory.mktemp("network") / "run", pixel_size=0.004)


@pytest.fixture(scope="session")
def _volume(tmp_path_factory: pytest.TempPathFactory, images: NDArray[np.uint8]) -> Path:
    path = tmp_path_factory.mktemp("volume") / "em.zarr"
    make_volume(path, images)
    return path


@pytest.fixture
def volume(_volume: Path, tmp_path: Path) -> Path:
    """A copy of the volume, which may be damaged."""
    return Path(shutil.copytree(_volume, tmp_path / "em.zarr"))


def contents(out: Path) -> dict[str, bytes]:
    """All files of an output by name, without what it says of its input."""
    files = {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    return {name: content for name, content in files.items() if name != "zarr.json"}
