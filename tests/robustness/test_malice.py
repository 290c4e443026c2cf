"""Files that were made to do harm: nothing in them is run, whatever they are named and whichever command reads them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robustness.harness import command, contents
from sfcnn.classification.config import ClassificationConfig
from sfcnn.io.settings import make_settings, write_settings


class Bomb:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


def _zipped(path: Path) -> None:
    torch.save({"model": Bomb()}, path)


def _legacy(path: Path) -> None:
    torch.save({"model": Bomb()}, path, _use_new_zipfile_serialization=False)


def _plain(path: Path) -> None:
    path.write_bytes(pickle.dumps({"model": Bomb()}))


def _array(path: Path) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.save(file, np.array([Bomb()], dtype=object))


def _program(path: Path) -> None:
    path.write_text("import pathlib\npathlib.Path('exploded').touch()\n", encoding="utf-8")


def _settings(path: Path) -> None:
    path.write_text("seed: !!python/object/apply:pathlib.Path.touch [exploded]\n", encoding="utf-8")


BOMBS: tuple[Callable[[Path], None], ...] = (_zipped, _legacy, _plain, _array, _program, _settings)

#: Where a bomb is put, and what then reads it.
PLACES = {
    "run/best.safetensors": ("predict run digit.png", "evaluate run", "export run --format torch"),
    "run/checkpoints/000000001.safetensors": ("train --out run --resume",),
    "run/config.yaml": ("predict run digit.png", "train --out run --resume", "segment predict run digit.png --out o"),
    "bomb.yaml": ("train --config bomb.yaml --out new", "experiment benchmark --config bomb.yaml --list"),
    "bomb.safetensors": (
        "filters --weights bomb.safetensors",
        "segment cells a.tif --out b.tif --forest bomb.safetensors",
    ),
    "bomb.pt": ("filters --weights bomb.pt",),
    "bomb.tif": ("segment cells bomb.tif --out b.tif", "segment score bomb.tif bomb.tif"),
    "bomb.png": ("predict run bomb.png",),
    "data/mnist/train-images-idx3-ubyte": ("train --images.dataset mnist --data data --out new",),
    "data/mnist_rotation_new.zip": ("train --images.dataset mnist-rot --data data --out new",),
}


@pytest.fixture(scope="module")
def stopped() -> dict[str, Any]:
    """Settings of a run that would go on for one step, so that resuming it reads its checkpoint at once."""
    return {
        "model": {"width": 0.1, "orientations": 2, "padding": "same"},
        "images": {"dataset": "digits", "train_images": 8, "validation_images": 4},
        "optimization": {"epochs": 1, "batch_size": 8},
    }


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__[1:])
@pytest.mark.parametrize("place_of_it", PLACES)
def test_nothing_in_a_file_is_run(
    place_of_it: str,
    bomb: Callable[[Path], None],
    stopped: dict[str, Any],
    workplace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_settings(Path("run/config.yaml"), make_settings(ClassificationConfig, stopped), task="classification")
    path = Path(place_of_it)
    path.parent.mkdir(parents=True, exist_ok=True)
    bomb(path)
    before = contents(tmp_path)
    for line in PLACES[place_of_it]:
        answer = command(*line.split())
        assert not Path("exploded").exists()
        if "checkpoints" in place_of_it:  # a checkpoint that is none is passed over, and training starts anew
            assert "000000001.safetensors is not a complete state" in answer.output
        else:
            assert answer.code == 2
            assert contents(tmp_path) == before


def test_the_bombs_are_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing above could fail."""
    monkeypatch.chdir(tmp_path)
    for bomb in (_zipped, _legacy):
        bomb(Path("bomb"))
        torch.load("bomb", weights_only=False)
        Path("exploded").unlink()
    _plain(Path("bomb"))
    pickle.loads(Path("bomb").read_bytes())
    Path("exploded").unlink()
