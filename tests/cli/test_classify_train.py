import csv
import functools
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from cli.conftest import Fails, files
from sfcnn.classification import load, task
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.cli import main
from sfcnn.io.runs import read_task
from sfcnn.io.settings import load_yaml, make_settings
from sfcnn.io.state import read_state
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.display import RunDisplay

#: Two steps of a small network on embedded digits.
TINY = [
    *("--images.dataset", "digits-rot", "--images.train_images", "40", "--images.validation_images", "20"),
    *("--model.width", "0.1", "--model.orientations", "2", "--model.engine", "direct"),
    *("--optimization.batch_size", "20", "--optimization.epochs", "1"),
]
CONFIG = ClassificationConfig(
    ModelConfig(width=0.1, orientations=2, engine="direct"),
    ImagesConfig("digits-rot", train_images=40, validation_images=20),
    OptimizationConfig(epochs=1, batch_size=20),
)


load_splits_once = functools.cache(load_splits)


def settings_of(run: str) -> ClassificationConfig:
    return make_settings(ClassificationConfig, read_task(Path(run), "classification"))


@pytest.fixture(autouse=True)
def _digits_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "load_splits", load_splits_once)


def train(*words: str) -> int:
    return main(["classify", "train", *TINY, *words])


def snapshot() -> dict[str, bytes]:
    return {name: Path(name).read_bytes() for name in files()}


def assert_same_weights(run: str, other: str) -> None:
    ours, theirs = (read_state(Path(path, "best.safetensors"))["model"] for path in (run, other))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    newest = [read_state(max(Path(path, "checkpoints").iterdir()))["model"] for path in (run, other)]
    torch.testing.assert_close(newest[0], newest[1], rtol=0, atol=0)


