"""A small sweep that is done, shared by the tests that only look at it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.experiments.orientations import EXPERIMENT as ORIENTATIONS
from sfcnn.experiments.orientations import OrientationsConfig
from sfcnn.experiments.sweep import Result, SweepRun, run_sweep
from sfcnn.io.state import read_state
from sfcnn.train.config import OptimizationConfig

#: A run of well under a second: two steps.
TRAIN = ClassificationConfig(
    model=ModelConfig(orientations=2, width=0.1, engine="direct"),
    images=ImagesConfig("digits-rot", train_images=40, validation_images=20),
    optimization=OptimizationConfig(epochs=1, batch_size=20),
)
SETTINGS = OrientationsConfig(orientations=(1, 2), train_images=(40,), seeds=(0, 1), test_images=20, train=TRAIN)


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def weights(directory: Path, run: SweepRun) -> dict[str, Any]:
    """The weights that a run has kept."""
    return dict(read_state(run.directory(directory) / "best.safetensors")["model"])


def small_result(place: dict[str, Any], **measured: Any) -> Result:
    """What a run leaves, as far as tables and figures look at it."""
    run = {"dataset": "some digits", "train_images": 1234, "epochs": 5, "parameters": 56789}
    return {**place, **measured, "run": run}


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished sweep; not to be changed."""
    directory = tmp_path_factory.mktemp("sweep") / "done"
    for _ in run_sweep(ORIENTATIONS, ORIENTATIONS.runs(SETTINGS), directory):
        pass
    return directory


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    """A copy of the finished sweep, to be changed."""
    return Path(shutil.copytree(done, tmp_path / "copy"))
