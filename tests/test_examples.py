"""Every example, every Python block and every command of README and docs runs and says what is printed beside it."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sfcnn.cli import main
from sfcnn.io.stacks import read_image

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")


def example(name: str) -> dict[str, Any]:
    """What an example defines, without running it."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_fibres_of_every_direction_are_read_by_a_network_trained_on_horizontal_ones() -> None:
    errors = example("fibre_directions")["main"]()
    assert len(errors) == 6
    assert max(errors.values()) < 15  # degrees; by chance it would be 45


def test_the_u_net_takes_a_folder_of_images_of_any_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = example("unet_own_images")
    names["draw_folder"](tmp_path / "mine", size=41)
    names["main"](tmp_path / "mine", tmp_path / "results", steps=2)
    written = sorted((tmp_path / "results").glob("*.png"))
    assert [path.name for path in written] == ["0.png", "1.png", "2.png"]
    assert all(read_image(path).shape == (41, 41) for path in written)
    assert "% of the pixels of 2 are wrong" in capsys.readouterr().out


def test_drawn_images_are_listed_and_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = example("draw_images")["main"]
    monkeypatch.chdir(tmp_path)
    main(count=2)
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) == 3 * 2 + 3 * 3 + 6 * 2 + 1 + 3 * 4 + 5 + 2
    assert f"wrote 2 files to {tmp_path / 'my-images' / 'tee'}\n" in capsys.readouterr().out
    Path("my-images/cross/0.png").unlink()
    Path("my-images/tee/1.png").write_bytes(b"mine")
    with pytest.raises(SystemExit) as stop:
        main(count=2)
    assert stop.value.code == 2
    said = capsys.readouterr()
    first = Path("my-images", "cross", "1.png")
    assert (said.out, said.err) == ("", f"{first} already exists: move it away, or run this in another directory\n")
    assert not Path("my-images/cross/0.png").exists()
    assert Path("my-images/tee/1.png").read_bytes() == b"mine"


def test_two_processes_print_the_losses_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from accelerate.state import AcceleratorState

    monkeypatch.chdir(tmp_path)
    AcceleratorState._reset_state(reset_partial_state=True)  # of other tests
    example("accelerate_two_processes")["main"]()
    alone = capsys.readouterr().out
    state = torch.load("digits.pt", weights_only=True)
    script = str(ROOT / "examples" / "accelerate_two_processes.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, "--rdzv-endpoint=localhost:0", script], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Grad strides" not in done.stderr  # which would mean that gradients are copied
    losses = [[float(value) for value in re.findall(r"loss ([\d.]+)", text)] for text in (alone, done.stdout)]
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], abs=2e-4)
    assert "2 process(es)" in done.stdout
    assert torch.load("digits.pt", weights_only=True).keys() == state.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
    if page.stem == "choosing":  # its table is what the first block prints
        (row,) = re.findall(r"^\| relative error \|(.*)\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
        found = names["found"]
        assert isinstance(found, dict)
        assert [float(cell) for cell in row.split("|")] == pytest.approx(list(found.values()), abs=5e-3)


def has_a_test_of_its_own(words: list[str]) -> bool:
    """Commands that take minutes, need a network or files, or go on until they are stopped: other tests run them."""
    long = words[0] in ("demo", "play") or (words[0] == "experiment" and "--list" not in words)
    return long or "--print_config" in words or words[:2] == ["data", "fetch"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `sfcnn …` line, one after the other, beside the images that `examples/draw_images.py` draws."""
    monkeypatch.chdir(tmp_path)
    example("draw_images")["main"]()
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["sfcnn"] and not has_a_test_of_its_own(words[1:]):
            assert main(words[1:]) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_and_make_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", text):
        assert (page.parent / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks(page, "sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_names_in_the_map_of_the_paper_exist() -> None:
    """docs/paper.md points from equations to `module.name`; each must be importable."""
    import importlib

    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    names = re.findall(r"`(sfcnn(?:\.\w+)+)`", text)
    assert len(names) > 20
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ImportError:
            assert hasattr(importlib.import_module(module), attribute), name
