"""Which features the compiled passes cover, and what the kernel has to know of them and of the machine."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sfcnn.ops.spectral.compiled import instruction_set
from sfcnn.ops.spectral.kernel import INSTRUCTION_SETS, Halving, Library, load


def is_covered(features: Tensor) -> bool:
    """Whether the kernel takes these features: contiguous numbers of single or double precision on a CPU.

    What follows a computation other than its gradients sees PyTorch's own operators: compilation, tracing, forward
    derivatives and the transforms of `torch.func`.
    """
    if type(features) is not Tensor or torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return False
    here = features.device.type == "cpu" and features.dtype in (torch.float32, torch.float64)
    return here and features.is_contiguous() and features.numel() > 0 and instruction_set() is not None


def library() -> Library:
    """The library, for features that are covered."""
    found = load()
    if found is None:
        raise RuntimeError("the compiled kernel is not there: `python -m sfcnn.ops.spectral.kernel` builds it")
    return found


def machine(features: Tensor) -> dict[str, int]:
    """The first fields of every problem."""
    name = instruction_set()
    return {
        "real_bytes": features.element_size(),
        "instruction_set": -1 if name is None else INSTRUCTION_SETS.index(name),
        "threads": torch.get_num_threads(),
    }


def halving(features: Tensor) -> Halving:
    """The problem of halving maps (…, H, W)."""
    height, width = features.shape[-2:]
    return Halving(*machine(features).values(), height, width, features.numel() // (height * width))
