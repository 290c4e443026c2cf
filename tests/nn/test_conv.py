import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfcnn import Basis, GroupConv2d, LiftConv2d, OrientationPool, assert_equivariant, rotate_features
from sfcnn.ops import ENGINES, PADDING_MODES, Atoms

pytestmark = pytest.mark.parametrize("engine", ENGINES)


def small_net(engine: str, **options: Any) -> nn.Sequential:
    return nn.Sequential(
        LiftConv2d(1, 4, 5, 8, padding="same", engine=engine, **options),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        GroupConv2d(4, 3, 3, 8, padding="same", engine=engine, **options),
        OrientationPool(),
    )


@pytest.mark.parametrize("basis", ["bandlimited", "paper", Basis((0, 1.5), (0.5, 0.8), (0, 5))])
@pytest.mark.parametrize("orientations", [4, 8, 12, 16])
@pytest.mark.parametrize("mode", PADDING_MODES)
def test_quarter_turns_are_exact(
    engine: str, basis: str | Basis, orientations: int, mode: str, dtype: torch.dtype
) -> None:
    options: dict[str, Any] = {"padding": 2, "padding_mode": mode, "basis": basis, "engine": engine}
    lift = LiftConv2d(2, 3, 5, orientations, **options).to(dtype)
    group = GroupConv2d(3, 2, 5, orientations, **options).to(dtype)
    images = torch.randn(2, 2, 14, 14, dtype=dtype)
    assert_equivariant(lift, images)
    assert_equivariant(group, torch.randn(2, 3, orientations, 14, 14, dtype=dtype))
    assert_equivariant(nn.Sequential(lift, nn.ReLU(), group), images)


@pytest.mark.parametrize(("size", "stride", "dilation"), [(13, 2, 1), (15, 2, 2), (17, 3, 1), (14, 1, 3)])
def test_quarter_turns_are_exact_with_stride_and_dilation(engine: str, size: int, stride: int, dilation: int) -> None:
    """Exact wherever the first and last position of the filter lie alike at both ends of the map."""
    layer = GroupConv2d(2, 3, 5, 8, stride=stride, dilation=dilation, engine=engine).double()
    assert (size - dilation * 4 - 1) % stride == 0
    assert_equivariant(layer, torch.randn(1, 2, 8, size, size, dtype=torch.float64))


@pytest.mark.parametrize("orientations", [2, 6])
def test_half_turns_are_exact_for_even_orientations(engine: str, orientations: int) -> None:
    layer = GroupConv2d(2, 3, 5, orientations, engine=engine).double()
    features = torch.randn(1, 2, orientations, 9, 11, dtype=torch.float64)
    turned = layer(rotate_features(features, math.pi))
    torch.testing.assert_close(turned, rotate_features(layer(features), math.pi))


@pytest.mark.parametrize("stride", [1, 2])
def test_translations_by_the_stride_are_exact(engine: str, stride: int, dtype: torch.dtype) -> None:
    layer = GroupConv2d(2, 3, 5, 6, stride=stride, engine=engine).to(dtype)
    features = torch.randn(1, 2, 6, 24, 24, dtype=dtype)
    moved = torch.roll(features, (2 * stride, -stride), (-2, -1))
    inner = (..., slice(4, -4), slice(4, -4))
    torch.testing.assert_close(layer(moved)[inner], torch.roll(layer(features), (2, -1), (-2, -1))[inner])


def test_sampled_angles_cost_little_with_the_default_basis(engine: str) -> None:
    """At angles between pixels a smooth image is needed, and the error is that of sampling."""
    coarse = torch.randn(1, 1, 13, 13)
    images = nn.functional.interpolate(coarse, size=65, mode="bicubic", align_corners=True)
    layer = LiftConv2d(1, 8, 7, 16, padding="same", engine=engine)
    angles = [index * math.pi / 8 for index in range(1, 16)]
    assert_equivariant(layer, images, angles, tolerance=0.05, radius=16)
    with pytest.raises(AssertionError, match="exceeds"):
        assert_equivariant(nn.Conv2d(1, 8, 7, padding="same"), images, angles, tolerance=0.05, radius=16)


