"""The worker of `speed.py` for the peer escnn: the same networks from its layers. Runs in escnn's environment.

Regular fields of the cyclic group C_Λ, escnn's default band limits (the same as in our default basis), filters expanded
once in evaluation. Weights are drawn from a normal distribution, because escnn's own scheme takes minutes and does not
affect the time of a step.
"""

import warnings
from itertools import pairwise

import torch
from job import Job, Step, layer_step, network_step, serve
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # escnn 1.0.11 uses deprecated names of the libraries that it imports
    from escnn import gspaces  # type: ignore[import-not-found]
    from escnn import nn as enn


def convolution(source: enn.FieldType, target: enn.FieldType, kernel_size: int) -> enn.R2Conv:
    """A convolution that keeps the size of the maps."""
    layer = enn.R2Conv(source, target, kernel_size, padding=kernel_size // 2, bias=False, initialize=False)
    nn.init.normal_(layer.weights, std=0.1)
    return layer


class Classifier(nn.Module):
    """Images (B, 1, H, W) → logits (B, 10), like `sfcnn.models.steerable_classifier`."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        space = gspaces.rot2dOnR2(job.orientations)
        self.image = enn.FieldType(space, [space.trivial_repr])
        fields = [self.image, *(enn.FieldType(space, c * [space.regular_repr]) for c in job.channels)]
        layers: list[nn.Module] = []
        for number, (pair, kernel_size) in enumerate(zip(pairwise(fields), job.kernel_sizes, strict=True), start=1):
            features = pair[1]
            layers += [convolution(*pair, kernel_size), enn.InnerBatchNorm(features), enn.ReLU(features, inplace=True)]
            if number % 2 == 0 and number < len(job.channels):
                layers.append(enn.PointwiseMaxPool(features, 2))
        self.features = enn.SequentialModule(*layers, enn.GroupPooling(fields[-1]))
        head: list[nn.Module] = [nn.AdaptiveMaxPool2d(1), nn.Flatten()]
        units = (job.channels[-1], *job.hidden)
        for inputs, outputs in pairwise(units):
            head += [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.3)]
        self.head = nn.Sequential(*head, nn.Linear(units[-1], 10, bias=False), nn.BatchNorm1d(10))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, H, W) → logits (B, 10)."""
        logits: Tensor = self.head(self.features(self.image(images)).tensor)
        return logits


def build(job: Job) -> tuple[nn.Module, Step]:
    """The module of a job and its step."""
    if job.work == "classifier":
        net = Classifier(job)
        return net, network_step(job, net, torch.randn(job.batch, 1, job.size, job.size))
    if job.work != "layer" or job.reflections:
        raise ValueError(f"{job.work!r}{' with reflections' if job.reflections else ''} is not implemented for escnn")
    space = gspaces.rot2dOnR2(job.orientations)
    source, target = (enn.FieldType(space, c * [space.regular_repr]) for c in job.channels)
    layer = convolution(source, target, *job.kernel_sizes)
    features = torch.randn(job.batch, source.size, job.size, job.size)
    return layer, layer_step(job, layer, lambda maps: layer(source(maps)).tensor, features)


if __name__ == "__main__":
    serve(build, ("escnn", "torch", "numpy", "scipy"))
