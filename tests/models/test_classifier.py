import io
from typing import Any

import pytest
import torch
from torch import nn

from sfcnn import GroupConv2d, LiftConv2d, assert_equivariant, equivariance_error
from sfcnn.models import (
    BASELINE,
    BENCHMARK,
    MATCHES,
    ClassifierSizes,
    count_parameters,
    mnist_baseline,
    mnist_baseline_cnn,
    mnist_benchmark,
    mnist_benchmark_cnn,
    plain_classifier,
    steerable_classifier,
)
from sfcnn.models.borders import BORDERS, POOLS
from sfcnn.models.classifier import PADDINGS, smallest_side
from sfcnn.nn import BackgroundNorm, DiskMask, MaxBlurPool
from sfcnn.ops import ENGINES

Convolution = (LiftConv2d, GroupConv2d, nn.Conv2d)
TABLES = {
    mnist_baseline: ((7, 5, 5, 5, 5, 5), (16, 24, 32, 32, 48, 64), (64, 64, 10)),
    mnist_benchmark: ((9, 7, 7, 7, 7, 5), (24, 32, 36, 36, 64, 96), (96, 96, 10)),
}


@pytest.mark.parametrize("build", TABLES)
def test_the_networks_are_those_of_the_tables(build: object) -> None:
    kernels, channels, units = TABLES[build]  # type: ignore[index]
    net: nn.Sequential = build()  # type: ignore[operator]
    convolutions = [m for m in net.modules() if isinstance(m, LiftConv2d | GroupConv2d)]
    assert isinstance(convolutions[0], LiftConv2d)
    assert all(isinstance(layer, GroupConv2d) for layer in convolutions[1:])
    assert tuple(layer.kernel_size for layer in convolutions) == kernels
    assert tuple(layer.out_channels for layer in convolutions) == channels
    assert {layer.orientations for layer in convolutions} == {16}
    assert tuple(m.out_features for m in net.modules() if isinstance(m, nn.Linear)) == units
    counts = {kind: sum(isinstance(m, kind) for m in net.modules()) for kind in (nn.BatchNorm3d, nn.BatchNorm1d)}
    assert counts == {nn.BatchNorm3d: 6, nn.BatchNorm1d: 3}
    assert sum(isinstance(m, nn.MaxPool3d) for m in net.modules()) == 2
    dropouts = [m for m in net.modules() if "Dropout" in type(m).__name__]
    assert [m.p for m in dropouts] == [0.3, 0.3]
    assert all(m in set(net.get_submodule("head").modules()) for m in dropouts)


@pytest.mark.parametrize("build", [mnist_baseline, mnist_benchmark])
@pytest.mark.parametrize("engine", ["direct", "atomic"])
def test_quarter_turns_do_not_change_the_logits(build: object, engine: str, dtype: torch.dtype) -> None:
    net: nn.Sequential = build(orientations=4, engine=engine).to(dtype)  # type: ignore[operator]
    images = torch.rand(3, 1, 28, 28, dtype=dtype)
    net(images)
    assert_equivariant(net.eval(), images)
    assert_equivariant(net.get_submodule("features"), images)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("pool", POOLS)
def test_quarter_turns_with_any_border(border: str, pool: str, dtype: torch.dtype) -> None:
    """On odd sizes as well if the pooling is exact there."""
    sizes = ClassifierSizes((5, 3, 3, 3, 3), (3, 4, 4, 4, 5), (6,))
    net = mnist_baseline(8, sizes, border=border, pool=pool).to(dtype)
    for side in (28, 30, 31) if pool == "blur" else (28,):
        images = torch.rand(3, 1, side, side, dtype=dtype)
        net.train()(images)
        assert_equivariant(net.eval(), images)


@pytest.mark.parametrize("build", [mnist_baseline, mnist_baseline_cnn])
def test_a_digit_on_a_larger_canvas_is_the_same(build: object, dtype: torch.dtype) -> None:
    """With room for all that its features reach, logits of a network that keeps the background do not depend on it.

    With a disk alone the black around the digit is no background, and where it ends shows.
    """
    sizes = ClassifierSizes((5, 3, 3), (4, 4, 6), (6,))
    digits = 0.1 * torch.rand(3, 1, 8, 8, dtype=dtype)  # faint, so that an edge would be noticed
    changes = {}
    for border in ("background", "disk"):
        torch.manual_seed(0)
        options = {"border": border, "pool": "blur"}
        net: nn.Sequential = build(orientations=4, sizes=sizes, **options).to(dtype)  # type: ignore[operator]
        for norm in [module for module in net.modules() if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d)]:
            nn.init.uniform_(norm.bias, -1, 1)
        net(torch.rand(4, 1, 16, 16, dtype=dtype))
        with torch.no_grad():
            logits = [net.eval()(nn.functional.pad(digits, (margin,) * 4)) for margin in (12, 16, 30)]
        changes[border] = max(float((other - logits[0]).abs().max() / logits[0].abs().max()) for other in logits)
    assert changes["background"] < 1e-5
    assert changes["disk"] > 1e-3


