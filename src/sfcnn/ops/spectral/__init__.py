"""The spectral engine (`engine`) and its components."""

from sfcnn.ops.spectral.engine import group, group_kernel, lift, lift_kernel, rectified

__all__ = ["group", "group_kernel", "lift", "lift_kernel", "rectified"]
