"""The paper's experiments and one on symmetries, each from settings to a table, a JSON file and a figure."""

from importlib import import_module
from typing import Any

from sfcnn.experiments.sweep import CONFIGS, Experiment

#: Each experiment and what it shows. It is the constant EXPERIMENT of the module of its name; only the one that is
#: asked for is imported, since they do not all need the same packages.
EXPERIMENTS = {
    "orientations": "test error against the number of orientations Λ (figure 4 left)",
    "generalization": "train on upright digits, test at every angle (figure 4 right)",
    "benchmark": "the benchmark on rotated MNIST (table 1)",
    "symmetry": "which symmetry pays on the same digits in the same time (not in the paper)",
    "isbi": "membranes and cells of the ISBI 2012 challenge (§4.2, table 2)",
}

__all__ = ["CONFIGS", "EXPERIMENTS", "load_experiment"]


def load_experiment(name: str) -> Experiment[Any]:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}, choose one of {list(EXPERIMENTS)}")
    experiment: Experiment[Any] = import_module(f"sfcnn.experiments.{name}").EXPERIMENT
    return experiment
