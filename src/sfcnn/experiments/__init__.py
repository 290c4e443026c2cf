"""The paper's experiments, each from settings to a table, a JSON file and a figure."""

from typing import Any

from sfcnn.experiments.benchmark import BENCHMARK
from sfcnn.experiments.generalization import GENERALIZATION
from sfcnn.experiments.orientations import ORIENTATIONS
from sfcnn.experiments.sweep import CONFIGS, Experiment

#: Every experiment by its name.
EXPERIMENTS: dict[str, Experiment[Any]] = {
    experiment.name: experiment for experiment in (ORIENTATIONS, GENERALIZATION, BENCHMARK)
}

__all__ = ["BENCHMARK", "CONFIGS", "EXPERIMENTS", "GENERALIZATION", "ORIENTATIONS"]
