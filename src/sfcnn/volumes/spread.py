"""Work spread by Dask: in this process, over threads or processes here, or over a cluster."""

import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: Called with a function and the arguments of each call; yields the number of each call with what it returned or, if
#: its process died, with the error.
Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Generator[tuple[int, Any]]]

#: Ways to spread work on this machine; anything else is the address of a scheduler.
HERE = ("processes", "threads")

_PATIENCE = 30  # seconds for a scheduler to answer and to have workers


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
            raise ValueError("the number of workers is that of the scheduler's own: leave it out")


@contextmanager
def spread(workers: int | None = None, scheduler: str | None = None) -> Iterator[Spread]:
    """Yield a function that spreads calls.

    Args:
        workers: how many calls at the same time on this machine; 1, the default, is this process alone.
        scheduler: "processes" (the default) or "threads" for several workers here, or the address of a Dask scheduler,
            whose workers need sfcnn, and the same files in the same places.
    """
    check_spread(workers, scheduler)
    if scheduler in (None, *HERE) and (workers or 1) == 1:
        yield _alone
        return
    from distributed import Client, LocalCluster

    if scheduler in (None, *HERE):
        count, threads = workers or 1, scheduler == "threads"
        each = max(1, len(os.sched_getaffinity(0)) // count) if hasattr(os, "sched_getaffinity") else 1
        cluster = LocalCluster(
            n_workers=1 if threads else count,
            threads_per_worker=count if threads else 1,
            processes=not threads,
            memory_limit=0,  # a slice fits into memory or not; nothing can be put aside
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            **({} if threads else {"env": {"OMP_NUM_THREADS": str(each)}}),
        )
        with cluster, Client(cluster) as client:
            yield _by(client)
        return
    try:
        client = Client(scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {scheduler}: {' '.join(str(error).split())}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ValueError(f"the Dask scheduler at {scheduler} has no workers") from error
        yield _by(client)


def _alone(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Any]]:
    for number, arguments in enumerate(calls):
        yield number, function(*arguments)


def _by(client: Any) -> Spread:
    """Spread calls over the workers of a client. A call whose worker dies is made again by another one."""

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
