"""Distribute work with Dask: in this process, over local threads or processes, or over a cluster."""

import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: Takes a function and the arguments of each call; yields the index of each call with its result or, if its process
#: died, with the error.
Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Generator[tuple[int, Any]]]

#: Ways to distribute work on this machine; anything else is the address of a scheduler.
HERE = ("processes", "threads")

_PATIENCE = 30  # timeout in seconds for a scheduler to answer and to have workers


def check_spread(workers: int | None, scheduler: str | None) -> None:
    """Raise unless the number of workers and the scheduler fit together."""
    if workers is not None and not 1 <= workers <= 4096:
        raise ValueError(f"the number of workers must be in 1 … 4096, got {workers}")
    if scheduler is not None and scheduler not in HERE:
        if "://" not in scheduler and ":" not in scheduler:
            raise ValueError(
                f"unknown scheduler {scheduler!r}, expected one of {', '.join(HERE)} or an address like tcp://host:8786"
            )
        if workers is not None:
            raise ValueError(f"the scheduler {scheduler} has its own workers: leave out the number of workers")


@contextmanager
def spread(workers: int | None = None, scheduler: str | None = None) -> Iterator[Spread]:
    """Yield a function that distributes calls.

    Args:
        workers: number of concurrent calls on this machine; 1, the default, runs them in this process.
        scheduler: "processes" (the default) or "threads" for several local workers, or the address of a Dask scheduler,
            whose workers need sfcnn and the same files at the same paths.
    """
    check_spread(workers, scheduler)
    if scheduler in (None, *HERE) and (workers or 1) == 1:
        yield _alone
        return
    import dask
    from distributed import Client, LocalCluster

    if scheduler in (None, *HERE):
        count, threads = workers or 1, scheduler == "threads"
        with _kept_environment(), dask.config.set(_settings(count)):
            cluster = LocalCluster(
                n_workers=1 if threads else count,
                threads_per_worker=count if threads else 1,
                processes=not threads,
                memory_limit=0,  # a slice either fits into memory or not; nothing can be spilled to disk
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            with cluster, Client(cluster) as client:
                yield _by(client)
        return
    try:
        client = Client(scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler found at {scheduler}: {' '.join(str(error).split())}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ValueError(f"the Dask scheduler at {scheduler} has no workers") from error
        yield _by(client)


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _settings(count: int) -> dict[str, Any]:
    """Dask's settings for so many workers on this machine: they share its processors, and nothing is profiled.

    By default, Dask's workers return all freed memory to the system at once and spend much of their time getting it
    back: the large arrays of a network come and go with every layer.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, processors // count))
    return {
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(_THREADS, threads),
        "distributed.worker.profile.enabled": False,
    }


@contextmanager
def _kept_environment() -> Iterator[None]:
    """Restore the variables that Dask sets in this process for its workers and leaves there."""
    before = {name: os.environ.get(name) for name in _THREADS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _alone(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Any]]:
    for number, arguments in enumerate(calls):
        yield number, function(*arguments)


def _by(client: Any) -> Spread:
    """Distribute calls over the workers of a client. A call whose worker dies is repeated by another one."""

    def run(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Any]]:
        from distributed import KilledWorker, as_completed

        futures = {client.submit(function, *arguments, pure=False): number for number, arguments in enumerate(calls)}
        try:
            for future in as_completed(list(futures)):
                error = future.exception()
                if error is not None and not isinstance(error, KilledWorker):
                    raise error
                yield futures[future], error or future.result()
                future.release()
        finally:
            client.cancel(list(futures))

    return run
