"""Create the directory of a pretrained network from a finished run:

    python -m sfcnn.pretrained.ship runs/best mnist-rot --scores runs/best/test.json

It contains what prediction needs, without paths of this machine, and a card (`sfcnn.pretrained.cards`). The scores are
the output of `sfcnn classify evaluate RUN --out FILE` for a classifier, the results of `sfcnn experiment isbi`, the
file of `sfcnn segment score` with its images named in "images", or a segmenter's own result.json.
With the directory itself as RUN, only its card is updated.
"""

import argparse
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from sfcnn.classification.pose import POSE_FILE, digest
from sfcnn.io.files import new_file, write_json
from sfcnn.io.runs import read_run
from sfcnn.io.settings import load_yaml
from sfcnn.io.state import read_state, write_state
from sfcnn.pretrained import PRETRAINED, load
from sfcnn.pretrained.cards import FACTS, Score, card_text, make_card

#: Files of a network, besides config.yaml.
FILES = ("best.safetensors", "result.json", "pose.safetensors", "pose.json", "edges.safetensors", "cells.yaml")
NEEDED = FILES[:2]

#: Image settings that are paths on the training machine.
PATHS = ("path", "masks")

_MOST_BYTES = 20_000_000
_HERE = Path(__file__).parent


def ship(
    run: Path, name: str, scores: Path, target: Path | None = None, *, overwrite: bool = False, half: bool = False
) -> Path:
    """Copy the files of a run that prediction needs, write its card, and return the directory.

    With `half` the weights are stored with 16 bits, in half the space; computations are not affected.
    """
    if name not in FACTS:
        raise ValueError(f"unknown network {name!r}: add it to sfcnn.pretrained.cards, which has {list(FACTS)}")
    task, _ = read_run(run)
    missing = [file for file in NEEDED if not (run / file).is_file()]
    if missing:
        raise ValueError(f"{run} is not a finished run, since it has no {missing[0]}")
    found = {file: run / file for file in FILES if (run / file).is_file()}
    total = sum(path.stat().st_size for path in found.values())
    if total > _MOST_BYTES:
        raise ValueError(f"{run} has {total:,} bytes, expected at most {_MOST_BYTES:,} for a pretrained network")
    result = _read_json(run / "result.json")
    measured = read_scores(_read_json(scores), task, run, result)
    if "pose.json" in found:
        measured += _pose(_read_json(found["pose.json"]))
    load(run, device="cpu")  # raises if its files are invalid
    target = target or _HERE / name
    same = target.exists() and target.resolve() == run.resolve()
    if target.exists() and not same and not overwrite:
        raise ValueError(f"output {target} exists: choose another name or pass --overwrite")
    target.mkdir(parents=True, exist_ok=True)
    if not same:
        for file in FILES:
            (target / file).unlink(missing_ok=True)
        for file, path in found.items():
            with new_file(target / file) as temporary:
                shutil.copyfile(path, temporary)
        if half:
            _halve(target)
    _write_text(target / "config.yaml", _without_paths(run / "config.yaml"))
    sizes = {path.name: path.stat().st_size for path in target.iterdir() if path.name in (*FILES, "config.yaml")}
    card = make_card(name, FACTS[name], task, result, measured, sizes)
    write_json(target / "card.json", card, overwrite=True)
    _write_text(target / "README.md", card_text(card))
    return target


def read_scores(numbers: Mapping[str, Any], task: str, run: Path, result: Mapping[str, Any]) -> list[Score]:
    """The scores of a run, from the contents of the scores file."""
    try:
        return _classification(numbers, run) if task == "classification" else _segmentation(numbers, result)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the scores have no {error}: expected those of `sfcnn classify evaluate --out`") from error


def _classification(numbers: Mapping[str, Any], run: Path) -> list[Score]:
    if Path(numbers["run"]).resolve() != run.resolve():
        raise ValueError(f"the scores are those of {numbers['run']}, expected those of {run}")
    images = f"{numbers['images']:,} {numbers['split']} images, {numbers['dataset']}"
    found = [Score("error", numbers["errors"][0], "%", images)]
    if "views" in numbers:
        name = f"error, mean of {numbers['views']} views"
        found.append(Score(name, numbers["errors_of_views"][0], "%", images))
    if "angle_error" in numbers:
        angles = numbers["angle_error"]
        found += [Score(f"{kind} angle error", angles[kind], "°", images) for kind in ("mean", "median")]
        for each in angles["classes"]:
            if each["mean"] is not None:
                found.append(
                    Score(f"mean angle error, {each['name']}", each["mean"], "°", f"{each['images']:,} of them")
                )
    return found


