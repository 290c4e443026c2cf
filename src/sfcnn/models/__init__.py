"""The paper's networks and plain CNN twins to compare them with."""

from sfcnn.models.classifier import (
    BASELINE,
    BENCHMARK,
    ClassifierSizes,
    mnist_baseline,
    mnist_baseline_cnn,
    mnist_benchmark,
    mnist_benchmark_cnn,
    plain_classifier,
    steerable_classifier,
)
from sfcnn.models.twins import MATCHES, count_parameters
from sfcnn.models.unet import UNet, membrane_unet, membrane_unet_cnn, plain_unet

__all__ = [
    "BASELINE",
    "BENCHMARK",
    "MATCHES",
    "ClassifierSizes",
    "UNet",
    "count_parameters",
    "membrane_unet",
    "membrane_unet_cnn",
    "mnist_baseline",
    "mnist_baseline_cnn",
    "mnist_benchmark",
    "mnist_benchmark_cnn",
    "plain_classifier",
    "plain_unet",
    "steerable_classifier",
]
