"""Networks by name, each loaded once and shared by all sessions, which never modify them."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from sfcnn.classification import Classifier
from sfcnn.pretrained import PRETRAINED, find_run, load
from sfcnn.segmentation import Segmenter

#: Suffix of the plain network that a pretrained network is compared with.
PLAIN = "-plain"

_KEPT = 8  # networks in memory


@lru_cache(maxsize=_KEPT)
def _load(directory: Path, changed: int, device: str, purpose: str) -> Any:
    return load(directory, device=device)


def get_network(run: str, device: str = "auto", purpose: str = "") -> Any:
    """The network of a run, or a pretrained one, reloaded when the run has new weights.

    Each `purpose` gets its own copy, so that callers can modify it.

    >>> get_network("mnist-rot") is get_network(" mnist-rot ")
    True
    """
    if not run.strip():
        raise ValueError(f"name a network: the directory of a run, or one of {list(PRETRAINED)}")
    directory = find_run(run.strip())
    weights = directory / "best.safetensors"
    return _load(directory, weights.stat().st_mtime_ns if weights.is_file() else 0, device, purpose)


def get_classifier(run: str, device: str = "auto") -> Classifier:
    """A network that classifies images."""
    network = get_network(run, device)
    if not isinstance(network, Classifier):
        raise ValueError(f"{run} segments images, expected a network that classifies them")
    return network


def get_segmenter(run: str, device: str = "auto") -> Segmenter:
    """A network that segments images."""
    network = get_network(run, device)
    if not isinstance(network, Segmenter):
        raise ValueError(f"{run} classifies images, expected a network that segments them")
    return network


def stated_error(name: str) -> float:
    """The error in per cent stated in the card of a pretrained classifier.

    >>> stated_error("mnist-rot") < stated_error("mnist-rot-plain")
    True
    """
    card = json.loads((find_run(name) / "card.json").read_text(encoding="utf-8"))
    return float(next(score["value"] for score in card["scores"] if score["name"] == "error"))


def plain_counterpart(name: str) -> str:
    """The name of the plain counterpart of a pretrained network; empty if there is none.

    >>> plain_counterpart("mnist-rot")
    'mnist-rot-plain'
    """
    plain = name + PLAIN
    return plain if plain in PRETRAINED else ""
