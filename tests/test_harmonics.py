import math

import pytest
import torch

from sfcnn.harmonics import (
    PRESETS,
    Basis,
    atom_norms,
    complex_atoms,
    describe_basis,
    pixel_grid,
    preset_name,
    real_atoms,
    resolve_basis,
)

SIZES = (1, 3, 5, 7, 9, 11)
HARMONIC = [preset for preset in PRESETS if preset != "pixels"]


def closed_form_atom(radius: float, sigma: float, frequency: int, kernel_size: int) -> torch.Tensor:
    """ψ(r, φ) pixel by pixel with Python's own mathematics."""
    half = kernel_size // 2
    atom = torch.zeros(kernel_size, kernel_size, dtype=torch.complex128)
    for row in range(kernel_size):
        for column in range(kernel_size):
            x, y = column - half, half - row
            if frequency and x == y == 0:
                continue
            tau = math.exp(-((math.hypot(x, y) - radius) ** 2) / (2 * sigma**2))
            phase = frequency * math.atan2(y, x)
            atom[row, column] = torch.polar(*torch.tensor([tau, phase], dtype=torch.float64))
    return atom


@pytest.mark.parametrize("preset", HARMONIC)
@pytest.mark.parametrize("kernel_size", SIZES)
def test_atoms_equal_the_closed_form(preset: str, kernel_size: int) -> None:
    basis = resolve_basis(preset, kernel_size)
    atoms = complex_atoms(basis, kernel_size, normalize=False)
    assert atoms.shape == (len(basis.harmonics), kernel_size, kernel_size)
    if basis.subpixels > 1:
        return
    for atom, (j, k) in zip(atoms, basis.harmonics, strict=True):
        torch.testing.assert_close(atom, closed_form_atom(basis.radii[j], basis.sigmas[j], k, kernel_size))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kernel_size", SIZES)