def test_state_dict_has_the_same_keys_in_train_and_eval(engine: str) -> None:
    layer = GroupConv2d(2, 3, 5, 4, engine=engine)
    keys = ["weight", "bias", "_extra_state"]
    assert list(layer.state_dict()) == keys
    layer.eval()
    with torch.no_grad():
        layer(torch.randn(1, 2, 4, 8, 8))
    assert list(layer.state_dict()) == keys
    assert list(GroupConv2d(2, 3, 5, 4, bias=False).state_dict()) == ["weight", "_extra_state"]
    assert layer.weight.shape == (3, 2, 4, 11)
    assert LiftConv2d(2, 3, 5, 4).weight.shape == (3, 2, 11)


def test_pickle_deepcopy_and_save(engine: str) -> None:
    net = small_net(engine).eval()
    images = torch.randn(2, 1, 12, 12)
    with torch.no_grad():
        expected = net(images)
    size = len(pickle.dumps(net))
    stored = io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(stored, weights_only=False)):
        with torch.no_grad():
            assert torch.equal(other(images), expected)
    assert len(pickle.dumps(net)) == size  # the kept kernels are not stored


def test_double_gains_the_full_precision(engine: str) -> None:
    """A float32 layer made double is as exact as one born double."""
    layer = GroupConv2d(2, 3, 5, 8, engine=engine)
    born = GroupConv2d(2, 3, 5, 8, engine=engine, dtype=torch.float64)
    cast = copy.deepcopy(layer).double()
    assert torch.equal(cast.atoms, born.atoms)
    assert torch.equal(cast.rotations, born.rotations)
    assert torch.equal(cast.float().atoms, layer.atoms)
    assert layer.to(torch.bfloat16).atoms.dtype == torch.bfloat16


def test_bias_is_one_per_channel(engine: str) -> None:
    for layer, inputs in (
        (LiftConv2d(2, 3, 3, 4, engine=engine), torch.randn(1, 2, 6, 6)),
        (GroupConv2d(2, 3, 3, 4, engine=engine), torch.randn(1, 2, 4, 6, 6)),
    ):
        without = layer(inputs)
        assert layer.bias is not None
        layer.bias.data.copy_(torch.tensor([1.0, -2.0, 3.0]))
        torch.testing.assert_close(layer(inputs), without + layer.bias.view(1, 3, 1, 1, 1))


