"""Lifting and group convolutions with reflections."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, Restrict, assert_equivariant, equivariance_error
from sfcnn.nn import conv
from sfcnn.ops import ENGINES
from sfcnn.ops.cost import Problem
from sfcnn.ops.reflections import expand_group_weight


def exact_angles(orientations: int) -> list[float]:
    """Multiples of 90° among the orientations."""
    quarters = math.gcd(orientations, 4)
    return [2 * math.pi * i / quarters for i in range(1, quarters)]


def with_bias(layer: LiftConv2d | GroupConv2d) -> LiftConv2d | GroupConv2d:
    assert layer.bias is not None
    nn.init.normal_(layer.bias)
    return layer


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
@pytest.mark.parametrize("orientations", [1, 2, 3, 4, 6, 8, 16])
def test_layers_commute_with_rotations_and_mirrors(orientations: int, engine: str, dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"reflections": True, "engine": engine, "dtype": dtype, "padding": "same"}
    lift = with_bias(LiftConv2d(2, 2, 5, orientations, **options))
    group = with_bias(GroupConv2d(2, 3, 5, orientations, **options))
    images = torch.randn(1, 2, 9, 9, dtype=dtype)
    features = lift(images)
    assert features.shape == (1, 2, 2 * orientations, 9, 9)
    assert_equivariant(lift, images, exact_angles(orientations), reflections=True)
    assert_equivariant(group, features.detach(), exact_angles(orientations), reflections=True)


def test_other_angles_cost_sampling_only() -> None:
    """Angles of D_8 that pixels do not allow: near the error of the same layers without reflections."""
    spot = torch.exp(-(torch.linspace(-2.5, 2.5, 33) ** 2))
    images = (spot * spot[:, None] * torch.linspace(-1, 2, 33))[None, None]
    errors = []
    for reflections in (False, True):
        torch.manual_seed(0)
        options: dict[str, Any] = {"reflections": reflections, "padding": "same"}
        net = nn.Sequential(LiftConv2d(1, 8, 7, 8, **options), nn.ReLU(), GroupConv2d(8, 8, 5, 8, **options)).eval()
        actions: dict[str, Any] = {"radius": 10, "reflections": reflections}
        errors.append(equivariance_error(net, images, math.pi / 4, **actions))
        if reflections:
            errors.append(equivariance_error(net, images, math.pi / 4, mirror=True, **actions))
    assert max(errors) < 1.5 * errors[0] < 0.15


class _Unsigned(GroupConv2d):
    """Mirrored filters with the sign of one atom forgotten."""

    def _sample_atoms(self) -> None:
        super()._sample_atoms()
        self.mirror[1].neg_()


class _Forward(GroupConv2d):
    """Mirrored orientations that do not turn backwards."""

    def _prepare(self, engine: Any) -> Tensor:
        order = torch.tensor([0, *range(self.orientations - 1, 0, -1)])
        weight = expand_group_weight(self.weight, self.mirror).clone()
        weight[:, 1::2] = weight[:, 1::2, order]
        return engine.group_kernel(weight, self._atoms())


class _Untied(GroupConv2d):
    """Mirrored channels with weights of their own."""

    def _prepare(self, engine: Any) -> Tensor:
        torch.manual_seed(1)
        return engine.group_kernel(torch.randn(6, 4, 4, self.basis.size).to(self.weight), self._atoms())


@pytest.mark.parametrize("broken", [_Unsigned, _Forward, _Untied])
def test_the_check_finds_a_wrong_sign_order_or_tie(broken: type[GroupConv2d]) -> None:
    features = torch.randn(1, 2, 8, 9, 9, dtype=torch.float64)
    layer = broken(2, 3, 5, 4, reflections=True, dtype=torch.float64, engine="direct")
    turned = equivariance_error(layer, features, math.pi / 2, reflections=True)
    mirrored = equivariance_error(layer, features, 0.0, reflections=True, mirror=True)
    assert turned < 1e-10  # a layer of C_4 with twice the channels it is all the same
    assert mirrored > 0.1
    with pytest.raises(AssertionError, match=r"relative error .* at 0° of the mirror image exceeds 1e-10"):
        assert_equivariant(layer, features, reflections=True)


@pytest.mark.parametrize("basis", ["bandlimited", "pixels"])
@pytest.mark.parametrize("engine", ENGINES)
def test_gradients(engine: str, basis: str) -> None:
    options: dict[str, Any] = {"reflections": True, "engine": engine, "basis": basis, "dtype": torch.float64}
    lift, group = LiftConv2d(1, 2, 3, 2, **options), GroupConv2d(2, 1, 3, 2, **options)
    images = torch.randn(1, 1, 6, 6, dtype=torch.float64, requires_grad=True)

    def net(images: Tensor, *parameters: Tensor) -> Tensor:
        first, second = parameters[:2], parameters[2:]
        names = ("weight", "bias")
        features = torch.func.functional_call(lift, dict(zip(names, first, strict=True)), images)
        result: Tensor = torch.func.functional_call(group, dict(zip(names, second, strict=True)), features)
        return result

    parameters = [parameter for layer in (lift, group) for parameter in layer.parameters()]  # weight, bias
    assert torch.autograd.gradcheck(net, (images, *parameters))


def test_auto_sees_the_true_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Problem] = []

    def choose(problem: Problem, *rest: bool) -> str:
        seen.append(problem)
        return "atomic"

    monkeypatch.setattr(conv, "fastest_engine", choose)
    layer = GroupConv2d(3, 5, 5, 4, reflections=True, padding="same")
    layer(torch.randn(2, 3, 8, 9, 9))
    assert (seen[0].in_channels, seen[0].out_channels, seen[0].orientations) == (6, 10, 4)


def test_measured_engines_serve_reflections() -> None:
    layer = GroupConv2d(2, 2, 3, 2, reflections=True, engine="measured", dtype=torch.float64)
    features = torch.randn(1, 2, 4, 7, 7, dtype=torch.float64)
    assert_equivariant(layer, features, [math.pi], reflections=True)
    layer(features).sum().backward()
    assert layer.weight.grad is not None


def test_variance_is_kept() -> None:
    """Fan-in counts mirrored maps: white noise of variance 1/2, as after a ReLU, comes out with variance 1."""
    features = torch.randn(4, 16, 8, 12, 12) * math.sqrt(0.5)
    for init in ("coeff", "coeff-backward"):
        layer = GroupConv2d(16, 16, 5, 4, reflections=True, init=init)
        assert float(layer(features).detach().var()) == pytest.approx(1, rel=0.1)


def test_state_holds_tied_weights_only() -> None:
    layer = GroupConv2d(2, 3, 5, 4, reflections=True)
    state = layer.state_dict()
    assert set(state) == {"weight", "bias", "_extra_state"}
    assert state["weight"].shape == (3, 2, 8, layer.basis.size)
    assert state["bias"].shape == (3,)
    assert "orientations=4, reflections=True" in repr(layer)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        GroupConv2d(2, 3, 5, 4).load_state_dict(state)


def test_a_kept_kernel_follows_the_weights() -> None:
    layer = GroupConv2d(2, 2, 3, 4, reflections=True).eval().requires_grad_(False)
    features = torch.randn(1, 2, 8, 7, 7)
    before = layer(features)
    layer.weight.mul_(2)
    assert layer.bias is not None
    torch.testing.assert_close(layer(features), 2 * before)
    torch.testing.assert_close(layer.double()(features.double()), 2 * before.double(), rtol=1e-4, atol=1e-5)


def test_features_of_the_other_kind_are_explained() -> None:
    with pytest.raises(ValueError, match=r"expects .* \(batch, 2, 8, height, width\).*with reflections .* 2Λ = 8"):
        GroupConv2d(2, 2, 3, 4, reflections=True)(torch.zeros(1, 2, 4, 9, 9))
    with pytest.raises(ValueError, match=r"need a layer with reflections=True, or sfcnn\.restrict"):
        GroupConv2d(2, 2, 3, 4)(torch.zeros(1, 2, 8, 9, 9))
    with pytest.raises(ValueError, match="reflections must be True or False, got 2"):
        LiftConv2d(1, 2, 3, 4, reflections=2)  # type: ignore[arg-type]


def test_restriction_keeps_rotations_and_gives_up_mirrors() -> None:
    options: dict[str, Any] = {"padding": "same", "dtype": torch.float64}
    net = nn.Sequential(
        LiftConv2d(1, 2, 5, 8, reflections=True, **options),
        Restrict(4, reflections=True),
        GroupConv2d(8, 2, 3, 4, **options),
    )
    images = torch.randn(1, 1, 10, 10, dtype=torch.float64)
    assert_equivariant(net, images)
    pooled = nn.Sequential(net, nn.AdaptiveMaxPool3d(1), nn.Flatten())
    assert equivariance_error(pooled, images, 0.0, mirror=True) > 1e-3
    assert repr(net[1]) == "Restrict(orientations=4, reflections=True)"


@pytest.mark.parametrize("engine", ENGINES)
def test_torch_compile_in_one_graph(engine: str) -> None:
    options: dict[str, Any] = {"reflections": True, "engine": engine, "dtype": torch.float64}
    net = nn.Sequential(LiftConv2d(1, 2, 3, 2, **options), Restrict(1, reflections=True, keep_reflections=True))
    net.append(GroupConv2d(4, 2, 3, 1, **options))
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), net(images))
