"""Run jobs, each in its own process. The jobs of a comparison take turns step by step, so that changes in the machine's
speed affect all of them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Self

from job import WITHOUT_KERNEL, Job

HERE = Path(__file__).parent

#: Seconds before each step. Threads of the previous worker keep a core busy for a while, waiting for more work.
PAUSE = 0.5


@dataclass(frozen=True)
class Plan:
    """A job and its number of repeats."""

    job: Job
    repeats: int  #: counted steps
    warmup: int = 1  #: steps before them


class WorkerError(RuntimeError):
    """A worker ended unexpectedly."""


class Worker:
    """A process that runs one job, step by step."""

    def __init__(self, job: Job, peer: Path | None) -> None:
        if job.engine == "escnn":
            if peer is None:
                raise WorkerError("escnn is not installed")
            command = [str(peer), str(HERE / "peer_escnn.py")]
        else:
            command = [sys.executable, str(HERE / "own_sfcnn.py")]
        threads = {"OMP_NUM_THREADS": str(job.threads), "MKL_NUM_THREADS": str(job.threads)}
        kernel = {"SFCNN_KERNEL": "0"} if job.engine == WITHOUT_KERNEL else {}
        environment = os.environ | threads | kernel | {"PYTHONWARNINGS": "ignore"}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise WorkerError(f"ended with code {code}: {last}")
        message: dict[str, Any] = json.loads(line)
        return message

    def step(self) -> float:
        """Run one step and return its seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("step\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `answer` reports the reason
        return float(self.answer()["seconds"])

    def finish(self) -> dict[str, Any]:
        """End the job and return its peak memory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.answer()


def _summary(plan: Plan, times: list[float]) -> dict[str, Any]:
    counted = times[plan.warmup :]
    return {
        "median_seconds": median(counted),
        "min_seconds": min(counted),
        "max_seconds": max(counted),
        "median_ms_per_image": 1000 * median(counted) / plan.job.batch,
        "seconds": counted,
        "warmup_seconds": times[: plan.warmup],
    }


def compare(name: str, plans: Sequence[Plan], peer: Path | None) -> list[dict[str, Any]]:
    """Run the jobs of a comparison, taking turns. One that fails gets the key "error" and does not stop the others."""
    results: list[dict[str, Any]] = [{"name": name, **asdict(plan.job)} for plan in plans]
    times: list[list[float]] = [[] for _ in plans]
    with ExitStack() as stack:
        workers: list[Worker | None] = []
        for plan, result in zip(plans, results, strict=True):
            try:
                worker = stack.enter_context(Worker(plan.job, peer))
                result.update(worker.answer())
                workers.append(worker)
            except (OSError, WorkerError) as error:
                result["error"] = str(error)
                workers.append(None)
        for turn in range(max(plan.warmup + plan.repeats for plan in plans)):
            for index, plan in enumerate(plans):
                active = workers[index]
                if active is None or turn >= plan.warmup + plan.repeats:
                    continue
                try:
                    time.sleep(PAUSE)
                    times[index].append(active.step())
                    if turn == plan.warmup + plan.repeats - 1:
                        results[index].update(_summary(plan, times[index]) | active.finish())
                except WorkerError as error:
                    results[index]["error"] = str(error)
                    workers[index] = None
    for result in results:
        print(describe(result), flush=True)
    steerable = [r for r in results if "parameters" in r and not r["engine"].startswith("plain-")]
    for first, second in pairwise(steerable):
        alike = all(first[key] == second[key] for key in ("orientations", "reflections"))
        if alike and first["parameters"] != second["parameters"]:
            print(f"  DIFFERENT NETWORKS: {first['engine']} has {first['parameters']} parameters, ", end="")
            print(f"{second['engine']} has {second['parameters']}", flush=True)
    return results


def describe(result: dict[str, Any]) -> str:
    """One line on one result."""
    mirrored = " mirrored" if result["reflections"] else ""
    shape = f"Λ = {result['orientations']}{mirrored}, batch {result['batch']}, {result['size']}×{result['size']}"
    label = f"  {result['name']:17}{result['engine']:26}{result['mode']:6}{shape:34}"
    if "error" in result:
        return f"{label}{result['error']}"
    low, high = 1000 * result["min_seconds"], 1000 * result["max_seconds"]
    memory = result["step_bytes"] / 2**20
    return f"{label}{1000 * result['median_seconds']:10.1f} ms ({low:.1f} … {high:.1f}) {memory:8.0f} MB"
