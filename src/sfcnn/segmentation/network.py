"""Build a U-Net from its settings."""

import torch
from torch import Tensor, nn

from sfcnn.models import membrane_unet, membrane_unet_cnn
from sfcnn.models.unet import UNet
from sfcnn.segmentation.config import SegmentationConfig

_RAREST = 1e-3  # the initial probability of a pair is clipped to at least this


def build_network(config: SegmentationConfig) -> UNet:
    """Build the network for resolved settings; it removes the crop margin from each side of its output.

    A single class has one logit, several classes have one each: (B, C, H, W) → (B, 1 or K, H − 2·margin, W − 2·margin).
    """
    model, images = config.model, config.images
    sizes = {
        "in_channels": (images.channels or 1) * (2 * images.neighbours + 1),
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
        "affinities": len(model.affinities),
    }
    if model.kind == "steerable":
        options = {"basis": model.basis, "init": model.init, "engine": model.engine}
        return membrane_unet(model.orientations, **sizes, **options)  # type: ignore[arg-type]
    return membrane_unet_cnn(model.kind.removeprefix("plain-"), model.orientations, **sizes)


def start_at_prior(net: UNet, logits: Tensor) -> UNet:
    """Set the last bias to these logits, so that the network initially predicts the class frequencies."""
    last = net.head[-1]  # type: ignore[index]
    assert isinstance(last, nn.Conv2d)
    assert last.bias is not None
    with torch.no_grad():
        last.bias.copy_(logits)
    return net


def start_affinities_at_prior(net: UNet, shares: Tensor) -> UNet:
    """Make affinities initially predict, for each radius, the fraction (D,) of pairs that are in the same cell."""
    head = net.affinity_head
    assert head is not None
    bias = head.layers[-1].bias  # (D,), or (D·Λ,) in a plain network
    assert isinstance(bias, Tensor)
    logits = torch.logit(shares, eps=_RAREST)
    with torch.no_grad():
        bias.copy_(logits.repeat_interleave(len(bias) // len(logits)))
    return net
