"""What is written comes back to the bit, what is damaged is noticed, and what is foreign is not run."""

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sfcnn.io.state import DamagedStateError, read_state, write_state

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64, torch.bool)


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (100 * torch.randn(shape, generator=generator)).to(dtype)


TENSORS = st.builds(
    tensor_of,
    st.sampled_from(DTYPES),
    st.sampled_from(((), (0,), (3,), (2, 0, 3), (1, 2, 3))),
    st.integers(0, 100),
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), TENSORS)
#: With dots, so that names of different tensors meet: {"a.b": …} and {"a": {"b": …}}, {1: …} and {"1": …}.
KEYS = st.one_of(st.text("ab.1", max_size=3), st.integers(-2, 2))
TREES = st.recursive(
    VALUES, lambda trees: st.lists(trees, max_size=3) | st.dictionaries(KEYS, trees, max_size=4), max_leaves=12
)
STATES = st.dictionaries(st.text("ab.1", max_size=3), TREES, max_size=4)


def same(ours: Any, theirs: Any) -> bool:
    """Equal in type, structure and every bit."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Tensor):
        alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return alike and bool((ours.reshape(-1).view(torch.uint8) == theirs.reshape(-1).view(torch.uint8)).all())
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs) or (isinstance(ours, float) and math.isnan(ours) and math.isnan(theirs))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@given(STATES)
@settings(max_examples=60)
def test_a_state_comes_back_to_the_bit(directory: Path, state: dict[str, Any]) -> None:
    write_state(directory / "state.safetensors", state)
    assert same(read_state(directory / "state.safetensors"), state)


def test_the_state_of_a_real_optimiser_comes_back(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    net(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    generator = torch.get_rng_state()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "generators": [generator]}
    write_state(tmp_path / "state.safetensors", state)
    kept = read_state(tmp_path / "state.safetensors")
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    other.load_state_dict(kept["model"])
    twin = torch.optim.Adam(other.parameters(), 0.5)
    twin.load_state_dict(kept["optimizer"])
    torch.testing.assert_close(twin.state_dict(), optimizer.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(other.state_dict(), net.state_dict(), rtol=0, atol=0)
    torch.set_rng_state(kept["generators"][0])
    assert torch.equal(torch.get_rng_state(), generator)


def test_views_and_parameters_are_written_as_they_look(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    tree = {"turned": whole.T, "part": torch.arange(9)[::2], "weight": nn.Parameter(torch.ones(2)), "pair": (1, 2)}
    write_state(tmp_path / "state.safetensors", {"all": tree})
    kept = read_state(tmp_path / "state.safetensors")["all"]
    assert torch.equal(kept["turned"], whole.T)
    assert kept["part"].tolist() == [0, 2, 4, 6, 8]
    assert not kept["weight"].requires_grad
    assert kept["pair"] == [1, 2]


def test_tensors_whose_names_meet_are_told_apart(tmp_path: Path) -> None:
    one, two, three = (torch.full((2,), float(number)) for number in (1, 2, 3))  # each twice, as tied weights are
    state = {"a": {"b": one, "1": two, 1: three}, "a.b": two, "a.1": [three], "a.1.0": one}
    write_state(tmp_path / "state.safetensors", state)
    assert same(read_state(tmp_path / "state.safetensors"), state)


def test_weights_keep_their_names_for_other_readers(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    write_state(tmp_path / "best.safetensors", {"model": {"head.weight": torch.ones(2)}})
    assert list(load_file(tmp_path / "best.safetensors")) == ["model.head.weight"]


STATE = {
    "model": {"weight": torch.arange(6.0).view(3, 2), "half": torch.ones(2, dtype=torch.bfloat16)},
    "optimizer": {0: {"step": torch.tensor(3.0)}, 1: [1, 2.5, None, True, "text"]},
    "empty": torch.empty(0, 3),
}


@pytest.fixture(scope="module")
def whole(directory: Path) -> bytes:
    write_state(directory / "whole.safetensors", STATE)
    return (directory / "whole.safetensors").read_bytes()


@given(data=st.data())
@settings(max_examples=200)
def test_a_changed_byte_is_noticed_or_does_no_harm(directory: Path, whole: bytes, data: st.DataObject) -> None:
    content = bytearray(whole)
    content[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = directory / "changed.safetensors"
    path.write_bytes(content)
    try:
        state = read_state(path)
    except DamagedStateError as error:
        refusal = str(error)
    else:
        assert same(state, STATE)
        return
    assert refusal.startswith(str(path))
    assert "\n" not in refusal


def test_a_changed_bit_in_any_tensor_is_noticed(directory: Path, whole: bytes) -> None:
    size = 6 * 4 + 2 * 2 + 4
    for position in range(len(whole) - size, len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << position % 8
        (directory / "changed.safetensors").write_bytes(content)
        with pytest.raises(DamagedStateError, match="do not match their checksum"):
            read_state(directory / "changed.safetensors")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"F32"', b'"I32"'), (b'"BF16"', b'"F16" '), (b"[3,2]", b"[2,3]"), (b'"model.weight"', b'"model.wEight"')],
    ids=["number format", "half format", "shape", "name"],
)
def test_bytes_that_would_be_read_as_other_tensors_are_noticed(
    directory: Path, whole: bytes, old: bytes, new: bytes
) -> None:
    start = whole.index(b'"data_offsets"') - 100  # in the list of tensors, not in the state's own text
    changed = whole[:start] + whole[start:].replace(old, new)
    assert len(changed) == len(whole)
    assert changed != whole
    (directory / "changed.safetensors").write_bytes(changed)
    with pytest.raises(DamagedStateError, match=r"changed\.safetensors"):
        read_state(directory / "changed.safetensors")


def test_a_file_cut_at_any_length_is_noticed(directory: Path, whole: bytes) -> None:
    path = directory / "cut.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedStateError, match=r"cut\.safetensors is not a complete state"):
            read_state(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole + b"\0",
        lambda whole: whole + whole,
        lambda whole: bytes(len(whole)),
        lambda whole: whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
        lambda whole: b"\xff" * 8 + whole[8:],
        lambda whole: b"PK\x03\x04" + whole,
    ],
    ids=["longer", "twice", "zeros", "half zeros", "huge header", "another format"],
)
def test_other_damage_is_noticed(directory: Path, whole: bytes, change: Callable[[bytes], bytes]) -> None:
    path = directory / "damaged.safetensors"
    path.write_bytes(change(whole))
    with pytest.raises(DamagedStateError, match=r"damaged\.safetensors"):
        read_state(path)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("save", [torch.save, lambda bomb, path: Path(path).write_bytes(pickle.dumps(bomb))])
def test_a_pickle_is_refused_and_not_run(tmp_path: Path, save: Callable[[Any, Path], Any]) -> None:
    path, exploded = tmp_path / "pickle.safetensors", tmp_path / "exploded"
    save({"model": Bomb(exploded)}, path)
    with pytest.raises(DamagedStateError, match="is not a complete state"):
        read_state(path)
    assert not exploded.exists()


def test_a_foreign_or_missing_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "foreign.safetensors")  # whole, but without a state
    for name, problem in (("foreign", "is not a complete state"), ("missing", "does not exist")):
        with pytest.raises(DamagedStateError, match=rf"{name}\.safetensors {problem}"):
            read_state(tmp_path / f"{name}.safetensors")


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    """Their metadata too, whose order safetensors leaves to chance."""
    contents = set()
    for number in range(8):
        write_state(tmp_path / f"{number}.safetensors", STATE)
        contents.add((tmp_path / f"{number}.safetensors").read_bytes())
    assert len(contents) == 1


def test_files_of_version_0_1_are_read(tmp_path: Path) -> None:
    """Those had two entries of metadata."""
    write_state(tmp_path / "new.safetensors", STATE)
    with safe_open(tmp_path / "new.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        metadata = json.loads(file.metadata()["sfcnn"])
    save_file(tensors, tmp_path / "old.safetensors", {"format": "pt", **metadata})
    assert same(read_state(tmp_path / "old.safetensors"), read_state(tmp_path / "new.safetensors"))
