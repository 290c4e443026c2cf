"""The spectral engine (`engine`), and what it is made of."""

from sfcnn.ops.spectral.engine import group, group_kernel, lift, lift_kernel, rectified

__all__ = ["group", "group_kernel", "lift", "lift_kernel", "rectified"]
