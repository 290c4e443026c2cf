"""The notebooks run from the first cell to the last, in small, and their pages show what was saved with them."""

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/site_tools/notebooks.py."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("site_tools.notebooks")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small part of the training; `make notebooks` runs them as they are."""
    monkeypatch.setenv("SFCNN_QUICK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a notebook puts its files
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output["text"] for output in printed if output.get("name") == "stderr"]  # no warnings
    saved = [len(cell.get("outputs", [])) > 0 for cell in nbformat.read(path, as_version=4).cells]
    assert [len(cell.get("outputs", [])) > 0 for cell in notebook.cells] == saved


def outputs(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def printed(path: Path) -> str:
    return "".join("".join(output["text"]) for output in outputs(path) if output["output_type"] == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_saved_small_and_with_the_outputs_of_one_run(path: Path) -> None:
    assert path.stat().st_size < 600_000
    assert not [output for output in outputs(path) if output["output_type"] == "error"]
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert str(Path.home()) not in path.read_text(encoding="utf-8")


def test_what_the_saved_notebooks_found_is_what_they_say() -> None:
    """A steerable network that is as good at every angle as at any, and a network of one's own that finds the cells."""
    digits, cells = (printed(ROOT / "docs" / "notebooks" / f"{name}.ipynb") for name in ("digits", "cells"))
    worst = {name: float(value) for name, value in re.findall(r"(\w+) +upright.*worst angle +([\d.]+)", digits)}
    assert worst["steerable"] < 20
    assert worst["plain"] > 60
    scores = {name.strip(): float(value) for name, value in re.findall(r"^(.+?) +V_rand ([\d.]+)", cells, re.MULTILINE)}
    assert scores["your network and forest"] > 0.8 > 0.3 > scores["isbi2012"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_shows_every_cell_and_picture(path: Path, tools: ModuleType) -> None:
    page, pictures = tools.page(path), tools.pictures(path)
    for cell in nbformat.read(path, as_version=4).cells:
        assert cell.source.splitlines()[-1] in page
    assert page.startswith("# ")
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", page) == list(pictures)
    assert all(picture.startswith((b"\x89PNG", b"\xff\xd8\xff")) for picture in pictures.values())
    assert len(pictures) >= 3
    links = re.findall(r"(?<!!)\[[^]]+\]\(([^)]+)\)", page)
    assert f'href="{path.name}"' in page
    assert all((path.parent / link).is_file() for link in links)


def test_a_small_notebook_as_a_page(tmp_path: Path, tools: ModuleType) -> None:
    code = nbformat.v4.new_code_cell("print(1); print(2)")
    code.outputs = [nbformat.v4.new_output("stream", name="stdout", text=part) for part in ("1\n", "2\n")]
    picture = nbformat.v4.new_code_cell("draw()")
    picture.outputs = [nbformat.v4.new_output("display_data", {"image/png": "iVBORw==", "text/plain": "<Figure>"})]
    title = nbformat.v4.new_markdown_cell("# Title\n\nText.")
    notebook = nbformat.v4.new_notebook(cells=[title, code, nbformat.v4.new_markdown_cell("## Part"), picture])
    nbformat.write(notebook, tmp_path / "small.ipynb")
    assert tools.page(tmp_path / "small.ipynb").split("\n\n") == [
        "# Title",
        '*This page is a notebook: <a href="small.ipynb" download>small.ipynb</a>.*',
        "Text.",
        "~~~python\nprint(1); print(2)\n~~~",
        "~~~text\n1\n2\n~~~",
        "## Part",
        "~~~python\ndraw()\n~~~",
        "![Part](small-3.png)",
    ]
    assert tools.pictures(tmp_path / "small.ipynb") == {"small-3.png": b"\x89PNG"}
