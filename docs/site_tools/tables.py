"""Short tables of measured numbers: the headline of the README, speed, exactness, initial weights."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from site_tools.measured import load, value, written


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows as a table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(name: str) -> str:
    """Milliseconds with at least two digits."""
    return f"{value(name):.{1 if value(name) < 20 else 0}f} ms"


def _range(name: str) -> str:
    """A ratio and its range."""
    return f"{value(name):.1f}× ({value(f'{name}.low'):.1f} … {value(f'{name}.high'):.1f})"


def _networks() -> list[list[str]]:
    """Times of the paper's classifiers, one row per mode and network."""
    rows = []
    for mode, what in (("train", "training step"), ("eval", "evaluation")):
        for name in ("mnist_benchmark", "mnist_baseline"):
            times = [_ms(f"speed.{name}.{mode}.{engine}") for engine in ("escnn", "pytorch", "sfcnn")]
            rows.append([f"`{name}`, {what}, per image", *times, _range(f"speed.{name}.{mode}.ratio")])
    return rows


def _conditions() -> str:
    """The conditions of `make bench` in one phrase."""
    section = load("benchmarks/results/speed.json")["sections"]["mnist"]
    versions = section["versions"]
    return (
        f"{section['threads']} threads of an {section['machine']}, float32, "
        f"PyTorch {versions['sfcnn']['torch'].split('+')[0]}, escnn {versions['escnn']['escnn']}"
    )


def speed_overview() -> str:
    """Time and memory compared with escnn, with and without the compiled kernel (`make bench`)."""
    unet = [f"{written(f'speed.unet.{engine}', '.1f')} s" for engine in ("pytorch", "sfcnn")]
    ratio = f"without / with the kernel {_range('speed.unet.ratio')}"
    memory = [f"{written(f'speed.memory.{engine}', '.2f')} GB" for engine in ("escnn", "pytorch", "sfcnn")]
    rows = [
        *_networks(),
        ["`membrane_unet`, Λ = 17, 320×320, training step", "–", *unet, ratio],
        ["`mnist_benchmark`, batch 64, peak memory of a step", *memory, f"{1 / value('speed.memory.ratio'):.1f}×"],
    ]
    return (
        f"{markdown_table(['Λ = 16, batch 32', 'escnn', 'sfcnn, PyTorch only', 'sfcnn', 'escnn / sfcnn'], rows)}\n\n"
        f"*Medians, {_conditions()}; in parentheses, the range from the extremes of both sides. GPU not measured.*"
    )


def plain() -> str:
    """A steerable network compared with plain ones (`make bench`, section plain)."""
    twins = {
        "channels": "the same channels",
        "parameters": "the same number of parameters",
        "effective-channels": "the same number of maps (channels times Λ)",
    }
    rows = [
        [name, *(f"{value(f'speed.plain.{twin}.{what}'):.2g} times" for what in ("time", "memory"))]
        for twin, name in twins.items()
    ]
    return markdown_table(["compared with a plain CNN with", "time", "memory"], rows)


def presets() -> str:
    """Errors of the presets between quarter turns, compared with e2cnn (`benchmarks/equivariance.py`)."""
    found = load("benchmarks/results/equivariance.json")
    main = [r for r in found["results"] if r["measure"] == "exact" and r["kernel_sizes"] == [7, 7, 5]]
    numbers = {(r["network"], r["textures"]): f"{r['mean']:.4f} ± {r['standard_error']:.4f}" for r in main}
    rows = {
        "e2cnn default": f"e2cnn {found['versions']['e2cnn']}, its defaults",
        "sfcnn bandlimited": 'sfcnn `"bandlimited"` (default)',
        "sfcnn averaged": 'sfcnn `"averaged"`',
        "sfcnn paper": 'sfcnn `"paper"`',
    }
    pictures = {"waves": "random waves", "photos": "photographs", "em": "EM slices"}
    cells = [[title, *(numbers[name, kind] for kind in pictures)] for name, title in rows.items()]
    return markdown_table(["", *pictures.values()], cells)


