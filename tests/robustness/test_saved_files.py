"""Checkpoints, weights, forests and results with any damage, or with anything in them, are read or refused."""

import io
import json
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file
from torch import Tensor

from cells.test_forest import NAMES, random_examples, small_forest
from classification.test_predict import make_run
from experiments.conftest import SETTINGS
from robustness.harness import cases, damaged, limits, plain_values, read_or_refuse
from sfcnn.cells.features import Features
from sfcnn.cells.forest import Forest
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig, load
from sfcnn.classification.pose import make_readout, save_pose
from sfcnn.experiments.orientations import EXPERIMENT as ORIENTATIONS
from sfcnn.experiments.sweep import finished
from sfcnn.io.runs import from_older
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.io.state import _digest, read_state, write_state
from sfcnn.train.config import OptimizationConfig
from sfcnn.weights import learned_filter, load_weights
from train.conftest import splits, train

CONFIG = ClassificationConfig(
    model=ModelConfig(orientations=2, width=0.1, engine="direct"),
    images=ImagesConfig("digits", train_images=16, validation_images=8),
    optimization=OptimizationConfig(epochs=1, batch_size=8, learning_rate=0.01),
    checkpoint_steps=1,
)


class _Stop:
    """Ends a run after its first step."""

    def step(self, progress: object, steps: int, loss: float) -> None:
        if progress.step == 2:  # type: ignore[attr-defined]
            raise InterruptedError("stopped after a checkpoint")

    def epoch(self, progress: object) -> None: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after the checkpoint of its first step."""
    directory = tmp_path_factory.mktemp("run") / "run"
    with pytest.raises(InterruptedError):
        train(CONFIG, splits(), directory, observers=[_Stop()])
    return directory


def _bytes_of(state: dict[str, Any], path: Path) -> bytes:
    write_state(path, state)
    return path.read_bytes()


def changed(tree: Any, chance: Random) -> Any:
    """A copy of a tree in which one thing, at any depth, is left out, repeated or something else."""
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if not copy:
        return [None]
    key = chance.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    if isinstance(copy[key], dict | list | tuple) and chance.random() < 0.8:
        copy[key] = changed(copy[key], chance)
    elif chance.random() < 0.3:
        del copy[key]
    else:
        copy[key] = _other(copy[key], chance)
    return copy


def _other(value: Any, chance: Random) -> Any:
    values = [
        None,
        True,
        0,
        -1,
        2**31,
        -(2**63),
        10**30,
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        [1],
        {},
        {"a": 1},
    ]
    tensors = [torch.zeros(()), torch.zeros(3), torch.zeros(0), torch.full((2, 2), float("nan")), torch.ones(1).bool()]
    if isinstance(value, Tensor):
        doubled = [value.double(), value.flatten()[:-1], value[None], torch.full_like(value, 3), value.bool()]
        return chance.choice([*doubled, *tensors, *values])
    return chance.choice([*values, *tensors])


def same(one: Any, other: Any) -> bool:
    """Whether two trees are equal to the bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return bool(one.keys() == other.keys()) and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


STATE: dict[str, Any] = {
    "model": {"weight": torch.arange(6.0).view(3, 2), "half": torch.ones(2, dtype=torch.bfloat16)},
    "optimizer": {0: {"step": torch.tensor(3.0)}, 1: [1, 2.5, None, True, "text"]},
}


@cases(300)
@given(data=st.data())
def test_damaged_checkpoints(place: Path, data: st.DataObject) -> None:
    path = place / "state.safetensors"
    path.write_bytes(data.draw(damaged(_bytes_of(STATE, path))))
    state = read_or_refuse(read_state, path)
    assert state is None or same(state, STATE)


