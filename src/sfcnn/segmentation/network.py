"""From settings to a U-Net."""

import torch
from torch import Tensor, nn

from sfcnn.models import membrane_unet, membrane_unet_cnn
from sfcnn.models.unet import UNet
from sfcnn.segmentation.config import SegmentationConfig


def build_network(config: SegmentationConfig) -> UNet:
    """The network of resolved settings, which crops the margin of crops from each side of its output.

    One class has one logit, several have one each: (B, C, H, W) → (B, 1 or K, H − 2·margin, W − 2·margin).
    """
    model, images = config.model, config.images
    sizes = {
        "in_channels": images.channels or 1,
        "classes": max(1, len(images.classes)),
        "channels": model.channels,
        "levels": model.levels,
        "input_kernel_size": model.input_kernel_size,
        "kernel_size": model.kernel_size,
        "residual_depth": model.residual_depth,
        "dropout": model.dropout,
        "crop": config.crops.margin,
        "readout": model.readout,
        "reflections": model.reflections,
    }
    if model.kind == "steerable":
        options = {"basis": model.basis, "init": model.init, "engine": model.engine}
        return membrane_unet(model.orientations, **sizes, **options)  # type: ignore[arg-type]
    return membrane_unet_cnn(model.kind.removeprefix("plain-"), model.orientations, **sizes)


def start_at_prior(net: UNet, logits: Tensor) -> UNet:
    """Let a network begin with these logits: its last bias is set to them, so that rare classes begin as rare."""
    last = net.head[-1]  # type: ignore[index]
    assert isinstance(last, nn.Conv2d)
    assert last.bias is not None
    with torch.no_grad():
        last.bias.copy_(logits)
    return net
