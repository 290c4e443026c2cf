import pytest
import torch
from spectral_checks import ORIENTATIONS

from sfcnn.harmonics import resolve_basis
from sfcnn.ops.spectral.spectrum import (
    complete,
    complete_adjoint,
    group_harmonics,
    half_spectrum,
    mixing_kernel,
    mixing_kernel_adjoint,
    mixing_runs,
    spectrum_matrix,
    synthesis_matrix,
)


@pytest.mark.parametrize("orientations", ORIENTATIONS)
def test_the_transforms_are_the_discrete_fourier_transform(orientations: int) -> None:
    features = torch.randn(orientations, 3, dtype=torch.float64)
    spectrum = torch.fft.rfft(features, dim=0)
    slabs = spectrum_matrix(orientations) @ features
    half = half_spectrum(orientations)
    torch.testing.assert_close(slabs[:half], spectrum.real)
    torch.testing.assert_close(slabs[half:], spectrum.imag[1 : 1 + orientations - half])
    parts = torch.view_as_real(spectrum).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(synthesis_matrix(orientations) @ parts, features)


@pytest.mark.parametrize("orientations", ORIENTATIONS)
@pytest.mark.parametrize("preset", ["bandlimited", "paper"])
def test_the_kernel_is_linear_and_has_its_adjoint(orientations: int, preset: str) -> None:
    harmonics = group_harmonics(resolve_basis(preset, 5).frequencies)
    weight = torch.randn(2, 3, orientations, resolve_basis(preset, 5).size, dtype=torch.float64)
    kernel = mixing_kernel(weight, harmonics)
    gradient = torch.randn_like(kernel)
    adjoint = mixing_kernel_adjoint(gradient, harmonics, weight.shape)
    torch.testing.assert_close((kernel * gradient).sum(), (weight * adjoint).sum())
    torch.testing.assert_close(mixing_kernel(3 * weight, harmonics), 3 * kernel)


@pytest.mark.parametrize("orientations", [8, 16, 17, 32])
def test_each_slab_feeds_one_frequency_where_the_band_limits_allow(orientations: int) -> None:
    """With k ≤ Λ/2 the products are a permutation of blocks: nothing is computed twice."""
    harmonics = group_harmonics(resolve_basis("bandlimited", 7).frequencies)
    used = [
        (run.harmonic, run.first_slab + index)
        for run in mixing_runs(orientations, harmonics)
        for index in range(run.length)
    ]
    assert len(used) == len(set(used)) == len(harmonics) * orientations


@pytest.mark.parametrize("orientations", ORIENTATIONS)
@pytest.mark.parametrize("preset", ["bandlimited", "paper"])
def test_the_imaginary_part_takes_the_same_numbers(orientations: int, preset: str) -> None:
    """What makes Im Y of the responses is a rotation of what makes Re Y: twice it is −1, and it has its adjoint."""
    harmonics = group_harmonics(resolve_basis(preset, 5).frequencies)
    size = resolve_basis(preset, 5).size
    kernel = mixing_kernel(torch.randn(2, 3, orientations, size, dtype=torch.float64), harmonics)
    real, imaginary = complete(kernel, harmonics, orientations).chunk(2, dim=1)
    assert torch.equal(real, kernel)
    torch.testing.assert_close(complete(imaginary, harmonics, orientations).chunk(2, dim=1)[1], -kernel)
    gradient = torch.randn(len(kernel), 4, kernel.shape[2], dtype=torch.float64)
    adjoint = complete_adjoint(gradient, harmonics, orientations)
    whole = complete(kernel, harmonics, orientations)
    torch.testing.assert_close((whole * gradient).sum(), (kernel * adjoint).sum())
