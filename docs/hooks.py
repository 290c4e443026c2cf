"""What the site has beyond the pages in docs/: see mkdocs.yml. Each function is called by MkDocs under its name.

Pages say by a comment where something is to be put that is made from code:

    <!-- commands -->    the help of every command
    <!-- examples -->    every file of examples/
    <!-- results: … -->  tables of results, see site_tools/results.py
    <!-- n: … -->        a measured number, see site_tools/measured.py

Notebooks in docs/notebooks/ become pages beside their files, see site_tools/notebooks.py.
"""

import ast
import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_tools import commands, links, measured, notebooks, results
from site_tools.links import DOCS, ROOT

log = logging.getLogger("mkdocs.hooks.sfcnn")

SOURCE = ROOT / "src" / "sfcnn"

#: Parts of a page that a browser loads by itself, from another server.
_FOREIGN = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)")


def summary(path: Path) -> str:
    """The first sentence of a Python file's docstring, without its full stop."""
    documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"\.?\n\n|\.(?=\s)", documentation)[0].strip().rstrip(".").replace("\n", " ")


def packages() -> dict[str, list[str]]:
    """The modules on each page of the API, by the page's name; commands have their own reference."""
    top = sorted(path.stem for path in SOURCE.glob("[!_]*.py"))
    found = {"sfcnn": [f"sfcnn.{name}" for name in top]}
    for package in sorted(path.parent for path in SOURCE.glob("*/__init__.py") if path.parent.name != "cli"):
        modules = sorted(path.stem for path in package.glob("[!_]*.py"))
        found[package.name] = [f"sfcnn.{package.name}.{name}" for name in modules]
    return found


def api_text(name: str, modules: list[str]) -> str:
    """A page of the API: the package's own words, then module by module."""
    package = "sfcnn" if name == "sfcnn" else f"sfcnn.{name}"
    own = f"::: {package}\n    options: {{show_root_heading: false, show_root_toc_entry: false, members: false}}"
    parts = [f"::: {module}\n    options: {{heading_level: 2}}" for module in modules]
    return "\n\n".join([f"# {package}", own, *parts])


def examples_text() -> str:
    """Every example, with its source."""
    parts = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        parts.append(f"## {path.stem}\n\n{summary(path)}.\n\n~~~python\n{code}~~~")
    return "\n\n".join(parts)


def file_text(path: Path) -> str:
    """A page that shows a file; the search does not look into it."""
    name = path.relative_to(ROOT).as_posix()
    language = {".py": "python", ".sh": "sh"}.get(path.suffix, "text")
    code = path.read_text(encoding="utf-8")
    return f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n~~~~~~{language}\n{code}~~~~~~"


def linked_files(pages: list[Path]) -> dict[str, Path]:
    """The files that the site has to show since pages link to them, directly or by others, by their place on it."""
    found: dict[str, Path] = {}
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for target in links.targets(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if not path.is_file() or not path.is_relative_to(ROOT):
                continue
            uri = links.site_uri(path)
            if uri.startswith("source/") and uri not in found:
                found[uri] = path
                if path.suffix == ".md":
                    waiting.append(path)
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for each package under API in the navigation."""
    children: list[Any] = [{"Overview": "api.md"}]
    children += [{("sfcnn" if name == "sfcnn" else f"sfcnn.{name}"): f"api/{name}.md"} for name in packages()]
    for tab in config.nav or []:
        for pages in tab.values():
            for entry in pages if isinstance(pages, list) else []:
                if entry.get("API") == "api.md":
                    entry["API"] = children
    return config


def add_notebook(path: Path, files: Files, config: MkDocsConfig) -> None:
    """The page of a notebook, notebooks/NAME.md, and its pictures."""
    uri = f"notebooks/{path.stem}.md"
    files.append(File.generated(config, uri, content=links.rewrite(notebooks.page(path), path, uri)))
    for name, picture in notebooks.pictures(path).items():
        files.append(File.generated(config, f"notebooks/{name}", content=picture))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API, the notebooks and the files that pages link to."""
    for name, modules in packages().items():
        files.append(File.generated(config, f"api/{name}.md", content=api_text(name, modules)))
    for path in sorted(DOCS.glob("notebooks/*.ipynb")):
        add_notebook(path, files, config)
    for uri, path in linked_files(sorted(DOCS.glob("*.md"))).items():
        if path.suffix in links.DATA:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        elif path.suffix == ".md":
            text = links.rewrite(path.read_text(encoding="utf-8"), path, uri)
            files.append(File.generated(config, uri, content=text))
        else:
            files.append(File.generated(config, uri, content=file_text(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in what is made from code, and make the page's links and lists those of the site."""
    if page.file.generated_by:
        return markdown
    text = links.indent_lists(measured.plain(results.refresh(markdown)))
    text = links.rewrite(text, DOCS / page.file.src_uri, page.file.src_uri)
    parts = {"commands": commands.reference, "examples": examples_text}
    for name, make in parts.items():
        mark = f"<!-- {name} -->"
        if mark in text:
            text = text.replace(mark, make())
    return text


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warn, and so fail, if a page would load anything from another server."""
    for address in _FOREIGN.findall(output):
        log.warning("%s loads %s from another server", page.file.src_uri, address)
    return output
