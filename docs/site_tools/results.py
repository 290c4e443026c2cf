"""Measured tables and numbers in README and docs, generated from the JSON files of experiments and benchmarks.

A table is enclosed by two comments, `<!-- results: NAME -->` and `<!-- end of results -->`, a number in a sentence by
two others (`site_tools.measured`). The site regenerates them whenever it is built; `python docs/site_tools/results.py`
does the same for the pages in the repository, and tests/test_docs.py checks that they are up to date.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:0] = [] if str(ROOT / "docs") in sys.path else [str(ROOT / "docs")]  # for the command

from site_tools import measured, tables  # noqa: E402
from site_tools.measured import load  # noqa: E402
from site_tools.tables import markdown_table  # noqa: E402

#: Pages that may contain measured numbers.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"(<!-- results: (\S+) -->).*?(<!-- end of results -->)", re.DOTALL)


def _both(values: Iterable[Any]) -> str:
    """The distinct values, in order."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def _took(seconds: float) -> str:
    """A duration in readable form.

    >>> _took(95), _took(4475)
    ('95 s', '75 minutes')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _source(records: Sequence[dict[str, Any]]) -> str:
    """The source of numbers, from records of `sfcnn.io.provenance.provenance`."""
    versions = [record["versions"] for record in records]
    packages = [f"{name} {_both(v[name] for v in versions)}" for name in ("sfcnn", "torch", "python")]
    commits = _both(f"`{record['commit']}`" for record in records if record["commit"])
    days = sorted(record["finished"][:10] for record in records)
    return (
        f"{_both((days[0], days[-1]))}, {f'commit {commits}, ' if commits else ''}"
        f"{', '.join(packages)}, {_both(record['processor'] for record in records)}, "
        f"threads of a run: {_both(record['threads'] for record in records)}"
    )


def experiment(name: str) -> str:
    """The table of an experiment (`sfcnn experiment`), its data, its cost and its source."""
    summary = load(f"results/{name}.json")
    runs, table = summary["runs"], summary["table"]
    files = [f"[every run](../results/{name}.json)"]
    if (ROOT / "results" / f"{name}.yaml").exists():
        files.append(f"[settings](../results/{name}.yaml)")
    return (
        f"{table['title']}\n\n{markdown_table(table['columns'], table['rows'])}\n\n"
        f"*{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {_took(summary['wall_seconds'])} in all; "
        f"{_source([run['provenance'] for run in runs])}; {', '.join(files)}.*"
    )


def equivariance() -> str:
    """Errors at angles between quarter turns (`benchmarks/equivariance.py`)."""
    found = load("benchmarks/results/equivariance.json")
    main = [r for r in found["results"] if r["measure"] == "exact" and r["kernel_sizes"] == [7, 7, 5]]
    textures = {"waves": "random waves", "photos": "photographs", "em": "EM slices"}
    numbers = {(r["network"], r["textures"]): f"{r['mean']:.4f} ± {r['standard_error']:.4f}" for r in main}
    networks = dict.fromkeys(r["network"] for r in main)
    rows = [[network, *(numbers[network, texture] for texture in textures)] for network in networks]
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("sfcnn", "torch", "e2cnn"))
    return (
        f"{markdown_table(['network', *textures.values()], rows)}\n\n"
        f"*{found['settings']['seeds']} networks in each row, {_took(found['seconds'])} in all; {found['date'][:10]}, "
        f"commit `{found['commit']}`, {versions}, threads: {found['threads']}; "
        "[every number](../benchmarks/results/equivariance.json).*"
    )


def speed() -> str:
    """Times of the paper's classifiers and of building them (`make bench`, section mnist)."""
    section = load("benchmarks/results/speed.json")["sections"]["mnist"]
    engines = {"escnn": "escnn", "without-kernel": "sfcnn, PyTorch only", "auto": "sfcnn"}
    by_place = {(r["name"], r["mode"], r["engine"]): r for r in section["results"]}
    rows = []
    for name, mode in dict.fromkeys((r["name"], r["mode"]) for r in section["results"]):
        times = [by_place[name, mode, engine]["median_ms_per_image"] for engine in engines]
        what = {"train": "training step", "eval": "evaluation"}[mode]
        rows.append([f"`{name}`, {what}", *(f"{time:.0f} ms" for time in times), f"{times[0] / times[-1]:.1f}×"])
    built = {engine: [r["build_seconds"] for r in section["results"] if r["engine"] == engine] for engine in engines}
    spans = [f"{min(times):.2f} … {max(times):.2f} s" for times in built.values()]
    rows.append(["building the network", *spans, ""])
    versions = section["versions"]
    packages = ", ".join(f"{name} {versions[name][name]}" for name in ("sfcnn", "escnn"))
    return (
        f"{markdown_table(['per image, Λ = 16, batch 32', *engines.values(), 'escnn / sfcnn'], rows)}\n\n"
        f"*Medians, {_took(section['took_seconds'])} in all; {section['date'][:10]}, commit `{section['commit']}`, "
        f"{packages}, {section['machine']}, threads: {section['threads']}; "
        "[all times](../benchmarks/results/speed.json).*"
    )


