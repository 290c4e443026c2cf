from collections.abc import Callable
from typing import Any

import pytest
import torch
from export_checks import assert_same, trained
from torch import Tensor, fx, nn
from torch.nn.utils.parametrizations import weight_norm

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.export import to_plain
from sfcnn.models.unet import Crop


class Runs(nn.Module):
    """A lifting convolution and what a function makes of it and of the images."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.lift, self.function = LiftConv2d(1, 2, 3, 4, padding=1), function

    def forward(self, images: Tensor) -> Any:
        return self.function(images, self.lift(images))


def checks_sizes(images: Tensor, features: Tensor) -> Tensor:
    if images.dim() != 4 or images.shape[1] != 1:
        raise ValueError(f"expected (B, 1, H, W), got {tuple(images.shape)}: {len(images.shape)} axes")
    assert images.shape[-1] % 2 == 0, "odd"
    torch._assert(features.size(2) == 4, "four orientations")
    if not (images.isfinite().all() and images.shape[-2] > 1):
        raise RuntimeError("not finite")
    return features.amax(2)


def test_checks_that_only_raise_are_left_out(dtype: torch.dtype) -> None:
    net = trained(Runs(checks_sizes), dtype)
    plain = to_plain(net)
    images = torch.randn(2, 1, 6, 6, dtype=dtype)
    assert_same(plain(images), net(images))
    assert [node.op for node in plain.graph.nodes] == [
        "placeholder",
        "call_module",
        "call_method",
        "call_method",
        "output",
    ]
    with pytest.raises(AssertionError, match="odd"):
        net(images[..., :5])
    assert plain(images[..., :5]).shape == (2, 2, 6, 5)


def branches(images: Tensor, features: Tensor) -> Tensor:
    if images.shape[-1] > 8:
        return features.amax(2)
    return features.mean(2)


def branches_after_a_check(images: Tensor, features: Tensor) -> Tensor:
    if images.dim() != 4:
        raise ValueError("images")
    return branches(images, features)


def loops(images: Tensor, features: Tensor) -> Tensor:
    while not images.sum() > 0:
        images = images + 1
    return features


def raises(images: Tensor, features: Tensor) -> Tensor:
    raise RuntimeError("out of order")


@fx.wrap
def of_his_own(features: Tensor) -> Tensor:
    return features.flip(2)


class Doubled(GroupConv2d):
    """A layer that computes something else."""

    def forward(self, features: Tensor) -> Tensor:
        return 2 * super().forward(features)


class Kernel(LiftConv2d):
    """A layer with filters of its own."""

    def _kernel(self, *arguments: Any) -> Tensor:
        return 2 * super()._kernel(*arguments)


class Named(nn.Module):
    """A network with an argument that must be named."""

    def forward(self, images: Tensor, *, scale: Tensor) -> Tensor:
        return images * scale


def replaced(net: nn.Module) -> nn.Module:
    net.forward = lambda images: images
    return net


def hooked(net: nn.Module, before: bool = False) -> nn.Module:
    if before:
        net.register_forward_pre_hook(lambda *_: None)
    else:
        net.register_forward_hook(lambda *_: None)
    return net


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no module": (lambda: torch.relu, "must be a torch.nn.Module, got builtin_function"),
    "training": (lambda: LiftConv2d(1, 2, 3, 4), r"training mode \(the LiftConv2d itself\): call model.eval"),
    "part in training": (
        lambda: nn.Sequential(LiftConv2d(1, 2, 3, 4).eval(), nn.Dropout3d()),
        "training mode",
    ),
    "hook": (lambda: nn.Sequential(hooked(LiftConv2d(1, 2, 3, 4))).eval(), r"forward hooks \(LiftConv2d '0'\)"),
    "hook before": (lambda: hooked(nn.Conv2d(1, 2, 3), before=True).eval(), "forward hooks"),
    "forward replaced": (lambda: replaced(nn.ReLU()).eval(), "forward was replaced"),
    "parametrized": (lambda: weight_norm(nn.Conv2d(1, 2, 3)).eval(), "remove_parametrizations"),
    "subclass": (lambda: Doubled(1, 2, 3, 4).eval(), r"overrides forward \(the Doubled itself\): move the change"),
    "other filters": (lambda: Kernel(1, 2, 3, 4).eval(), "overrides _kernel"),
    "branch": (lambda: Runs(branches).eval(), r"its control flow depends on the input at test_trace\.py:\d+"),
    "second branch": (lambda: Runs(branches_after_a_check).eval(), "its control flow depends on the input"),
    "loop": (lambda: Runs(loops).eval(), "is evaluated more than 500 times"),
    "always raises": (lambda: Runs(raises).eval(), "it raises for any input: out of order"),
    "entries": (lambda: Runs(lambda x, f: f.view(*x.shape)).eval(), r"test_trace\.py:\d+ iterates over a tensor"),
    "length": (lambda: Runs(lambda x, f: f * len(x)).eval(), "takes the length"),
    "number": (lambda: Runs(lambda x, f: f.repeat(range(x.shape[0]))).eval(), "cannot be traced"),
    "function": (lambda: Runs(lambda x, f: of_his_own(f)).eval(), "calls .*of_his_own"),
    "keyword": (lambda: Named().eval(), "keyword argument 'scale' without a default"),
    "channels": (
        lambda: nn.Sequential(LiftConv2d(1, 2, 3, 8), GroupConv2d(4, 2, 3, 4)).eval(),
        r"1 expects features with \(C, Λ\) = \(4, 4\), but the layers before it produce \(2, 8\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason) as error:
        to_plain(make())
    assert "\n" not in str(error.value)


def test_every_layer_may_be_derived_from() -> None:
    """A subclass that changes nothing is its layer; methods that decide what is computed must not be overridden."""
    for base, arguments in ((LiftConv2d, (1, 2, 3, 4)), (OrientationPool, ()), (Crop, (1,))):
        same = type("Same", (base,), {"__doc__": "the same", "extra_repr": lambda self: ""})
        to_plain(same(*arguments).eval())
        other = type("Other", (base,), {"forward": lambda self, x: x})
        with pytest.raises(ValueError, match="overrides forward"):
            to_plain(other(*arguments).eval())
