"""Command lines with any mistakes are carried out or refused in one line; a refused one has changed no file."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from PIL import Image

from cells.test_forest import small_forest
from robustness.harness import Answer, Contents, cases, command, contents, restore
from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.network import build_network
from sfcnn.cli import COMMANDS
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.io.stacks import write_stack
from sfcnn.io.state import write_state
from sfcnn.segmentation.config import SegmentationConfig
from sfcnn.segmentation.network import build_network as build_unet
from sfcnn.segmentation.synthetic import synthetic_membranes

#: Right command lines, most of them of a fraction of a second, in the directory that `furnished` makes.
RIGHT = tuple(
    line.split()
    for line in (
        "classify predict run digit.png --out old.csv --overwrite --batch-size 2",
        "predict run digits --invert --out new.json",
        "classify evaluate run --split validation --images 5 --angles 2 --batch-size 4 --out old.json --overwrite",
        "filters --weights weights.pt --layer lift.weight --channel 0 1 --relative 0 --out pictures",
        "segment cells probabilities.tif --out old.tif --overwrite --beta 0.5 --solver kernighan-lin --threshold 0.3",
        "segment cells probabilities.tif --out new.tif --boundaries borders.tif --stack --across-weight 2 --interior",
        "segment cells probabilities.tif --out new.tif --forest forest.safetensors --image em.tif --minimum-size 3",
        "segment train-edges probabilities.tif masks.tif --out old.forest --overwrite --trees 2 --depth 2 --seed 1",
        "segment tune unet em.tif masks.tif --out old.json --overwrite --average none --invert",
        "segment score probabilities.tif masks.tif --interior --out old.json --overwrite",
        "segment score labels.tif masks.tif --labels --overlay new.png --slice 1",
        "segment predict unet em.tif --out found --tile 24 --halo 8 --average none --no-cells",
        "classify train --config settings.yaml --seed 3 --model.width 0.5 --optimization.batch_size 7 --out taken",
        "train --images.dataset digits --model.kind plain-channels --resume --out taken",
        "segment train --images.source stack --images.path em.tif --images.masks masks.tif --steps 3 --out taken",
        "experiment orientations --quick --list --seeds [1,2] --orientations [4]",
        "experiment benchmark --list --only he-*",
        "demo --train.model.orientations 4 --out taken --processes 0",
        "data show --data nowhere",
        "data fetch mnist --data nowhere",
        "export nowhere --format onnx --out new.onnx",
        "--version",
        "predict --help",
    )
)

NUMBERS = ("0", "-1", "1", "2", "3.5", "1e-320", "1e308", "nan", "-inf", "0x10", "1_0", "１", str(2**31), str(2**63))
FILES = (
    *("digit.png", "digits", "em.tif", "masks.tif", "labels.tif", "probabilities.tif", "forest.safetensors", "run"),
    *("unet", "weights.pt", "settings.yaml", "broken.png", "broken.tif", "broken.safetensors", "empty", "nowhere", "."),
    *("old.csv", "old.json", "old.tif", "taken", "taken/below", "pipe", "/proc/self/mem", "new.csv", "new"),
)
ODD = (
    *("", " ", "-", "--", "---", "@settings.yaml", "=", "--=", "a\nb", "a\tb", "\x1b[31m", "ä", "\u202e", "x" * 300),
    *("None", "true", "[]", "[1", "{}", "{'a': 1}", "'", '"', "\\", "%s", "%(prog)s", "{0}", "$HOME", "~", "*", "?"),
    *("--help", "-h", "--version", "--print_config", "--config", "--config=settings.yaml", "--out=new.csv", "--no"),
)
OPTIONS = sorted({word for line in RIGHT for word in line if word.startswith("-")})


def mistaken(chance: Random) -> list[str]:
    """A right command line with up to three words changed, left out, added, repeated or exchanged."""
    words = list(chance.choice(RIGHT))
    for _ in range(chance.randint(1, 3)):
        where = chance.randrange(len(words)) if words else 0
        other = chance.choice(chance.choice((NUMBERS, FILES, ODD, OPTIONS, tuple(COMMANDS))))
        kind = chance.choice(("change", "change", "change", "leave out", "add", "repeat", "exchange", "letter"))
        if kind == "change" and words:
            words[where] = other
        elif kind == "leave out" and words:
            del words[where]
        elif kind == "add":
            words.insert(where, other)
        elif kind == "repeat" and words:
            words.insert(where, words[where])
        elif kind == "exchange" and words:
            second = chance.randrange(len(words))
            words[where], words[second] = words[second], words[where]
        elif kind == "letter" and words and words[where]:
            letter = chance.randrange(len(words[where]))
            words[where] = (
                words[where][:letter] + chance.choice(["", "x", "-", "=", ".", "0"]) + words[where][letter + 1 :]
            )
    return without_training(words)


def without_training(words: list[str]) -> list[str]:
    """The same, with an end for which it is refused if it would train, which can take hours, or serve a page."""
    if "play" in words[:1]:
        return [*words, "--port", "-1"]
    if "train" in words[:2] or "demo" in words[:1]:
        return [*words, "--out", "taken", *(("--processes", "0") if "demo" in words[:1] else ())]
    return [*words, "--list"] if "experiment" in words[:1] else words


@pytest.fixture(scope="module")
def furnished(workplace: Path) -> Contents:
    """A directory with a file of each kind, and old results; what is in it."""
    small: dict[str, Any] = {"width": 0.1, "orientations": 4, "engine": "direct"}
    config = make_settings(ClassificationConfig, {"model": small, "images": {"dataset": "digits"}})
    write_settings(Path("run/config.yaml"), config, task="classification")
    write_state(Path("run/best.safetensors"), {"model": build_network(config.model).state_dict()})
    unet = {"orientations": 2, "channels": 1, "levels": 2, "input_kernel_size": 3, "kernel_size": 3}
    crops = {"size": 16, "margin": 4}
    values = {"model": unet, "crops": crops, "images": {"classes": ["membranes"], "channels": 1}}
    membrane_config = make_settings(SegmentationConfig, values)
    write_settings(Path("unet/config.yaml"), membrane_config, task="segmentation")
    net = build_unet(membrane_config)
    write_state(Path("unet/best.safetensors"), {"model": net.state_dict()})
    images, membranes = (maps.numpy() for maps in synthetic_membranes(2, 32, cell=10))
    write_stack(Path("em.tif"), (255 * images).astype(np.uint8))
    write_stack(Path("masks.tif"), np.where(membranes, 0, 255).astype(np.uint8))
    write_stack(Path("probabilities.tif"), np.where(membranes, 0.9, 0.1).astype(np.float32))
    write_stack(Path("labels.tif"), np.arange(2 * 32 * 32).reshape(2, 32, 32).astype(np.uint16) // 64)
    small_forest().save(Path("forest.safetensors"))
    torch.save({"lift.weight": torch.ones(1, 2, 11), "bias": torch.ones(2)}, "weights.pt")
    Path("digits").mkdir()
    for digit in ("digit.png", "digits/a.png", "digits/b.tif"):
        Image.fromarray(np.arange(28 * 28, dtype=np.uint8).reshape(28, 28)).save(digit)
    for name in ("digit.png", "em.tif", "forest.safetensors"):
        path = Path(name)
        whole = Path("em.tif").read_bytes() if path.suffix == ".tif" else path.read_bytes()
        Path(f"broken{path.suffix}").write_bytes(whole[: len(whole) // 2])
    for name in ("old.csv", "old.json", "old.tif", "old.forest", "taken", "settings.yaml", "empty"):
        text = {"settings.yaml": "seed: 3\nmodel: {orientations: 4}\n", "empty": ""}
        Path(name).write_text(text.get(name, "an old result"))
    os.mkfifo("pipe")  # from which nothing comes
    return contents(workplace)


def carried_out(words: Sequence[str], workplace: Path, before: Contents) -> Answer:
    """Run a command line, check what it did to the files, and put them back."""
    try:
        answer = command(*words)
        after = contents(workplace)
        if answer.code == 2:
            changes = [name for name in {**before, **after} if after.get(name) != before.get(name)]
            assert not changes, answer
        leftovers = [name for name in after if ".part" in name]
        assert not leftovers
    finally:
        restore(workplace, before)
    return answer


@pytest.mark.parametrize("line", RIGHT, ids=" ".join)
def test_the_lines_are_right(line: list[str], workplace: Path, furnished: Contents) -> None:
    """Else the test below would make mistakes in mistakes; those that must not train or download are refused for it."""
    answer = carried_out(line, workplace, furnished)
    refused = {
        "taken": "taken exists but does not contain a run",
        "0": "processes must be",
        "nowhere": "nowhere",
        "fetch": "could not download",
        "forest.safetensors": "image",
    }
    if answer.code == 2:
        assert any(sign in answer.error for word, sign in refused.items() if word in line), answer


#: Every option that takes a number, with a right line that it can be added to.
NUMERIC = {
    "predict run digit.png": ("batch-size",),
    "evaluate run --images 3": ("images", "angles", "batch-size"),
    "classify pose run --examples 5": ("shift", "seed", "examples"),
    "filters": ("kernel-size", "orientations", "seed"),
    "filters --weights weights.pt": ("kernel-size", "orientations", "relative", "channel 0"),
    "segment cells probabilities.tif --out new.tif --stack": ("beta", "across-weight", "threshold"),
    "segment cells probabilities.tif --out new.tif": ("minimum-membrane", "minimum-size", "seed-sigma", "flood-sigma"),
    "segment cells probabilities.tif --out new.tif --solver exact": ("time-limit",),
    "segment train-edges probabilities.tif masks.tif --out new.forest --trees 2": ("trees", "depth", "seed"),
    "segment score labels.tif masks.tif --labels --overlay new.png": ("slice",),
    "segment predict unet em.tif --out found --no-cells": ("tile", "halo"),
    "experiment orientations --list": ("processes", "test_images", "train.seed", "train.model.width"),
}
EXTREMES = ("0", "-1", "2147483648", "9223372036854775808", "1e308", "1e-320", "nan", "inf")


@pytest.mark.parametrize(
    ("line", "option"), [(line, option) for line, options in NUMERIC.items() for option in options]
)
def test_extreme_numbers(line: str, option: str, workplace: Path, furnished: Contents) -> None:
    """Neither work without end nor all the memory there is follows from one number."""
    for number in EXTREMES:
        carried_out([*line.split(), *f"--{option} {number}".split()], workplace, furnished)


@cases(700)
@given(st.randoms(use_true_random=True).map(mistaken))
def test_lines_with_mistakes(workplace: Path, furnished: Contents, words: list[str]) -> None:
    carried_out(words, workplace, furnished)


@cases(200)
@given(
    st.lists(
        st.sampled_from((*COMMANDS, *NUMBERS, *FILES, *ODD, *OPTIONS))
        | st.text(max_size=6).filter(lambda text: "\0" not in text),
        max_size=5,
    ).map(without_training)
)
def test_any_words(workplace: Path, furnished: Contents, words: list[str]) -> None:
    carried_out(words, workplace, furnished)
