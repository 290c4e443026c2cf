"""The paper's networks under torch.compile and in low precision: every engine, training and inference.

Single layers under torch.compile and bfloat16 are in tests/nn/test_conv.py. The compiler is "aot_eager", which traces
forward and backward pass and runs the graphs as they are, and in slow tests inductor, which needs a C++ compiler.
"""

import copy
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, assert_equivariant
from sfcnn.group import TOLERANCES
from sfcnn.models import ClassifierSizes, membrane_unet, mnist_baseline, mnist_benchmark
from sfcnn.ops import ENGINE_CHOICES

# The paper's networks in small: fewer layers and channels, no dropout, which draws other numbers in a compiled graph.
NETWORKS: dict[str, Callable[[str], nn.Module]] = {
    "mnist_baseline": lambda engine: mnist_baseline(
        4, ClassifierSizes((7, 5), (2, 3), (6,)), classes=3, dropout=0.0, engine=engine
    ),
    "mnist_benchmark": lambda engine: mnist_benchmark(
        8, ClassifierSizes((9, 7, 5), (2, 2, 3), ()), classes=3, dropout=0.0, engine=engine, padding="same"
    ),
    "membrane_unet": lambda engine: membrane_unet(
        4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, dropout=0.0, crop=2, engine=engine
    ),
}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=ENGINE_CHOICES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def low(request: pytest.FixtureRequest) -> torch.dtype:
    value: torch.dtype = request.param
    return value


def loss_of(outputs: Tensor) -> Tensor:
    """A loss for logits of classes (B, 3) or of pixels (B, 1, H, W)."""
    outputs = outputs.float()
    if outputs.dim() == 2:
        return F.cross_entropy(outputs, torch.arange(len(outputs)) % 3)
    targets = (torch.arange(outputs.numel()) % 3 == 0).view(outputs.shape)
    return F.binary_cross_entropy_with_logits(outputs, targets.float())


def gradients(net: nn.Module) -> Tensor:
    """All of them as one vector, in float32."""
    found = [parameter.grad for parameter in net.parameters()]
    assert all(gradient is not None and gradient.dtype == torch.float32 for gradient in found)
    return torch.cat([gradient.flatten() for gradient in found if gradient is not None])


def relative(value: Tensor, reference: Tensor) -> float:
    return float(torch.linalg.vector_norm(value.float() - reference) / torch.linalg.vector_norm(reference))


def assert_one_training_step_is_the_same(compiled: Any, net: nn.Module, reference: nn.Module, images: Tensor) -> None:
    """Logits, gradients, running averages, and the weights after a step."""
    for model, module in ((compiled, net), (reference, reference)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss_of(model(images)).backward()
        optimizer.step()
    assert relative(gradients(net), gradients(reference)) < 1e-4
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name], atol=1e-4, rtol=1e-4, msg=name)


# Layers are compiled with each engine in tests/nn/test_conv.py.
EVERY_NETWORK_AND_ENGINE = pytest.mark.parametrize(
    ("network", "engine"),
    [
        ("mnist_baseline", "auto"),
        ("mnist_baseline", "atomic"),
        ("mnist_benchmark", "spectral"),
        ("membrane_unet", "direct"),
    ],
)


@EVERY_NETWORK_AND_ENGINE
def test_a_compiled_network_trains_as_it_does_uncompiled(network: str, engine: str) -> None:
    torch.compiler.reset()
    net = NETWORKS[network](engine)
    reference = copy.deepcopy(net)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert_one_training_step_is_the_same(compiled, net, reference, torch.randn(4, 1, 16, 16))


def test_compiled_inference_is_the_same_and_follows_the_weights(network: str) -> None:
    torch.compiler.reset()
    net = NETWORKS[network]("auto").eval()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    images = torch.randn(4, 1, 16, 16)
    with torch.no_grad():
        before = compiled(images)
        assert relative(before, net(images)) < 1e-5  # other products are taken together than in the graph
        for parameter in net.parameters():
            parameter.mul_(1.5)  # no kernel of the old weights may be left in the graph
        after = compiled(images)
        assert relative(after, net(images)) < 1e-5
    assert relative(after, before) > 0.1