def test_a_run_leaves_settings_log_weights_checkpoint_and_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--out", "run") == 0
    assert files() == {
        *("run/config.yaml", "run/log.csv", "run/best.safetensors", "run/result.json"),
        "run/checkpoints/000000002.safetensors",
    }
    assert settings_of("run") == replace(CONFIG, model=CONFIG.model.resolved())
    with Path("run/log.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    result = json.loads(Path("run/result.json").read_text(encoding="utf-8"))
    assert result["dataset"] == "embedded digits, rotated"
    assert (result["train_images"], result["validation_images"], result["epochs"]) == (40, 20, 1)
    assert (result["best_epoch"], result["validation_error"]) == (1, float(row["validation_error"]))
    assert {"commit", "versions"} <= set(result["provenance"])
    assert result["seconds"] == float(row["seconds"]) > 0
    classifier = load("run")
    assert classifier.config == replace(CONFIG, model=CONFIG.model.resolved())
    assert result["parameters"] == sum(parameter.numel() for parameter in classifier.network.parameters())
    said = capsys.readouterr()
    few, *lines = said.out.splitlines()
    assert few.startswith("few steps: 2 per epoch, 2 in all")
    assert lines[0].startswith(f"epoch 1/1  loss {float(row['loss']):.4f}  error ")
    assert lines[1].startswith(f"best validation error {result['validation_error']:.2f} % at epoch 1 (20 images of ")
    assert lines[2:] == ["wrote run"]
    assert said.err == ""


def test_settings_come_from_a_file_and_options_override_it() -> None:
    Path("my.yaml").write_text("seed: 3\nmodel: {dropout: 0.5}\n", encoding="utf-8")
    assert train("--seed", "4", "--config", "my.yaml", "--out", "run") == 0
    config = settings_of("run")
    assert (config.seed, config.model.dropout, config.model.width) == (4, 0.5, 0.1)


def test_printed_settings_are_a_config_of_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        train("--seed", "5", "--print_config")
    assert stop.value.code == 0
    Path("my.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert files() == {"my.yaml"}
    assert main(["classify", "train", "--config", "my.yaml", "--out", "run"]) == 0
    assert settings_of("run") == ClassificationConfig(
        CONFIG.model.resolved(), CONFIG.images, CONFIG.optimization, seed=5
    )


def test_the_seed_decides_about_the_weights() -> None:
    for out, seed in (("one", "0"), ("two", "0"), ("three", "1")):
        assert train("--out", out, "--seed", seed) == 0
    assert_same_weights("one", "two")
    with pytest.raises(AssertionError):
        assert_same_weights("one", "three")


def test_a_run_is_neither_overwritten_nor_mixed(fails: Fails) -> None:
    assert train("--out", "run") == 0
    before = snapshot()
    message = fails("classify", "train", *TINY, "--out", "run")
    assert "run contains a run: pass --resume to continue it, or choose another --out" in message
    message = fails("classify", "train", *TINY, "--out", "run", "--resume", "--model.width", "0.2", "--seed", "7")
    assert "run was started with other settings: model.width was 0.1, not 0.2, seed was 0, not 7" in message
    assert snapshot() == before


@pytest.mark.parametrize("words", [[], TINY], ids=["alone", "with its settings"])
def test_resuming_a_finished_run_changes_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--out", "run") == 0
    before = snapshot()
    last = capsys.readouterr().out.splitlines()[-2:]
    assert main(["classify", "train", *words, "--out", "run", "--resume"]) == 0
    after = snapshot()
    assert before.pop("run/result.json") != b""  # it says when it was written
    del after["run/result.json"]
    assert after == before
    finished = "run finished with epoch 1: raise optimization.epochs to train longer"
    assert capsys.readouterr().out.splitlines() == [finished, *last]


def test_more_epochs_go_on_as_if_they_had_been_asked_for_at_once() -> None:
    assert train("--out", "run") == 0
    assert train("--out", "run", "--resume", "--optimization.epochs", "3") == 0
    assert train("--out", "whole", "--optimization.epochs", "3") == 0
    assert_same_weights("run", "whole")
    assert len(Path("run/log.csv").read_text(encoding="utf-8").splitlines()) == 4


def test_a_run_of_version_0_1_is_resumed() -> None:
    assert train("--out", "run") == 0
    kept = load_yaml(Path("run/config.yaml"))
    del kept["task"]
    for name in ("path", "validation_share", "test_share", "size", "channels", "fit", "invert", "classes"):
        del kept["images"][name]
    Path("run/config.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    assert main(["train", "--out", "run", "--resume", "--optimization.epochs", "2"]) == 0
    assert train("--out", "whole", "--optimization.epochs", "2") == 0
    assert_same_weights("run", "whole")


def test_resume_without_a_run_starts_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--out", "run", "--resume") == 0
    assert "nothing to resume in run: starting a new run" in capsys.readouterr().out.splitlines()
    assert train("--out", "whole") == 0
    assert_same_weights("run", "whole")


@pytest.mark.parametrize("group", ["classify", "segment"])
def test_resume_without_a_run_and_settings_is_a_mistake(group: str, fails: Fails) -> None:
    """The directory was mistyped, and no run of the default settings is wanted."""
    message = fails(group, "train", "--out", "rnu", "--resume", "--data", "data", "--device", "cpu")
    assert "rnu has no run to resume: pass the directory of a run, or the settings of a new one" in message
    assert not Path("rnu").exists()


def test_ctrl_c_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDisplay, "epoch", interrupt)
        assert train("--out", "run", "--optimization.epochs", "2") == 130
    said = capsys.readouterr()
    assert said.out.splitlines()[1:] == ["stopped; to resume: sfcnn classify train --out run --resume"]
    assert said.err == "sfcnn: interrupted\n"
    assert main(["classify", "train", "--out", "run", "--resume"]) == 0
    assert train("--out", "whole", "--optimization.epochs", "2") == 0
    assert_same_weights("run", "whole")


def test_a_signal_to_end_that_a_library_turns_into_another_error_is_still_a_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(*arguments: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise SystemError("a result with an exception set") from error

    monkeypatch.setattr(RunDisplay, "epoch", end)
    handler = signal.getsignal(signal.SIGTERM)
    assert train("--out", "run", "--optimization.epochs", "2") == 130
    said = capsys.readouterr()
    assert said.out.splitlines()[1:] == ["stopped; to resume: sfcnn classify train --out run --resume"]
    assert said.err == "sfcnn: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_damaged_checkpoint_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--out", "run", "--checkpoint_steps", "1", "--optimization.epochs", "2") == 0
    newest = max(Path("run/checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:1000])
    capsys.readouterr()
    assert main(["classify", "train", "--out", "run", "--resume"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{newest} is not a complete ")
    assert first.endswith("; using the one before it")
    assert train("--out", "whole", "--optimization.epochs", "2") == 0
    assert_same_weights("run", "whole")


def test_tensorboard_s_files_are_written_when_asked_for() -> None:
    pytest.importorskip("tensorboard")
    assert train("--out", "run", "--tensorboard", "true") == 0
    (events,) = Path("run/tensorboard").iterdir()
    assert b"validation_error" in events.read_bytes()


def test_a_loss_that_is_no_number_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert train("--out", "run", "--optimization.learning_rate", "1e30", "--optimization.epochs", "2") == 2
    error = capsys.readouterr().err
    assert error.startswith("sfcnn: error: the loss became nan at epoch 1, step 2; ")
    assert error.endswith("try a smaller optimization.learning_rate\n")
    assert error.count("\n") == 1
    assert not Path("run/result.json").exists()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_the_old_name_of_the_command_does_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", "old"]) == 0
    assert capsys.readouterr().out.endswith("wrote old\n")
    assert train("--out", "new") == 0
    assert_same_weights("old", "new")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "\n  sfcnn train --out runs/small --resume" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--out is missing: pass a directory for the run"),
        (["--out", "run", "--images.dataset", "mnist"], "data set mnist needs a directory with its files"),
        (["--out", "run", "--images.dataset", "mnist", "--data", "empty"], "empty"),
        (["--out", "run", "--images.dataset", "faces"], "unknown dataset 'faces', choose one of ['digits', "),
        (
            ["--out", "run", "--images.path", "mine"],
            "path is for your own images: set dataset to 'folder', got 'digits-",
        ),
        (["--out", "run", "--images.dataset", "folder"], "the data set 'folder' needs images.path"),
        (["--out", "run", "--images.dataset", "folder", "--images.path", "no"], "folder no does not exist"),
        (["--out", "run", "--device", "tpu"], "--device"),
        (["--out", "run", "--images.train_images", "3001"], "images.train_images must be at most 3000"),
        (["--out", "run", "--model.engine", "steam"], "unknown engine 'steam', choose one of "),
        (["--out", "run", "--model.basis", "mine"], "'mine'"),
        (["--out", "run", "--model.width", "wide"], "model.width: expected float, got wide"),
        (["--out", "run", "--optimization.epochs", "0"], "epochs must be at least 1, got 0"),
        (
            ["--out", "run", "--modle.width", "1"],
            "unrecognized arguments: --modle.width 1; did you mean --model.width?",
        ),
        (["--out", "run", "--config", "nowhere.yaml"], "settings file nowhere.yaml does not exist"),
        (["--out", "mine.txt"], "mine.txt exists but does not contain a run: choose another --out"),
        (["--out", "full"], "full exists but does not contain a run: choose another --out"),
        (["--out", "full", "--resume"], "full exists but does not contain a run: choose another --out"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_made(
    words: list[str], message: str, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    for directory in ("empty", "full"):
        Path(directory).mkdir()
    Path("mine.txt").write_text("my own", encoding="utf-8")
    Path("full/mine.txt").write_text("my own", encoding="utf-8")
    before = snapshot()
    assert message in fails("classify", "train", *TINY, *words)
    assert snapshot() == before
    assert not Path("run").exists()
