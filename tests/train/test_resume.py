"""A run that is killed at any moment and resumed ends with the same bits as one that was never killed."""

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.io.state import read_state
from sfcnn.ops import measured
from sfcnn.train.config import OptimizationConfig, recipe
from sfcnn.train.run import check_directory
from train.conftest import splits, train

CONFIG = ClassificationConfig(
    model=ModelConfig(orientations=2, width=0.1),
    images=ImagesConfig("digits-rot", augmentation="continuous"),
    optimization=OptimizationConfig(epochs=3, batch_size=8, learning_rate=0.01, decay_from=2),
    checkpoint_steps=2,
)

#: With everything else that a run can have a state of.
FAST = replace(
    CONFIG,
    model=ModelConfig("benchmark", orientations=2, width=0.1),
    images=ImagesConfig("digits-rot", augmentation="between-orientations"),
    optimization=recipe("fast", epochs=3, batch_size=8, averaging=0.9),
)


def final_state(run: Path) -> dict[str, object]:
    return read_state(max((run / "checkpoints").glob("*.safetensors")))


def assert_same_run(run: Path, other: Path) -> None:
    """Weights, optimiser, generators, history (without its times) and the best weights agree to the last bit."""
    ours, theirs = final_state(run), final_state(other)
    for part in ("model", "averaged", "optimizer", "generators"):
        torch.testing.assert_close(ours[part], theirs[part], rtol=0, atol=0)
    histories = [
        [{**record, "seconds": 0} for record in state["progress"]["history"]]  # type: ignore[index]
        for state in (ours, theirs)
    ]
    assert histories[0] == histories[1]
    best = [read_state(path / "best.safetensors")["model"] for path in (run, other)]
    torch.testing.assert_close(best[0], best[1], rtol=0, atol=0)
    logs = [[line.rsplit(",", 1)[0] for line in (path / "log.csv").read_text().splitlines()] for path in (run, other)]
    assert logs[0] == logs[1]


class StopAfter:
    """Ends a run after a number of steps, as an error would."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, progress: object, steps: int, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("stopped")

    def epoch(self, progress: object) -> None:
        pass


@pytest.mark.parametrize("config", [CONFIG, FAST], ids=["paper", "fast"])
def test_a_run_stopped_after_any_step_ends_the_same(config: ClassificationConfig, tmp_path: Path) -> None:
    train(config, splits(), tmp_path / "whole")
    steps = 3 * 7
    for stop in random.Random(0).sample(range(1, steps), 5):
        run = tmp_path / f"stopped-{stop}"
        with pytest.raises(RuntimeError, match="stopped"):
            train(config, splits(), run, observers=[StopAfter(stop)])
        torch.manual_seed(stop)  # a new process starts with another generator
        train(config, splits(), run, resume=True)
        assert_same_run(run, tmp_path / "whole")


def test_a_resumed_run_takes_the_engines_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which engine is fastest may be another one at another time, and each rounds in its own way."""
    config = replace(CONFIG, model=replace(CONFIG.model, orientations=4, engine="measured"))
    monkeypatch.setattr(measured, "_choices", {})
    train(config, splits(), tmp_path / "whole")
    begun = measured.choices()
    assert begun
    run = tmp_path / "run"
    with pytest.raises(RuntimeError, match="stopped"):
        train(config, splits(), run, observers=[StopAfter(13)])
    monkeypatch.setattr(measured, "_choices", {})
    monkeypatch.setattr(measured, "_seconds", lambda work: pytest.fail("it was measured before"))
    train(config, splits(), run, resume=True)
    assert measured.choices() == begun
    assert_same_run(run, tmp_path / "whole")


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    train(CONFIG, splits(), tmp_path / "whole")
    run = tmp_path / "run"
    with pytest.raises(RuntimeError, match="stopped"):
        train(CONFIG, splits(), run, observers=[StopAfter(13)])
    newest = max((run / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    said: list[str] = []
    train(CONFIG, splits(), run, resume=True, warn=said.append)
    assert len(said) == 1
    assert newest.name in said[0]
    assert "using the one before it" in said[0]
    assert_same_run(run, tmp_path / "whole")


SCRIPT = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from train.conftest import splits, train
from train.test_resume import FAST
print("ready", flush=True)
train(FAST, splits(), Path(sys.argv[2]), resume=True)
"""


def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    """The real thing: a process killed again and again, wherever it happens to be, until one survives."""
    start = time.perf_counter()
    train(FAST, splits(), tmp_path / "whole")
    duration = time.perf_counter() - start
    run, moments = tmp_path / "killed", random.Random(1)
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[1]), str(run)]
    kills = 0
    for attempt in range(30):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it has imported everything: what is killed is the training
        try:
            process.wait(timeout=moments.uniform(0, 0.5 * duration) if attempt < 6 else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        process.stdout.close()
        if process.returncode == 0:
            break
    assert kills >= 3
    assert process.returncode == 0
    assert_same_run(run, tmp_path / "whole")


def test_killed_while_the_settings_are_written(tmp_path: Path) -> None:
    """An unfinished settings file is all there is: the run starts again; any other file is somebody's."""
    (tmp_path / ".config-x.part.yaml").touch()
    check_directory(tmp_path, resume=True)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="exists but does not contain a run"):
        check_directory(tmp_path, resume=True)