TAGS = st.sampled_from(
    ({"__tensor__": "a"}, {"__tensor__": "b"}, {"__tensor__": []}, {"__dict__": 3}, {"__dict__": [[1]]})
)
PAIRS = st.builds(lambda tree: {"__dict__": tree}, plain_values(TAGS))
TEXTS = st.one_of(
    plain_values(TAGS | PAIRS).map(json.dumps),
    st.dictionaries(st.text(max_size=4), plain_values(TAGS | PAIRS), max_size=3).map(json.dumps),
    st.text(max_size=30),
    st.sampled_from(("[" * 100_000, '{"a":' * 50_000, '{"a": 1' + "0" * 5000 + "}", '{"__dict__": [[[1], 2]]}', "NaN")),
)


@cases(250)
@given(TEXTS)
def test_checkpoints_with_a_right_checksum_and_any_text(place: Path, text: str) -> None:
    """As somebody writes them who wants to do harm."""
    path, tensors = place / "text.safetensors", {"a": torch.ones(2)}
    try:
        save_file(tensors, path, {"format": "pt", "state": text, "sha256": _digest(tensors, text)})
    except UnicodeEncodeError:
        return  # half a character, which no such file can hold
    read_or_refuse(read_state, path)


@cases(80)
@given(st.randoms(use_true_random=True))
def test_weights_of_a_run_that_are_something_else(run: Path, place: Path, chance: Random) -> None:
    directory = place / "other"
    write_settings(directory / "config.yaml", CONFIG, task="classification", overwrite=True)
    state = read_state(next((run / "checkpoints").glob("*")))
    write_state(directory / "best.safetensors", changed({"model": state["model"]}, chance))
    loaded = read_or_refuse(lambda path: load(path.parent, "cpu"), directory / "best.safetensors")
    if loaded is not None:
        with limits():
            assert loaded.network(torch.zeros(1, 1, 28, 28)).shape == (1, 10)


@cases(30)
@given(st.randoms(use_true_random=True))
def test_readouts_of_angles_that_are_something_else(place: Path, chance: Random) -> None:
    directory = place / "posed"
    if not directory.exists():
        make_run(directory, replace(CONFIG, model=replace(CONFIG.model, orientations=4)))
    net = load(directory, "cpu", pose=False).network
    save_pose(directory, make_readout(net, 10), {"dataset": "noise", "settings": {"seed": 0}})
    path = directory / "pose.safetensors"
    write_state(path, changed(read_state(path), chance))
    loaded = read_or_refuse(lambda path: load(path.parent, "cpu"), path)
    if loaded is not None:
        with limits():
            angles = loaded.predict(torch.zeros(1, 1, 28, 28)).angles
        assert angles is not None
        assert angles.shape == (1,)


@cases(250)
@given(st.randoms(use_true_random=True))
def test_forests_that_are_something_else(place: Path, chance: Random) -> None:
    """What is loaded can be used: every way through its trees ends."""
    path = place / "forest.safetensors"
    small_forest().save(path)
    state = read_state(path)
    array, nodes = state["trees"][chance.choice(sorted(state["trees"]))], len(state["trees"]["left"])
    for _ in range(chance.randint(0, 3)):
        array[chance.randrange(len(array))] = chance.choice([-(2**63), -1, 0, 1, nodes - 1, nodes, 2**62])
    write_state(path, changed(state, chance) if chance.random() < 0.6 else state)
    loaded = read_or_refuse(Forest.load, path)
    if loaded is not None:
        with limits():
            assert loaded.predict(Features(loaded.names, np.zeros((4, len(loaded.names)), np.float32))).shape == (4,)


