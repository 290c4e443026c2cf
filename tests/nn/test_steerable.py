"""What both layers share: the basis that their state names, and devices."""

import copy
import io
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from sfcnn import Basis, GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.export import to_plain
from sfcnn.harmonics import PRESETS, resolve_basis
from sfcnn.initialization import INITS
from sfcnn.ops import ENGINE_CHOICES
from sfcnn.ops.spectral import maps, spectrum, toeplitz

CUSTOM = Basis((0, 1.5), (0.5, 0.8), (0, 5))


def small_net(basis: str | Basis = "averaged", **options: Any) -> nn.Sequential:
    return nn.Sequential(
        LiftConv2d(1, 2, 5, 4, basis=basis, **options),
        nn.ReLU(),
        GroupConv2d(2, 2, 5, 4, basis=basis, **options),
        OrientationPool(),
    )


@pytest.mark.parametrize("basis", [*PRESETS, CUSTOM], ids=str)
def test_the_state_names_its_basis_in_every_precision(basis: str | Basis, dtype: torch.dtype) -> None:
    layer = GroupConv2d(1, 1, 5, 4, basis=basis).to(dtype)
    saved = layer.state_dict()["_extra_state"]
    assert saved.dtype == torch.float64
    assert saved.shape == (4, len(layer.basis.radii))
    assert Basis.from_tensor(saved) == layer.basis == resolve_basis(basis, 5)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_weights_of_another_basis_are_refused(strict: bool, assign: bool) -> None:
    net, other = small_net("averaged"), small_net("bandlimited")
    before = copy.deepcopy(other.state_dict())
    message = "0.weight: the weights belong to the basis 'averaged' of 5×5 kernels, the layer has 'bandlimited' of 5×5"
    with pytest.raises(RuntimeError, match=re.escape(message)):
        other.load_state_dict(net.state_dict(), strict=strict, assign=assign)
    for name, value in before.items():
        assert torch.equal(other.state_dict()[name], value)
    with pytest.raises(RuntimeError, match=r"2\.weight: the weights belong to the basis Basis\(radii=\(0\.0, 1\.5\)"):
        other.load_state_dict(small_net(CUSTOM).state_dict(), strict=strict, assign=assign)


@pytest.mark.parametrize("strict", [True, False])
def test_states_from_before_they_named_their_basis_are_loaded(strict: bool) -> None:
    net = small_net()
    state = {name: value for name, value in net.state_dict().items() if not name.endswith("_extra_state")}
    result = small_net().load_state_dict(state, strict=strict)
    assert result.missing_keys == result.unexpected_keys == []
    result = small_net().load_state_dict({"0.bias": state["0.bias"]}, strict=False)
    assert result.missing_keys == ["0.weight", "2.weight", "2.bias"]


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16, torch.float32])
def test_a_state_that_was_cast_still_names_the_same_basis(low: torch.dtype) -> None:
    state = {name: value.to(low) for name, value in small_net().state_dict().items()}
    small_net().load_state_dict(state)
    with pytest.raises(RuntimeError, match="belong to the basis"):
        small_net("bandlimited").load_state_dict(state)