def test_twins_have_the_same_borders() -> None:
    net, twin = (build(4, sizes=BASELINE, border="background", pool="blur") for build in (mnist_baseline, plain))
    for kind in (DiskMask, MaxBlurPool, BackgroundNorm):
        counts = [sum(isinstance(module, kind) for module in model.modules()) for model in (net, twin)]
        assert counts[0] == counts[1] > 0
    assert not any(isinstance(m, nn.BatchNorm3d) for m in twin.modules())
    images = torch.rand(2, 1, 28, 28)
    assert net(images).shape == twin(images).shape == (2, 10)


def plain(orientations: int, **options: Any) -> nn.Sequential:
    return mnist_baseline_cnn("channels", orientations, **options)


def test_unknown_borders_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown border 'round', choose one of \['none', 'disk', 'background'\]"):
        mnist_baseline(4, border="round")
    with pytest.raises(ValueError, match=r"unknown pool 'mean', choose one of \['max', 'blur'\]"):
        mnist_baseline(4, pool="mean")


def test_sixteen_orientations_on_28_pixels(dtype: torch.dtype) -> None:
    net = mnist_baseline(16).to(dtype)
    images = torch.rand(2, 1, 28, 28, dtype=dtype)
    assert_equivariant(net.eval(), images)


def test_engines_and_seeds_give_the_same_network() -> None:
    nets = []
    for engine in ("direct", "atomic"):
        torch.manual_seed(3)
        nets.append(mnist_baseline(4, engine=engine).eval())
    images = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(nets[0](images), nets[1](images), atol=1e-4, rtol=1e-4)


def test_saved_state_is_the_parameters() -> None:
    """Within 5 % of 4 bytes a parameter, in eval mode after use too."""
    net = mnist_benchmark().eval()
    with torch.no_grad():
        net(torch.rand(1, 1, 28, 28))
    stored = io.BytesIO()
    torch.save(net.state_dict(), stored)
    assert count_parameters(net) == 2_692_220
    assert stored.tell() / (4 * count_parameters(net)) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("twin", "steerable"), [(mnist_baseline_cnn, mnist_baseline), (mnist_benchmark_cnn, mnist_benchmark)]
)
def test_twins_match(twin: object, steerable: object) -> None:
    def channels(net: nn.Module) -> list[int]:
        return [m.out_channels for m in net.modules() if isinstance(m, Convolution)]

    with torch.device("meta"):
        ours: nn.Module = steerable(8)  # type: ignore[operator]
        twins: dict[str, nn.Module] = {match: twin(match, 8) for match in MATCHES}  # type: ignore[operator]
    assert channels(twins["channels"]) == channels(ours)
    assert channels(twins["effective-channels"]) == [8 * c for c in channels(ours)]
    assert count_parameters(twins["parameters"]) / count_parameters(ours) == pytest.approx(1, abs=0.02)
    with pytest.raises(ValueError, match=r"unknown match 'size', choose one of \['channels', 'effective-channels'"):
        twin("size", 8)  # type: ignore[operator]


def test_sizes_and_options_are_arguments() -> None:
    sizes = ClassifierSizes((5, 3), (4, 6), (7,))
    net = mnist_baseline(4, sizes, in_channels=3, classes=2, dropout=0.0, basis="paper", init="he")
    assert net(torch.rand(2, 3, 20, 20)).shape == (2, 2)
    assert plain_classifier(sizes, in_channels=3, classes=2)(torch.rand(2, 3, 20, 20)).shape == (2, 2)
    assert {m.basis_name for m in net.modules() if isinstance(m, GroupConv2d)} == {"paper"}
    with pytest.raises(ValueError, match=r"one entry per convolution, and at least one, got \(5, 3\) and \(4,\)"):
        ClassifierSizes((5, 3), (4,), ())
    assert BASELINE.channels == (16, 24, 32, 32, 48, 64)


