"""A model as a plain network: ordinary layers of PyTorch on 4-D tensors, which needs no sfcnn to run."""

import copy

from torch import fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from sfcnn.export.fold import fold_batch_norms
from sfcnn.export.rewrite import rewrite
from sfcnn.export.trace import check_exportable, is_layer, trace


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside what torch.compile or a data-parallel wrapper made of it."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def to_plain(model: nn.Module) -> fx.GraphModule:
    """The plain network that computes what a model in eval mode computes.

    The filters of steerable convolutions are built in all orientations and become those of `nn.Conv2d`, features
    (B, C, Λ, H, W) are maps (B, C·Λ, H, W), layers that do nothing in evaluation are gone, and batch norm is folded
    into the layer it follows. Inputs and outputs are the model's own: what it returns with five axes has five here.
    The model may mix layers of this package with any of PyTorch's and with functions, in a `forward` of its own; the
    plain network takes the arguments that have no default. It holds copies of all weights, which need no gradient.

    Raises a ValueError with the reason for a model in training mode, with forward hooks, with layers of a class of
    its own that compute something else, and where the way through the network depends on the input. Checks of sizes
    and the like that only raise are left out.

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
