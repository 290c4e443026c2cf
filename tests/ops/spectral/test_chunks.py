from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from spectral_checks import both
from torch import Tensor

from sfcnn import GroupConv2d
from sfcnn.harmonics import resolve_basis
from sfcnn.ops import Geometry
from sfcnn.ops.spectral import chunks
from sfcnn.ops.spectral.chunks import Buffers
from sfcnn.ops.spectral.toeplitz import AxisTiling, Tiling

pytestmark = pytest.mark.usefixtures("without_kernel")


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


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("orientations", [1, 4, 5])
def test_what_fresh_memory_holds_does_not_matter(orientations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks._CHUNK = 3000
    original = Buffers.__init__

    def poisoned(self: Buffers, like: Tensor) -> None:
        original(self, like)
        self._new = lambda size: like.new_full((size,), torch.nan)  # type: ignore[assignment]

    monkeypatch.setattr(Buffers, "__init__", poisoned)
    features = torch.randn(3, 2, orientations, 9, 9, dtype=torch.float64)
    weight = torch.randn(2, 2, orientations, resolve_basis("bandlimited", 3).size, dtype=torch.float64)
    results = both(features, weight, "bandlimited", Geometry(3, padding=1))
    for ours, expected in zip(results["spectral"], results["direct"], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-10, rtol=1e-10)
