import pytest
import torch
from spectral_checks import ORIENTATIONS, both

from sfcnn.harmonics import resolve_basis
from sfcnn.ops import Geometry

pytestmark = pytest.mark.usefixtures("without_kernel")


@pytest.mark.parametrize("orientations", ORIENTATIONS)
def test_frequencies_beyond_half_the_orientations_wrap(orientations: int) -> None:
    """The paper's limits on a 9×9 grid have k up to 10: more than Λ/2, or even Λ."""
    features = torch.randn(1, 1, orientations, 9, 10, dtype=torch.float64)
    weight = torch.randn(2, 1, orientations, resolve_basis("paper", 9).size, dtype=torch.float64)
    results = both(features, weight, "paper", Geometry(9, padding="same"))
    for ours, expected in zip(results["spectral"], results["direct"], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_matter(threads: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(4, 3, 8, 12, 12)
    weight = torch.randn(4, 3, 8, resolve_basis("bandlimited", 5).size)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        results = both(features, weight, "bandlimited", Geometry(5, padding="same"))
    finally:
        torch.set_num_threads(before)
    for ours, expected in zip(results["spectral"], results["direct"], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
