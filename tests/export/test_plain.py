import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from export_checks import assert_same, trained
from export_networks import SMALL, Field, Mixed
from torch import Tensor, fx, nn

import sfcnn.nn
from sfcnn import (
    Basis,
    ConvBlock,
    GroupConv2d,
    LiftConv2d,
    OrientationPool,
    OrientationReadout,
    ResidualBlock,
    Restrict,
)
from sfcnn.export import to_plain
from sfcnn.models import membrane_unet, membrane_unet_cnn, mnist_baseline, mnist_baseline_cnn, mnist_benchmark
from sfcnn.models.unet import Crop
from sfcnn.nn import BackgroundNorm, DiskMask, MaxBlurPool, SpatialMaxPool
from sfcnn.ops import ENGINES, PADDING_MODES

MODELS: dict[str, Callable[[], nn.Module]] = {
    "baseline": lambda: mnist_baseline(4, SMALL),
    "baseline, default size": lambda: mnist_baseline(2),
    "benchmark": lambda: mnist_benchmark(3, SMALL, basis="paper", init="he", classes=3, in_channels=1),
    "own basis": lambda: mnist_benchmark(5, SMALL, basis=lambda size: Basis((0, 1), (0.5, 0.6), (0, 2))),
    "reflections": lambda: mnist_baseline(4, SMALL, reflections=True),
    "reflections, restricted": lambda: mnist_baseline(3, SMALL, reflections=True, restrict_after=1),
    "pixels": lambda: mnist_baseline(4, SMALL, basis="pixels"),
    "unet with reflections": lambda: membrane_unet(
        3, channels=2, levels=2, input_kernel_size=5, kernel_size=3, reflections=True
    ),
    "baseline twin": lambda: mnist_baseline_cnn("parameters", 4, SMALL),
    "borders": lambda: mnist_baseline(4, SMALL, border="background", pool="blur"),
    "disk": lambda: mnist_baseline(4, SMALL, border="disk"),
    "unet": lambda: membrane_unet(3, channels=2, levels=3, input_kernel_size=5, kernel_size=3, crop=2),
    "unet, deep residuals": lambda: membrane_unet(
        4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, residual_depth=2, padding_mode="reflect", classes=2
    ),
    "unet twin": lambda: membrane_unet_cnn("channels", 3, channels=2, levels=3, input_kernel_size=5, kernel_size=3),
}
ORDINARY = (nn.Conv2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AdaptiveMaxPool2d, nn.Upsample, nn.Flatten)


@torch.no_grad()
def check(net: nn.Module, *inputs: Tensor) -> fx.GraphModule:
    """The plain network, which must say what the network says."""
    plain = to_plain(net)
    assert_same(plain(*(x.clone() for x in inputs)), net(*(x.clone() for x in inputs)))
    return plain


def nodes(plain: fx.GraphModule) -> list[str]:
    """What a plain network does beside calling layers."""
    return [str(getattr(node.target, "__name__", node.target)) for node in plain.graph.nodes if "call_" in node.op]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_models_become_ordinary_layers_on_maps(make: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    net = trained(make(), dtype)
    plain = check(net, torch.randn(2, 1, 16, 24, dtype=dtype))
    leaves = [module for module in plain.modules() if not list(module.children())]
    assert {type(leaf) for leaf in leaves} <= set(ORDINARY)
    assert nodes(plain).count("unflatten") <= 1  # for the maximum over orientations
    assert "flatten" not in nodes(plain)
    assert not any(parameter.requires_grad for parameter in plain.parameters())


def test_borders_of_a_twin(dtype: torch.dtype) -> None:
    net = trained(mnist_baseline_cnn("channels", 4, SMALL, border="background", pool="blur"), dtype)
    plain = check(net, torch.randn(2, 1, 16, 24, dtype=dtype))
    with torch.no_grad():
        odd = torch.randn(2, 1, 15, 17, dtype=dtype)
        assert_same(plain(odd), net(odd))


@pytest.mark.parametrize("engine", ENGINES)
def test_any_engine(engine: str) -> None:
    check(trained(mnist_baseline(4, SMALL, engine=engine)), torch.randn(2, 1, 12, 12))


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize(
    "options", [{}, {"padding": 2}, {"padding": "same", "dilation": 2}, {"padding": 3, "stride": 2, "bias": False}]
)
def test_convolutions_alone(mode: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    for layer, shape in ((LiftConv2d, (2, 3, 11, 12)), (GroupConv2d, (2, 3, 6, 11, 12))):
        net = trained(layer(3, 4, 5, 6, padding_mode=mode, **options), dtype)
        plain = check(net, torch.randn(shape, dtype=dtype))
        (conv,) = plain.children()
        assert type(conv) is nn.Conv2d


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "LiftConv2d": lambda: LiftConv2d(2, 3, 3, 4),
    "GroupConv2d": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), GroupConv2d(3, 2, 3, 4)),
    "ConvBlock": lambda: ConvBlock(2, 3, 3, 4, lift=True, padding="same", dropout=0.3),
    "ResidualBlock": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), ResidualBlock(3, 3, 4, depth=2, dropout=0.3)),
    "DiskMask": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), DiskMask(1.1, 2.0)),
    "MaxBlurPool": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), MaxBlurPool()),
    "BackgroundNorm": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), BackgroundNorm(3)),
    "OrientationPool": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), OrientationPool("mean")),
    "OrientationReadout": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), OrientationReadout("soft")),
    "SpatialMaxPool": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), SpatialMaxPool()),
    "Restrict": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4, reflections=True), Restrict(2, reflections=True)),
    "OrientedResponse": lambda: nn.Sequential(LiftConv2d(2, 3, 3, 4), OrientationReadout("argmax", symmetry=2)),
}


