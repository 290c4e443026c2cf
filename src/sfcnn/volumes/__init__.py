"""Volumes larger than memory: OME-Zarr and TIFF stacks slice by slice, on one machine or a cluster.

Requires `pip install 'sfcnn[volumes]'`; these packages are imported on first use of one of the names below.
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
