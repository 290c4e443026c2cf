"""Downloads from a real server on this machine that behaves as well or as badly as a test asks."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from classification.conftest import REAL
from sfcnn.classification import fetch as module
from sfcnn.classification.digits import MNIST_FILES, ROT_ARCHIVE, search_places
from sfcnn.classification.fetch import SOURCES, Fetched, Source, fetch

CONTENT = bytes(range(256)) * 1000  # four blocks
OTHER = CONTENT[::-1]


@dataclass
class Server:
    """What a server has, how it behaves, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"digits.bin": CONTENT})
    cut: int | None = None  #: bytes after which an answer breaks
    silent: bool = False  #: gives a few bytes and then waits
    asked: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def running() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/files/")
            state.asked.append(name)
            if name not in state.files:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(state.files[name])))
            self.end_headers()
            self.wfile.write(state.files[name][: 100 if state.silent else state.cut])
            if state.silent:
                state.stop.wait(30)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}/files/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            state.stop.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as state:
        yield state


@pytest.fixture
def second() -> Iterator[Server]:
    with running() as state:
        yield state


def checksum(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def offer(monkeypatch: pytest.MonkeyPatch, *servers: Server | str, files: Mapping[str, str] | None = None) -> None:
    """Let mnist come from servers of ours."""
    mirrors = tuple(server if isinstance(server, str) else server.address for server in servers)
    source = Source(mirrors, files or {"digits.bin": checksum(CONTENT)})
    monkeypatch.setattr(module, "SOURCES", {"mnist": source})


def get(directory: Path) -> list[Fetched]:
    return fetch("mnist", directory, lambda name, done: None)


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_download_arrives_whole_and_reports_how_far_it_is(
    algorithm: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server, files={"digits.bin": checksum(CONTENT, algorithm)})
    reports: list[tuple[str, float]] = []
    fetched = fetch("mnist", tmp_path / "new", lambda *report: reports.append(report))
    assert fetched == [Fetched(tmp_path / "new/mnist/digits.bin", downloaded=True)]
    assert tree(tmp_path) == {"new/mnist/digits.bin": CONTENT}
    assert {name for name, _ in reports} == {"digits.bin"}
    fractions = [fraction for _, fraction in reports]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] == 1


def test_several_files_and_only_the_missing_ones_are_asked_for(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["labels.bin"] = OTHER
    offer(monkeypatch, server, files={"digits.bin": checksum(CONTENT), "labels.bin": checksum(OTHER)})
    (tmp_path / "labels.bin").write_bytes(OTHER)  # in the data directory itself, where the reader looks as well
    assert get(tmp_path) == [
        Fetched(tmp_path / "mnist/digits.bin", downloaded=True),
        Fetched(tmp_path / "labels.bin", downloaded=False),
    ]
    assert server.asked == ["digits.bin"]
    assert not any(file.downloaded for file in get(tmp_path))
    assert len(server.asked) == 1


def test_a_wrong_file_that_is_there_is_never_replaced_and_stops_all(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server, files={"digits.bin": checksum(CONTENT), "labels.bin": checksum(OTHER)})
    mine = tmp_path / "mnist/labels.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    message = failure(lambda: get(tmp_path))
    assert message.startswith(f"{mine} is not the published file, whose checksum is sha256:")
    assert tree(tmp_path) == {"mnist/labels.bin": b"mine"}
    assert not server.asked


@pytest.mark.parametrize("trouble", ["missing", "wrong", "cut short", "silent", "unreachable"])
def test_the_next_mirror_is_tried(
    trouble: str, server: Server, second: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 1.0)
    if trouble == "missing":
        server.files.clear()
    elif trouble == "wrong":
        server.files["digits.bin"] = OTHER
    server.cut, server.silent = 70_000 if trouble == "cut short" else None, trouble == "silent"
    offer(monkeypatch, "http://127.0.0.1:1/" if trouble == "unreachable" else server, second)
    get(tmp_path)
    assert second.asked == ["digits.bin"]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


def test_a_failure_of_all_mirrors_is_one_line_and_leaves_nothing(
    server: Server, second: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files.clear()
    second.files["digits.bin"] = b"<html>Please log in</html>"
    offer(monkeypatch, server, second, "http://127.0.0.1:1/")
    message = failure(lambda: get(tmp_path))
    assert message.startswith("could not download digits.bin (127.0.0.1:")
    assert "404 Client Error: Not Found" in message
    assert ": wrong checksum; " in message
    assert "127.0.0.1:1: [Errno " in message
    assert "Connection refused)" in message
    assert len(message) < 800
    assert tree(tmp_path) == {}


def test_an_unknown_set_lists_the_choices(tmp_path: Path) -> None:
    message = failure(lambda: fetch("digits", tmp_path, lambda name, done: None))
    assert message == "data set 'digits' cannot be downloaded, choose one of ['mnist', 'mnist-rot']"


def test_the_published_sources_are_the_files_that_are_read() -> None:
    assert list(SOURCES["mnist"].files) == [f"{name}.gz" for pair in MNIST_FILES for name in pair]
    assert list(SOURCES["mnist-rot"].files) == [ROT_ARCHIVE]
    for known in SOURCES.values():
        assert all(mirror.startswith(("https://", "http://")) and mirror.endswith("/") for mirror in known.mirrors)
        for algorithm, _, digits in (text.partition(":") for text in known.files.values()):
            assert len(bytes.fromhex(digits)) == hashlib.new(algorithm).digest_size


@REAL
def test_the_real_files_have_the_published_checksums() -> None:
    directory = Path(os.environ["SFCNN_DATA"])
    for dataset, known in SOURCES.items():
        places = search_places(dataset, directory)
        if all(any((place / name).exists() for place in places) for name in known.files):
            assert not any(file.downloaded for file in fetch(dataset, directory, lambda name, done: None))
