import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sfcnn import Basis, LiftConv2d
from sfcnn.harmonics import PRESETS, resolve_basis
from sfcnn.models import mnist_baseline
from sfcnn.weights import infer_kernel_size, learned_filter, load_weights


@pytest.mark.parametrize("preset", PRESETS)
def test_the_number_of_atoms_tells_the_kernel_size(preset: str) -> None:
    for kernel_size in (1, 3, 5, 7, 9, 11):
        assert infer_kernel_size(preset, resolve_basis(preset, kernel_size).size) == kernel_size
    with pytest.raises(ValueError, match="no kernel up to 41×41 has 7 atoms"):
        infer_kernel_size(preset, 7)


def test_a_filter_is_found_in_a_state_dict(tmp_path: Path) -> None:
    net = mnist_baseline(4)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    state = load_weights(tmp_path / "net.pt")
    first = learned_filter(state, "bandlimited", None, 3, 0, 0)
    assert (first.name, first.kernel_size, first.orientations) == ("features.0.0.weight", 7, None)
    assert torch.equal(first.weight, net.get_parameter(first.name)[3, 0])
    second = learned_filter(state, "bandlimited", "features.1.0.weight", 2, 5, 3)
    assert (second.kernel_size, second.orientations) == (5, 4)
    assert torch.equal(second.weight, net.get_parameter(second.name)[2, 5, 3])


def saved_by(basis: str | Basis, kernel_size: int = 5) -> dict[str, Tensor]:
    return {f"lift.{name}": value for name, value in LiftConv2d(2, 3, kernel_size, 4, basis=basis).state_dict().items()}


@pytest.mark.parametrize("basis", [*PRESETS, Basis((0, 1.5), (0.5, 0.8), (0, 5))], ids=str)
def test_the_basis_is_the_one_that_was_saved(basis: str | Basis, tmp_path: Path) -> None:
    """`averaged` and `bandlimited` have as many atoms: only the state can tell them apart."""
    save_file(saved_by(basis), tmp_path / "net.safetensors")
    found = learned_filter(load_weights(tmp_path / "net.safetensors"), None, None, 0, 0, 0)
    assert (found.basis, found.kernel_size) == (resolve_basis(basis, 5), 5)
    assert learned_filter(saved_by(basis), basis, None, 0, 0, 0).basis == found.basis


def test_another_basis_than_the_saved_one_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'lift.weight' has the basis 'averaged' of 5×5 kernels, not 'bandlimited'"):
        learned_filter(saved_by("averaged"), "bandlimited", None, 0, 0, 0)
    with pytest.raises(ValueError, match="unknown basis preset 'fine'"):
        learned_filter(saved_by("averaged"), "fine", None, 0, 0, 0)


@pytest.mark.parametrize("basis", [None, "bandlimited", "averaged"])
def test_older_files_have_the_basis_that_is_given(basis: str | None) -> None:
    state = {"lift.weight": saved_by("averaged")["lift.weight"]}
    found = learned_filter(state, basis, None, 0, 0, 0)
    assert (found.basis, found.kernel_size) == (resolve_basis(basis or "bandlimited", 5), 5)


@pytest.mark.parametrize(
    ("rings", "message"),
    [
        (torch.zeros(2, 3), r"the basis of 'lift.weight' is damaged: .* \(4, rings\), got torch.float32 \(2, 3\)"),
        (resolve_basis("averaged", 7).to_tensor(), "is damaged: it has 18 atoms, the weight 11"),
        (Basis((0, 10.0**9), (1, 1), (0, 5)).to_tensor(), "is damaged: it has 12 atoms, the weight 11"),
        (Basis((10.0**9,), (1,), (5,)).to_tensor(), "is too large: expected kernels of at most 41×41 pixels"),
        (Basis((2,), (1,), (5,), 10**6).to_tensor(), r"and 32 subpixels, got 5 and 1e\+06"),
    ],
)
def test_a_basis_that_makes_no_sense_is_named(rings: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learned_filter(saved_by("averaged") | {"lift._extra_state": rings}, None, None, 0, 0, 0)


class Malice:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_bad_files_are_named_and_never_run(tmp_path: Path) -> None:
    trap, bad = tmp_path / "trap", tmp_path / "bad.pt"
    torch.save(Malice(trap), bad)
    with pytest.raises(ValueError, match=r"bad.pt is not a state dict of tensors"):
        load_weights(bad)
    bad.write_bytes(pickle.dumps(Malice(trap)))
    with pytest.raises(ValueError, match="is not a state dict"):
        load_weights(bad)
    assert not trap.exists()
    for content in (b"", b"\x00\x01nonsense", b"PK\x03\x04 broken zip"):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match="is not a state dict"):
            load_weights(bad)
    torch.save({"weight": 3}, bad)
    with pytest.raises(ValueError, match="does not hold a state dict of tensors"):
        load_weights(bad)
    with pytest.raises(ValueError, match="does not exist"):
        load_weights(tmp_path / "missing.pt")


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_state_dict_is_read_from_safetensors(prefix: str, tmp_path: Path) -> None:
    """As saved by hand, and as a training run saves it beside other tensors."""
    path = tmp_path / "best.safetensors"
    expected = mnist_baseline(4).state_dict()
    tensors = {prefix + name: value for name, value in expected.items()}
    save_file(tensors | ({"optimizer.moments": torch.ones(3)} if prefix else {}), path)
    state = load_weights(path)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())


def test_a_damaged_safetensors_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    save_file({"weight": torch.ones(100)}, path)
    whole = path.read_bytes()
    for content in (b"", whole[:-10], b"\xff" * 100, b"PK\x03\x04 broken zip"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"best\.safetensors is damaged or not a safetensors file: .+$"):
            load_weights(path)


def test_wrong_choices_are_named() -> None:
    state = {"a.weight": torch.zeros(2, 3, 11), "b.weight": torch.zeros(2, 3, 4, 11), "c.weight": torch.zeros(5)}
    with pytest.raises(
        ValueError, match=r"no layer weight 'd' in the state dict, choose one of \['a.weight', 'b.weight'\]"
    ):
        learned_filter(state, "bandlimited", "d", 0, 0, 0)
    with pytest.raises(ValueError, match="is not a weight of a steerable layer"):
        learned_filter(state, "bandlimited", "c.weight", 0, 0, 0)
    with pytest.raises(ValueError, match=r"input channel 3 is not in 'a.weight': choose 0 … 2"):
        learned_filter(state, "bandlimited", None, 0, 3, 0)
    with pytest.raises(ValueError, match=r"orientation -1 is not in 'b.weight': choose 0 … 3"):
        learned_filter(state, "bandlimited", "b.weight", 0, 0, -1)
    with pytest.raises(ValueError, match="has no weight of a lifting layer"):
        learned_filter({}, "bandlimited", None, 0, 0, 0)
