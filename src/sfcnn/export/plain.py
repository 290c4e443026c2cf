"""Convert a model to a plain network: ordinary PyTorch layers on 4-D tensors, which runs without sfcnn."""

import copy

from torch import fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from sfcnn.export.fold import fold_batch_norms
from sfcnn.export.rewrite import rewrite
from sfcnn.export.trace import check_exportable, is_layer, trace


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside a torch.compile or data-parallel wrapper."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def to_plain(model: nn.Module) -> fx.GraphModule:
    """The plain network that computes the same as a model in eval mode.

    The filters of steerable convolutions are built in all orientations and become those of `nn.Conv2d`, features
    (B, C, Λ, H, W) become maps (B, C·Λ, H, W), layers without effect in evaluation are removed, and batch norm is
    folded into the layer it follows. Inputs and outputs keep the model's shapes, including outputs with five axes.
    The model may combine layers of this package with PyTorch layers and functions in its own `forward`; the plain
    network takes the arguments without a default. It holds copies of all weights, which do not require gradients.

    Raises a ValueError with the reason for a model in training mode, with forward hooks, with subclassed layers that
    compute something else, or whose control flow depends on the input. Conditions that only raise, such as checks of
    sizes, are left out.

    >>> from sfcnn import LiftConv2d, OrientationPool
    >>> net = nn.Sequential(LiftConv2d(1, 4, 5, orientations=8), nn.BatchNorm3d(4), nn.ReLU(), OrientationPool())
    >>> to_plain(net.eval())
    Plain(
      (0): Conv2d(1, 32, kernel_size=(5, 5), stride=(1, 1))
      (2): ReLU()
    )
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    model = unwrap(model)
    check_exportable(model)
    model = copy.deepcopy(model)
    if is_layer(model):  # a single layer would have no graph of layers
        model = nn.Sequential(model).eval()
    plain = rewrite(model, trace(model))
    fold_batch_norms(plain)
    return plain
