"""The worker of `speed.py` for this library: a network with the engine of the job, or its plain counterpart."""

from typing import Any

import torch
from job import WITHOUT_KERNEL, Job, Step, layer_step, network_step, serve
from torch import nn

from sfcnn import GroupConv2d
from sfcnn.models import ClassifierSizes, membrane_unet, steerable_classifier
from sfcnn.models.classifier import plain_twin


def build(job: Job) -> tuple[nn.Module, Step]:
    """The module of a job and its step."""
    engine = "auto" if job.engine == WITHOUT_KERNEL else job.engine
    if job.work == "layer":
        (inputs, outputs), (kernel_size,) = job.channels, job.kernel_sizes
        options: dict[str, Any] = {"padding": "same", "bias": False, "engine": engine, "reflections": job.reflections}
        layer = GroupConv2d(inputs, outputs, kernel_size, job.orientations, **options)
        maps = 2 * job.orientations if job.reflections else job.orientations
        features = torch.randn(job.batch, inputs, maps, job.size, job.size)
        return layer, layer_step(job, layer, layer, features)
    net: nn.Module
    if job.work == "unet":
        net = membrane_unet(job.orientations, engine=engine)
    else:
        sizes = ClassifierSizes(job.kernel_sizes, job.channels, job.hidden)
        if job.engine.startswith("plain-"):
            net = plain_twin(sizes, job.orientations, job.engine.removeprefix("plain-"))
        else:
            net = steerable_classifier(sizes, job.orientations, engine=engine)
    return net, network_step(job, net, torch.randn(job.batch, 1, job.size, job.size))


if __name__ == "__main__":
    serve(build, ("sfcnn", "torch", "numpy"))
