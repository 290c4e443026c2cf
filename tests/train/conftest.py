"""A task to train on: noise with labels, since what is learned does not matter here."""

from pathlib import Path
from typing import Any

import torch

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.labelled import LabelledImages, Splits
from sfcnn.classification.network import build_network
from sfcnn.classification.task import Classification
from sfcnn.train.run import Job, RunResult, train_run


def splits() -> Splits:
    """Images and labels at random."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        LabelledImages(
            torch.rand(count, 1, 28, 28, generator=generator), torch.randint(10, (count,), generator=generator)
        )
        for count in (56, 16, 8)
    ]
    return Splits("noise", *parts)


def train(config: ClassificationConfig, data: Splits, directory: Path, **options: Any) -> RunResult:
    """Train on images that are at hand."""
    job = Job(
        config,
        build=lambda: build_network(config.model),
        make_task=lambda: Classification(data, config),
        dataset=data.name,
        select_last=config.images.join_validation,
    )
    return train_run(job, directory, **options)