class CountsBuilds:
    """Counts how often a layer's kernel is built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
        self.builds = 0
        original = ENGINES[engine].group_kernel

        def counted(weight: Tensor, atoms: Atoms) -> Tensor:
            self.builds += 1
            return original(weight, atoms)

        monkeypatch.setattr(ENGINES[engine], "group_kernel", counted)


def test_the_kernel_is_built_once_while_weights_are_frozen(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = CountsBuilds(monkeypatch, engine)
    layer, features = GroupConv2d(2, 3, 3, 4, engine=engine).eval(), torch.randn(1, 2, 4, 6, 6)
    with torch.no_grad():
        first = layer(features)
        assert torch.equal(layer(features), first)
    with torch.inference_mode():
        layer(features)
    assert count.builds == 1
    layer(features).sum().backward()  # a gradient is wanted: the weights are not frozen
    assert layer.weight.grad is not None
    assert count.builds == 2
    layer.requires_grad_(False)(features)
    assert count.builds == 2


def test_every_change_of_the_weights_is_noticed(engine: str) -> None:
    layer, features = GroupConv2d(2, 3, 3, 4, engine=engine), torch.randn(1, 2, 4, 6, 6)
    state = {name: 3 * value.detach() for name, value in layer.named_parameters()}

    def step() -> None:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(features).square().sum().backward()
        optimizer.step()

    def swap() -> None:
        layer.weight = nn.Parameter(torch.randn_like(layer.weight))

    changes = [
        step,
        swap,
        lambda: layer.load_state_dict(state),
        lambda: layer.weight.data.mul_(2),
        lambda: layer.weight.detach().add_(1),
        lambda: layer.load_state_dict({"weight": state["weight"] + 1, "bias": state["bias"]}, assign=True),
        layer.reset_parameters,
    ]
    for change in changes:
        layer.eval()
        with torch.no_grad():
            before = layer(features)
        change()
        with torch.no_grad():
            after = layer(features)
        assert not torch.equal(before, after)
        torch.testing.assert_close(after, layer.train()(features).detach())


def test_gradients_of_the_input_after_inference_mode(engine: str) -> None:
    """A kernel that was built in inference mode serves a saliency map too."""
    layer, features = GroupConv2d(2, 3, 3, 4, engine=engine).eval().requires_grad_(False), torch.randn(1, 2, 4, 6, 6)
    with torch.inference_mode():
        layer(features)
    features.requires_grad_()
    layer(features).sum().backward()
    assert features.grad is not None


def test_switching_the_engine_is_noticed(engine: str) -> None:
    layer, features = GroupConv2d(2, 3, 3, 4, engine=engine).eval(), torch.randn(1, 2, 4, 6, 6)
    with torch.no_grad():
        before = layer(features)
        for other in ENGINES:
            layer.engine = other
            torch.testing.assert_close(layer(features), before)


@pytest.mark.parametrize("training", [True, False])
def test_bf16_autocast(engine: str, training: bool) -> None:
    net = small_net(engine).train(training)
    images = torch.randn(2, 1, 12, 12)
    exact = net(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(images)
    assert low.dtype == torch.bfloat16
    error = torch.linalg.vector_norm(low.float() - exact) / torch.linalg.vector_norm(exact)
    assert error < 0.03
    low.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_torch_compile_in_one_graph(engine: str, training: bool) -> None:
    net = small_net(engine).train(training)
    reference = copy.deepcopy(net)
    torch.compiler.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    images = torch.randn(2, 1, 12, 12)
    torch.testing.assert_close(compiled(images), reference(images))
    compiled(images).square().sum().backward()
    reference(images).square().sum().backward()
    for ours, theirs in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_repr_tells_what_the_layer_is(engine: str) -> None:
    layer = GroupConv2d(2, 3, 5, 8, padding="same", stride=1, dilation=2, bias=False, basis="paper", engine=engine)
    assert repr(layer) == (
        "GroupConv2d(2, 3, kernel_size=5, orientations=8, padding='same', dilation=2, bias=False, "
        f"basis='paper' K=[0, 4, 6], engine='{engine}')"
    )


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((2, 3, 4, 8), {}, r"kernel_size must be an odd whole number \(1, 3, 5, …\), got 4"),
        ((2, 3, 5, 0), {}, "Λ.* at least 1, got 0"),
        ((0, 3, 5, 8), {}, "in_channels must be a whole number of at least 1, got 0"),
        ((2, -1, 5, 8), {}, "out_channels must be a whole number of at least 1, got -1"),
        ((2, 3, 5, 8), {"basis": "fine"}, "unknown basis preset 'fine', choose one of"),
        ((2, 3, 5, 8), {"basis": Basis((0, 2), (0.6, 0.6), (0, 1)), "init": "zero"}, "unknown init 'zero', choose"),
        ((2, 3, 3, 8), {"basis": Basis((0, 2), (0.6, 0.6), (0, 1))}, "a ring of radius 2 does not fit a 3×3 kernel"),
        ((2, 3, 5, 8), {"padding": "full"}, "padding must be"),
    ],
)
def test_wrong_arguments_are_named(
    engine: str, arguments: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    for layer in (LiftConv2d, GroupConv2d):
        with pytest.raises(ValueError, match=message):
            layer(*arguments, engine=engine, **options)


def test_wrong_inputs_are_named(engine: str) -> None:
    lift, group = LiftConv2d(1, 2, 5, 8, engine=engine), GroupConv2d(2, 3, 5, 8, engine=engine)
    with pytest.raises(ValueError, match=r"LiftConv2d expects .* \(batch, 1, height, width\), got \(1, 28, 28\)"):
        lift(torch.zeros(1, 28, 28))
    with pytest.raises(ValueError, match=r"\(batch, 1, height, width\), got \(2, 3, 28, 28\)"):
        lift(torch.zeros(2, 3, 28, 28))
    with pytest.raises(ValueError, match=r"\(batch, 2, 8, height, width\), got \(1, 2, 4, 9, 9\)"):
        group(torch.zeros(1, 2, 4, 9, 9))
    with pytest.raises(ValueError, match="a map of 3×9 with padding 0 is smaller than the kernel's extent of 5"):
        group(torch.zeros(1, 2, 8, 3, 9))
    reflecting = LiftConv2d(1, 2, 5, 8, padding=4, padding_mode="reflect", engine=engine)
    with pytest.raises(
        ValueError, match="padding of 4 is too wide for padding_mode='reflect' on a map of 4×9: at most 3"
    ):
        reflecting(torch.zeros(1, 1, 4, 9))


def test_an_empty_batch_passes(engine: str) -> None:
    net = small_net(engine).eval()
    assert net(torch.zeros(0, 1, 12, 12)).shape == (0, 3, 12, 12)
