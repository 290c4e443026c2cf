"""Notebooks as pages of the site: text, code and outputs as Markdown, and images as files.

Nothing is executed: a page shows the outputs saved in the notebook, which `make notebooks` updates.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def read_cells(path: Path) -> list[Cell]:
    """The cells of a notebook file."""
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def _joined(lines: str | list[str]) -> str:
    return "".join(lines)


def _picture(cell: Cell) -> tuple[str, bytes] | None:
    """The file extension and the bytes of a cell's image, if there is one."""
    for output in cell.get("outputs", []):
        for ending in ("png", "jpeg"):
            data = output.get("data", {}).get(f"image/{ending}")
            if data:
                return ending, base64.b64decode(_joined(data))
    return None


def _fence(language: str, text: str) -> str:
    """A fenced code block.

    >>> _fence("text", "two\\n\\n")
    '~~~text\\ntwo\\n~~~'
    """
    return f"~~~{language}\n{text.rstrip()}\n~~~"


def _outputs(cell: Cell, name: str, about: str) -> Iterator[str]:
    """The printed output of a cell in one block, then its image."""
    printed = [_joined(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"]
    if printed:
        yield _fence("text", "".join(printed))
    picture = _picture(cell)
    if picture:
        yield f"![{about}]({name}.{picture[0]})"


def page(path: Path) -> str:
    """A notebook as Markdown, with a link to the file below its title. Images are named as in `pictures`."""
    parts: list[str] = []
    heading = ""
    for number, cell in enumerate(read_cells(path)):
        source = _joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            heading = ([heading, *re.findall(r"^#+ (.*)$", source, re.MULTILINE)])[-1]
        else:
            parts.append(_fence("python", source))
            parts += _outputs(cell, f"{path.stem}-{number}", heading)
    title, _, rest = parts[0].partition("\n")
    own = f'*This page is a notebook: <a href="{path.name}" download>{path.name}</a>.*'
    return "\n\n".join([title, own, rest.strip(), *parts[1:]])


def pictures(path: Path) -> dict[str, bytes]:
    """The images of all cells by file name: NAME-7.png is that of cell 7, counted from 0."""
    drawn = {number: _picture(cell) for number, cell in enumerate(read_cells(path))}
    return {f"{path.stem}-{number}.{picture[0]}": picture[1] for number, picture in drawn.items() if picture}
