"""The paper's networks, residual networks, plain CNN twins for comparison, and a readout of angles."""

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
from sfcnn.models.convert import replace_convs
from sfcnn.models.pose import PoseReadout
from sfcnn.models.resnet import (
    RESNET18,
    RESNET34,
    SMALL,
    ResNetSizes,
    plain_resnet,
    resnet_twin,
    steerable_resnet,
)
from sfcnn.models.twins import MATCHES, count_parameters
from sfcnn.models.unet import UNet, membrane_unet, membrane_unet_cnn, plain_unet
from sfcnn.models.views import ViewPool

__all__ = [
    "BASELINE",
    "BENCHMARK",
    "MATCHES",
    "RESNET18",
    "RESNET34",
    "SMALL",
    "ClassifierSizes",
    "PoseReadout",
    "ResNetSizes",
    "UNet",
    "ViewPool",
    "count_parameters",
    "membrane_unet",
    "membrane_unet_cnn",
    "mnist_baseline",
    "mnist_baseline_cnn",
    "mnist_benchmark",
    "mnist_benchmark_cnn",
    "plain_classifier",
    "plain_resnet",
    "plain_unet",
    "replace_convs",
    "resnet_twin",
    "steerable_classifier",
    "steerable_resnet",
]
