"""Results as text and figures: ratios with their required and target values, losses as well as wins."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job import WITHOUT_KERNEL

from sfcnn.pictures import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = dict[str, Any]
Sections = dict[str, dict[str, Any]]

_STYLES = {"direct": "s-", "atomic": "^-", "spectral": "o-", "auto": "x--", "escnn": "d-"}


def done(sections: Sections, section: str) -> list[Result]:
    """The results of a section, without those that failed."""
    return [r for r in sections.get(section, {}).get("results", []) if "median_seconds" in r]


def _pick(results: Iterable[Result], **wanted: object) -> Result | None:
    return next((r for r in results if all(r[key] == value for key, value in wanted.items())), None)


def _engines(results: list[Result]) -> list[str]:
    return list(dict.fromkeys(r["engine"] for r in results))


def _range(over: Result, under: Result) -> str:
    """The ratio of two medians, with its range from the extremes of both."""
    middle = over["median_seconds"] / under["median_seconds"]
    low, high = over["min_seconds"] / under["max_seconds"], over["max_seconds"] / under["min_seconds"]
    return f"{middle:.2f}× ({low:.2f} … {high:.2f})"


def _verdict(value: float, must: float, aim: float, *, more: bool) -> str:
    """Which goal a ratio reaches; `more` if greater is better."""
    sign = 1 if more else -1
    if sign * value >= sign * aim:
        return "aim"
    return "must" if sign * value >= sign * must else "MISSED"


Row = tuple[str, str, str, str, str]


def _speed_rows(sections: Sections) -> list[Row]:
    """How many times as fast our engines are, by the median."""
    # section, name, mode, compared engine, must, aim; None: no target
    targets: list[tuple[str, str, str, str, float | None, float | None]] = [
        ("mnist", "mnist_benchmark", "train", "escnn", 9.0, 12.0),
        ("mnist", "mnist_baseline", "train", "escnn", 8.0, 11.0),
        ("mnist", "mnist_benchmark", "eval", "escnn", 9.0, 12.0),
        ("mnist", "mnist_baseline", "eval", "escnn", None, None),
        ("unet", "membrane_unet", "train", WITHOUT_KERNEL, 2.0, 3.0),
        ("mnist", "mnist_benchmark", "train", WITHOUT_KERNEL, None, None),
        ("mnist", "mnist_benchmark", "eval", WITHOUT_KERNEL, None, None),
        ("mnist", "mnist_baseline", "train", WITHOUT_KERNEL, None, None),
    ]
    rows: list[Row] = []
    for section, name, mode, other, must, aim in targets:
        results = done(sections, section)
        theirs = _pick(results, name=name, mode=mode, engine=other)
        for engine in ("spectral", "auto"):
            ours = _pick(results, name=name, mode=mode, engine=engine)
            if ours is None or theirs is None:
                continue
            value = theirs["median_seconds"] / ours["median_seconds"]
            goals = (
                ("", "", "")
                if must is None or aim is None
                else (f"≥ {must:g}×", f"≥ {aim:g}×", _verdict(value, must, aim, more=True))
            )
            rows.append((f"{name} {mode}, {other} / {engine}", _range(theirs, ours), *goals))
    return rows


def _growth_rows(sections: Sections) -> list[Row]:
    results = done(sections, "growth")
    rows: list[Row] = []
    for engine in _engines(results):
        pair = sorted((r for r in results if r["engine"] == engine), key=lambda r: r["orientations"])
        if len(pair) == 2:
            value = pair[1]["median_seconds"] / pair[0]["median_seconds"]
            goals = ("", "", "") if engine == "direct" else ("≤ 2.6×", "≤ 2.1×", _verdict(value, 2.6, 2.1, more=False))
            label = f"growth Λ = {pair[0]['orientations']} → {pair[1]['orientations']}, {engine}"
            rows.append((label, _range(pair[1], pair[0]), *goals))
    return rows


def _memory_rows(sections: Sections) -> list[Row]:
    """Increase of the resident memory over its level before the first step, as a ratio."""
    rows: list[Row] = []
    for section, name, other, aim in (
        ("memory", "memory", "escnn", 0.5),
        ("unet", "membrane_unet", WITHOUT_KERNEL, 1.0),
    ):
        results = done(sections, section)
        theirs = _pick(results, name=name, engine=other)
        for engine in ("spectral", "auto"):
            ours = _pick(results, name=name, engine=engine)
            if ours is None or theirs is None:
                continue
            value = ours["step_bytes"] / theirs["step_bytes"]
            sizes = " / ".join(f"{r['step_bytes'] / 2**30:.2f}" for r in (ours, theirs))
            work = "mnist_benchmark" if section == "memory" else name
            verdict = _verdict(value, 1.0, aim, more=False)
            rows.append(
                (f"{work} memory, {engine} / {other}", f"{value:.2f}× ({sizes} GB)", "≤ 1×", f"≤ {aim:g}×", verdict)
            )
    return rows


def _plain_rows(sections: Sections) -> list[Row]:
    """Time and memory of a steerable network compared with plain ones, without targets."""
    results = done(sections, "plain")
    ours = _pick(results, engine="auto")
    rows: list[Row] = []
    for theirs in results if ours else ():
        if ours and theirs is not ours:
            memory = ours["step_bytes"] / theirs["step_bytes"]
            measured = f"{_range(ours, theirs)}, memory {memory:.2f}×"
            rows.append((f"mnist_benchmark train, auto / {theirs['engine']}", measured, "", "", ""))
    return rows


def _reflection_rows(sections: Sections) -> list[Row]:
    """A layer on D_Λ with C channels compared with one on C_Λ with 2C, which convolves as many maps."""
    results = done(sections, "reflections")
    rows: list[Row] = []
    for ours in (r for r in results if r["reflections"]):
        channels, count = ours["channels"][0], ours["orientations"]
        same = {key: ours[key] for key in ("mode", "orientations", "kernel_sizes", "batch", "size")}
        others = (r for r in results if r["channels"][0] == 2 * channels)
        theirs = _pick(others, reflections=False, **same)
        if theirs is not None:
            value = ours["median_seconds"] / theirs["median_seconds"]
            label = f"layer {ours['mode']}, D_{count} {channels} channels / C_{count} {2 * channels}"
            rows.append((label, _range(ours, theirs), "≤ 1.1×", "≤ 1×", _verdict(value, 1.1, 1.0, more=False)))
    return rows


def targets_table(sections: Sections) -> str:
    """All ratios with a target, and some without."""
    kinds = (_speed_rows, _growth_rows, _memory_rows, _plain_rows, _reflection_rows)
    rows = [row for kind in kinds for row in kind(sections)]
    head = ("ratio of medians", "measured (range by extremes)", "must", "aim", "reached")
    return "\n".join(f"{a:56}{b:40}{c:>8}{d:>8}  {e}" for a, b, c, d, e in [head, *rows])


def sweep_table(sections: Sections, section: str, axis: str) -> str:
    """Milliseconds per image of each engine along a sweep; a star marks the fastest."""
    results = done(sections, section)
    engines = _engines(results)
    lines = [f"{axis:>14}" + "".join(f"{engine:>14}" for engine in engines)]
    for value in dict.fromkeys(r[axis] for r in results):
        cells = [_pick(results, **{axis: value, "engine": engine}) for engine in engines]
        best = min(cell["median_ms_per_image"] for cell in cells if cell)
        texts = [
            f"{c['median_ms_per_image']:.2f}{' *' if c['median_ms_per_image'] == best else '  '}" if c else ""
            for c in cells
        ]
        lines.append(f"{value:14}" + "".join(f"{text:>14}" for text in texts))
    return "\n".join(lines)


def sweep_figure(results: list[Result], axis: str, label: str, title: str) -> "Figure":
    """Milliseconds against Λ or size, both logarithmic: medians by engine, with thin bars for the range of repeats.

    Bars are drawn side by side, so that they do not hide each other.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    engines = sorted(_engines(results), key=list(_STYLES).index)
    for number, engine in enumerate(engines):
        points = sorted((r for r in results if r["engine"] == engine), key=lambda r: r[axis])
        x = [r[axis] for r in points]
        aside = [value * 1.03 ** (number - (len(engines) - 1) / 2) for value in x]
        middle, low, high = ([1e3 * r[f"{k}_seconds"] / r["batch"] for r in points] for k in ("median", "min", "max"))
        (line,) = axes.plot(x, middle, _STYLES[engine], markersize=5, label=engine)
        axes.vlines(aside, low, high, color=line.get_color(), linewidth=1.2, alpha=0.5)
    ticks = sorted({r[axis] for r in results})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.minorticks_off()
    axes.set(xlabel=label, ylabel="training step (ms per image)", title=title)
    axes.grid(alpha=0.3)
    axes.legend(title="median; bars: range", alignment="left")
    return figure


#: The swept parameter of each section with a figure: its key and its axis label.
_SWEPT = {
    "orientations": ("orientations", "orientations Λ"),
    "size": ("size", "height and width of the image (pixels)"),
}


def section_figure(sections: Sections, section: str) -> "Figure":
    """The figure of a measured sweep."""
    axis, label = _SWEPT[section]
    results = done(sections, section)
    r = results[0]
    (inputs, outputs), (kernel,) = r["channels"], r["kernel_sizes"]
    rest = f"maps of {r['size']}×{r['size']}" if axis == "orientations" else f"Λ = {r['orientations']}"
    title = f"One layer: {inputs} → {outputs} channels, kernel {kernel}×{kernel}, {rest}, batch {r['batch']}"
    return sweep_figure(results, axis, label, title)


def draw(sections: Sections, folder: Path) -> list[Path]:
    """Draw the figures of all measured sweeps into `folder` and return their paths."""
    drawn = []
    for section in _SWEPT:
        if done(sections, section):
            drawn.append(folder / f"speed_{section}.png")
            save_figure(section_figure(sections, section), drawn[-1], overwrite=True)
    return drawn
