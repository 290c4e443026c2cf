import json
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

import sfcnn
import sfcnn.io.provenance
from sfcnn.io.provenance import provenance


def test_it_says_what_ran_where_and_when() -> None:
    found = provenance()
    assert found["versions"]["sfcnn"] == sfcnn.__version__
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["python"] == platform.python_version()
    assert found["threads"] == torch.get_num_threads()
    assert found["processor"]
    age = datetime.now(UTC) - datetime.fromisoformat(found["finished"])
    assert timedelta(seconds=-1) < age < timedelta(minutes=5)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.skipif(
    shutil.which("git") is None or not (Path(__file__).parents[2] / ".git").exists(), reason="not a checkout"
)
def test_a_checkout_knows_its_commit() -> None:
    assert provenance()["commit"]


def fake_checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the module think that it stands in a checkout at `root`."""
    monkeypatch.setattr(sfcnn.io.provenance, "__file__", str(root / "src" / "sfcnn" / "io" / "provenance.py"))


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", "-C", str(root), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_the_source_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_checkout(tmp_path, monkeypatch)
    assert provenance()["commit"] is None  # as for a package that was installed
    git(tmp_path, "init", "--quiet")
    assert provenance()["commit"] is None  # nothing is committed yet
    (tmp_path / "file").write_text("one", encoding="utf-8")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    git(tmp_path, "tag", "-a", "v1", "-m", "a tag does not hide the commit")
    commit = provenance()["commit"]
    assert re.fullmatch("[0-9a-f]{10,}", commit)
    assert git(tmp_path, "rev-parse", "HEAD").startswith(commit)
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert provenance()["commit"] == f"{commit}+changes"


def test_no_git_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    fake_checkout(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", "")
    assert provenance()["commit"] is None
