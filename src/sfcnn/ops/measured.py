"""Find the fastest engine for the given shapes by timing each of them once per problem.

As with `torch.backends.cudnn.benchmark`, the choices are kept only in memory. They can be saved and restored, so that a
resumed run uses the same engines as before and its result is bit-identical.
"""

import time
from collections.abc import Callable, Mapping

import torch

from sfcnn.ops.cost import Problem

_REPEATS = 3  # after a warm-up that pays for plans and memory

_choices: dict[str, str] = {}


def describe(problem: Problem, training: bool, device: torch.device, dtype: torch.dtype) -> str:
    """The key of a choice: everything that the times depend on, as text."""
    mode = "training" if training else "evaluation"
    return f"{mode} {device.type} {dtype} {torch.get_num_threads()} threads {problem}"


def measured_engine(name: str, candidates: Mapping[str, Callable[[], object]]) -> str:
    """The name of the fastest candidate; an earlier choice under `name` is reused without timing."""
    if name not in _choices:
        times = {engine: _seconds(work) for engine, work in candidates.items()}
        _choices[name] = min(times, key=times.__getitem__)
    return _choices[name]


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of a few timings."""
    times = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        work()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def choices() -> dict[str, str]:
    """All choices so far, to be saved with the run."""
    return dict(_choices)


def restore(saved: Mapping[str, str]) -> None:
    """Restore earlier choices, replacing those of this process for the same problems."""
    _choices.update(saved)