def roofline() -> str:
    """How close the parts and layers come to the peak (`benchmarks/roofline.py`)."""
    found = load("benchmarks/results/roofline.json")
    rates = {"peak: multiply-adds in registers": found["peak"], **found["parts"]}
    parts = [[name, f"{rate:.0f}" if rate >= 100 else f"{rate:.2g}"] for name, rate in rates.items()]
    layers = [
        [
            layer["layer"],
            f"{layer['direct ms an image']:.0f}",
            f"{layer['without kernel ms an image']:.1f}",
            f"{layer['compiled ms an image']:.1f}",
            f"{100 * layer['compiled share of the peak']:.0f} %",
        ]
        for layer in found["layers"]
    ]
    columns = ["layer, Λ = 16, training step, ms per image", "`direct`", "`spectral`, PyTorch only"]
    columns += ["`spectral`, compiled", "mixing, relative to the peak"]
    first = markdown_table(["part, sizes of 24 → 32 channels, 7×7, 28×28", "GMAC/s"], parts)
    return f"{first}\n\n{markdown_table(columns, layers)}"


def _power(number: float) -> str:
    """Two digits, with a power of ten from 1000 on.

    >>> _power(0.0262), _power(34.2), _power(210.4), _power(12345.0)
    ('0.026', '34', '210', '1.2·10⁴')
    """
    if number < 1000:
        digits = f"{number:.2g}"
        return f"{float(digits):.0f}" if number >= 100 else digits
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits}·10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(digit)] for digit in str(int(exponent)))}"


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    least, greatest = show(min(values)), show(max(values))
    return least if least == greatest else f"{least} … {greatest}"