def _pose(about: Mapping[str, Any]) -> list[Score]:
    """Angle errors on images that are shifted relative to those of the data set."""
    images = f"{about['validation_images']:,} validation images shifted by up to {about['settings']['shift']:g} pixel"
    return [Score(f"{kind} angle error", about["angle_error"][kind], "°", images) for kind in ("mean", "median")]


def _segmentation(numbers: Mapping[str, Any], result: Mapping[str, Any]) -> list[Score]:
    if "validation_error" in numbers:  # result.json of the run
        chosen = f"the {numbers['validation_images']} images used to select the epoch, {numbers['dataset']}"
        return [Score("pixel error", numbers["validation_error"], "%", chosen)]
    if "v_rand" in numbers:  # of the cells found by the shipped files
        kinds = {"V_rand of cells": "v_rand", "V_info of cells": "v_info"}
        return [Score(name, numbers[kind]["best"], "", numbers["images"]) for name, kind in kinds.items()]
    same = [run for run in numbers["runs"] if math.isclose(run["run"]["seconds"], result["seconds"])]
    if len(same) != 1:
        raise ValueError(f"{len(same)} of the {len(numbers['runs'])} runs in the scores are this run, expected one")
    (run,) = same
    slices = run["slices"]["test"]
    images = f"slices {slices[0]} to {slices[-1]}, {numbers['dataset']}"
    test = run["tests"][0]
    methods = [found for found in test["scores"].values() if found["chosen_v_rand"] is not None]
    cells = max(methods, key=lambda found: found["chosen_v_rand"])  # the method stored in cells.yaml
    return [
        Score("V_rand of cells", cells["v_rand"], "", images),
        Score("V_info of cells", cells["v_info"], "", images),
        Score("pixel error", 100 * test["pixel_error"], "%", images),
    ]


def _without_paths(config: Path) -> str:
    """The settings of a run as text, without paths of this machine."""
    values = load_yaml(config)
    images = values.get("images", {})
    named = [name for name in PATHS if images.get(name)]
    started = values.get("start", "") not in ("", *PRETRAINED)  # from a run
    if not named and not started:
        return config.read_text(encoding="utf-8")
    values["images"] = images | dict.fromkeys(named, "")
    if started:
        values["start"] = ""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _halve(directory: Path) -> None:
    """Store the floats of a network with 16 bits; integers and the bases of its layers are unchanged.

    A read-out of angles, which belongs to these weights, is made to belong to the rounded ones.
    """
    path, pose = directory / "best.safetensors", directory / POSE_FILE
    state = read_state(path)
    model = {key: value.half() if value.dtype == torch.float32 else value for key, value in state.pop("model").items()}
    write_state(path, {"model": model, **state})
    if pose.exists():
        write_state(pose, {**read_state(pose), "network": digest(path)})


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from error


def _write_text(path: Path, text: str) -> None:
    with new_file(path, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main(words: list[str] | None = None) -> None:
    """The command `python -m sfcnn.pretrained.ship`."""
    parser = argparse.ArgumentParser(
        "python -m sfcnn.pretrained.ship", description="Create a pretrained network from a run."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="directory created by training")
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(FACTS)}")
    parser.add_argument("--scores", type=Path, required=True, metavar="FILE", help="JSON file with its scores")
    parser.add_argument("--to", type=Path, metavar="DIR", help="directory to create (default: in the package)")
    parser.add_argument("--overwrite", action="store_true", help="overwrite existing files")
    parser.add_argument("--half", action="store_true", help="store weights with 16 bits")
    options = parser.parse_args(words)
    try:
        made = ship(
            options.run, options.name, options.scores, options.to, overwrite=options.overwrite, half=options.half
        )
    except (ValueError, OSError) as error:
        parser.error(" ".join(str(error).split()))
    print(f"wrote {made}")


if __name__ == "__main__":
    main()
