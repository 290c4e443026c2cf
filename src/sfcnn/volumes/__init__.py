"""Volumes beyond memory: OME-Zarr and TIFF stacks slice by slice, on one machine or a cluster.

Needs `pip install 'sfcnn[volumes]'`; the packages are imported with the first of these names that is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.volumes.run import VolumeReport, segment_volume

__all__ = ["VolumeReport", "segment_volume"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.run"), name)
