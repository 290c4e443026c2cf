"""Every example, every Python block and every command of README and docs runs and says what is printed beside it."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from PIL import Image

from sfcnn.cli import main
from sfcnn.data.digits import load_digits

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


def has_a_test_of_its_own(words: list[str]) -> bool:
    """Commands that take minutes or need a network or files: tests/cli runs them in small."""
    long = words[0] == "demo" or (words[0] == "experiment" and "--list" not in words)
    return long or "--print_config" in words or words[:2] == ["data", "fetch"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `sfcnn …` line, one after the other, beside a folder with a picture of a digit."""
    monkeypatch.chdir(tmp_path)
    Path("my-digits").mkdir()
    Image.fromarray((255 * load_digits().images[0, 0]).byte().numpy()).save("my-digits/one.png")
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
