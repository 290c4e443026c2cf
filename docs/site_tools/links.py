"""Links that work both in the repository, where pages link to any file, and on the site.

Pages link to tests, examples and sources as `../tests/test_x.py`. On the site these become

    examples/…           the page with all examples
    docs/notebooks/…     the page of the notebook
    src/sfcnn/nn/…       the API page of the module
    anything else        a page that shows the file, or the file itself if it is data
"""

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: Files that are copied unchanged.
DATA = (".json", ".csv", ".png", ".yaml", ".toml", ".txt")

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_ITEM = re.compile(r"^(?:[-*+]|\d+\.) ")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the lines outside code blocks.

    >>> print(outside_code("a\\n```\\na\\n```", str.upper))
    A
    ```
    a
    ```
    """
    fence = ""
    lines = []
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        elif not fence:
            line = change(line)
        lines.append(line)
    return "\n".join(lines)


def targets(text: str) -> list[str]:
    """The targets of the links and images of a page, without anchors and without other sites.

    >>> targets("[a](b.md#c) and ![d](e.png), [f](https://example.org)")
    ['b.md', 'e.png']
    """
    found: list[str] = []

    def look(line: str) -> str:
        found.extend(match[1] for match in _LINK.finditer(line))
        return line

    outside_code(text, look)
    return found


def api_page(path: Path) -> str:
    """The page and anchor of a module or package of sfcnn in the API reference.

    >>> api_page(ROOT / "src/sfcnn/nn/conv.py")
    'api/nn.md#sfcnn.nn.conv'
    >>> api_page(ROOT / "src/sfcnn/nn")
    'api/nn.md'
    >>> api_page(ROOT / "src/sfcnn/group.py")
    'api/sfcnn.md#sfcnn.group'
    """
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    package = path.is_dir() or path.name == "__init__.py"
    names = [part for part in parts if part != "__init__"]
    page = names[1] if len(names) > 2 or (package and len(names) > 1) else "sfcnn"
    return f"api/{page}.md" + ("" if package else f"#{'.'.join(names)}")


def site_uri(path: Path) -> str:
    """The location of a file or directory of the repository on the site, as a path within docs/.

    >>> site_uri(ROOT / "docs/guide.md"), site_uri(ROOT / "examples/quickstart.py")
    ('guide.md', 'examples.md#quickstart')
    >>> site_uri(ROOT / "docs/notebooks/cells.ipynb")
    'notebooks/cells.md'
    >>> site_uri(ROOT / "tests/test_group.py"), site_uri(ROOT / "results/demo.json")
    ('source/tests/test_group.py.md', 'source/results/demo.json')
    >>> site_uri(ROOT / "src/sfcnn/pretrained/isbi2012/README.md")
    'source/src/sfcnn/pretrained/isbi2012/README.md'
    """
    name = path.relative_to(ROOT)
    if path.is_relative_to(DOCS) and path.suffix == ".ipynb":
        return path.relative_to(DOCS).with_suffix(".md").as_posix()
    if path.is_relative_to(DOCS) and path.suffix != ".py":
        return path.relative_to(DOCS).as_posix()
    if path.is_relative_to(ROOT / "src" / "sfcnn") and path.suffix in ("", ".py"):
        return api_page(path)
    if name.parts[0] == "examples":
        return "examples.md" if path.is_dir() else f"examples.md#{path.stem}"
    if path.suffix in (*DATA, ".md"):
        return f"source/{name.as_posix()}"
    return f"source/{name.as_posix()}.md"


def rewrite(text: str, source: Path, uri: str) -> str:
    """Rewrite the links of the file `source`, shown as the page `uri`, for the site."""

    def point(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(source.parent / match[1]))
        if not path.is_relative_to(ROOT) or not path.exists():
            return match[0]  # the strict build reports broken links
        page, _, anchor = site_uri(path).partition("#")
        relative = os.path.relpath(page, PurePosixPath(uri).parent)
        return relative + (match[2] or (f"#{anchor}" if anchor else ""))

    return outside_code(text, lambda line: _LINK.sub(point, line))


def indent_lists(text: str) -> str:
    """Format lists for Python-Markdown, which is stricter than others.

    The contents of an item are indented by four spaces, and an item of several paragraphs ends with an empty line.

    >>> print(indent_lists("1. one\\n\\n   more\\n2. two"))
    1. one
    <BLANKLINE>
        more
    <BLANKLINE>
    2. two
    """
    inside = paragraphs = False

    def indent(line: str) -> str:
        nonlocal inside, paragraphs
        if _ITEM.match(line):
            ended, inside, paragraphs = paragraphs, True, False
            return f"\n{line}" if ended else line
        if line and not line.startswith(" "):
            inside = False
        paragraphs = inside and (paragraphs or not line)
        if inside and re.match(r" {2,3}\S", line):
            return "    " + line.lstrip()
        return line

    return outside_code(text, indent)
