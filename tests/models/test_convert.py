"""Networks of PyTorch layers become equivariant, and what cannot is named, all of it at once."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, assert_equivariant
from sfcnn.export import to_plain
from sfcnn.models import replace_convs


def conv3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """The basic block of a ResNet, with one ReLU that is used twice."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += shortcut
        result: Tensor = self.relu(out)
        return result


class ResNet(nn.Module):
    """Written as most ResNets are."""

    def __init__(self, channels: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(channels, channels), Block(channels, channels))
        self.layer2 = nn.Sequential(Block(channels, 2 * channels, 2), Block(2 * channels, 2 * channels))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(2 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def vgg() -> nn.Sequential:
    features: list[nn.Module] = []
    for inputs, outputs in ((1, 3), (3, 4)):
        features += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Dropout2d(0.1), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 3))


class Dense(nn.Module):
    """Images to maps, with padding, upsampling, concatenation and functions of all kinds that keep orientations."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.BatchNorm2d(1), nn.InstanceNorm2d(4, affine=True)
        self.left, self.right = nn.Conv2d(1, 2, 3, padding="same"), nn.Conv2d(1, 2, 5, padding=2)
        self.pad, self.inner = nn.ReflectionPad2d(1), nn.Conv2d(4, 4, 3)
        self.down, self.up = nn.AvgPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.act, self.group = nn.PReLU(4), nn.GroupNorm(2, 4)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        images = self.enter(images * 2 - 1)
        maps = self.norm(torch.cat([self.left(images), self.right(images)], dim=1))
        low = self.act(self.group(self.inner(self.pad(self.down(maps)))))
        high = F.elu(self.up(low)).clamp(max=3) * 0.5
        maps = torch.cat((F.dropout(maps, 0.1, self.training), high), 1)
        assert maps.size(1) is not None
        result: Tensor = self.last(maps)
        return result


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet": (ResNet, (2, 3, 33, 33)),  # 33 → 17 → 9 → 5: every stride ends where it began
    "vgg": (vgg, (2, 1, 16, 16)),
    "dense": (Dense, (2, 1, 12, 16)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("pool", ["max", "mean"])
def test_converted_networks_follow_quarter_turns(name: str, pool: str, dtype: torch.dtype) -> None:
    make, shape = NETWORKS[name]
    plain = make().to(dtype)
    images = torch.rand(shape, dtype=dtype)
    net = replace_convs(plain, 4, orientation_pool=pool)
    assert type(net) is type(plain)
    assert net(images).shape == plain(images).shape
    assert net(images).dtype == dtype
    net(images).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert_equivariant(net.eval(), images)
    with pytest.raises(AssertionError):
        assert_equivariant(plain.eval(), images)
    assert not any(isinstance(module, nn.Conv2d) for module in net.modules())
    assert not set(net.parameters()) & set(plain.parameters())
    assert not any(isinstance(module, LiftConv2d | GroupConv2d) for module in plain.modules())  # it is as it was


def test_layers_keep_their_names_settings_and_place() -> None:
    plain = nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=2, padding=3, padding_mode="reflect"),
        nn.BatchNorm2d(4, eps=1e-3, momentum=0.2),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Conv2d(4, 4, 3, padding="same", dilation=2, bias=False),
        nn.Dropout2d(0.25),
        nn.AdaptiveAvgPool2d(4),
        nn.AvgPool2d(2, count_include_pad=False),
    )
    plain.eval()
    plain[3].requires_grad_(False)
    net = replace_convs(plain, 8, basis="averaged", engine="direct")
    assert list(dict(net.named_children())) == list(dict(plain.named_children()))
    first, norm, pool, second, drop, adaptive, last = net
    assert isinstance(first, LiftConv2d)
    assert (first.geometry.stride, first.geometry.padding, first.geometry.padding_mode) == (2, 3, "reflect")
    assert isinstance(norm, nn.BatchNorm3d)
    assert (norm.eps, norm.momentum) == (1e-3, 0.2)
    assert isinstance(pool, nn.MaxPool3d)
    assert (pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode) == ((1, 3, 3), (1, 2, 2), (0, 1, 1), True)
    assert isinstance(second, GroupConv2d)
    assert (second.geometry.dilation, second.bias, second.basis_name, second.engine) == (2, None, "averaged", "direct")
    assert isinstance(drop, nn.Dropout3d)
    assert drop.p == 0.25
    assert isinstance(adaptive, nn.AdaptiveAvgPool3d)
    assert isinstance(last, nn.Sequential)  # the features that it would return are pooled
    assert not any(module.training for module in net.modules())
    assert net(torch.rand(1, 3, 40, 40)).shape == plain(torch.rand(1, 3, 40, 40)).shape


class Shared(nn.Module):
    """One convolution under two names, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
        self.again, self.pool = self.twice, nn.AdaptiveAvgPool2d(1)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.pool(self.again(self.twice(self.first(images))))
        return result