def test_norms_are_one_and_root_two_and_the_centre_is_zero(preset: str, kernel_size: int) -> None:
    basis = resolve_basis(preset, kernel_size)
    atoms = complex_atoms(basis, kernel_size)
    expected = torch.tensor([math.sqrt(2) if k else 1.0 for _, k in basis.harmonics], dtype=torch.float64)
    torch.testing.assert_close(atom_norms(atoms), expected)
    centre = atoms[:, kernel_size // 2, kernel_size // 2]
    assert all(value == 0 for value, (_, k) in zip(centre, basis.harmonics, strict=True) if k)


@pytest.mark.parametrize("preset", HARMONIC)
@pytest.mark.parametrize("kernel_size", SIZES)
def test_a_mirrored_atom_is_its_conjugate_with_a_sign(preset: str, kernel_size: int) -> None:
    basis, atoms = resolve_basis(preset, kernel_size), complex_atoms(preset, kernel_size)
    k = torch.tensor([k for _, k in basis.harmonics])[:, None, None]
    torch.testing.assert_close(atoms.flip(-1), (-1) ** k * atoms.conj().resolve_conj(), rtol=0, atol=1e-14)
    real, signs = real_atoms(preset, kernel_size, dtype=torch.float64), torch.tensor(basis.mirror_signs)
    torch.testing.assert_close(real.flip(-1), signs[:, None, None] * real, rtol=0, atol=1e-14)


def test_presets_have_the_published_limits() -> None:
    assert resolve_basis("paper", 9).cutoffs == (0, 4, 6, 8, 10)
    assert set(resolve_basis("paper", 9).sigmas) == {0.6}
    limits = {1: (0,), 3: (0, 2), 5: (0, 2, 2), 7: (0, 2, 3, 2), 9: (0, 2, 3, 6, 2), 11: (0, 2, 3, 6, 7, 2)}
    for kernel_size, cutoffs in limits.items():
        assert resolve_basis("bandlimited", kernel_size).cutoffs == cutoffs
    assert resolve_basis("bandlimited", 7).sigmas == (0.005, 0.6, 0.6, 0.4)
    sizes = {(5, "paper"): 23, (5, "bandlimited"): 11, (7, "paper"): 40, (7, "bandlimited"): 18, (9, "bandlimited"): 31}
    for (kernel_size, preset), size in sizes.items():
        assert resolve_basis(preset, kernel_size).size == size


@pytest.mark.parametrize(
    ("kernel_size", "preset", "rank"), [(5, "paper", 22), (7, "bandlimited", 18), (9, "bandlimited", 31)]
)
def test_rank_of_the_sampled_atoms(kernel_size: int, preset: str, rank: int) -> None:
    atoms = real_atoms(preset, kernel_size, dtype=torch.float64).flatten(1)
    assert torch.linalg.matrix_rank(atoms, rtol=1e-6) == rank


def test_float32_is_float64_rounded() -> None:
    fine, coarse = (real_atoms("paper", 7, dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert torch.equal(fine.float(), coarse)


def test_real_atoms_are_the_two_parts_of_the_complex_ones() -> None:
    basis = Basis((0, 2), (0.6, 0.6), (0, 1))
    ring_0, ring_1, wave = complex_atoms(basis, 5)
    torch.testing.assert_close(
        real_atoms(basis, 5, dtype=torch.float64), torch.stack([ring_0.real, ring_1.real, wave.real, -wave.imag])
    )
    assert basis.frequencies == (0, 0, 1, 1)


def test_a_returned_tensor_can_be_written_to() -> None:
    real_atoms("paper", 5).zero_()
    assert real_atoms("paper", 5).abs().sum() > 0


def test_dilation_spreads_the_same_samples() -> None:
    basis = Basis((0, 1, 2), (0.5, 0.6, 0.4), (0, 2, 3))
    wide = complex_atoms(basis.dilated(2), 9, normalize=False)[:, ::2, ::2]
    torch.testing.assert_close(wide, complex_atoms(basis, 5, normalize=False))


def test_area_averaging_is_the_mean_over_a_pixel() -> None:
    basis = Basis((2.0,), (0.6,), (0,), subpixels=4)
    x, y = pixel_grid(5, 4)
    fine = torch.exp(-((torch.hypot(x, y) - 2) ** 2) / (2 * 0.6**2))
    expected = torch.nn.functional.avg_pool2d(fine[None], 4)
    torch.testing.assert_close(complex_atoms(basis, 5, normalize=False).real, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 1), (0.6,), (0, 2)), "one radius, one sigma and one cutoff per ring, got 2, 1 and 2"),
        (((), (), ()), "got 0, 0 and 0"),
        (
            ((0, 1), (0.6, 0.6), (0, 5)),
            r"cutoff K = 5 on the ring of radius 1 .* 8 pixels carry whole frequencies 0 … 4",
        ),
        (((0, 1), (0.6, 0.6), (1, 2)), "cutoff K = 1 on the ring of radius 0"),
        (((0, 1), (0.6, 0.6), (0, -1)), "cutoff K = -1"),
        (((0, 1), (0.6, 0.6), (0, 1.5)), "cutoff K = 1.5"),
        (((0, -1), (0.6, 0.6), (0, 2)), "radius -1"),
        (((0, 1), (0.6, 0.0), (0, 2)), "sigma 0.0"),
        (((0, math.nan), (0.6, 0.6), (0, 2)), "radius nan"),
        (((0,), (0.6,), (0,), 0), "subpixels must be at least 1, got 0"),
    ],
)
def test_a_wrong_basis_is_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Basis(*arguments)  # type: ignore[arg-type]


def test_what_does_not_fit_the_grid_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown basis preset 'fine', choose one of \[.*'bandlimited', 'paper'.*\]"):
        resolve_basis("fine", 5)
    with pytest.raises(ValueError, match=r"kernel_size must be an odd whole number \(1, 3, 5, …\), got 4"):
        resolve_basis("paper", 4)
    with pytest.raises(ValueError, match="a ring of radius 4 does not fit a 5×5 kernel"):
        resolve_basis(Basis((4,), (0.6,), (0,)), 5)
    with pytest.raises(ValueError, match="vanishes on a 5×5 grid"):
        complex_atoms(Basis((0.5,), (0.005,), (1,)), 5)
    assert resolve_basis(lambda size: Basis((size // 2,), (0.6,), (1,)), 7).radii == (3,)


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 7, 9, 11, 21])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_basis_is_restored_from_its_tensor(preset: str, kernel_size: int) -> None:
    basis = resolve_basis(preset, kernel_size)
    assert Basis.from_tensor(basis.to_tensor()) == basis
    assert basis.natural_kernel_size == kernel_size
    assert preset_name(basis, kernel_size) == preset
    assert describe_basis(basis) == f"'{preset}' of {kernel_size}×{kernel_size} kernels"
    assert basis.size == len(basis.frequencies)


def test_a_basis_that_is_no_preset_is_described_by_its_rings() -> None:
    basis = Basis((0, 1.5), (0.5, 0.8), (0, 5), subpixels=2)
    assert Basis.from_tensor(basis.to_tensor()) == basis
    assert preset_name(basis, 5) is None
    assert describe_basis(basis) == str(basis)
