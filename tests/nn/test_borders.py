import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn import ConvBlock, assert_equivariant, rotate
from sfcnn.nn import BackgroundNorm, DiskMask, MaxBlurPool
from sfcnn.nn.borders import disk

SIZES = [(28, 28), (7, 7), (15, 28), (2, 3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layer", [DiskMask(), DiskMask(1.15, 3.0), MaxBlurPool(), BackgroundNorm(3)], ids=repr)
def test_quarter_turns_are_exact(layer: nn.Module, size: tuple[int, int], dtype: torch.dtype) -> None:
    layer = layer.to(dtype).eval()
    assert_equivariant(layer, torch.randn(2, 3, 4, *size, dtype=dtype))
    if not isinstance(layer, BackgroundNorm):
        assert_equivariant(layer, torch.randn(2, 3, *size, dtype=dtype))


def test_the_usual_maximum_is_exact_on_even_sizes_only() -> None:
    """The control of the test above."""
    pool = nn.MaxPool3d((1, 2, 2))
    assert_equivariant(pool, torch.randn(2, 3, 4, 6, 6))
    with pytest.raises(AssertionError, match="at 90° exceeds"):
        assert_equivariant(pool, torch.randn(2, 3, 4, 7, 7))


@pytest.mark.parametrize("side", [1, 2, 7, 28, 101])
def test_the_disk_is_that_of_the_formula(side: int) -> None:
    """Pixel by pixel: clip((R − |x|) / edge + ½, 0, 1)."""
    for radius, edge in ((1.0, 1.0), (0.8, 2.5)):
        found = disk(torch.empty(side, side, dtype=torch.float64), radius, edge)
        for row in range(side):
            for column in range(0, side, 5):
                distance = math.hypot(row - (side - 1) / 2, column - (side - 1) / 2)
                expected = min(max((radius * side / 2 - distance) / edge + 0.5, 0), 1)
                assert float(found[row, column]) == pytest.approx(expected, abs=1e-5)


def test_a_disk_touches_all_sides_of_oblong_maps() -> None:
    mask = disk(torch.empty(40, 80))
    assert mask.dtype == torch.float32
    assert mask[20, 0] > 0 < mask[0, 40]
    assert torch.equal(mask, disk(torch.empty(80, 40)).T)
    assert mask[0, 0] == 0 == mask[5, 5]


def blurred_maximum(row: Tensor) -> list[float]:
    """One row, from the definition: maxima of neighbours, continued by their ends, and weights by parity."""
    largest = [max(pair) for pair in zip(row.tolist(), row.tolist()[1:], strict=False)]
    largest = [largest[0], *largest, largest[-1], largest[-1]]
    taps = (1, 3, 3, 1) if len(row) % 2 else (2, 4, 2, 0)
    return [sum(w * v for w, v in zip(taps, largest[2 * i : 2 * i + 4], strict=True)) / 8 for i in range(len(row) // 2)]


@pytest.mark.parametrize("length", [2, 3, 8, 11])
def test_the_blurred_maximum_is_that_of_its_definition(length: int) -> None:
    row = torch.randn(length, dtype=torch.float64)
    maps = row.expand(1, 1, 4, length)  # constant along columns, so that only rows matter
    found = MaxBlurPool().double()(maps)
    torch.testing.assert_close(found[0, 0, 0], torch.tensor(blurred_maximum(row), dtype=torch.float64))


@pytest.mark.parametrize("side", [28, 29])
def test_a_blurred_maximum_depends_less_on_where_the_grid_lies(side: int) -> None:
    """Halved and moved by half a pixel against moved by one pixel and halved."""
    maps = F.avg_pool2d(torch.rand(4, 3, side + 9, side + 9), 3, 1)
    differences = []
    for pool in (nn.MaxPool2d(2), MaxBlurPool()):
        here, there = pool(maps[..., 1:-5, 1:-5]), pool(maps[..., 2:-4, 2:-4])
        halfway = (here[..., 1:-1, 1:-1] + here[..., 2:, 1:-1] + here[..., 1:-1, 2:] + here[..., 2:, 2:]) / 4
        differences.append(float((there[..., 1:-1, 1:-1] - halfway).norm() / halfway.std()))
    assert differences[1] < 0.7 * differences[0]


@pytest.mark.parametrize("layer", [DiskMask(), MaxBlurPool(), BackgroundNorm(2).eval()], ids=repr)
def test_gradients(layer: nn.Module) -> None:
    features = torch.randn(2, 2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer.double(), features)


def test_background_stays_zero(dtype: torch.dtype) -> None:
    """After training it is what batch norm and ReLU say, less what they say of zeros."""
    layer = BackgroundNorm(5).to(dtype)
    with torch.no_grad():
        layer.norm.weight.uniform_(-2, 2)
        layer.norm.bias.uniform_(-2, 2)
    for _ in range(3):
        layer(torch.randn(4, 5, 2, 6, 6, dtype=dtype) + 1)
    layer.eval()
    features = torch.randn(4, 5, 2, 6, 6, dtype=dtype)
    features[..., :2, :] = 0
    zeros = torch.zeros_like(features)
    found = layer(features)
    torch.testing.assert_close(found, F.relu(layer.norm(features)) - F.relu(layer.norm(zeros)))
    assert found[..., :2, :].abs().max() <= 1e-6
    assert F.relu(layer.norm(zeros)).abs().max() > 0.1  # what is subtracted matters
    maps = BackgroundNorm(5, dimensions=2).to(dtype)
    maps.load_state_dict(layer.state_dict())
    torch.testing.assert_close(maps.eval()(features[:, :, 0]), found[:, :, 0])


def test_padding_continues_the_background() -> None:
    """A spot on black gives the same features whatever room there is around it, unlike with the usual batch norm."""

    def network(background: bool) -> nn.Sequential:
        torch.manual_seed(1)
        blocks = [ConvBlock(1, 4, 5, 4, lift=True, padding="same"), ConvBlock(4, 4, 3, 4, padding="same")]
        for block in blocks if background else ():
            block[1], block[2] = BackgroundNorm(4), nn.Identity()
        net = nn.Sequential(*blocks)
        for norm in [module for module in net.modules() if isinstance(module, nn.BatchNorm3d)]:
            nn.init.uniform_(norm.bias, 0.2, 1.0)
        net(torch.randn(8, 1, 16, 16))
        return net.eval()

    images = F.pad(torch.rand(1, 1, 6, 6), (4,) * 4)
    for background, same in ((True, True), (False, False)):
        net = network(background)
        here, there = net(images), net(F.pad(images, (7,) * 4))[..., 7:-7, 7:-7]
        assert bool((here - there).abs().max() <= 1e-5 * here.abs().max()) is same


def test_a_disk_cuts_a_turned_map_as_it_cuts_the_map() -> None:
    maps = F.avg_pool2d(torch.randn(1, 1, 70, 70), 7, 1)
    mask = DiskMask(radius=0.9, edge=4)
    turned, cut = rotate(mask(maps), math.radians(30)), mask(rotate(maps, math.radians(30)))
    assert (turned - cut).norm() < 0.02 * turned.norm()


def test_in_low_precision() -> None:
    features = torch.randn(2, 3, 4, 9, 8)
    for layer in (DiskMask(), MaxBlurPool(), BackgroundNorm(3).eval()):
        low = layer.to(torch.bfloat16)(features.bfloat16())
        assert low.dtype == torch.bfloat16
        torch.testing.assert_close(low.float(), layer.float()(features), atol=0.1, rtol=0.1)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="radius of a disk must be positive, got 0"):
        DiskMask(0)
    with pytest.raises(ValueError, match="edge of a disk must be positive, got -1"):
        DiskMask(edge=-1)
    with pytest.raises(ValueError, match=r"of at least 2×2 pixels, got \(1, 2, 1, 4\)"):
        MaxBlurPool()(torch.zeros(1, 2, 1, 4))
    with pytest.raises(ValueError, match=r"dimensions must be 2 \(maps\) or 3 \(features\), got 1"):
        BackgroundNorm(3, dimensions=1)


def test_compiled_in_one_graph() -> None:
    """Training and inference, on odd and even sizes."""
    net = nn.Sequential(BackgroundNorm(3), DiskMask(), MaxBlurPool())
    other = nn.Sequential(BackgroundNorm(3), DiskMask(), MaxBlurPool())
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    for side in (8, 9):
        features = torch.randn(2, 3, 4, side, side)
        torch.testing.assert_close(compiled(features), net(features))
        torch.testing.assert_close(other.state_dict(), net.state_dict())
    net.eval(), other.eval()
    torch.testing.assert_close(compiled(features), net(features))


@pytest.mark.parametrize("side", [12, 13])
def test_a_mask_keeps_the_disk_and_nothing_beyond_its_edge(side: int, dtype: torch.dtype) -> None:
    features = 1 + torch.rand(2, 3, 4, side, side, dtype=dtype)
    masked = DiskMask(edge=2.0)(features)
    axis = torch.arange(side) - (side - 1) / 2
    distance = (axis.square()[:, None] + axis.square()).sqrt()
    assert masked[..., distance < side / 2 - 1].equal(features[..., distance < side / 2 - 1])
    assert (masked[..., distance > side / 2 + 1] == 0).all()
    assert (distance > side / 2 + 1).any()
