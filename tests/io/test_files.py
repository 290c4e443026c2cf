import errno
import os
from pathlib import Path

import pytest

from sfcnn.io.files import OutputExistsError, new_file


def test_a_whole_file_appears_with_the_usual_permissions(tmp_path: Path) -> None:
    target = tmp_path / "new" / "result.txt"
    with new_file(target) as path:
        path.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    plain = tmp_path / "plain"
    plain.touch()
    assert target.stat().st_mode == plain.stat().st_mode
    assert os.listdir(target.parent) == ["result.txt"]


def test_an_error_leaves_nothing_behind_and_the_old_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")

    def fail() -> None:
        with new_file(target, overwrite=True) as path:
            path.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_an_existing_file_is_kept_unless_told(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(OutputExistsError, match="exists: choose another name or pass --overwrite"), new_file(target):
        pytest.fail("the block must not run")
    with new_file(target, overwrite=True) as path:
        path.write_text("new")
    assert target.read_text() == "new"


def test_a_file_made_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"

    def race() -> None:
        with new_file(target) as path:
            path.write_text("ours")
            target.write_text("theirs")

    with pytest.raises(OutputExistsError):
        race()
    assert target.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["result.txt"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK])
def test_file_systems_without_hard_links_get_their_files_too(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "result.txt"
    with new_file(target) as path:
        path.write_text("whole")
    assert target.read_text() == "whole"
    assert os.listdir(tmp_path) == ["result.txt"]

    def race() -> None:
        with new_file(tmp_path / "other.txt") as path:
            path.write_text("ours")
            (tmp_path / "other.txt").write_text("theirs")

    with pytest.raises(OutputExistsError):
        race()
    assert (tmp_path / "other.txt").read_text() == "theirs"


def test_a_directory_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError, match="is a directory"), new_file(tmp_path, overwrite=True):
        pytest.fail("the block must not run")