def _benchmark_source(name: str, record: dict[str, Any], more: str = "") -> str:
    """The line below a table of a benchmark."""
    return f"*{_source([record])}{more and ', '}{more}; [all times](../benchmarks/results/{name}.json).*"


def _spread(median: float, values: Sequence[float], unit: float) -> str:
    """A median with minimum and maximum."""
    return f"{unit * median:.1f} ({unit * min(values):.1f} … {unit * max(values):.1f})"


def export() -> str:
    """Evaluation of exported networks (`benchmarks/export.py`)."""
    found = load("benchmarks/results/export.json")
    rows = []
    for name, result in found["results"].items():
        unit = 1e3 / result["images"][0]
        times = [_spread(median, result["all_seconds"][form], unit) for form, median in result["seconds"].items()]
        rows.append([name, *times, f"{result['model_over']['onnxruntime']:.2f}×", f"{result['megabytes']['onnx']:.0f}"])
    columns = ["ms per image", "model", "plain network", "onnxruntime", "model / onnxruntime", "file size (MB)"]
    versions = ", ".join(f"{name} {version}" for name, version in found["onnx"].items())
    return f"{markdown_table(columns, rows)}\n\n{_benchmark_source('export', found['provenance'], versions)}"


def compilation() -> str:
    """torch.compile and bfloat16 (`benchmarks/compile.py`)."""
    found = load("benchmarks/results/compile.json")
    cases: dict[str, list[dict[str, Any]]] = {}
    for result in found["results"]:
        cases.setdefault(f"{result['case']}, batch {result['images'][0]}", []).append(result)
    parts = []
    for case, results in cases.items():
        forms = dict.fromkeys(form for result in results for form in result["seconds"])
        columns = [case, *(f"{result['mode']}, `{result['engine']}`" for result in results)]
        parts.append(
            markdown_table(columns, [[form, *(_beside_eager(result, form) for result in results)] for form in forms])
        )
    return "\n\n".join([*parts, _benchmark_source("compile", found["provenance"], f"compiler {found['compiler']}")])


def _beside_eager(result: dict[str, Any], form: str) -> str:
    """Time of a form, and its speed relative to eager float32."""
    if form not in result["seconds"]:
        return "–"
    time = _spread(result["seconds"][form], result["all_seconds"][form], 1e3 / result["images"][0])
    return f"{time} ms, {result['eager_over'][form]:.2f}×"


def segmentation() -> str:
    """A large image in tiles, and finding cells (`benchmarks/segment.py`)."""
    found = load("benchmarks/results/segmentation.json")
    large, cells, tile = found["large"], found["cells"], found["prediction"]
    size, by_engine = large["size"], tile["seconds_per_megapixel"]
    one = f"one tile of {tile['size']}×{tile['size']}, membranes only"
    rows = [
        [f"{size}×{size}, membranes and cells with a forest", f"{large['seconds_per_megapixel']:.1f} s per megapixel"],
        ["peak memory of the whole process", f"{large['peak_bytes'] / 1e9:.2f} GB"],
        [one, f"{by_engine['auto']:.1f} s per megapixel"],
        ["as above, with the direct engine", f"{by_engine['direct']:.1f} s per megapixel, {tile['ratio']:.2f}×"],
        [f"from probabilities to cells, {cells['size']}×{cells['size']}", f"{cells['seconds']['mean']:.2f} s"],
        ["as above, with a forest", f"{cells['seconds']['forest']:.2f} s"],
    ]
    parts = [markdown_table(["", "measured"], rows), _benchmark_source("segmentation", found["provenance"])]
    if "predict" in found:
        command = found["predict"]
        size, seconds = command["size"], command["seconds"]
        slower = f"{seconds['without kernel']:.1f} s, {command['ratio']:.2f}×"
        rows = [
            [f"`sfcnn segment predict`, {size}×{size}", f"{seconds['kernel']:.1f} s"],
            ["as above, with `SFCNN_KERNEL=0`", slower],
        ]
        parts += [markdown_table(["", "measured"], rows), _benchmark_source("segmentation", command["provenance"])]
    if "stack" in found:
        stack = found["stack"]
        slices = f"{stack['slices']} slices of {stack['size']}×{stack['size']}, overlapped"
        rows = [
            [slices, f"{stack['seconds']['overlapped']:.1f} s"],
            ["as above, one after the other", f"{stack['seconds']['in turn']:.1f} s, {stack['ratio']:.2f}×"],
        ]
        parts += [markdown_table(["", "measured"], rows), _benchmark_source("segmentation", stack["provenance"])]
    return "\n\n".join(parts)


