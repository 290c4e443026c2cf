"""Prepare batches while the network computes, so that the next ones are ready when needed."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(make: Callable[[int], Item], start: int, stop: int, ahead: int = 2) -> Iterator[Item]:
    """Yield make(start) … make(stop − 1), computed one after the other in a thread, `ahead` items in advance.

    An error in `make` is raised in place of its item.

    >>> list(prefetch(lambda step: step**2, 2, 5))
    [4, 9, 16]
    """
    steps = iter(range(start, stop))
    with ThreadPoolExecutor(1, thread_name_prefix="sfcnn-batches") as pool:
        waiting: deque[Future[Item]] = deque(pool.submit(make, step) for step in islice(steps, ahead + 1))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(make, step) for step in islice(steps, 1))
        finally:
            for future in waiting:
                future.cancel()
