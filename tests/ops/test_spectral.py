"""What is particular to the spectral engine: tiles, chunks, the algebra of the spectrum, memory and threads."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sfcnn import GroupConv2d
from sfcnn.harmonics import resolve_basis
from sfcnn.ops import Geometry, chunks, group_convolution, prepare_group, sample_atoms
from sfcnn.ops.chunks import Buffers
from sfcnn.ops.spectrum import (
    group_harmonics,
    half_spectrum,
    mixing_kernel,
    mixing_kernel_adjoint,
    mixing_runs,
    spectrum_matrix,
    synthesis_matrix,
)
from sfcnn.ops.tiling import AxisTiling, Tiling, choose_tiling

ORIENTATIONS = [1, 2, 3, 4, 5, 8, 16, 17]


def both(features: Tensor, weight: Tensor, basis: str, geometry: Geometry) -> dict[str, list[Tensor]]:
    """Output and gradients by the direct and the spectral engine."""
    results = {}
    for engine in ("direct", "spectral"):
        x, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
        atoms = sample_atoms(basis, geometry.kernel_size, features.shape[2], features.dtype)
        y = group_convolution(x, prepare_group(w, atoms, engine), atoms, geometry, engine=engine)
        results[engine] = [y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))]
    return results


@pytest.fixture
def _restored() -> Iterator[None]:
    tile_maps, chunk = chunks.tile_maps, chunks._CHUNK
    yield
    chunks.tile_maps, chunks._CHUNK = tile_maps, chunk


@pytest.mark.usefixtures("_restored")
@given(
    tile=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    size=st.tuples(st.integers(5, 12), st.integers(5, 12)),
    chunk=st.sampled_from([1, 500, 4000, 10**7]),
    stride=st.integers(1, 3),
    margin=st.integers(0, 3),
    dilation=st.integers(1, 2),
)
def test_any_tiles_and_chunks_give_the_same(
    tile: tuple[int, int], size: tuple[int, int], chunk: int, stride: int, margin: int, dilation: int
) -> None:
    geometry = Geometry(3, stride, margin, dilation)

    def axis(length: int, wanted: int) -> AxisTiling:
        outputs = geometry.output_size(length)
        return AxisTiling(length, outputs, min(wanted, outputs), stride, dilation, 3, margin)

    tiling = Tiling(axis(size[0], tile[0]), axis(size[1], tile[1]))
    chunks.tile_maps = lambda *arguments: tiling
    chunks._CHUNK = chunk
    torch.manual_seed(0)
    features = torch.randn(3, 2, 4, *size, dtype=torch.float64)
    weight = torch.randn(2, 2, 4, resolve_basis("bandlimited", 3).size, dtype=torch.float64)
    results = both(features, weight, "bandlimited", geometry)
    for ours, expected in zip(results["spectral"], results["direct"], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("orientations", ORIENTATIONS)
def test_frequencies_beyond_half_the_orientations_wrap(orientations: int) -> None:
    """The paper's limits on a 9×9 grid have k up to 10: more than Λ/2, or even Λ."""
    features = torch.randn(1, 1, orientations, 9, 10, dtype=torch.float64)
    weight = torch.randn(2, 1, orientations, resolve_basis("paper", 9).size, dtype=torch.float64)
    results = both(features, weight, "paper", Geometry(9, padding="same"))
    for ours, expected in zip(results["spectral"], results["direct"], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-9, rtol=1e-9)


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


@pytest.mark.parametrize("size", [5, 7, 14, 28, 61])
def test_chosen_tiles_cover_the_map(size: int) -> None:
    tiling = choose_tiling(size, size, Geometry(5, padding="same"), 11, 16, images=2)
    assert tiling.rows.tiles * tiling.rows.tile >= size
    assert (tiling.rows.tiles - 1) * tiling.rows.tile < size


@pytest.mark.usefixtures("_restored")
def test_memory_does_not_grow_with_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks._CHUNK = 20_000
    calls: list[Buffers] = []
    original = Buffers.__init__

    def recording(self: Buffers, like: Tensor) -> None:
        original(self, like)
        calls.append(self)

    monkeypatch.setattr(Buffers, "__init__", recording)
    layer = GroupConv2d(2, 2, 3, 4, padding="same", engine="spectral")
    held = {}
    for batch in (8, 64):
        calls.clear()
        layer(torch.randn(batch, 2, 4, 10, 10, requires_grad=True)).sum().backward()
        assert len(calls) == 2
        held[batch] = [buffers.count() for buffers in calls]
    assert held[8] == held[64]


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