def test_every_layer_is_covered() -> None:
    assert set(LAYERS) == set(sfcnn.nn.__all__)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    net = trained(LAYERS[name](), dtype)
    plain = check(net, torch.randn(2, 2, 9, 8, dtype=dtype))
    assert type(plain(torch.randn(2, 2, 9, 8, dtype=dtype))) in (Tensor, tuple)  # no class of ours
    check(nn.Sequential(nn.Identity(), net, nn.Identity()).eval(), torch.randn(1, 2, 9, 9, dtype=dtype))


@pytest.mark.parametrize(
    "layer",
    [
        OrientationPool(),
        OrientationReadout(),
        OrientationReadout("soft"),
        Crop(2),
        DiskMask(),
        MaxBlurPool(),
        BackgroundNorm(3),
    ],
)
def test_layers_on_features_from_outside(layer: nn.Module, dtype: torch.dtype) -> None:
    for orientations in (3, 4):
        check(layer.to(dtype).eval(), torch.randn(2, 3, orientations, 7, 8, dtype=dtype))


#: PyTorch's layers on features of 4 channels and 6 orientations, and whether they stay on maps.
THEIRS: list[tuple[nn.Module, bool]] = [
    (nn.BatchNorm3d(4), True),
    (nn.BatchNorm3d(4, affine=False), True),
    (nn.SyncBatchNorm(4), True),
    (nn.InstanceNorm3d(4), True),
    (nn.InstanceNorm3d(4, affine=True), True),
    (nn.GroupNorm(2, 4), True),
    (nn.GroupNorm(4, 4, affine=False), True),
    (nn.PReLU(), True),
    (nn.PReLU(4), True),
    (nn.GELU("tanh"), True),
    (nn.ReLU(inplace=True), True),
    (nn.Dropout3d(), True),
    (nn.Dropout(), True),
    (nn.MaxPool3d((1, 2, 2)), True),
    (nn.MaxPool3d((1, 3, 3), stride=(1, 2, 1), padding=(0, 1, 0), dilation=(1, 1, 2), ceil_mode=True), True),
    (nn.AvgPool3d((1, 2, 3)), True),
    (nn.AvgPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1), ceil_mode=True, count_include_pad=False), True),
    (nn.AvgPool3d((1, 2, 2), divisor_override=3), True),
    (nn.AdaptiveAvgPool3d((6, 3, 2)), True),
    (nn.AdaptiveMaxPool3d((None, 3, None)), True),
    (nn.Upsample(scale_factor=(1, 2, 3)), True),
    (nn.Upsample(size=(6, 20, 11), mode="nearest-exact"), True),
    (nn.Upsample(scale_factor=(1, 2, 2), mode="trilinear", align_corners=True), True),
    (Crop(1), True),
    (nn.BatchNorm3d(4, track_running_stats=False), False),
    (nn.InstanceNorm3d(4, track_running_stats=True), False),
    (nn.MaxPool3d(2), False),
    (nn.AvgPool3d((2, 1, 1), stride=1), False),
    (nn.AdaptiveMaxPool3d(1), False),
    (nn.Upsample(scale_factor=2), False),
    (nn.Conv3d(4, 4, (3, 1, 1), padding=(1, 0, 0)), False),
    (nn.LayerNorm(8), False),
    (nn.Flatten(), False),
    (nn.Softmax(2), False),
]


