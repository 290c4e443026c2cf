"""Every command runs in an empty directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.network import build_network
from sfcnn.cli import main
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.io.state import write_state

#: Call a command that must fail: it gets the words typed and returns its one line.
Fails = Callable[..., str]


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files() -> set[str]:
    """All files below the working directory."""
    return {str(path) for path in Path().rglob("*") if path.is_file()}


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Fails:
    """Run a command line that must end with exit code 2, one line, and no file made or removed."""

    def run(*words: str) -> str:
        before = files()
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as stop:  # argparse's way to end
            code = int(stop.code or 0)
        assert code == 2
        error = capsys.readouterr().err
        assert error.startswith("sfcnn")
        assert "error: " in error
        assert error.count("\n") == 1
        assert files() == before
        return error

    return run


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """Make a run as training leaves it, of a small network that has learned nothing: `make_run(kind=…)`."""

    def make(**model: object) -> Path:
        small = {"width": 0.125, "orientations": 4, "engine": "direct"}
        config = make_settings(ClassificationConfig, {"model": small | model, "images": {"dataset": "digits"}})
        directory = Path("run")
        write_settings(directory / "config.yaml", config)
        write_state(directory / "best.safetensors", {"model": build_network(config.model).state_dict()})
        return directory

    return make