@pytest.mark.parametrize(
    "rings",
    [
        torch.zeros(3, 2),
        torch.zeros(4, 0),
        torch.zeros(4, 2, dtype=torch.int64),
        torch.full((4, 2), float("nan")),
        torch.tensor([[0.0, 1.0], [0.6, 0.6], [0.0, 1.5], [1.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [0.6, 0.6], [0.0, 2.0], [1.0, 3.0]]),
        torch.tensor([[0.0, 1.0], [0.6, 0.6], [0.0, 9.0], [1.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [0.6, -1.0], [0.0, 2.0], [1.0, 1.0]]),
        Basis((1e12,), (1.0,), (5,)).to_tensor(),
        "averaged",
    ],
    ids=str,
)
def test_a_damaged_basis_is_an_error_of_loading(rings: Any) -> None:
    layer = LiftConv2d(1, 1, 3, 4)
    with pytest.raises(RuntimeError, match=r"Error.* in loading state_dict for LiftConv2d"):
        layer.load_state_dict(layer.state_dict() | {"_extra_state": rings})


def test_states_go_through_files(tmp_path: Path) -> None:
    net, images = small_net(), torch.randn(1, 1, 12, 12)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    for state in (torch.load(tmp_path / "net.pt", weights_only=True), load_file(tmp_path / "net.safetensors")):
        twin = small_net()
        twin.load_state_dict(state)
        assert torch.equal(twin(images), net(images))
        with pytest.raises(RuntimeError, match="belong to the basis"):
            small_net("bandlimited").load_state_dict(state)


def test_states_of_shapes_only_are_loaded(tmp_path: Path) -> None:
    torch.save(small_net().state_dict(), tmp_path / "net.pt")
    net = small_net(device="meta")
    net.load_state_dict(torch.load(tmp_path / "net.pt", map_location="meta"), assign=True)
    assert {value.device.type for value in net.parameters()} == {"meta"}


def test_whole_models_go_through_safetensors(tmp_path: Path) -> None:
    net, twin, images = small_net(), small_net(), torch.randn(1, 1, 12, 12)
    save_model(net, str(tmp_path / "net.safetensors"))
    missing, unexpected = load_model(twin, tmp_path / "net.safetensors")
    assert not missing
    assert not unexpected
    assert torch.equal(twin(images), net(images))


def test_the_basis_survives_copies_and_wrappers() -> None:
    net, images = small_net().eval(), torch.randn(1, 1, 12, 12)
    stored = io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    copies = copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(stored, weights_only=False)
    for twin in copies:
        assert torch.equal(twin.state_dict()["0._extra_state"], net.state_dict()["0._extra_state"])
        twin.load_state_dict(net.state_dict())
    torch.compiler.reset()
    compiled: Any = torch.compile(small_net().eval(), backend="eager", fullgraph=True)
    compiled.load_state_dict({f"_orig_mod.{name}": value for name, value in net.state_dict().items()})
    torch.testing.assert_close(compiled(images), net(images))
    parallel = nn.DataParallel(small_net())
    parallel.load_state_dict({f"module.{name}": value for name, value in net.state_dict().items()})
    with pytest.raises(RuntimeError, match="belong to the basis"):
        nn.DataParallel(small_net("paper")).load_state_dict(parallel.state_dict())


def test_networks_are_exported_with_a_basis_in_their_state() -> None:
    net, images = small_net().eval(), torch.randn(2, 1, 12, 12)
    torch.testing.assert_close(to_plain(net)(images), net(images), atol=1e-5, rtol=1e-5)
    assert not any(name.endswith("_extra_state") for name in to_plain(net).state_dict())
    program = torch.export.export(net, (images,))
    torch.testing.assert_close(program.module()(images), net(images))
    with torch.no_grad():
        called: Tensor = torch.func.functional_call(net, dict(net.state_dict()), (images,))
    torch.testing.assert_close(called, net(images))


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("engine", ENGINE_CHOICES)
@pytest.mark.parametrize("named", [True, False], ids=["argument", "default device"])
def test_networks_are_made_on_the_meta_device(init: str, engine: str, named: bool) -> None:
    if named:
        net = small_net(init=init, engine=engine, device="meta")
    else:
        with torch.device("meta"):
            net = small_net(init=init, engine=engine)
    assert {value.device.type for value in (*net.parameters(), *net.buffers())} == {"meta"}
    images = torch.randn(1, 1, 12, 12)
    assert net(images.to("meta")).shape == (1, 2, 4, 4)
    with torch.no_grad():
        for _ in range(2):  # in evaluation kernels are kept
            assert net.eval()(images.to("meta")).shape == (1, 2, 4, 4)
    reference = small_net(init=init, engine=engine)
    net.to_empty(device="cpu").load_state_dict(reference.state_dict())
    torch.testing.assert_close(net(images), reference(images))


@pytest.fixture
def _no_tables() -> Iterator[None]:
    """Tables that are made once for a number of orientations are made anew in the test, and not kept."""
    tables = maps._matrices, spectrum._pair_tensor, spectrum._single_tensor, toeplitz._toeplitz_index
    for table in tables:
        table.cache_clear()
    yield
    for table in tables:
        table.cache_clear()


@pytest.mark.usefixtures("_no_tables")
@pytest.mark.parametrize("engine", ENGINE_CHOICES)
def test_the_default_device_does_not_matter(engine: str) -> None:
    net, images = small_net(engine=engine), torch.randn(1, 1, 12, 12)
    with torch.device("meta"):
        inside = net(images)
        inside.sum().backward()
        state = net.state_dict()
    assert {value.device.type for value in state.values()} == {"cpu"}
    torch.testing.assert_close(inside, net(images))


def test_layers_of_equal_shapes_share_a_compiled_graph() -> None:
    torch.compiler.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    features = torch.randn(2, 2, 4, 9, 9)
    for options in ({}, {}, {"padding": 1}, {"padding": 1}, {"padding": 1, "stride": 2}):
        layer = GroupConv2d(2, 2, 3, 4, **options)  # type: ignore[arg-type]
        expected = layer(features)
        layer.compile(backend=backend, fullgraph=True, dynamic=False)
        torch.testing.assert_close(layer(features), expected)
    assert len(graphs) == 3


def test_the_choice_of_engines_is_marked_as_torch_marks_constants() -> None:
    """`torch.compiler.assume_constant_result` would import the compiler, so that it is done by hand."""

    def marked() -> None: ...

    torch.compiler.assume_constant_result(marked)
    assert vars(marked)
    assert {name: value for name, value in vars(GroupConv2d._fastest).items() if "dynamo" in name} == vars(marked)
