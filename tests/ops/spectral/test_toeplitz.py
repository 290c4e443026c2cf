import pytest
import torch

from sfcnn.ops import Geometry
from sfcnn.ops.spectral.toeplitz import choose_tiling


@pytest.mark.parametrize("size", [5, 7, 14, 28, 61])
def test_chosen_tiles_cover_the_map(size: int) -> None:
    tiling = choose_tiling(size, size, Geometry(5, padding="same"), 11, 16, images=2)
    assert tiling.rows.tiles * tiling.rows.tile >= size
    assert (tiling.rows.tiles - 1) * tiling.rows.tile < size


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_single_tile_is_its_own_window(stride: int, dilation: int, dtype: torch.dtype) -> None:
    """T · map is the convolution of the map with each filter."""
    geometry = Geometry(3, stride, padding=2, dilation=dilation)
    tiling = choose_tiling(5, 5, geometry, 4, 2, images=1000)
    assert tiling.single
    maps, filters = torch.randn(5, 5, dtype=dtype), torch.randn(4, 3, 3, dtype=dtype)
    expected = geometry.correlate(maps[None, None], filters[:, None])[0]
    torch.testing.assert_close(tiling.toeplitz(filters) @ maps.flatten(), expected.flatten(1))
