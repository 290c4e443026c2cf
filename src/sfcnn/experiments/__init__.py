"""The paper's experiments, and two on symmetries and recipes; each writes a table, a JSON file and a figure."""

from importlib import import_module
from typing import Any

from sfcnn.experiments.sweep import CONFIGS, Experiment

#: Experiments and what they show. Each is the constant EXPERIMENT of the module with its name, which is imported only
#: when needed, since the modules depend on different packages.
EXPERIMENTS = {
    "orientations": "test error against the number of orientations Λ (figure 4 left)",
    "generalization": "train on upright digits, test at every angle (figure 4 right)",
    "benchmark": "the benchmark on rotated MNIST (table 1)",
    "symmetry": "compare symmetries on the same digits and time budget (not in the paper)",
    "recipes": "minutes to reach an error by each training recipe (not in the paper)",
    "isbi": "membranes and cells of the ISBI 2012 challenge (§4.2, figure 5)",
}

__all__ = ["CONFIGS", "EXPERIMENTS", "load_experiment"]


def load_experiment(name: str) -> Experiment[Any]:
    """The experiment with this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}, choose one of {list(EXPERIMENTS)}")
    experiment: Experiment[Any] = import_module(f"sfcnn.experiments.{name}").EXPERIMENT
    return experiment