class Counting:
    """A compiler that runs graphs as they are and counts them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs.append(graph)
        forward: Callable[..., Any] = graph.forward
        return forward

    def uses(self, operator: str) -> bool:
        return any(operator in str(node.target) for graph in self.graphs for node in graph.graph.nodes)


def test_batches_and_images_of_other_sizes_need_no_new_graph(engine: str) -> None:
    """The last batch of an epoch is smaller, and images differ in size: no break in the graph, and no new one."""
    torch.compiler.reset()
    counting = Counting()
    net = nn.Sequential(LiftConv2d(1, 2, 5, 4, padding="same", engine=engine), GroupConv2d(2, 2, 3, 4, engine=engine))
    compiled = torch.compile(net, backend=counting, fullgraph=True, dynamic=True)
    graphs = []
    for batch, height, width in ((4, 12, 13), (3, 11, 14), (5, 9, 15), (2, 20, 21)):
        images = torch.randn(batch, 1, height, width)
        torch.testing.assert_close(compiled(images), net(images))
        graphs.append(len(counting.graphs))
    assert graphs == [1, 1, 1, 1]


def test_auto_chooses_for_the_shapes_of_the_graph() -> None:
    """Shapes that are fixed in a graph are decided by the cost model, as without a compiler."""
    for orientations, channels, expected in ((16, 16, True), (1, 2, False)):
        torch.compiler.reset()
        counting = Counting()
        layer = GroupConv2d(channels, channels, 5, orientations, padding="same").eval()
        features = torch.randn(2, channels, orientations, 14, 14)
        with torch.no_grad():
            torch.compile(layer, backend=counting, fullgraph=True, dynamic=False)(features)
        assert counting.uses("spectral_group") == expected


def test_compiled_under_autocast() -> None:
    torch.compiler.reset()
    net = NETWORKS["mnist_baseline"]("auto")
    reference = copy.deepcopy(net)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    images = torch.randn(6, 1, 16, 16)
    results = []
    for model in (compiled, reference):
        with torch.autocast("cpu", torch.bfloat16):
            results.append(model(images))
        loss_of(results[-1]).backward()
    assert results[0].dtype == torch.bfloat16
    torch.testing.assert_close(*results, atol=0.05, rtol=0.05)
    assert relative(gradients(net), gradients(reference)) < 0.1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@EVERY_NETWORK_AND_ENGINE
def test_inductor(network: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.compiler.reset()
    net = NETWORKS[network](engine)
    reference = copy.deepcopy(net)
    images = torch.randn(4, 1, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of inductor's own imports
        compiled = torch.compile(net, fullgraph=True)
        assert_one_training_step_is_the_same(compiled, net, reference, images)
        net.eval(), reference.eval()
        with torch.no_grad():
            torch.testing.assert_close(compiled(images), reference(images), atol=1e-4, rtol=1e-4)


# How far logits and gradients may be off, by precision: 8 and 11 bits, through batch norm over few numbers.
OUTPUT_ERROR = {torch.bfloat16: 0.06, torch.float16: 0.01}
GRADIENT_ERROR = {torch.bfloat16: 0.15, torch.float16: 0.05}


def errors_under_autocast(network: str, engine: str, low: torch.dtype) -> tuple[float, float]:
    """Relative errors of outputs and gradients in one step of training."""
    net = NETWORKS[network](engine)
    reference = copy.deepcopy(net)
    images = torch.randn(8, 1, 16, 16)
    exact = reference(images)
    with torch.autocast("cpu", low):
        outputs = net(images)
    assert outputs.dtype == low
    # float16 ends at 65504 and 6e-8: small gradients need a factor, which is taken out again.
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=low == torch.float16)
    scaler.scale(loss_of(outputs)).backward()
    loss_of(exact).backward()
    gradient = gradients(net) / scaler.get_scale()
    return relative(outputs.detach(), exact.detach()), relative(gradient, gradients(reference))


def test_training_under_autocast(network: str, engine: str, low: torch.dtype) -> None:
    errors = [errors_under_autocast(network, engine, low) for _ in range(3)]
    # The median: now and then two responses are so alike that rounding decides which is the largest, and the gradient
    # takes another way.
    output, gradient = (median(values) for values in zip(*errors, strict=True))
    assert output < OUTPUT_ERROR[low]
    assert gradient < GRADIENT_ERROR[low]


def test_inference_under_autocast(network: str, engine: str, low: torch.dtype) -> None:
    net = NETWORKS[network](engine).eval()
    images = torch.randn(4, 1, 16, 16)
    with torch.no_grad():
        exact = net(images)
        for _ in range(2):  # the kernels that are kept serve both precisions
            with torch.autocast("cpu", low):
                outputs = net(images)
            assert outputs.dtype == low
            assert relative(outputs, exact) < OUTPUT_ERROR[low]
        assert torch.equal(net(images), exact)


@pytest.mark.parametrize("bias", [True, False])
def test_every_layer_gives_the_precision_of_autocast(engine: str, low: torch.dtype, bias: bool) -> None:
    """Otherwise all that follows would be computed in float32, unnoticed."""
    layers = LiftConv2d(1, 2, 3, 4, engine=engine, bias=bias), GroupConv2d(2, 2, 3, 4, engine=engine, bias=bias)
    maps = torch.randn(1, 1, 8, 8)
    with torch.autocast("cpu", low):
        for layer in layers:
            maps = layer(maps)
            assert maps.dtype == low


def test_quarter_turns_in_low_precision(engine: str, low: torch.dtype) -> None:
    net = NETWORKS["mnist_baseline"](engine).eval()
    images = torch.randn(2, 1, 16, 16)
    with torch.autocast("cpu", low):
        assert_equivariant(net, images, tolerance=TOLERANCES[low])


def test_a_network_cast_as_a_whole(network: str, engine: str, low: torch.dtype) -> None:
    net = NETWORKS[network](engine).eval()
    images = torch.randn(4, 1, 16, 16)
    with torch.no_grad():
        exact = net(images)
        outputs = net.to(low)(images.to(low))
    assert outputs.dtype == low
    assert relative(outputs, exact) < OUTPUT_ERROR[low]


def test_training_in_low_precision_learns(engine: str, low: torch.dtype) -> None:
    """With PyTorch's own scaler: steps whose gradients overflow in float16 are left out, and the factor is lowered."""
    net = NETWORKS["mnist_baseline"](engine)
    images, labels = torch.randn(9, 1, 16, 16), torch.arange(9) % 3
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, enabled=low == torch.float16)
    losses = []
    for _ in range(16):
        with torch.autocast("cpu", low):
            loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(torch.isfinite(value).all() for value in net.state_dict().values())
    if low == torch.float16:
        assert scaler.get_scale() < 2.0**24  # which was far too large