def importing() -> str:
    """Time of `import sfcnn` beyond `import torch` (`benchmarks/import_time.py`)."""
    found = load("benchmarks/results/import_time.json")
    rows = [
        [name if name == "torch" else f"{name}, beyond torch", _spread(times["median"], times["all"], 1e3)]
        for name, times in found["seconds"].items()
    ]
    return f"{markdown_table(['import', 'ms'], rows)}\n\n{_benchmark_source('import_time', found['provenance'])}"


def borders() -> str:
    """Errors by borders, pooling and moves on rotated digits and larger canvases (`benchmarks/borders.py`)."""
    results = load("benchmarks/results/borders.json")["results"]
    rows, ends, pools = [], ("none", "disk", "background"), ("max", "blur")
    order = sorted({(r["basis"], ends.index(r["border"]), pools.index(r["pool"]), r.get("moves", 0)) for r in results})
    for basis, first, second, moves in order:
        setting = basis, ends[first], pools[second], moves
        found = [r for r in results if (r["basis"], r["border"], r["pool"], r.get("moves", 0)) == setting]
        columns = [
            [r["errors"][0] for r in found],
            [r["errors"][3] for r in found],
            [max(r["errors"]) for r in found],
            [r["canvas"]["centred"] for r in found],
            [r["canvas"]["moved"] for r in found],
        ]
        upright, diagonal, worst, *canvases = (sum(values) / len(values) for values in columns)
        # Missing in older results.
        rest = [(r["errors_without_6_9"][0], max(r["errors_without_6_9"])) for r in found if "off" in r]
        without = [f"{sum(values) / len(values):.1f}" for values in zip(*rest, strict=True)] or ["", ""]
        means = [f"{value:.1f}" for value in (upright, diagonal, worst)]
        names = [f"`{setting[0]}`", f"`{setting[1]}`", f"`{setting[2]}`", str(moves), str(len(found))]
        rows.append([*names, *means, f"{worst / upright:.2f}", *without, *(f"{value:.1f}" for value in canvases)])
    titles = ["basis", "border", "pool", "moves", "seeds", "upright", "45°", "worst angle", "worst / upright"]
    titles += ["upright, no 6, 9", "worst, no 6, 9", "canvas of 40", "… moved"]
    source = _source([r["provenance"] for r in results])
    return f"{markdown_table(titles, rows)}\n\n*{source}; [every run](../benchmarks/results/borders.json).*"


def rotated_cells() -> str:
    """Agreement of cells with those of rotated and mirrored slices (`benchmarks/rotated_cells.py`)."""
    found = load("benchmarks/results/rotated_cells.json")
    scores = found["v_rand"]
    changes = dict.fromkeys(change for row in scores.values() for change in row)
    names = {"truth": "the true cells, rotated twice"} | {name: f"`{name}`" for name in scores if name != "truth"}
    rows = [
        [names[name], *(f"{row[change]:.4f}" if change in row else "–" for change in changes)]
        for name, row in scores.items()
    ]
    titles = [change if change == "mirrored" else f"{change}°" for change in changes]
    table = markdown_table(["cells by", *titles], rows)
    source = _source([found["provenance"]])
    return (
        f"{table}\n\n*Mean over {found['slices']} slices; {source}; [file](../benchmarks/results/rotated_cells.json).*"
    )


#: Tables that are not of experiments.
BENCHMARKS: dict[str, Callable[[], str]] = {
    "equivariance": equivariance,
    "speed": speed,
    "compilation": compilation,
    "export": export,
    "segmentation": segmentation,
    "importing": importing,
    "rotated_cells": rotated_cells,
    "borders": borders,
    **tables.TABLES,
}


def render(name: str) -> str:
    """The table called `name` and its source."""
    return BENCHMARKS[name]() if name in BENCHMARKS else experiment(name)


def refresh(text: str) -> str:
    """Update every table and number of a page."""
    return measured.fill(_BLOCK.sub(lambda match: f"{match[1]}\n\n{render(match[2])}\n\n{match[3]}", text))


def names(text: str) -> list[str]:
    """The tables of a page."""
    return [match[2] for match in _BLOCK.finditer(text)]


def without_tables(text: str) -> str:
    """A page without the output of `refresh`, to find numbers that were typed by hand."""
    return measured.without_numbers(_BLOCK.sub("", text))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(refresh(page.read_text(encoding="utf-8")), encoding="utf-8")
