"""What the fuzz tests share: ways to damage a file, limits of time and memory for a case, and what an answer must be.

A case is one file, command line or set of settings. It may be accepted or refused, but a refusal is a ValueError or
OSError of one line (exit code 2 of a command), comes within the limits, and changes no file.
"""

import contextlib
import faulthandler
import functools
import io
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sfcnn.cli import main

#: How many times more cases than in `make test`; then they are drawn anew each time, and not always the same.
FACTOR = int(os.environ.get("SFCNN_FUZZ", "1"))

#: Cases that the tests ask for, by the name of the test, and those that were run.
PLANNED: dict[str, int] = {}
RUN = {"cases": 0}

_CPU_SECONDS = 20.0  # of one case; most take a few thousandths
_REAL_SECONDS = 600.0  # for what waits instead of working; loops inside of other libraries end the process a bit later
_MEMORY = 3 << 30  # bytes that a case may take beyond what the process has

Value = TypeVar("Value")
Test = TypeVar("Test", bound=Callable[..., None])


def cases(number: int) -> Callable[[Test], Test]:
    """Run a hypothesis test on this many cases."""

    def decorate(test: Test) -> Test:
        PLANNED[f"{test.__module__}.{test.__name__}"] = number
        inner = test.hypothesis.inner_test  # type: ignore[attr-defined]

        @functools.wraps(inner)
        def counted(*arguments: Any, **named: Any) -> None:
            RUN["cases"] += 1
            inner(*arguments, **named)

        test.hypothesis.inner_test = counted  # type: ignore[attr-defined]
        chosen = settings(
            max_examples=number * FACTOR,
            derandomize=FACTOR == 1,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )
        return chosen(test)

    return decorate


class _TookTooLongError(BaseException):
    """Not an Exception: nothing that is tested catches it."""


def _stop(number: int, frame: object) -> None:
    raise _TookTooLongError


def _address_space() -> int | None:
    """Bytes of memory that this process has reserved, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Fail if a case takes too much time; memory beyond the limit is refused to it."""
    before, reserved = resource.getrlimit(resource.RLIMIT_AS), _address_space()
    handlers = {number: signal.signal(number, _stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    faulthandler.dump_traceback_later(1.5 * _REAL_SECONDS, exit=True)
    if reserved is not None:
        resource.setrlimit(resource.RLIMIT_AS, (reserved + _MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _REAL_SECONDS)
    try:
        yield
    except _TookTooLongError as error:
        raise AssertionError(f"the case took more than {_CPU_SECONDS:g} seconds of processor time") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def read_or_refuse(read: Callable[[Path], Value], path: Path) -> Value | None:
    """What a file holds, or None if it was refused in one line that names it."""
    with limits():
        try:
            return read(path)
        except (ValueError, OSError) as error:
            message = str(error)
    assert message.count(str(path)) >= 1, f"the refusal does not name the file: {message!r}"
    assert "\n" not in message
    assert len(message) < 2000
    return None


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    output: str
    error: str


def command(*words: str) -> Answer:
    """Run a command line that may be right or wrong; an exception of any other kind than argparse's own is raised."""
    output, error = io.StringIO(), io.StringIO()
    with limits(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    answer = Answer(code, output.getvalue(), error.getvalue())
    assert code in (0, 2), answer
    if code == 2:
        assert answer.error.startswith("sfcnn"), answer
        assert "error: " in answer.error
        assert answer.error.count("\n") == 1, answer
        assert len(answer.error) < 4000
    return answer


class Contents(dict[str, bytes]):
    """Files by name, and what they hold."""

    def __repr__(self) -> str:
        return f"<{len(self)} files>"


def contents(directory: Path) -> Contents:
    """All files below a directory and what they hold."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return Contents((str(path.relative_to(directory)), path.read_bytes()) for path in files)


def restore(directory: Path, before: Contents) -> None:
    """Make the files below a directory what they were."""
    for path in sorted(directory.rglob("*"), reverse=True):
        name = str(path.relative_to(directory))
        if path.is_dir():
            if not any(other.startswith(f"{name}/") for other in before) and not any(path.iterdir()):
                path.rmdir()
        elif name not in before and (path.is_file() or path.is_symlink()):
            path.unlink()
    for name, content in before.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


#: Numbers that break arithmetic, in all the widths and byte orders that files use.
_EXTREMES = (0, 1, 2, 3, 7, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """A file with up to four mistakes: bytes changed, cut off, left out, repeated, exchanged or made extreme."""
    # One draw for all choices: drawn one by one they would take longer than what is tested.
    return st.randoms(use_true_random=True).map(lambda chance: _damage(whole, chance))


def _damage(whole: bytes, chance: Random) -> bytes:
    content = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        size = len(content)
        # Heads of files say what the rest means: half of the mistakes are made there.
        start = chance.randint(0, min(size, 64) if chance.random() < 0.5 else size)
        length = chance.randint(1, 16 if chance.random() < 0.5 else max(1, size))
        kind = chance.choice(("byte", "bit", "number", "cut", "leave out", "insert", "repeat", "exchange"))
        if kind == "byte":
            content[start : start + 1] = chance.randbytes(1)
        elif kind == "bit" and start < size:
            content[start] ^= 1 << chance.randint(0, 7)
        elif kind == "number":
            width = chance.choice((1, 2, 4, 8))
            number = min(chance.choice(_EXTREMES), 256**width - 1)
            content[start : start + width] = number.to_bytes(width, chance.choice(("little", "big")))
        elif kind == "cut":
            del content[start:]
        elif kind == "leave out":
            del content[start : start + length]
        elif kind == "insert":
            content[start:start] = chance.randbytes(chance.randint(1, 16))
        elif kind == "repeat":
            content[start:start] = content[start : start + length]
        elif kind == "exchange":
            other = chance.randint(0, size)
            first, second = content[start : start + length], content[other : other + length]
            content[start : start + length] = second
            content[other : other + length] = first
    return bytes(content)


def plain_values(leaves: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """Trees of what JSON and YAML can say, with extremes among the numbers."""
    numbers = st.sampled_from((0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1e-320, 1e308, float("inf"), float("nan")))
    single = st.none() | st.booleans() | st.integers() | st.floats() | numbers | st.text(max_size=8)
    return st.recursive(
        single if leaves is None else single | leaves,
        lambda trees: st.lists(trees, max_size=3) | st.dictionaries(st.text(max_size=6), trees, max_size=3),
        max_leaves=8,
    )
