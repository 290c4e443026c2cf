"""Which engine is fastest for the shapes at hand, by trying them: each is timed once for each problem.

As `torch.backends.cudnn.benchmark` does, and like there the choices are kept in memory only. They can be taken out and
put back, so that a resumed run computes with the engines that it began with and ends with the same bits.
"""

import time
from collections.abc import Callable, Mapping

import torch

from sfcnn.ops.cost import Problem

_REPEATS = 3  # after a first one that pays for plans and memory

_choices: dict[str, str] = {}


def describe(problem: Problem, training: bool, device: torch.device, dtype: torch.dtype) -> str:
    """What a choice holds for: all that the times depend on, as text."""
    mode = "training" if training else "evaluation"
    return f"{mode} {device.type} {dtype} {torch.get_num_threads()} threads {problem}"


def measured_engine(name: str, candidates: Mapping[str, Callable[[], object]]) -> str:
    """The name of the candidate that takes the least time; what was chosen before under `name` is not timed again."""
    if name not in _choices:
        times = {engine: _seconds(work) for engine, work in candidates.items()}
        _choices[name] = min(times, key=times.__getitem__)
    return _choices[name]


def _seconds(work: Callable[[], object]) -> float:
    """The least time of a few."""
    times = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        work()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def choices() -> dict[str, str]:
    """All choices so far, to be saved beside what they were made for."""
    return dict(_choices)


def restore(saved: Mapping[str, str]) -> None:
    """Take choices that were made before, in the place of those of this process for the same problems."""
    _choices.update(saved)
