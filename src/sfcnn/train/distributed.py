"""Train one network with several processes, with the same gradients as one process on the whole batch."""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sfcnn.devices import choose_device
from sfcnn.train.task import Share


class LostContactError(ValueError):
    """Another process of the job ended."""


def make_accelerator(precision: str, device: str = "auto") -> Accelerator:
    """The accelerator of this process: device, processes and number format, from the launcher's environment."""
    cpu = choose_device(device).type == "cpu"
    if precision == "float16" and cpu:
        raise ValueError("precision float16 needs a GPU: choose float32 or bfloat16")
    mixed = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}[precision]
    kept = AcceleratorState() if AcceleratorState._shared_state else None
    if kept is not None and (kept.mixed_precision != mixed or (kept.device.type == "cpu") != cpu):
        AcceleratorState._reset_state(True)  # an earlier run of this process had another format or device
    # Without a GPU, several processes only form one job if the CPU is requested.
    return Accelerator(mixed_precision=mixed, cpu=cpu)


def share_of(accelerator: Accelerator) -> Share:
    """The part of each batch that belongs to this process."""
    return Share(accelerator.process_index, accelerator.num_processes)


@contextmanager
def named_failures(accelerator: Accelerator) -> Iterator[None]:
    """Turn a broken connection into an error of one line."""
    try:
        yield
    except RuntimeError as error:
        ignore_launcher()
        signs = ("peer", "gloo", "nccl", "connection", "socket", "broken pipe", "timed out")
        if accelerator.num_processes > 1 and any(sign in str(error).lower() for sign in signs):
            raise LostContactError(
                f"process {accelerator.process_index} lost contact with another process of this job, which has ended; "
                "the last checkpoint is kept: run the same command with --resume to continue"
            ) from error
        raise


def add_up(accelerator: Accelerator, values: Tensor) -> tuple[float, float, float]:
    """Sum three numbers (3,) over all processes, on each of them."""
    if accelerator.num_processes > 1:
        values = accelerator.reduce(values.to(accelerator.device), "sum")
    first, second, third = values.tolist()
    return first, second, third


def gather_objects(accelerator: Accelerator, value: Tensor) -> list[Tensor]:
    """One tensor from each process, in the order of their ranks."""
    if accelerator.num_processes == 1:
        return [value]
    gathered: list[Tensor] = [torch.empty(0)] * accelerator.num_processes
    dist.all_gather_object(gathered, value)
    return gathered


class _Sum(torch.autograd.Function):
    """y = Σ_p x_p over the processes p; since every y_q depends on x_p, its gradient is Σ_q ∂L_q/∂y_q."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


class SynchronizedBatchNorm(_BatchNorm):
    """Batch norm over the whole batch of all processes, for inputs of shape (B, C, …).

    PyTorch's `SyncBatchNorm` needs GPUs; this one uses differentiable collectives and runs wherever they do.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""

    def forward(self, input: Tensor) -> Tensor:
        """(x − μ) / √(σ² + ε) · γ + β with μ and σ² over batch, space, orientations and processes."""
        if not self.training:
            return super().forward(input)
        axes = [0, *range(2, input.dim())]
        shape = (1, -1, *[1] * (input.dim() - 2))
        x = input.float() if input.dtype in (torch.bfloat16, torch.float16) else input
        count = torch.tensor(float(x.numel() // x.shape[1]), dtype=x.dtype, device=x.device)
        dist.all_reduce(count)
        mean = _Sum.apply(x.sum(axes)) / count
        centred = x - mean.view(shape)
        variance = _Sum.apply(centred.square().sum(axes)) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                rate = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
                self.running_mean.lerp_(mean, rate)
                self.running_var.lerp_(variance * count / (count - 1), rate)
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        result = centred * scale.view(shape)
        return (result if self.bias is None else result + self.bias.view(shape)).to(input.dtype)


def synchronize_batch_norm(net: nn.Module) -> nn.Module:
    """Replace every batch norm of a network in place, with the same parameters, buffers and names in the state dict."""
    for name, child in net.named_children():
        if isinstance(child, _BatchNorm) and not isinstance(child, SynchronizedBatchNorm):
            twin = SynchronizedBatchNorm(
                child.num_features, child.eps, child.momentum, child.affine, child.track_running_stats
            )
            twin._parameters, twin._buffers, twin.training = child._parameters, child._buffers, child.training
            setattr(net, name, twin)
        else:
            synchronize_batch_norm(child)
    return net


def leave_job() -> None:
    """Leave the process group once all processes are done; does nothing in a single process.

    The threads of gloo may hold tensors for a moment after the last collective. If Python shuts down meanwhile, they
    abort the process with SIGABRT. So they are stopped first: networks that refer to the group are freed, then the
    group is destroyed.
    """
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        gc.collect()
        dist.destroy_process_group()


def ignore_launcher() -> None:
    """Ignore SIGTERM from the launcher, which must not cut off the last output of this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def is_first_process() -> bool:
    """Whether this process is the one that prints and writes files, according to the launcher's environment."""
    return int(os.environ.get("RANK", "0")) == 0
