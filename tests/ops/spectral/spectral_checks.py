"""Shared by the tests of the spectral engine."""

import torch
from torch import Tensor

from sfcnn.ops import ENGINES, Geometry, sample_atoms

ORIENTATIONS = [1, 2, 3, 4, 5, 8, 16, 17]


def both(features: Tensor, weight: Tensor, basis: str, geometry: Geometry) -> dict[str, list[Tensor]]:
    """Output and gradients by the direct and the spectral engine."""
    results = {}
    for engine in ("direct", "spectral"):
        x, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
        atoms = sample_atoms(basis, geometry.kernel_size, features.shape[2], features.dtype)
        y = ENGINES[engine].group(x, ENGINES[engine].group_kernel(w, atoms), atoms, None, geometry)
        results[engine] = [y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))]
    return results