@pytest.mark.parametrize(("layer", "on_maps"), THEIRS, ids=lambda value: repr(value)[:40])
def test_layers_of_torch_between_ours(layer: nn.Module, on_maps: bool, dtype: torch.dtype) -> None:
    net = nn.Sequential(LiftConv2d(1, 4, 3, 6, padding=1), nn.Softsign(), copy.deepcopy(layer), nn.ReLU())
    if on_maps:
        net.append(GroupConv2d(4, 2, 3, 6, padding=1))
    plain = check(trained(net, dtype), torch.randn(2, 1, 10, 8, dtype=dtype))
    assert nodes(plain).count("unflatten") == 1  # at the end, or else for the layer
    assert all(not isinstance(module, nn.BatchNorm3d) for module in plain.modules()) == (
        not isinstance(layer, nn.BatchNorm3d) or on_maps
    )


def unpacks(features: Tensor) -> Tensor:
    batch, channels, orientations, height, width = features.shape
    return features.view(batch, channels * orientations, height * width)


#: Functions of features, and how often the full shape is needed, the end included.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "relu": (torch.relu, 1),
    "method": (lambda x: x.clamp(min=-0.1, max=0.2).mul(2), 1),
    "numbers": (lambda x: 1 - 2 * x**2 / 3, 1),
    "sum": (lambda x: x + torch.tanh(x), 1),
    "alpha": (lambda x: torch.add(x, torch.neg(x), alpha=0.25), 1),
    "cat": (lambda x: torch.cat([x, F.leaky_relu(x, 0.2)], dim=1), 1),
    "cat by -4": (lambda x: torch.cat((x, x.abs()), -4), 1),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=(1, 2, 2)), 1),
    "cat over orientations": (lambda x: torch.cat([x, x.exp()], dim=2), 2),
    "stack": (lambda x: torch.stack([x, x], 1), 2),
    "amax": (lambda x: x.amax(2), 1),
    "max": (lambda x: x.max(dim=2).values, 1),
    "mean over all but channels": (lambda x: x.mean((2, 3, 4)), 1),
    "one orientation": (lambda x: x[:, :, 0], 1),
    "roll": (lambda x: x.roll(1, dims=2) - x, 2),
    "broadcast": (lambda x: x * x.amax(2, keepdim=True), 2),
    "first channel": (lambda x: x * x[:, :1], 2),
    "sizes": (lambda x: x.reshape(x.shape[0], x.size(1), -1), 3),
    "unpacked sizes": (unpacks, 2),
    "where": (lambda x: torch.where(x > 0, x, 0.1), 2),
}


class Calls(nn.Module):
    """A function after a lifting convolution."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.lift, self.function = LiftConv2d(1, 4, 3, 6), function

    def forward(self, images: Tensor) -> Any:
        return self.function(self.lift(images))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_features(name: str) -> None:
    function, count = FUNCTIONS[name]
    plain = check(trained(Calls(function)), torch.randn(2, 1, 7, 8))
    assert nodes(plain).count("unflatten") == count


def test_a_users_own_network(dtype: torch.dtype) -> None:
    for mode in PADDING_MODES:
        plain = check(trained(Mixed(mode), dtype), torch.randn(2, 2, 10, 12, dtype=dtype))
        assert [type(module) for module in plain.modules()].count(nn.BatchNorm2d) == 1  # where two need what is before
    check(trained(Field(), dtype), torch.randn(2, 1, 8, 10, dtype=dtype))


class Gated(nn.Module):
    """One channel that weights all others."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.gate = LiftConv2d(1, 4, 3, 6), LiftConv2d(1, 1, 3, 6)

    def forward(self, images: Tensor) -> Tensor:
        return self.lift(images) * torch.sigmoid(self.gate(images))


def test_features_of_different_channels(dtype: torch.dtype) -> None:
    check(trained(Gated(), dtype), torch.randn(2, 1, 6, 6, dtype=dtype))


