"""Fuzz tests work in one directory of their own, without data sets and without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robustness.harness import RUN


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of all cases of a module: each writes over the files of the one before."""
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(scope="module")
def workplace(place: Path) -> Iterator[Path]:
    """The same, as the working directory, for commands; nothing can be downloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("SFCNN_DATA", raising=False)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")  # where nothing listens
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        yield place


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases were run, if they were run in this process."""
    if RUN["cases"]:
        terminalreporter.write_line(f"robustness: {RUN['cases']:,} cases were run")
