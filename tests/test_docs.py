"""The documentation says what is there: links, results, tests and names that it points to, and what the site adds."""

import doctest
import importlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from sfcnn import equivariance_error

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))


def load(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    if name in sys.modules:
        return sys.modules[name]
    return importlib.import_module(name)


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def github_slug(heading: str) -> str:
    """The anchor that forges give a heading."""
    words = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def headings(page: Path) -> set[str]:
    without_code = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {github_slug(heading) for heading in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_anchors_exist_where_pages_are_read_as_files(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        other = page.parent / target if target else page
        assert anchor in headings(other), f"{target}#{anchor}"


def pages_in(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
            yield from pages_in(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    settings = re.sub(r"!!python\S*", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = list(pages_in(yaml.safe_load(settings)["nav"]))
    notebooks = [f"notebooks/{path.stem}.md" for path in (DOCS / "notebooks").glob("*.ipynb")]
    assert sorted(named) == sorted([*(page.name for page in PAGES), *notebooks])


def test_the_build_sees_warnings() -> None:
    """With --quiet MkDocs does not even count them."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\t(.*mkdocs build.*)$", makefile, re.MULTILINE)
    assert "--strict" in line
    assert "-q" not in line


def test_results_are_those_of_the_recorded_files() -> None:
    """If this fails: python docs/site_tools/results.py."""
    results = load("site_tools.results")
    for page in results.PAGES:
        found = page.read_text(encoding="utf-8")
        assert results.refresh(found) == found, page.name
    recorded = {path.stem for path in (ROOT / "results").glob("*.json") if '"table"' in path.read_text()}
    assert recorded <= set(results.names(text("results.md")))


def test_a_changed_result_is_noticed() -> None:
    results = load("site_tools.results")
    stale = text("results.md").replace(" ± ", " ± 1", 1)
    assert stale != text("results.md")
    assert results.refresh(stale) == text("results.md")
    stale = re.sub(r"(<!-- n: \S+ \S+ -->)(\d)", r"\g<1>1\2", text("performance.md"), count=1)
    assert stale != text("performance.md")
    assert results.refresh(stale) == text("performance.md")


def test_numbers_that_were_not_measured_are_refused() -> None:
    measured = load("site_tools.measured")
    with pytest.raises(ValueError, match="no source 'speeds'; there are speed, "):
        measured.value("speeds.train.least")
    with pytest.raises(ValueError, match="speed has mnist_benchmark"):
        measured.fill("<!-- n: speed.gpu -->1000<!-- /n -->")


def test_no_line_begins_with_a_comment_around_a_number() -> None:
    """Markdown would take such a line for HTML."""
    for page in load("site_tools.results").PAGES:
        assert not re.search(r"^\s*(?:[-*] )?<!-- n:", page.read_text(encoding="utf-8"), re.MULTILINE), page.name


#: Times, sizes and scores as they are written in sentences.
MEASURED = re.compile(
    r"(?<![\w.=-])\d[\d.,]*\s?(?:ms|s|%|GB|MB|×|times|minutes|hours)(?![\w×])|\b0\.\d{3,}\b|\d\.\d+ ± "
)
#: Settings, bounds, and what others have reported: every other number of this kind comes from a file.
NOT_MEASURED = {
    "choosing": {"0.489", "0.231", "0.189", "0.086", "0.051", "0.029"},  # tests/test_examples.py compares them
    "asks": {"30 minutes", "16 s", "4 times", "10 times", "733 MB", "20 s"},
    "export": {"44 times", "2 GB"},
    "initialization": {"5 %"},
    "paper": {  # the paper's own numbers, and bounds
        *("0.015", "16 times", "5 %", "29 %", "99 %", "99.3 %", "3.3 times"),
        *("0.957", "0.025 %", "0.880", "0.029 %", "0.714", "0.022 %", "0.98680", "0.99144"),
        *("1.01 %", "0.880 %", "0.98224", "0.98845"),
    },
    "results": {"0.987", "0.991", "1 %", "0.75 %"},  # the paper's, and thresholds
    "performance": {"10 %", "2 GB", "32 MB"},
    "segmentation": {"2 GB", "0.001", "0.999"},
    "training": {"0.015", "0.998", "4 %"},
}


@pytest.mark.parametrize("page", ["../README", *NOT_MEASURED, "equivariance", "faq", "guide", "index"])
def test_measured_numbers_are_not_typed(page: str) -> None:
    """Whoever measures a number writes it to a JSON file and names it: see docs/site_tools/measured.py."""
    written = load("site_tools.results").without_tables(text(f"{page}.md"))
    written = re.sub(r"^```.*?^```|`[^`\n]*`", "", written, flags=re.DOTALL | re.MULTILINE)
    assert set(MEASURED.findall(written)) <= NOT_MEASURED.get(page, set())


def asks() -> list[list[str]]:
    rows = re.findall(r"^\| (\d+ \|.*) \|$", text("asks.md"), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r" \| ", row)] for row in rows]


def test_every_ask_has_an_answer() -> None:
    rows = asks()
    assert [int(row[0]) for row in rows] == list(range(1, 42))
    for row in rows:
        assert len(row) == 4, row
        status = re.match(r"\*\*(answered|in part|does not apply|open)\*\*", row[3])
        assert status, row
        if status[1] in ("answered", "in part"):
            assert "](" in row[3] or "as " in row[3] or "pure Python" in row[3], f"no evidence: {row}"


def test_tests_that_pages_point_to_exist() -> None:
    found = [link for page in PAGES for link in re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", page.read_text())]
    assert len(found) > 10
    for name, target in found:
        assert f"def {name}(" in (DOCS / target).read_text(encoding="utf-8"), name


def test_every_part_of_the_tests_is_described() -> None:
    described = text("testing.md")
    for path in (ROOT / "tests").iterdir():
        if path.is_dir() and any(path.glob("test_*.py")):
            assert f"`tests/{path.name}`" in described, path.name
        elif path.name.startswith("test_"):
            assert f"](../tests/{path.name})" in described, path.name
    assert re.search(r"^\*\*Last passed in full:\*\* \S", described, re.MULTILINE)


def test_every_package_is_in_the_table_of_the_api() -> None:
    packages = [path.parent for path in (ROOT / "src" / "sfcnn").glob("*/__init__.py") if path.parent.name != "cli"]
    assert len(packages) > 6
    for package in packages:
        assert f"](../src/sfcnn/{package.name})" in text("api.md"), package.name


def test_every_command_and_action_is_in_the_reference() -> None:
    commands = load("site_tools.commands")
    names = list(commands.commands())
    from sfcnn.cli import COMMANDS, GROUPS

    assert {*COMMANDS, *GROUPS} == {" ".join(words) for words in names if words}
    for words in names:
        assert not words or f"`{words[0]}`" in text("cli.md"), words
    reference = commands.reference()
    assert "## sfcnn segment\n" in reference
    assert "### sfcnn segment train\n\n```text\nusage: sfcnn segment train " in reference
    assert "--optimization.learning_rate" in reference
    assert "\x1b" not in reference
    assert str(Path.home()) not in reference


@pytest.mark.parametrize("name", ["commands", "docstrings", "links", "measured", "notebooks", "results", "tables"])
def test_examples_in_docstrings_of_the_tools(name: str) -> None:
    assert doctest.testmod(load(f"site_tools.{name}")).failed == 0


def test_links_lead_to_what_the_site_has() -> None:
    links = load("site_tools.links")
    page = "[a](guide.md#engines) [b](../tests/test_group.py) [c](../src/sfcnn/nn/conv.py) [d](../examples)"
    assert links.rewrite(page, DOCS / "faq.md", "faq.md") == (
        "[a](guide.md#engines) [b](source/tests/test_group.py.md) [c](api/nn.md#sfcnn.nn.conv) [d](examples.md)"
    )
    from_below = links.rewrite("[x](../docs/guide.md)", ROOT / "benchmarks/README.md", "source/benchmarks/README.md")
    assert from_below == "[x](../../guide.md)"
    code = "```python\nx[0](../tests/test_group.py)\n```"
    assert links.rewrite(code, DOCS / "faq.md", "faq.md") == code
    nowhere = "[x](../nowhere.py) [y](https://example.org/a.md)"
    assert links.rewrite(nowhere, DOCS / "faq.md", "faq.md") == nowhere


def test_badges_say_what_the_package_says() -> None:
    """If this fails: python docs/site_tools/badges.py."""
    found = load("site_tools.badges").badges()
    assert len(found) == 3
    for name, picture in found.items():
        assert (DOCS / "figures" / name).read_text(encoding="utf-8") == picture
        assert f"](docs/figures/{name})" in text("../README.md")


def test_every_figure_and_table_of_the_paper_has_a_row() -> None:
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", text("paper.md").split("## Equations")[0], re.MULTILINE)
    said = " ".join(first for first, _ in rows)
    for number in range(1, 7):
        assert re.search(rf"Figures?(?: \d,)* {number}\b|Figures? {number}\b", said), f"figure {number}"
    for number in range(1, 4):
        assert re.search(rf"Tables?(?: \d,)* {number}\b|Tables? {number}\b", said), f"table {number}"
    for first, rest in rows[2:]:
        cells = rest.split(" | ")
        assert len(cells) == 5, first
        assert all(cells), first


def test_lists_are_indented_for_the_site() -> None:
    links = load("site_tools.links")
    assert links.indent_lists("1. a\n\n   b\n\nc\n\n   d") == "1. a\n\n    b\n\nc\n\n   d"
    assert links.indent_lists("- a\n  - b") == "- a\n    - b"


@pytest.mark.parametrize("name", ["steering", "filter", "responses", "errors", "borders", "speed"])
def test_pictures_can_be_drawn(name: str, tmp_path: Path) -> None:
    from sfcnn.pictures import save_figure

    figures = load("make_figures")
    draw = {
        "steering": lambda: figures.steering_figure(7),
        "filter": figures.filter_figure,
        "responses": lambda: figures.responses_figure(17, 7),
        "errors": lambda: figures.errors_figure(step=45, size=21, seeds=1),
        "borders": figures.borders_figure,
        "speed": lambda: figures.speed_figure("size"),
    }
    figure = draw[name]()
    panels = {"steering": 12, "filter": 36, "responses": 40, "errors": 1, "borders": 2, "speed": 1}
    assert len(figure.axes) == panels[name]
    save_figure(figure, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert all((DOCS / "figures" / f"{drawn}.png").is_file() for drawn in [*figures.FIGURES, *figures.ON_DEMAND])


def test_bars_of_times_show_the_range_beside_each_other_and_medians_stand_at_their_values() -> None:
    axes = load("make_figures").speed_figure("orientations").axes[0]
    assert {x for line in axes.get_lines() for x in line.get_xdata()} == {1, 2, 4, 8, 16, 32}
    bars = [bar for lines in axes.collections for bar in lines.get_segments()]
    assert len({round(float(bar[0, 0]), 6) for bar in bars}) == len(bars)  # no two at the same place
    assert all(bar[0, 1] <= bar[1, 1] for bar in bars)


def test_the_loop_stands_still_for_a_network_that_turns_with_the_image() -> None:
    """A mean over a disk does; a shift to the right does not."""
    import numpy as np

    loop = load("make_loop")
    image = load("make_figures").letter(64)[0, 0].numpy()
    angles = loop.degrees(12)

    def smooth(seen: Any) -> Any:
        return torch.nn.functional.avg_pool2d(torch.from_numpy(seen)[None], 3, 1, 1)[0].numpy()

    still, moved = (loop.turned_back(f, image, angles, 44, 32) for f in (smooth, lambda seen: np.roll(seen, 6, 1)))
    assert still.shape == (12, 32, 32)
    assert loop.errors(still)[[0, 3, 6, 9]] == pytest.approx([0] * 4, abs=1e-4)  # quarter turns are exact
    assert loop.errors(still).max() < 0.5 < loop.errors(moved)[1:].min()
    frame = loop.render(loop.draw(5, image, angles, {"SFCNN": still, "plain U-Net": moved}, 32))
    assert frame.size == (720, 360)
    outside = np.asarray(frame)[40, 10]
    assert tuple(outside) == (0x14, 0x17, 0x1C)


def test_the_plain_network_of_the_pictures_was_trained_as_the_one_that_ships() -> None:
    import sfcnn
    from sfcnn.models.twins import count_parameters

    plain, ours = (sfcnn.load(run, device="cpu") for run in ("isbi2012-plain", "isbi2012"))
    assert count_parameters(plain.network) == pytest.approx(count_parameters(ours.network), rel=0.01)
    for part in ("images", "crops", "optimization", "loss", "steps", "seed"):
        assert getattr(plain.config, part) == getattr(ours.config, part)


def test_the_turned_letter_has_the_turned_responses() -> None:
    """What docs/idea.md says of its picture: one step of the orientations moves every map on by one."""
    figures = load("make_figures")
    image = figures.letter(65)
    assert all(float(part.max()) > 0.1 for part in figures.responses(image))

    def layer(part: int) -> Callable[[Tensor], Tensor]:
        return lambda images: figures.responses(images)[part][None, None]

    assert max(equivariance_error(layer(part), image, math.pi / 4, radius=20) for part in (0, 1)) < 0.1
    quarter = figures.responses(torch.rot90(image, 1, (-2, -1)))[0]
    torch.testing.assert_close(quarter.roll(-2, 0), torch.rot90(figures.responses(image)[0], 1, (-2, -1)))


def test_curves_are_low_at_quarter_turns_only() -> None:
    figures = load("make_figures")
    found = figures.errors_by_angle([45.0, 90.0], 21, 1)
    assert all(errors[1] < 1e-5 < errors[0] for name, errors in found.items() if name.startswith("sfcnn"))
    assert found["ordinary convolutions"][1] > 0.1


def test_the_figure_of_borders_shows_what_was_measured() -> None:
    """At 24 angles and 360°, every seed of every variant and their means."""
    figures = load("make_figures")
    results = json.loads(figures.BORDERS.read_text(encoding="utf-8"))["results"]
    lines = figures.borders_figure().axes[0].get_lines()
    assert {tuple(line.get_xdata()) for line in lines} == {tuple(range(0, 361, 15))}
    drawn = [list(line.get_ydata()) for line in lines]
    for variant in figures.VARIANTS:
        found = [r["errors"] for r in results if (r["variant"], r["basis"]) == (variant, "averaged")]
        means = [sum(values) / len(values) for values in zip(*found, strict=True)]
        assert len(found) == 3
        for values in (*found, means):
            assert any(ys == pytest.approx([*values * 4, values[0]]) for ys in drawn)


def test_what_is_left_at_borders_is_what_was_measured() -> None:
    """The means over seeds that docs/equivariance.md names."""
    results = json.loads(load("make_figures").BORDERS.read_text(encoding="utf-8"))["results"]
    text = (DOCS / "equivariance.md").read_text(encoding="utf-8").split("### What is left")[1].split("\n## ")[0]

    def mean(variant: str, value: Callable[[dict[str, Any]], float]) -> float:
        found = [value(r) for r in results if (r["variant"], r["basis"]) == (variant, "averaged")]
        return sum(found) / len(found)

    named = [mean("none", lambda r: r["errors"][0]), mean("none", lambda r: max(r["errors"]))]
    for variant in ("disk-blur", "disk-blur-moves"):
        named += [mean(variant, lambda r: r["errors"][0]), mean(variant, lambda r: r["errors_without_6_9"][0])]
        named += [mean(variant, lambda r: r["canvas"]["centred"]), mean(variant, lambda r: r["canvas"]["moved"])]
        named.append(mean(variant, lambda r: r["off"]["1"]))
        ratio = mean(variant, lambda r: max(r["errors"])) / mean(variant, lambda r: r["errors"][0])
        assert f"{ratio:.2f}" in text
    named += [mean("disk-blur", lambda r: max(r["errors"])), mean("disk-blur", lambda r: r["off_without_6_9"]["1"])]
    named.append(mean("disk-blur", lambda r: max(r["errors_without_6_9"])))
    assert [value for value in named if f"{value:.1f}" not in text] == []


def test_comments_document_attributes_and_examples_are_code() -> None:
    import griffe

    extensions = griffe.load_extensions(load("site_tools.docstrings").WrittenHere)
    module = griffe.load("sfcnn.harmonics", search_paths=[ROOT / "src"], extensions=extensions)

    def documentation(name: str) -> str | None:
        docstring = module[name].docstring
        return docstring.value if docstring else None

    assert documentation("Basis.cutoffs") == "K_j, the highest angular frequency on each ring"
    assert str(documentation("BasisLike")).startswith("What layers and models accept as a basis")
    assert documentation("PRESETS") is None
    assert "```pycon\n>>> resolve_basis" in str(documentation("resolve_basis"))


def test_what_a_browser_would_load_from_elsewhere_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    hooks = load("hooks")
    page = type("Page", (), {"file": type("File", (), {"src_uri": "x.md"})})
    hooks.on_post_page('<a href="https://example.org">x</a><script src="bundle.js"></script>', page, None)
    assert not caplog.records
    hooks.on_post_page('<link rel="stylesheet" href="https://example.org/font.css">', page, None)
    assert "x.md loads https://example.org/font.css from another server" in caplog.text


def test_the_site_shows_every_module_and_every_linked_file() -> None:
    hooks = load("hooks")
    modules = [name for names in hooks.packages().values() for name in names]
    assert {"sfcnn.group", "sfcnn.nn.conv", "sfcnn.cells.multicut"} <= set(modules)
    assert not any("cli" in name or "__" in name for name in modules)
    shown = hooks.linked_files(PAGES)
    assert shown["source/tests/nn/test_conv.py.md"] == ROOT / "tests/nn/test_conv.py"
    assert "source/results/orientations.json" in shown
    assert "~~~~~~python" in hooks.file_text(ROOT / "tests/test_group.py")
    assert "LiftConv2d" in hooks.examples_text()