def _growth_number(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"


def initial_gains() -> str:
    """Factor on the variance per layer for constant maps (`benchmarks/initialization.py`)."""
    gains = load("benchmarks/results/initialization.json")["constant_map_gains"]
    rows = [
        [f"{g['basis']} {g['kernel_size']}×{g['kernel_size']}", str(g["atoms"]), f"{g['coeff']:.2f}", f"{g['he']:.1f}"]
        for g in gains
        if g["kernel_size"] in (5, 7)
    ]
    return markdown_table(["preset, kernel", "Q", "factor per layer on constant maps, `coeff`", "`he`"], rows)


def initial_growth() -> str:
    """Growth of the variance over twelve layers (`benchmarks/initialization.py`)."""
    records = load("benchmarks/results/initialization.json")["records"]
    rows = []
    for basis in ("bandlimited", "paper"):
        for size in (5, 7):
            for scheme in ("coeff", "he"):
                key = (basis, size, scheme)
                found = [r for r in records if (r["basis"], r["kernel_size"], r["scheme"]) == key]
                free = [r for r in found if not r["batch_norm"]]
                normed = [r["mean_square"][-1] for r in found if r["batch_norm"]]
                rows.append(
                    [
                        f"{basis} {size}×{size}",
                        f"`{scheme}`",
                        _span([r["per_layer"] for r in free], _growth_number),
                        f"×{_span([r['total'] for r in free], _power)}",
                        _span(normed, _growth_number),
                    ]
                )
    columns = ["preset, kernel", "`init`", "growth per layer", "layer 1 → 12", "with batch norm, layer 12"]
    return markdown_table(columns, rows)


def initial_candidates() -> str:
    """All four schemes without normalisation (`benchmarks/initialization.py`)."""
    found = load("benchmarks/results/initialization.json")
    rows = []
    for scheme, summary in found["without_normalisation"].items():
        kept = f"{summary['within_factor_2']} of {summary['settings']}"
        if summary["within_factor_2"]:
            kept += f" ({', '.join(_kept_by_preset(found['records'], scheme))})"
        name = f"`{scheme}`" if scheme in ("coeff", "he") else scheme
        rows.append([name, kept, *(f"×{_span(summary[key], _power)}" for key in ("total", "gradient_total"))])
    return markdown_table(["scheme", "settings within a factor 2", "layer 1 → 12", "gradient, layer 12 → 1"], rows)


def _kept_by_preset(records: list[dict[str, Any]], scheme: str) -> list[str]:
    parts = []
    for basis in ("bandlimited", "paper"):
        found = [
            r["within_factor_2"]
            for r in records
            if (r["scheme"], r["basis"], r["batch_norm"]) == (scheme, basis, False)
        ]
        parts.append(f"{basis} {sum(found)} of {len(found)}")
    return parts


def headline() -> str:
    """Accuracy, exactness and speed compared with others, for the README."""
    published = {row[0]: row[2] for row in load("results/benchmark.json")["table"]["rows"]}
    ours = [f"{value('equivariance.bandlimited.photos'):.4f} (default), {value('equivariance.averaged.photos'):.4f}"]
    exact = [written(f"facts.quarter_turns.{dtype}", "power") for dtype in ("float32", "float64")]
    build = [f"{value(f'speed.mnist_benchmark.build.{engine}'):.2f} s" for engine in ("sfcnn", "escnn")]
    rows = [
        [
            "rotated MNIST, test error",
            f"{value('mnist-rot.error'):.2f} % (pretrained: `mnist-rot`)",
            f"{published['CoeffInit, augmentation']} % (paper)",
            "one seed, digits also stretched and bent in training; regenerated test set",
        ],
        [
            "trained upright, tested at the worst angle",
            f"{value('demo.sfcnn.none.worst'):.0f} % error",
            f"{value('demo.cnn.none.worst'):.0f} % (plain CNN)",
            "`make demo`, equal number of parameters",
        ],
        [
            "ISBI 2012, cells",
            f"V_rand {value('isbi.sfcnn.best.v_rand'):.3f}, V_info {value('isbi.sfcnn.best.v_info'):.3f} (pretrained: "
            "`isbi2012-affinities`)",
            "0.987, 0.991 (paper)",
            "4 held-out training slices; paper: hidden test labels",
        ],
        [
            "quarter turns, relative error",
            f"{exact[0]} (float32), {exact[1]} (float64)",
            "not measured",
            "the paper's networks, Λ = 8, random weights",
        ],
        [
            "other angles, relative error",
            f'{ours[0]} (`"averaged"`)',
            f"{value('equivariance.e2cnn.photos'):.4f} (e2cnn)",
            "three layers, Λ = 16, photographs",
        ],
        *_against_escnn(),
        ["building `mnist_benchmark`", build[0], f"{build[1]} (escnn)", "escnn without its own initial weights"],
    ]
    return (
        f"{markdown_table(['', 'sfcnn', 'others', 'conditions'], rows)}\n\n"
        f"*Times: medians, {_conditions()}. GPU not measured.*"
    )


def _against_escnn() -> list[list[str]]:
    """Rows of the README's table."""
    rows = []
    for mode, what in (("train", "training step"), ("eval", "evaluation")):
        name = f"speed.mnist_benchmark.{mode}"
        faster = f"{_ms(f'{name}.sfcnn')}, {value(f'{name}.ratio'):.1f} times as fast"
        rows.append(
            [
                f"{what}, per image",
                faster,
                f"{_ms(f'{name}.escnn')} (escnn)",
                "`mnist_benchmark`, Λ = 16, batch 32, all padded",
            ]
        )
    memory = [f"{written(f'speed.memory.{engine}', '.2f')} GB" for engine in ("sfcnn", "escnn")]
    rows.append(["peak memory of a training step", memory[0], f"{memory[1]} (escnn)", "the same, batch 64"])
    return rows


def last_tests() -> str:
    """When all tests last passed, from results/tests.json."""
    lines = []
    for record in load("results/tests.json")["passed"]:
        lines.append(
            f"`{record['command']}` on {record['date']} at commit `{record['commit']}`, version {record['version']}, "
            f"Python {record['python']}: {record['tests']:,} tests in {record['took']} on {record['machine']}"
            f"{record['more']}."
        )
    return f"**Last passed in full:** {' '.join(lines)}"


TABLES: dict[str, Callable[[], str]] = {
    "headline": headline,
    "speed-overview": speed_overview,
    "plain": plain,
    "presets": presets,
    "roofline": roofline,
    "initial-gains": initial_gains,
    "initial-growth": initial_growth,
    "initial-candidates": initial_candidates,
    "tests": last_tests,
}
