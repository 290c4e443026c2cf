"""Measured numbers in sentences, read from the JSON files written by experiments and benchmarks.

A number in a page is enclosed by two comments, which are invisible in the rendered page:

    a training step is <!-- n: speed.mnist_benchmark.train.ratio .1f -->9.2<!-- /n --> times as fast

The first word is the number's name, the second its format (as in Python; default `,`). Names are defined by the
functions in `SOURCES` below, one per file. `python docs/site_tools/results.py` updates the pages of the repository; the
site does the same when it is built and drops the comments. No line may begin with such a comment: Markdown would treat
the line as HTML.
"""

import contextlib
import importlib.util
import io
import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]

_NUMBER = re.compile(r"(<!-- n: (\S+)(?: (\S+))? -->)(.*?)(<!-- /n -->)", re.DOTALL)

Values = dict[str, float]


def load(path: str) -> Any:
    """A JSON file of the repository."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def _ratio(above: dict[str, Any], below: dict[str, Any]) -> tuple[float, float, float]:
    """The ratio of two medians, with the range from the extremes of both sides."""
    low, high = above["min_seconds"] / below["max_seconds"], above["max_seconds"] / below["min_seconds"]
    return above["median_seconds"] / below["median_seconds"], low, high


def _named(name: str, ratio: tuple[float, float, float]) -> Values:
    return dict(zip((name, f"{name}.low", f"{name}.high"), ratio, strict=True))


def speed() -> Values:
    """`make bench`: milliseconds per image, seconds, gigabytes, ratios."""
    sections = {name: section["results"] for name, section in load("benchmarks/results/speed.json")["sections"].items()}
    values: Values = {}
    engines = {"escnn": "escnn", "without-kernel": "pytorch", "auto": "sfcnn"}
    ratios: dict[str, list[float]] = {"train": [], "eval": []}
    for name, mode in dict.fromkeys((r["name"], r["mode"]) for r in sections["mnist"]):
        by_engine = {r["engine"]: r for r in sections["mnist"] if (r["name"], r["mode"]) == (name, mode)}
        for engine, short in engines.items():
            values[f"{name}.{mode}.{short}"] = by_engine[engine]["median_ms_per_image"]
            values[f"{name}.build.{short}"] = by_engine[engine][
                "build_seconds"
            ]  # of evaluation, the last, without Adam
        ratio = _ratio(by_engine["escnn"], by_engine["auto"])
        values |= _named(f"{name}.{mode}.ratio", ratio)
        ratios[mode].append(ratio[0])
    for mode, found in ratios.items():
        values |= {f"{mode}.least": min(found), f"{mode}.greatest": max(found)}
    unet = {r["engine"]: r for r in sections["unet"]}
    values |= {f"unet.{engines[engine]}": r["median_seconds"] for engine, r in unet.items()}
    values |= _named("unet.ratio", _ratio(unet["without-kernel"], unet["auto"]))
    memory = {engines[r["engine"]]: r["step_bytes"] for r in sections["memory"]}
    values |= {f"memory.{engine}": size / 1e9 for engine, size in memory.items()}
    values["memory.ratio"] = memory["sfcnn"] / memory["escnn"]
    growth = {(r["engine"], r["orientations"]): r["median_seconds"] for r in sections["growth"]}
    values |= {f"growth.{engine}": growth[engine, 32] / growth[engine, 16] for engine in ("auto", "direct")}
    plain = {r["engine"]: r for r in sections["plain"]}
    for twin in ("channels", "parameters", "effective-channels"):
        other = plain[f"plain-{twin}"]
        values[f"plain.{twin}.time"] = plain["auto"]["median_seconds"] / other["median_seconds"]
        values[f"plain.{twin}.parameters"] = other["parameters"] / plain["auto"]["parameters"]
        values[f"plain.{twin}.memory"] = plain["auto"]["step_bytes"] / other["step_bytes"]
    sizes = {(r["size"], r["engine"]): r["median_seconds"] for r in sections["size"]}
    sides = {size for size, _ in sizes}
    values |= {"sizes": len(sides), "sizes.direct": sum(sizes[n, "direct"] < sizes[n, "atomic"] for n in sides)}
    pairs = zip(sections["reflections"][::2], sections["reflections"][1::2], strict=True)
    mirrored = [with_["median_seconds"] / without["median_seconds"] for with_, without in pairs]
    return values | {"reflections.least": min(mirrored), "reflections.greatest": max(mirrored)}


def cost() -> Values:
    """Estimated hours of the full-size experiments on two CPU cores, images times time; minutes of benchmarks."""
    hours = {}
    for name in ("benchmark", "orientations", "generalization"):
        hours[name] = _training_hours(_config(name))
    settings = _config("isbi")
    steps = settings["train"]["optimization"]["epochs"] * 100  # steps per epoch, the default
    hours["isbi"] = len(settings["folds"]) * steps * value("speed.unet.sfcnn") / 3600
    sections = load("benchmarks/results/speed.json")["sections"]
    minutes = {f"bench_{name}": sections[name]["took_seconds"] / 60 for name in ("size", "plain")}
    minutes["initialization"] = load("benchmarks/results/initialization.json")["seconds"] / 60
    return hours | minutes


def _config(name: str) -> Any:
    return yaml.safe_load((ROOT / "src/sfcnn/experiments/configs" / f"{name}.yaml").read_text(encoding="utf-8"))


def _training_hours(settings: dict[str, Any]) -> float:
    """Training hours of all steerable networks of an experiment on digits; the time of a step grows with Λ."""
    train = settings["train"]
    runs = len(settings["seeds"]) * len(settings.get("variants", settings.get("augmentations", [0])))
    digits = sum(settings.get("train_images", [12_000 if train["images"].get("join_validation") else 10_000]))
    orientations = sum(settings.get("orientations", [train["model"].get("orientations", 16)]))
    step = value(f"speed.mnist_{train['model']['network']}.train.sfcnn")
    return runs * digits * orientations / 16 * train["optimization"]["epochs"] * step / 3.6e6


def facts() -> Values:
    """`python benchmarks/facts.py`."""
    values: Values = {}
    networks = load("benchmarks/results/facts.json")["networks"]
    for name, found in networks.items():
        values[f"{name}.parameters"] = found["parameters"]
        values[f"{name}.megaparameters"] = found["parameters"] / 1e6
        values[f"{name}.build"] = found["build_seconds"]["greatest"]
        values[f"{name}.megabytes"] = found["saved_bytes"] / 1e6
        values[f"{name}.bytes_per_parameter"] = found["saved_bytes"] / found["parameters"]
    for dtype in ("float32", "float64"):
        values[f"quarter_turns.{dtype}"] = max(found["quarter_turn_error"][dtype] for found in networks.values())
    return values


def _by_angle(name: str) -> Values:
    """Errors by network (`sfcnn`, `cnn` or `cnn-channels`) and augmentation."""
    found = load(f"results/{name}.json")
    values: Values = {"minutes": found["wall_seconds"] / 60, "seconds": found["wall_seconds"]}
    short = {"steerable": "sfcnn", "plain-parameters": "cnn", "plain-channels": "cnn-channels"}
    for run in found["runs"]:
        prefix = f"{short[run['kind']]}.{run['augmentation']}"
        errors = run["errors"]
        values |= {f"{prefix}.upright": errors[0], f"{prefix}.worst": max(errors), f"{prefix}.mean": mean(errors)}
        values[f"{prefix}.parameters"] = run["run"]["parameters"]
    return values


def _by_orientations(name: str) -> Values:
    """Mean test error and parameters, by training digits and Λ."""
    found = load(f"results/{name}.json")
    values: Values = {"minutes": found["wall_seconds"] / 60}
    for digits, orientations in {(r["train_images"], r["orientations"]) for r in found["runs"]}:
        runs = [r for r in found["runs"] if (r["train_images"], r["orientations"]) == (digits, orientations)]
        values[f"{digits}.{orientations}"] = mean(r["test_error"] for r in runs)
        values[f"{orientations}.parameters"] = runs[0]["run"]["parameters"]
    return values


def benchmark() -> Values:
    """Mean test errors of `sfcnn experiment benchmark`, short runs; mnist-rot is `below` earlier ones, in %."""
    found = load("results/benchmark.json")
    variants = dict.fromkeys(r["variant"] for r in found["runs"])
    errors = {name: [r["test_error"] for r in found["runs"] if r["variant"] == name] for name in variants}
    best = card("mnist-rot")["error"]
    values: Values = {"minutes": found["wall_seconds"] / 60, "below": 100 * (1 - best / _PUBLISHED_BEFORE)}
    return values | {name: mean(values) for name, values in errors.items()}


_PUBLISHED_BEFORE = 1.01  # per cent on rotated MNIST, the best result that the paper compares with


def recipes() -> Values:
    """Errors by recipe, and epochs until a validation error was reached, such as `fast.epochs.1`."""
    found = load("results/recipes.json")
    values: Values = {"minutes": found["wall_seconds"] / 60}
    for run in found["runs"]:
        name, history = run["recipe"], run["history"]
        values |= {f"{name}.error": run["test_error"], f"{name}.validation": min(error for _, error in history)}
        for threshold in (1.5, 1.0):
            reached = [epoch for epoch, (_, error) in enumerate(history, start=1) if error <= threshold]
            values |= {f"{name}.epochs.{threshold:g}": reached[0]} if reached else {}
    return values


_CELLS = {"steerable": "sfcnn", "plain-parameters": "unet", "plain-effective-channels": "unet-wide"}


def isbi(name: str) -> Values:
    """Scores by network, see `_cells`."""
    found = load(f"results/{name}.json")
    values: Values = {"minutes": found["wall_seconds"] / 60}
    for run in found["runs"]:
        values |= _cells(_CELLS[run["kind"]], run)
    return values


def isbi_labels(name: str) -> Values:
    """Scores by network and number of training slices, such as `sfcnn.18`, see `_cells`."""
    values: Values = {}
    for run in load(f"results/{name}.json")["runs"]:
        values |= _cells(f"{_CELLS[run['kind']]}.{len(run['slices']['train'])}", run)
    return values


def _cells(network: str, run: dict[str, Any]) -> Values:
    """Scores by method for cells, `.views` with the mean over eight views; `.best` is the best method.

    The best method is the one with the highest V_rand on the slices that chose the settings, its `.chosen`.
    """
    values: Values = {}
    for test in run["tests"]:
        views = ".views" if test["average"] == "all" else ""
        scores = test["scores"]
        chosen = {by: found["chosen_v_rand"] for by, found in scores.items() if found["chosen_v_rand"] is not None}
        for by, method in {**{by: by for by in scores}, "best": max(chosen, key=chosen.__getitem__)}.items():
            for score in ("v_rand", "v_info"):
                values[f"{network}{views}.{by}.{score}"] = scores[method][score]
            values[f"{network}{views}.{by}.chosen"] = chosen.get(method, 0.0)
    values |= {f"{network}.steps": run["steps"], f"{network}.minutes": run["run"]["seconds"] / 60}
    values |= {f"{network}.parameters": run["run"]["parameters"], f"{network}.best_epoch": run["run"]["best_epoch"]}
    values[f"{network}.validation_error"] = run["run"]["validation_error"]
    return values


def card(name: str) -> Values:
    """Scores of a pretrained network, by their name in its card; the first of equal names."""
    found = load(f"src/sfcnn/pretrained/{name}/card.json")
    values: Values = {"parameters": found["parameters"], "minutes": found["seconds"] / 60}
    for score in found["scores"]:
        values.setdefault(score["name"].replace(" ", "_"), score["value"])
    return values


def scores(name: str) -> Values:
    """Scores from `sfcnn segment score … --out results/NAME.json`."""
    found = load(f"results/{name}.json")
    return {
        f"{score}{suffix}": found[score][key]
        for score in ("v_rand", "v_info")
        for suffix, key in (("", "best"), (".threshold", "threshold"))
        if found[score][key] is not None
    }


def segmentation() -> Values:
    """`python benchmarks/segment.py`."""
    found = load("benchmarks/results/segmentation.json")
    large, command = found["large"], found["predict"]
    return {
        "large.size": large["size"],
        "large.seconds": large["seconds"],
        "large.gigabytes": large["peak_bytes"] / 1e9,
        "predict.size": command["size"],
        "predict.kernel": command["seconds"]["kernel"],
        "predict.pytorch": command["seconds"]["without kernel"],
        "stack.ratio": found["stack"]["ratio"],
    }


def first_minutes() -> Values:
    """`python benchmarks/first_minutes.py`."""
    found = load("benchmarks/results/first_minutes.json")
    values: Values = {"minutes": found["minutes"]}
    for short, network in zip(("sfcnn", "paper", "plain"), found["networks"], strict=True):
        values |= {f"{short}.precision": network["average_precision"], f"{short}.parameters": network["parameters"]}
    return values


def overhead() -> Values:
    """`python benchmarks/overhead.py`: milliseconds per step, per cent of it, and per cent that kept memory saves."""
    found = load("benchmarks/results/overhead.json")
    step = "network_seconds_per_step"
    return {
        "ms": 1e3 * found["overhead_seconds_per_step"],
        "percent": 100 * found["overhead_part"],
        "kept": 100 * (1 - found[step] / found[f"{step}_without_keeping"]),
    }


def equivariance() -> Values:
    """`python benchmarks/equivariance.py`: mean errors by preset and images; `resampled.` compares as escnn does."""
    short = {"e2cnn default": "e2cnn", "sfcnn bandlimited": "bandlimited", "sfcnn averaged": "averaged"}
    short["sfcnn paper"] = "paper"
    values: Values = {}
    for result in load("benchmarks/results/equivariance.json")["results"]:
        if result["network"] in short and result["kernel_sizes"] == [7, 7, 5]:
            measure = "" if result["measure"] == "exact" else f"{result['measure']}."
            values[f"{measure}{short[result['network']]}.{result['textures']}"] = result["mean"]
    return values


def borders() -> Values:
    """`python benchmarks/borders.py`: means over seeds with averaged filters; `first.` is the first seed only."""
    results = load("benchmarks/results/borders.json")["results"]
    values: Values = {}
    for basis, prefix in (("averaged", ""), ("bandlimited", "bandlimited.")):
        for variant in dict.fromkeys(r["variant"] for r in results if r["basis"] == basis):
            runs = [r for r in results if (r["variant"], r["basis"]) == (variant, basis)]
            values |= {f"{prefix}{variant}.{name}": value for name, value in _border_values(runs).items()}
            first = [r for r in runs if r["seed"] == 0]
            values[f"{prefix}first.{variant}.worst"] = max(first[0]["errors"])
    return values


def _border_values(runs: list[dict[str, Any]]) -> Values:
    """Means over the runs of one variant."""
    upright, worst = mean(r["errors"][0] for r in runs), mean(max(r["errors"]) for r in runs)
    values = {"upright": upright, "worst": worst, "ratio": worst / upright}
    values |= {f"canvas.{place}": mean(r["canvas"][place] for r in runs) for place in ("centred", "moved")}
    for index, run in enumerate(runs):
        values[f"diagonal.{index}"] = run["errors"][3]
    if all("off" in r for r in runs):
        values["rest.upright"] = mean(r["errors_without_6_9"][0] for r in runs)
        values["rest.worst"] = mean(max(r["errors_without_6_9"]) for r in runs)
        values["rest.ratio"] = values["rest.worst"] / values["rest.upright"]
        values["off"], values["rest.off"] = (mean(r[key]["1"] for r in runs) for key in ("off", "off_without_6_9"))
        layers = list(zip(*(r["layers"] for r in runs), strict=True))
        own = [100 * mean(part["own"] for part in layer) for layer in layers]
        total = [100 * mean(part["all"] for part in layer) for layer in layers]
        values |= {"own.least": min(own[:6]), "own.greatest": max(own[:6])}
        values |= {f"own.{index}": own[index] for index in (6, 7)} | {f"all.{index}": total[index] for index in (6, 7)}
    return values


def engines() -> Values:
    """`python benchmarks/engines.py check`: shapes on which `auto` is within 10 % of the fastest; its worst choice."""
    checking = importlib.util.spec_from_file_location("benchmarks_engines", ROOT / "benchmarks" / "engines.py")
    assert checking is not None
    assert checking.loader is not None
    module = importlib.util.module_from_spec(checking)
    checking.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):  # it also prints the choices that were not optimal
        found = module.check(load("benchmarks/results/engines-check.json")["records"])
    values: Values = {}
    for name, summary in found.items():
        mode, kernel = name.split(", ")
        prefix = mode if kernel.startswith("with ") else f"pytorch.{mode}"
        shapes = summary["shapes"]
        values |= {"shapes": shapes, f"{prefix}.worst": summary["worst"]}
        for key, short in (("within 10 %", "auto"), ("always direct", "direct"), ("always spectral", "spectral")):
            values[f"{prefix}.{short}"] = round(shapes * summary[key])
    return values


def compilation() -> Values:
    """`python benchmarks/compile.py`: speed relative to eager float32."""
    results = load("benchmarks/results/compile.json")["results"]
    over = {(r["case"].split(",")[0], r["engine"], r["mode"]): r["eager_over"] for r in results}
    compiled = [value["compiled, float32"] for value in over.values()]
    calls = [r["first_call_seconds"]["compiled, float32"] for r in results]
    digits = [over["mnist_benchmark", "auto", mode]["eager, bfloat16"] for mode in ("training", "inference")]
    direct = [value["eager, bfloat16"] for (_, engine, _), value in over.items() if engine == "direct"]
    plain = over["membrane_unet", "auto", "inference"]
    return {
        "compiled.least": min(compiled),
        "compiled.second": sorted(compiled)[-2],
        "compiled.greatest": max(compiled),
        "first_call.least": min(calls),
        "first_call.greatest": max(calls),
        "bfloat16.least": min(digits),
        "bfloat16.greatest": max(digits),
        "direct.bfloat16.least": min(direct),
        "direct.bfloat16.greatest": max(direct),
        "unet.plain_compiled": plain["plain compiled, float32"] / plain["plain, float32"],
    }


def export() -> Values:
    """`python benchmarks/export.py`: milliseconds per image, megabytes."""
    found = load("benchmarks/results/export.json")["results"]
    cases = {"mnist_benchmark, Λ = 16, 28×28, batch 16": "benchmark", "membrane_unet, Λ = 8": "unet"}
    cases["mnist_benchmark, Λ = 4"] = "benchmark4"
    values: Values = {}
    for start, short in cases.items():
        result = next(value for name, value in found.items() if name.startswith(start))
        unit = 1e3 / result["images"][0]
        values |= {f"{short}.{form}": unit * seconds for form, seconds in result["seconds"].items()}
        values |= {f"{short}.{form}.megabytes": size for form, size in result["megabytes"].items()}
    return values


def reactions() -> Values:
    """`python benchmarks/reactions.py`: seconds until the page shows the new predictions."""
    return {
        name: found["median"] for name, found in load("benchmarks/results/reactions.json")["seconds"]["browser"].items()
    }


def volume() -> Values:
    """`python benchmarks/volume.py --only workers`: seconds, and how many times as fast as one thread."""
    found = load("benchmarks/results/volume.json")["workers"]
    values: Values = {"slices": found["slices"], "side": found["side"]}
    for way in found["ways"]:
        short = way.replace(" ", "_")
        values |= {f"{short}.seconds": found["ways"][way]["seconds"], f"{short}.faster": found["faster"][way]}
        values |= {
            f"{short}.slice": found["faster_per_slice"][way],
            f"{short}.start": found["ways"][way]["start_seconds"],
        }
    return values


def importing() -> Values:
    """`python benchmarks/import_time.py`."""
    return {"sfcnn": load("benchmarks/results/import_time.json")["seconds"]["sfcnn"]["median"]}


def initialization() -> Values:
    """`python benchmarks/initialization.py`: factors of the variance per layer, and of gradients (paper's preset)."""
    records = [r for r in load("benchmarks/results/initialization.json")["records"] if not r["batch_norm"]]
    equal = [r for r in records if r["scheme"] == "equal shares"]
    found = {name: [r["per_layer"] for r in records if r["scheme"] == name] for name in ("he", "coeff")}
    for padding in ("zeros", "circular"):
        found[f"equal.{padding}"] = [r["settled_per_layer"] for r in equal if r["padding_mode"] == padding]
    for scheme, short in (("equal shares", "equal"), ("coeff", "coeff")):
        paper = [r for r in records if (r["scheme"], r["basis"], r["orientations"]) == (scheme, "paper", 8)]
        found[f"{short}.gradient"] = [r["gradient_total"] for r in paper]
    least = {f"{name}.least": min(values) for name, values in found.items()}
    return least | {f"{name}.greatest": max(values) for name, values in found.items()}


SOURCES: dict[str, Callable[[], Values]] = {
    "speed": speed,
    "facts": facts,
    "cost": cost,
    "demo": lambda: _by_angle("demo"),
    "generalization": lambda: _by_angle("generalization"),
    "orientations": lambda: _by_orientations("orientations"),
    "quarter-digits": lambda: _by_orientations("quarter-digits"),
    "all-digits": lambda: _by_orientations("all-digits"),
    "benchmark": benchmark,
    "isbi": lambda: isbi("isbi"),
    "isbi-neighbours": lambda: isbi("isbi-neighbours"),
    "isbi-slices": lambda: isbi_labels("isbi-slices"),
    "recipes": recipes,
    "mnist-rot": lambda: card("mnist-rot"),
    "isbi2012": lambda: scores("isbi2012"),
    "brightness": lambda: scores("brightness"),
    "segmentation": segmentation,
    "first_minutes": first_minutes,
    "overhead": overhead,
    "equivariance": equivariance,
    "borders": borders,
    "engines": engines,
    "compilation": compilation,
    "export": export,
    "importing": importing,
    "reactions": reactions,
    "volume": volume,
    "initialization": initialization,
}


@cache
def _values(source: str) -> Values:
    return SOURCES[source]()


def value(name: str) -> float:
    """The number called `SOURCE.NAME`; raise a ValueError that lists the available ones if there is none."""
    source, _, rest = name.partition(".")
    if source not in SOURCES:
        raise ValueError(f"{name}: no source {source!r}; there are {', '.join(SOURCES)}")
    found = _values(source)
    if rest not in found:
        raise ValueError(f"{name}: no such number; {source} has {', '.join(found)}")
    return found[rest]


def written(name: str, style: str | None = None) -> str:
    """The number as text; as 3·10⁻⁶ with the style `power`."""
    number = value(name)
    if style == "power":
        digits, exponent = f"{number:.0e}".split("e")
        return f"{digits}·10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(d)] if d.isdigit() else '⁻' for d in str(int(exponent)))}"
    return format(number, style or ",")


def fill(text: str) -> str:
    """Update every number of a page."""
    return _NUMBER.sub(lambda match: f"{match[1]}{written(match[2], match[3])}{match[5]}", text)


def plain(text: str) -> str:
    """A page without the comments around its numbers.

    >>> plain("is <!-- n: speed.x .1f -->9.2<!-- /n --> times")
    'is 9.2 times'
    """
    return _NUMBER.sub(lambda match: match[4], text)


def names(text: str) -> Iterable[str]:
    """The names of the numbers in a page."""
    return (match[2] for match in _NUMBER.finditer(text))


def without_numbers(text: str) -> str:
    """A page without its measured numbers."""
    return _NUMBER.sub("", text)
