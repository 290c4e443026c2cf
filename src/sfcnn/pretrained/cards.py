"""Model cards of the pretrained networks: card.json, and README.md generated from it."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Facts:
    """The part of a card that is written by hand."""

    purpose: str  #: one line
    data: str  #: training data
    licence: str  #: of the data
    limits: tuple[str, ...]  #: limitations
    commands: tuple[str, ...]  #: to reproduce it


@dataclass(frozen=True)
class Score:
    """A measured score."""

    name: str
    value: float
    unit: str
    images: str  #: test images


_MNIST_LICENCE = (
    "Yann LeCun and Corinna Cortes hold the copyright of MNIST, which is derived from data of NIST and available under "
    "the Creative Commons Attribution-Share Alike 3.0 licence."
)

#: Facts about the pretrained networks, by name.
FACTS = {
    "isbi2012": Facts(
        purpose="membranes in serial section transmission electron microscopy, 4 nm per pixel",
        data="Slices 1 to 20 of the labelled stack of the ISBI 2012 challenge (Arganda-Carreras et al. 2015): ventral "
        "nerve cord of Drosophila larvae (Cardona et al. 2010). The random forest for superpixel edges was "
        "trained on the same slices.",
        licence="The files of the challenge do not state one; the organisers ask to be cited.",
        limits=(
            "Other tissue, stains and microscopes: inspect the results.",
            "Pixel sizes other than 4 nm, unless images are rescaled (--pixel-size).",
            "The scored slices were also used to select the epoch.",
            "isbi2012-affinities is more accurate and slower.",
        ),
        commands=(
            "sfcnn segment train --config src/sfcnn/pretrained/isbi2012/config.yaml --data data --out runs/em",
            "sfcnn segment predict isbi2012 slices.tif --out seg",
            "sfcnn segment score seg/slices-cells.tif truth.tif --labels --out scores.json",
        ),
    ),
    "isbi2012-affinities": Facts(
        purpose="cells in serial section transmission electron microscopy, 4 nm per pixel, by oriented affinities",
        data="Slices 1 to 18 of the labelled stack of the ISBI 2012 challenge (Arganda-Carreras et al. 2015): ventral "
        "nerve cord of Drosophila larvae (Cardona et al. 2010). Slices 19 and 20 selected the epoch and the settings "
        "with which cells are found.",
        licence="The files of the challenge do not state one; the organisers ask to be cited.",
        limits=(
            "Other tissue, stains and microscopes: inspect the results.",
            "Pixel sizes other than 4 nm, unless images are rescaled (--pixel-size).",
            "Membranes that are cut obliquely: a single slice hardly shows them, and cells on both sides are merged.",
            "Mitochondria that touch a membrane can be cut off as cells of their own.",
        ),
        commands=(
            "sfcnn experiment isbi --config results/isbi.yaml --data data --out experiments/isbi",
            "python -m sfcnn.pretrained.ship experiments/isbi/runs/steerable-slices21-24-s0 isbi2012-affinities "
            "--scores experiments/isbi/isbi.json --half",
        ),
    ),
    "isbi2012-plain": Facts(
        purpose="a plain U-Net for membranes, as a baseline for isbi2012",
        data="As for isbi2012: slices 1 to 20 of the labelled stack of the ISBI 2012 challenge. It has as many "
        "parameters as isbi2012 and was trained with the same settings for as many steps, on crops that were likewise "
        "rotated by multiples of 90°, mirrored and deformed.",
        licence="The files of the challenge do not state one; the organisers ask to be cited.",
        limits=(
            "It is only a baseline: in the same time a plain U-Net can be trained for more steps.",
            "Rotating an image changes its predictions.",
            "All other limitations of isbi2012; it has no random forest of its own.",
        ),
        commands=(
            "sfcnn segment train --config src/sfcnn/pretrained/isbi2012-plain/config.yaml --data data --out runs/plain",
            "python -m sfcnn.pretrained.ship runs/plain isbi2012-plain --scores runs/plain/result.json --half",
        ),
    ),
    "mnist-rot": Facts(
        purpose="handwritten digits at any angle: class and orientation",
        data="MNIST (LeCun, Cortes, Burges 1998), newly rotated: the first 12,000 digits, each rotated by an "
        "angle uniform in [0°, 360°). The next 50,000 are for testing.",
        licence=_MNIST_LICENCE,
        limits=(
            "A straight 1 looks the same upside down, and most 0s and 8s nearly so: their angles may be off by 180°.",
            "A 6 upside down may be read as a 9, and a 9 as a 6; then the angle is off by 180° as well.",
            "MNIST's digits are half a pixel off the centre of their images, to the lower right, which reveals their "
            "orientation. Other images have no such cue, so both errors are more frequent there than on the test "
            "images.",
            "MNIST was written in the United States: a 1 with a long upstroke or a 7 with a bar is rare in it.",
            "Several digits in one image, and backgrounds that are not uniform.",
        ),
        commands=(
            "sfcnn data fetch mnist --data data",
            "sfcnn classify train --config src/sfcnn/experiments/configs/mnist-rot-best.yaml --data data "
            "--out runs/best",
            "sfcnn classify pose runs/best --data data",
            "sfcnn classify evaluate runs/best --data data --out runs/best/test.json",
            "python -m sfcnn.pretrained.ship runs/best mnist-rot --scores runs/best/test.json --half",
        ),
    ),
    "mnist-rot-plain": Facts(
        purpose="a plain CNN for rotated digits, as a baseline for mnist-rot",
        data="As for mnist-rot: the first 12,000 digits of MNIST (LeCun, Cortes, Burges 1998), each rotated by an "
        "angle uniform in [0°, 360°), and rotated again at random in training. It has as many parameters as mnist-rot "
        "and was trained with the same recipe, but for 8 epochs instead of 16.",
        licence=_MNIST_LICENCE,
        limits=(
            "It is only a baseline: mnist-rot is more accurate.",
            "Rotating an image changes its predictions, even by quarter turns, and it does not predict angles.",
            "All other limitations of mnist-rot.",
        ),
        commands=(
            "sfcnn data fetch mnist --data data",
            "sfcnn classify train --config src/sfcnn/experiments/configs/mnist-rot-plain.yaml --data data "
            "--out runs/plain",
            "sfcnn classify evaluate runs/plain --data data --images 10000 --out runs/plain/test.json",
            "python -m sfcnn.pretrained.ship runs/plain mnist-rot-plain --scores runs/plain/test.json --half",
        ),
    ),
}


def make_card(
    name: str, facts: Facts, task: str, result: Mapping[str, Any], scores: Sequence[Score], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """The card as JSON values; `result` is a run's result.json, `sizes` are bytes by file."""
    return {
        "name": name,
        "task": task,
        **asdict(facts),
        "scores": [asdict(score) for score in scores],
        "parameters": result["parameters"],
        "train_images": result["train_images"],
        "seconds": result["seconds"],
        "bytes": sum(sizes.values()),
        "files": dict(sorted(sizes.items())),
        "provenance": result["provenance"],
    }


