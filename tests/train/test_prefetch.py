"""Items come in order, from another thread that keeps its distance and ends with its reader."""

import threading
import time

import pytest

from sfcnn.train.prefetch import prefetch


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sfcnn-batches")]


class Maker:
    """Counts what it has made; `slow` items take a moment."""

    def __init__(self, fails_at: int | None = None, slow: tuple[int, ...] = ()) -> None:
        self.made: list[int] = []
        self.threads: set[int] = set()
        self.fails_at, self.slow = fails_at, slow

    def __call__(self, step: int) -> int:
        if step == self.fails_at:
            raise LookupError(f"step {step}")
        if step in self.slow:
            time.sleep(0.02)
        self.threads.add(threading.get_ident())
        self.made.append(step)
        return step

    def settled(self, count: int) -> bool:
        """Whether `count` items are made, after as long as it takes."""
        until = time.monotonic() + 60
        while len(self.made) < count and time.monotonic() < until:
            time.sleep(0.001)
        return len(self.made) == count


@pytest.mark.parametrize("ahead", [0, 1, 2, 100])
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (3, 5), (4, 4), (5, 2)])
def test_all_items_come_in_order(start: int, stop: int, ahead: int) -> None:
    make = Maker(slow=(0, 4))
    assert list(prefetch(make, start, stop, ahead)) == list(range(start, stop)) == make.made
    assert not workers()


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_it_stays_just_so_far_ahead(ahead: int) -> None:
    make, stop = Maker(), 8
    items = prefetch(make, 0, stop, ahead)
    assert not make.made  # nothing is made before somebody asks
    for used, _ in enumerate(items, start=1):
        assert make.settled(min(used + ahead, stop))
        time.sleep(0.005)
        assert len(make.made) <= used + ahead


def test_items_are_made_in_one_other_thread() -> None:
    make = Maker()
    list(prefetch(make, 0, 9))
    assert len(make.threads) == 1
    assert threading.get_ident() not in make.threads


@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_an_error_comes_in_its_item_s_place(fails_at: int) -> None:
    items = prefetch(Maker(fails_at), 0, 7, 3)
    assert [next(items) for _ in range(fails_at)] == list(range(fails_at))
    with pytest.raises(LookupError, match=f"step {fails_at}"):
        next(items)
    assert not workers()
    with pytest.raises(StopIteration):
        next(items)


def test_a_reader_that_stops_early_ends_the_thread() -> None:
    make = Maker(slow=tuple(range(1000)))
    for item in prefetch(make, 0, 1000, ahead=500):
        assert workers()
        if item == 2:
            break
    del item
    assert not workers()
    assert len(make.made) < 500  # what was asked for ahead is not made any more


def test_an_error_of_the_reader_ends_the_thread() -> None:
    items = prefetch(Maker(), 0, 1000)
    next(items)
    with pytest.raises(LookupError):
        items.throw(LookupError("mine"))  # type: ignore[attr-defined]
    assert not workers()
