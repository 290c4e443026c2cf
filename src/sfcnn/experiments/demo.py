"""Train on upright digits, test on rotated ones: a steerable network beside a plain CNN of the same size.

A small version of the paper's experiment on rotational generalisation (§4.1, figure 4 right) on 5,000 real digits.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from sfcnn.data.digits import Digits, load_digits
from sfcnn.evaluation import errors_by_angle, even_degrees
from sfcnn.files import new_file
from sfcnn.models import ClassifierSizes, count_parameters, mnist_baseline, mnist_baseline_cnn

#: `mnist_baseline` with half its channels, so that it trains in a minute or two on two cores.
SIZES = ClassifierSizes((7, 5, 5, 5, 5, 5), (8, 12, 16, 16, 24, 32), (64, 64))


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demonstration."""

    orientations: int = 8  #: Λ of the steerable network
    train_images: int = 1500  #: upright digits to train on
    test_images: int = 400  #: other digits, each tested at every angle
    angles: int = 24  #: number of test angles, evenly spaced over the circle
    epochs: int = 4  #: passes over the training images
    batch_size: int = 20  #: images per step
    learning_rate: float = 0.003  #: at the start; it falls to zero along a cosine
    basis: str = "averaged"  #: preset of the steerable network's atoms
    engine: str = "direct"  #: of the steerable network
    seed: int = 0  #: of the weights and of all shuffling

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        for name in ("orientations", "train_images", "test_images", "angles", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.train_images + self.test_images > 5000:
            raise ValueError(
                f"train_images + test_images must be at most 5000, got {self.train_images} + {self.test_images}"
            )


@dataclass(frozen=True)
class Curve:
    """Test error of one network against the angle of the digits."""

    name: str
    parameters: int
    seconds: float  #: of training
    errors: tuple[float, ...]  #: in per cent, one per angle

    @property
    def worst(self) -> float:
        """Error at the worst angle."""
        return max(self.errors)

    @property
    def mean(self) -> float:
        """Error over all angles."""
        return sum(self.errors) / len(self.errors)


#: Called after each unit of work with what is being done and which fraction of it is done.
Progress = Callable[[str, float], None]


def train(net: nn.Module, digits: Digits, config: DemoConfig, progress: Callable[[float], None]) -> None:
    """Fit `net` to upright digits with Adam."""
    order = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    # A last batch of one image has no variance for batch norm to use, so only whole batches are taken.
    batch_size = min(config.batch_size, len(digits.labels))
    per_epoch = len(digits.labels) // batch_size
    total = config.epochs * per_epoch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    net.train()
    for epoch in range(config.epochs):
        batches = torch.randperm(len(digits.labels), generator=order)[: per_epoch * batch_size].view(-1, batch_size)
        for step, batch in enumerate(batches, start=1):
            loss = F.cross_entropy(net(digits.images[batch]), digits.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress((epoch * per_epoch + step) / total)


def demo_angles(config: DemoConfig) -> tuple[float, ...]:
    """The test angles in degrees: 0, 15 … 345 by default."""
    return even_degrees(config.angles)


def run(config: DemoConfig, progress: Progress) -> tuple[dict[str, nn.Module], list[Curve]]:
    """Train both networks and test them at every angle: the networks and their curves, in the same order."""
    digits = load_digits(config.seed)
    training = Digits(*(part[: config.train_images] for part in digits))
    test = Digits(*(part[config.train_images :][: config.test_images] for part in digits))
    torch.manual_seed(config.seed)
    nets: dict[str, nn.Module] = {
        f"SFCNN, Λ = {config.orientations}": mnist_baseline(
            config.orientations, SIZES, basis=config.basis, engine=config.engine
        ),
        "plain CNN": mnist_baseline_cnn("parameters", config.orientations, SIZES),
    }
    curves = []
    for name, net in nets.items():
        start = time.perf_counter()
        train(net, training, config, partial(progress, f"training {name}"))
        seconds = time.perf_counter() - start
        tested = partial(progress, f"testing {name}")
        errors = errors_by_angle(net, test, demo_angles(config), progress=tested)
        curves.append(Curve(name, count_parameters(net), seconds, errors))
    return nets, curves


def save(directory: Path, config: DemoConfig, nets: dict[str, nn.Module], curves: list[Curve]) -> list[Path]:
    """Write the figure, the numbers and the steerable network's weights; return their paths."""
    from sfcnn.pictures import error_curves, save_figure

    figure_path, json_path, weights_path = (directory / name for name in ("error.png", "error.json", "sfcnn.pt"))
    series = {f"{curve.name} ({curve.parameters:,} parameters)": curve.errors for curve in curves}
    title = f"Trained on {config.train_images:,} upright digits"
    save_figure(error_curves(demo_angles(config), series, title), figure_path, overwrite=True)
    numbers = {"config": asdict(config), "angles": demo_angles(config), "curves": [asdict(curve) for curve in curves]}
    with new_file(json_path, overwrite=True) as path:
        path.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with new_file(weights_path, overwrite=True) as path:
        torch.save(next(iter(nets.values())).state_dict(), path)
    return [figure_path, json_path, weights_path]