def card_text(card: Mapping[str, Any]) -> str:
    """The card as Markdown."""
    made = card["provenance"]
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    scores = "\n".join(f"| {score['name']} | {_value(score)} | {score['images']} |" for score in card["scores"])
    limits = "\n".join(_filled(f"- {limit}", indent="  ") for limit in card["limits"])
    commands = "\n".join(card["commands"])
    origin = (
        f"Trained on {card['train_images']:,} images in {card['seconds'] / 60:.0f} minutes; {made['processor']}, "
        f"threads: {made['threads']}; {made['finished'][:10]}, commit `{made['commit']}`, {versions}."
    )
    return f"""# {card["name"]}

{card["purpose"][0].upper()}{card["purpose"][1:]}.
A pretrained network for {card["task"]}: `sfcnn.load("{card["name"]}")`.

{_filled(f"**Data.** {card['data']}")}

{_filled(f"**Licence of the data.** {card['licence']}")}

**Size.** {card["parameters"]:,} parameters, {card["bytes"] / 1e6:.1f} MB.

## Scores

| score | value | measured on |
| --- | --- | --- |
{scores}

## Limitations

{limits}

## How it was trained

```text
{commands}
```

{_filled(origin)}
"""


def _value(score: Mapping[str, Any]) -> str:
    blank = " " if score["unit"] == "%" else ""
    return f"{score['value']:.4g}{blank}{score['unit']}"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def read_purposes(directory: Path) -> dict[str, str]:
    """Name and purpose of each network in a directory, sorted by name."""
    paths = sorted(directory.glob("*/card.json"))
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8"))["purpose"] for path in paths}
