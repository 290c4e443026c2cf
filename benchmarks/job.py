"""A job to be timed, and the worker process that runs it step by step. Needs only torch: both libraries use it.

A worker is started with a job as JSON, builds it and reports that it is ready. For each line of input it runs a step,
or several short ones, and answers with the seconds per step; at the end of its input it reports its peak memory.
"""

import ctypes
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[], object]


#: The name of `auto` with PyTorch only.
WITHOUT_KERNEL = "without-kernel"


@dataclass(frozen=True)
class Job:
    """What to time. All sizes are explicit, so that both libraries build the same network."""

    work: str  #: "classifier", "unet" or "layer"
    engine: str  #: of sfcnn, WITHOUT_KERNEL, or "escnn"
    mode: str = "train"  #: "train": forward, backward, Adam; "eval": forward with frozen weights
    orientations: int = 16  #: Λ
    batch: int = 64  #: images in a step
    size: int = 28  #: height and width of the images
    channels: tuple[int, ...] = ()  #: of each convolution; for a layer, of its input and output
    kernel_sizes: tuple[int, ...] = ()  #: of each convolution
    hidden: tuple[int, ...] = ()  #: units of the fully connected layers
    reflections: bool = False  #: for a layer: whether it is on D_Λ
    threads: int = 2


class PeakMemory:
    """The increase of this process's resident memory since the start."""

    def __init__(self) -> None:
        self.exact = self._forget_peak()
        self.before = self._resident() if self.exact else self._peak()

    @staticmethod
    def _forget_peak() -> bool:
        """Reset the kernel's high-water mark, where supported (Linux)."""
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return False
        return True

    @staticmethod
    def _resident() -> int:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _peak(self) -> int:
        if self.exact:
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def report(self) -> dict[str, int]:
        """Bytes: the increase, and the peak of the whole process."""
        peak = self._peak()
        return {"step_bytes": peak - self.before, "process_bytes": peak}


def loss_for(job: Job, outputs: Tensor) -> Tensor:
    """A loss with random targets for the job."""
    if job.work == "classifier":
        return nn.functional.cross_entropy(outputs, torch.arange(job.batch) % outputs.shape[1])
    return nn.functional.binary_cross_entropy_with_logits(outputs, torch.rand_like(outputs).round())


def network_step(job: Job, net: nn.Module, images: Tensor) -> Step:
    """A step of a network: images (B, C, H, W) → logits."""
    if job.mode == "eval":
        net.eval()
        return torch.no_grad()(lambda: net(images))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        loss_for(job, net(images)).backward()
        optimiser.step()

    return step


def layer_step(job: Job, layer: nn.Module, apply: Callable[[Tensor], Tensor], features: Tensor) -> Step:
    """A step of one layer inside a network; in training, gradients of weights and input, and Adam."""
    if job.mode == "eval":
        layer.eval()
        return torch.no_grad()(lambda: apply(features))
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-3)
    features.requires_grad_()
    with torch.no_grad():
        gradient = torch.randn_like(apply(features))

    def step() -> None:
        optimiser.zero_grad()
        features.grad = None
        apply(features).backward(gradient)
        optimiser.step()

    return step


def keep_memory() -> None:
    """Let glibc keep freed memory, as training runs do (`sfcnn.train.memory`), with either library."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is not None and hasattr(library, "gnu_get_libc_version"):
        for parameter in (-1, -3):  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
            library.mallopt(parameter, 2**31 - 1)


def seconds_per_step(step: Step, least: float = 0.2) -> float:
    """Seconds per step: the mean of as many steps as fill `least` seconds, a single one if steps are long."""
    start, steps, passed = time.perf_counter(), 0, 0.0
    while passed < least:
        step()
        steps += 1
        passed = time.perf_counter() - start
    return passed / steps


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert lists, the only sequences in JSON, to tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def serve(build: Callable[[Job], tuple[nn.Module, Step]], packages: Sequence[str]) -> None:
    """Run as a worker: the job is the only command-line argument; `build` creates its module and step."""
    answers, sys.stdout = sys.stdout, sys.stderr  # so that a library that prints cannot disturb the answers

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    job = Job(**json.loads(sys.argv[1], object_hook=_tuples))
    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    keep_memory()
    start = time.perf_counter()
    module, step = build(job)
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    answer(
        {
            "build_seconds": time.perf_counter() - start,
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "versions": versions,
        }
    )
    memory = PeakMemory()
    for _ in sys.stdin:
        answer({"seconds": seconds_per_step(step)})
    answer(memory.report())