def test_shared_layers_stay_shared_and_a_single_layer_is_a_network() -> None:
    net = replace_convs(Shared(), 4)
    assert net.again is net.twice
    assert_equivariant(net.eval(), torch.rand(1, 1, 9, 9))
    single = replace_convs(nn.Conv2d(1, 2, 3), 4)
    assert single(torch.rand(1, 1, 9, 9)).shape == (1, 2, 7, 7)
    assert_equivariant(single, torch.rand(1, 1, 9, 9))


def test_converted_networks_can_be_exported() -> None:
    net = replace_convs(ResNet(), 4).eval()
    images = torch.rand(2, 3, 33, 33)
    torch.testing.assert_close(to_plain(net)(images), net(images), atol=1e-5, rtol=1e-5)


class Mixed(nn.Module):
    """As many obstacles as fit into one network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 4)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4, padding=1)
        self.wide = nn.Conv2d(4, 4, (1, 3), padding=(0, 1))
        self.transposed, self.norm = nn.ConvTranspose2d(4, 4, 2, 2), nn.LayerNorm([4, 8, 8])
        self.unused = nn.Conv2d(1, 1, 1)
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(4 * 64, 3))

    def forward(self, images: Tensor) -> Tensor:
        maps = self.norm(F.max_pool2d(self.transposed(self.wide(self.depthwise(self.stem(images)))), 2))
        result: Tensor = self.classify(maps)
        return result


def test_everything_that_cannot_be_converted_is_named_at_once() -> None:
    plain = Mixed()
    assert plain(torch.rand(1, 1, 11, 11)).shape == (1, 3)
    with pytest.raises(ValueError, match="cannot convert") as caught:
        replace_convs(plain, 4)
    first, *lines = str(caught.value).splitlines()
    assert first == "cannot convert the Mixed, obstacles: 8"
    axes = "expected the same along both axes, which quarter turns exchange"
    assert sorted(line.strip() for line in lines) == sorted(
        (
            "stem (Conv2d): kernel_size=(4, 4), expected odd numbers: filters turn about a pixel",
            "depthwise (Conv2d): groups=4, expected 1: group convolutions connect all channels",
            f"wide (Conv2d): kernel_size=(1, 3), {axes}; padding=(0, 1), {axes}",
            "transposed (ConvTranspose2d): no layer on features does the same",
            "norm (LayerNorm): no layer on features does the same",
            "unused (Conv2d): forward does not call it",
            "the Mixed itself: its forward calls a function max_pool2d on features: make it a layer, nn.MaxPool2d",
            "classify.0 (Flatten): it flattens features, which depends on positions: pool to 1×1 before it",
        )
    )


class Obstacle(nn.Module):
    """A convolution and a function of one's own on its features."""

    def __init__(self, function: object, *others: nn.Module) -> None:
        super().__init__()
        self.conv, self.others = nn.Conv2d(1, 3, 3, padding=1), nn.ModuleList(others)
        self.scale, self.function = nn.Parameter(torch.rand(3, 1, 1)), function

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.function(self, images)  # type: ignore[operator]
        return result


def refused(function: object, *others: nn.Module) -> str:
    net = Obstacle(function, *others)
    net(torch.rand(1, 1, 8, 8))  # a network that works
    with pytest.raises(ValueError, match="cannot convert the Obstacle, obstacles: ") as caught:
        replace_convs(net, 4)
    return str(caught.value)


def test_functions_that_would_mistake_the_orientations_are_refused() -> None:
    assert "calls a method mean on features: make it a layer, nn.AdaptiveAvgPool2d(1)" in refused(
        lambda net, x: net.conv(x).mean((2, 3))
    )
    assert "calls a function add on features and images" in refused(lambda net, x: net.conv(x) + x)
    assert "calls a function mul on features and tensor" in refused(lambda net, x: net.conv(x) * net.scale)
    assert "calls a function flatten on features: pool to 1×1" in refused(lambda net, x: torch.flatten(net.conv(x), 1))
    assert "a function interpolate on features: make it a layer, nn.Upsample" in refused(
        lambda net, x: F.interpolate(net.conv(x), scale_factor=2)
    )
    assert "calls a function cat on features" in refused(lambda net, x: torch.cat([net.conv(x)] * 2, dim=3))
    assert "calls a function getitem on features" in refused(lambda net, x: net.conv(x)[:, :, 1:])
    assert "calls a function mul on features and pooled" in refused(
        lambda net, x: (lambda maps: maps * net.others[0](maps))(net.conv(x)), nn.AdaptiveAvgPool2d(1)
    )
    assert "returns features that are not those of its last layer alone" in refused(lambda net, x: net.conv(x).relu())
    assert "others.0 (Linear): it acts on the columns of features" in refused(
        lambda net, x: net.others[0](net.conv(x)), nn.Linear(8, 2)
    )
    assert "others.0 (MaxPool2d): it is used on features and elsewhere" in refused(
        lambda net, x: net.others[1](net.others[0](net.conv(net.others[0](x)))),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
    )
    message = refused(lambda net, x: net.conv(x) if x.sum() > 0 else x)
    assert "the Obstacle itself: its forward cannot be traced" in message


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="orientations"):
        replace_convs(vgg(), 0)
    with pytest.raises(ValueError, match="unknown kind of orientation pooling 'sum'"):
        replace_convs(vgg(), 4, orientation_pool="sum")
