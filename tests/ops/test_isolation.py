"""An image of NaN or infinity leaves the other images of its batch alone, in every engine, forward and backward."""

import pytest
import torch
from torch import Tensor

from sfcnn.harmonics import resolve_basis
from sfcnn.ops import ENGINES, Geometry, sample_atoms
from sfcnn.ops.spectral import chunks

BATCH = 5


def run(features: Tensor, gradient: Tensor, weight: Tensor, engine: str, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Output of a group convolution, and the gradient of its input for that of its output."""
    features = features.clone().requires_grad_()
    atoms = sample_atoms("bandlimited", geometry.kernel_size, features.shape[2], features.dtype)
    kernel = ENGINES[engine].group_kernel(weight.clone().requires_grad_(), atoms)
    result = ENGINES[engine].group(features, kernel, atoms, None, geometry)
    (found,) = torch.autograd.grad(result, features, gradient)
    return result.detach(), found


# The spectral engine works on several images at once or on some rows of one, and keeps its memory from one to the next.
@pytest.mark.parametrize(
    ("engine", "chunk"), [("direct", 0), ("atomic", 0), *(("spectral", n) for n in (1, 700, 3000, 8000, 10**7))]
)
@pytest.mark.parametrize("orientations", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("size", [6, 17])
def test_other_images_stay_as_they_are(
    engine: str, chunk: int, orientations: int, size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunk:
        monkeypatch.setattr(chunks, "_CHUNK", chunk)
    geometry = Geometry(3, padding=1)
    features = torch.randn(BATCH, 2, orientations, size, size, dtype=dtype)
    weight = torch.randn(2, 2, orientations, resolve_basis("bandlimited", 3).size, dtype=dtype)
    gradient = torch.randn(BATCH, 2, orientations, size, size, dtype=dtype)
    expected = run(features, gradient, weight, engine, geometry)
    for bad, value in ((0, float("nan")), (2, float("inf")), (BATCH - 1, float("nan"))):
        others = [image for image in range(BATCH) if image != bad]
        for spoilt in (features, gradient):
            inputs = features.clone(), gradient.clone()
            inputs[0 if spoilt is features else 1][bad, 0, 0, size // 2] = value
            found = run(*inputs, weight, engine, geometry)
            assert not (found[0][bad].isfinite().all() and found[1][bad].isfinite().all())
            for ours, reference in zip(found, expected, strict=True):
                limit = 4 * torch.finfo(dtype).eps * float(reference.abs().max())
                torch.testing.assert_close(ours[others], reference[others], atol=limit, rtol=0)
