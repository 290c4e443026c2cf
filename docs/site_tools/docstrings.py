"""Prepares this project's docstrings for the API reference.

Attributes are documented by comments `#: …`, which Griffe does not read, and examples are not fenced, so that Markdown
would render them as quotations.
"""

import ast
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_MARK = "#:"


def comment_of(lines: list[str], first: int, last: int) -> str | None:
    """The comment of the statement from line `first` to line `last`, counted from 1.

    It follows the statement on its last line, or is on the lines before it.

    >>> comment_of(["#: the number", "#: of cats", "cats = 3", "dogs = 2  #: less"], 3, 3)
    'the number of cats'
    >>> comment_of(["#: the number", "#: of cats", "cats = 3", "dogs = 2  #: less"], 4, 4)
    'less'
    """
    _, mark, behind = lines[last - 1].partition(f" {_MARK}")
    if mark:
        return behind.strip()
    before: list[str] = []
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith(_MARK):
            break
        before.insert(0, line.strip().removeprefix(_MARK).strip())
    return " ".join(before) or None


def fence_examples(text: str) -> str:
    """Fence examples, from `>>>` to the next empty line, as code.

    >>> fence_examples("A sum.\\n\\n>>> 1 + 1\\n2")
    'A sum.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    lines: list[str] = []
    margin: str | None = None  # of the current example
    for line in [*text.split("\n"), ""]:
        if margin is None and line.lstrip().startswith(">>>"):
            margin = line[: len(line) - len(line.lstrip())]
            lines.append(f"{margin}```pycon")
        elif margin is not None and not line.strip():
            lines.append(f"{margin}```")
            margin = None
        lines.append(line)
    return "\n".join(lines[:-1])


class WrittenHere(Extension):
    """Use comments as docstrings of attributes without one, and fence examples."""

    def on_attribute_instance(self, *, node: ast.AST | Any, attr: Attribute, agent: Any, **options: Any) -> None:
        """Look for a comment around the attribute's lines."""
        if attr.docstring is not None or not attr.lineno or isinstance(attr.filepath, list):
            return
        last = attr.endlineno or attr.lineno
        comment = comment_of(attr.lines_collection[attr.filepath], attr.lineno, last)
        if comment:
            attr.docstring = Docstring(comment, parent=attr)

    def on_object(self, *, obj: Object, loader: Any, **options: Any) -> None:
        """Fence the examples of the docstring, once everything is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