class Shares(nn.Module):
    """The same layers at several places and for several shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.twice = LiftConv2d(1, 4, 3, 6, padding=1), GroupConv2d(4, 4, 3, 6, padding=1)
        self.first, self.second = nn.BatchNorm3d(4), nn.BatchNorm3d(4)
        self.pool, self.act, self.prelu = nn.MaxPool3d((1, 2, 2)), nn.ReLU(), nn.PReLU(4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.act(self.first(self.twice(self.lift(images))))
        features = self.act(self.second(self.twice(self.prelu(features))))
        features = self.first(self.twice(self.pool(features)))
        turned = self.prelu(self.pool(features.roll(1, 2)))
        return self.act(self.twice(turned)), self.prelu(features.amax(2)) * self.lift.weight.mean()


def test_shared_layers(dtype: torch.dtype) -> None:
    plain = check(trained(Shares(), dtype), torch.randn(2, 1, 8, 8, dtype=dtype))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in plain.modules())


class Writes(nn.Module):
    """Tensors that are written to under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.relu = LiftConv2d(1, 4, 3, 6, padding=1), nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.lift(images)
        before = features.clone()
        features += 1
        other = features
        other *= torch.ones(1, 1, 1, 1, 1) * 2
        self.relu(features)
        features.sub_(0.5)
        features[:, 1:, 2] = features[:, :-1, 3] * 2
        F.elu(other, inplace=True)
        return before, features, other


def test_writing_in_place_is_seen_by_all(dtype: torch.dtype) -> None:
    check(trained(Writes(), dtype), torch.randn(2, 1, 5, 5, dtype=dtype))


def test_the_model_is_left_alone_and_not_shared() -> None:
    net = trained(Mixed())
    before, attributes = copy.deepcopy(net.state_dict()), set(vars(net))
    images = torch.randn(1, 2, 8, 8)
    plain = to_plain(net)
    expected = plain(images)
    assert set(vars(net)) == attributes
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert_same(net.state_dict(), before)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    assert_same(plain(images), expected)


def test_wrapped_models(dtype: torch.dtype) -> None:
    net = trained(LiftConv2d(1, 2, 3, 4), dtype)
    images = torch.randn(1, 1, 5, 5, dtype=dtype)
    compiled: Any = torch.compile(net, backend="eager")
    for wrapped in (nn.DataParallel(net), compiled, nn.DataParallel(compiled)):
        assert_same(to_plain(wrapped.eval())(images), net(images))


class Wider(GroupConv2d):
    """A layer with other defaults, which is the same layer."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 2 * channels, 3, 4, padding="same")

    def extra_repr(self) -> str:
        return "wider"


def test_a_subclass_that_computes_the_same() -> None:
    check(trained(nn.Sequential(LiftConv2d(1, 2, 3, 4), Wider(2))), torch.randn(2, 1, 6, 6))


@pytest.mark.parametrize(
    "options", [{"orientations": 4}, {"orientations": 2, "reflections": True}, {"reflections": True}]
)
def test_restrictions_put_maps_in_order(options: dict[str, Any]) -> None:
    reflections = options.get("reflections", False)
    lift = LiftConv2d(1, 3, 3, 8, reflections=reflections)
    check(trained(nn.Sequential(lift, Restrict(**options))), torch.randn(2, 1, 7, 7))
    kept = nn.Sequential(LiftConv2d(1, 3, 3, 8, reflections=True), Restrict(2, reflections=True, keep_reflections=True))
    check(trained(nn.Sequential(kept, GroupConv2d(12, 2, 3, 2, reflections=True))), torch.randn(2, 1, 7, 7))
    with pytest.raises(ValueError, match="a layer before it must determine its number of orientations"):
        to_plain(nn.Sequential(Restrict(**options)).eval())


@pytest.mark.parametrize("kind", ["argmax", "soft"])
def test_readouts_of_mirrored_orientations(kind: str) -> None:
    readout = OrientationReadout(kind, reflections=True)
    net = nn.Sequential(LiftConv2d(1, 3, 3, 4, reflections=True), readout)
    check(trained(net, torch.float64), torch.randn(2, 1, 7, 7, dtype=torch.float64))
    check(trained(nn.Sequential(readout), torch.float64), torch.randn(2, 3, 8, 5, 5, dtype=torch.float64))