def test_it_learns() -> None:
    """A tiny network tells stripes from dots, whatever their rotation, after a few steps."""
    from sfcnn import rotate

    x = torch.arange(16.0)
    stripes, dots = torch.cos(1.2 * x).expand(16, 16), torch.cos(1.2 * x) * torch.cos(1.2 * x)[:, None]
    images = torch.stack([stripes, dots] * 8)[:, None] + 0.3 * torch.randn(16, 1, 16, 16)
    labels = torch.tensor([0, 1] * 8)
    net = mnist_baseline(8, ClassifierSizes((5, 5), (4, 6), ()), classes=2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(25):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    net.eval()
    for degrees in (0, 45, 90, 200):
        turned = rotate(images, torch.pi * degrees / 180)
        assert (net(turned).argmax(1) == labels).float().mean() > 0.9


def sides(net: nn.Module, side: int) -> list[int]:
    """Of the image and of the maps after every block and pooling."""
    found, maps = [side], torch.rand(2, 1, side, side)
    for layer in net.get_submodule("features").children():
        maps = layer(maps)
        found.append(maps.shape[-1])
    return found


def test_the_two_readings_of_the_padding() -> None:
    sizes = ClassifierSizes(BENCHMARK.kernel_sizes, (2,) * 6, (4,))
    inner = [28, 20, 20, 10, 10, 10, 5, 5, 1]
    same = [28, 28, 28, 14, 14, 14, 7, 7, 7]
    assert sides(mnist_benchmark(2, sizes), 28) == inner
    assert sides(mnist_benchmark_cnn("parameters", 2, sizes), 28) == inner
    assert sides(mnist_benchmark(2, sizes, padding="same"), 28) == same
    assert sides(mnist_benchmark_cnn("channels", 2, sizes, padding="same"), 28) == same
    assert sides(mnist_baseline(2, sizes), 28) == same
    states = [mnist_benchmark(2, sizes, padding=padding).state_dict() for padding in PADDINGS]
    assert {name: value.shape for name, value in states[0].items()} == {n: v.shape for n, v in states[1].items()}
    for build in (mnist_benchmark, mnist_benchmark_cnn):
        with pytest.raises(ValueError, match=r"unknown padding 'valid', choose one of \['same', 'inner'\]"):
            build(padding="valid")


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    "sizes", [((9, 7, 7, 7, 7, 5), 6), ((7, 5, 5, 5, 5, 5), 6), ((5, 3), 2), ((5,), 1), ((3, 3, 5), 3)], ids=str
)
def test_the_smallest_side_is_the_smallest(sizes: tuple[tuple[int, ...], int], padding: str) -> None:
    net_sizes = ClassifierSizes(sizes[0], (2,) * sizes[1], ())
    nets = steerable_classifier(net_sizes, 1, padding=padding), plain_classifier(net_sizes, padding=padding)
    side = smallest_side(net_sizes, padding)
    for net in nets:
        assert net(torch.rand(2, 1, side, side)).shape == (2, 10)
        if side > 1:
            with pytest.raises((RuntimeError, ValueError)):
                net(torch.rand(2, 1, side - 1, side - 1))


TINY = ClassifierSizes((5, 3, 3, 3), (3, 4, 4, 5), (8,))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [4, 8, 16])
def test_logits_stay_for_turned_and_mirrored_images(orientations: int, engine: str, dtype: torch.dtype) -> None:
    net = steerable_classifier(TINY, orientations, reflections=True, engine=engine).to(dtype)
    images = torch.randn(4, 1, 16, 16, dtype=dtype)
    net(images)  # batch norms that are not those of the start
    assert_equivariant(net.eval(), images, reflections=True)


def test_without_reflections_logits_change_in_a_mirror() -> None:
    images = torch.randn(4, 1, 16, 16)
    for options in ({}, {"reflections": True, "restrict_after": 2}):
        net = steerable_classifier(TINY, 4, **options).eval()  # type: ignore[arg-type]
        assert_equivariant(net, images)
        assert equivariance_error(net, images, 0.0, mirror=True) > 1e-3


def test_restriction_doubles_the_channels_of_the_next_layer() -> None:
    net = steerable_classifier(TINY, 8, reflections=True, restrict_after=2)
    layers = [m for m in net.modules() if isinstance(m, LiftConv2d | GroupConv2d)]
    assert [layer.reflections for layer in layers] == [True, True, False, False]
    assert [layer.in_channels for layer in layers] == [1, 3, 8, 4]


def test_pixels_are_a_basis_of_networks() -> None:
    images = torch.randn(4, 1, 16, 16, dtype=torch.float64)
    net = steerable_classifier(TINY, 4, reflections=True, basis="pixels").double().eval()
    assert_equivariant(net, images, reflections=True)


def test_twins_match_networks_with_reflections() -> None:
    twin = mnist_baseline_cnn("effective-channels", 3, TINY, reflections=True)
    assert [m.out_channels for m in twin.modules() if isinstance(m, nn.Conv2d)] == [6 * c for c in TINY.channels]
    twin = mnist_baseline_cnn("parameters", 8, reflections=True)
    ratio = count_parameters(twin) / count_parameters(mnist_baseline(8, reflections=True))
    assert ratio == pytest.approx(1, rel=0.01)


def test_what_cannot_be_restricted_is_named() -> None:
    with pytest.raises(ValueError, match="restrict_after gives up reflections, got 2 for a network without"):
        steerable_classifier(TINY, 4, restrict_after=2)
    with pytest.raises(ValueError, match="a convolution with another after it, 1 … 3, got 4"):
        steerable_classifier(TINY, 4, reflections=True, restrict_after=4)