@cases(100)
@given(data=st.data())
def test_damaged_forests(place: Path, data: st.DataObject) -> None:
    path = place / "damaged.safetensors"
    small_forest().save(path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    loaded = read_or_refuse(Forest.load, path)
    if loaded is not None:
        values, _ = random_examples(5, 1)
        np.testing.assert_array_equal(
            loaded.predict(Features(NAMES, values)), small_forest().predict(Features(NAMES, values))
        )


@cache
def saved_weights(zipped: bool) -> bytes:
    """A state dict as torch.save writes it, now and before version 1.6."""
    file = io.BytesIO()
    state = {"lift.weight": torch.arange(22.0).view(1, 2, 11), "bias": torch.ones(2)}
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


@cases(300)
@given(data=st.data(), zipped=st.booleans())
def test_damaged_weights(place: Path, data: st.DataObject, zipped: bool) -> None:
    path = place / "weights.pt"
    path.write_bytes(data.draw(damaged(saved_weights(zipped))))
    state = read_or_refuse(load_weights, path)
    if state is not None:
        assert all(isinstance(value, Tensor) for value in state.values())
        read_or_refuse(lambda path: _use(state, path), path)


def _use(state: dict[str, Tensor], path: Path) -> None:
    """What `sfcnn filters` does with weights; its messages name the weight, not the file."""
    try:
        learned_filter(state, "bandlimited", None, 0, 0, 0)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@cases(150)
@given(
    st.dictionaries(
        st.sampled_from(("weight", "a.weight", "model.weight", "")),
        st.lists(st.integers(0, 12), max_size=5).map(lambda shape: torch.zeros(shape)) | st.integers(),
        max_size=3,
    )
)
def test_weights_of_any_shape(place: Path, state: dict[str, Any]) -> None:
    path = place / "shapes.pt"
    torch.save(state, path)
    kept = read_or_refuse(load_weights, path)
    if kept is not None:
        read_or_refuse(lambda path: _use(kept, path), path)


HEADERS = st.dictionaries(
    st.sampled_from(("a", "model.weight", "__metadata__", "")),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(("F32", "BF16", "F8_E4M3", "F4", "U64", "C64", "BOOL", "X", "")) | plain_values(),
            "shape": st.lists(st.integers(-1, 3) | st.just(2**62), max_size=3) | plain_values(),
            "data_offsets": st.lists(st.integers(-1, 40) | st.just(2**63), max_size=3) | plain_values(),
        }
    )
    | st.just({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]})
    | plain_values(),
    max_size=3,
)


@cases(200)
@given(HEADERS, st.integers(0, 48))
def test_safetensors_with_any_header(place: Path, header: dict[str, Any], size: int) -> None:
    text = json.dumps(header).encode("utf-8")
    path = place / "header.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    for read in (read_state, load_weights):
        read_or_refuse(read, path)


RUN = ORIENTATIONS.runs(SETTINGS)[0]


@cache
def run_result() -> dict[str, Any]:
    from dataclasses import asdict

    from sfcnn.train.run import RunResult

    run = RunResult("digits", 40, 20, 1234, 1, 50.0, 1.0, 1)
    return {
        "name": RUN.name,
        **RUN.place,
        "test_error": 12.5,
        "run": asdict(run),
        "test_seconds": 0.1,
        "train": asdict(RUN.train),
        "test": RUN.test,
    }


@cases(150)
@given(data=st.data())
def test_results_of_runs(place: Path, data: st.DataObject) -> None:
    """Of an experiment that is continued: what is taken for a result has what is asked of one."""
    whole = json.dumps(run_result())
    path = place / "runs" / RUN.name / "measured.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    change = st.randoms(use_true_random=True).map(lambda chance: json.dumps(_without_tensors(run_result(), chance)))
    path.write_bytes(
        data.draw(
            damaged(whole.encode())
            | change.map(str.encode)
            | plain_values().map(lambda tree: json.dumps(tree).encode())
            | st.just(b"[" * 100_000)
        )
    )
    result = read_or_refuse(lambda path: finished(RUN, place), path)
    if result is not None:
        # A setting that is missing has its default, as in runs of before there was a choice.
        assert make_settings(ClassificationConfig, from_older("classification", result["train"])) == RUN.train
        assert result["run"].keys() == run_result()["run"].keys()


def _without_tensors(tree: Any, chance: Random) -> Any:
    while True:
        changed_tree = changed(tree, chance)
        try:
            json.dumps(changed_tree)
        except TypeError:
            continue
        return changed_tree
