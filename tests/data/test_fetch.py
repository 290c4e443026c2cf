"""Downloads from a real server on this machine that behaves as well or as badly as a test asks."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from data.conftest import REAL
from sfcnn.data import fetch as module
from sfcnn.data.fetch import SOURCES, Fetched, RemoteFile, Source, fetch
from sfcnn.data.mnist import MNIST_FILES, ROT_ARCHIVE, search_places

CONTENT = bytes(range(256)) * 1000  # four blocks
OTHER = CONTENT[::-1]


@dataclass
class Server:
    """What a server has, how it behaves, and what it was asked."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True  #: whether it knows parts of files
    shift: int = 0  #: how far off the parts it answers with start
    cuts: list[int] = field(default_factory=list)  #: bytes after which each next answer breaks
    endless: bool = False  #: gives no length and does not stop
    silent: bool = False  #: gives a few bytes and then waits
    asked: list[tuple[str, str | None]] = field(default_factory=list)  #: name and range of each request
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def received_ranges(self) -> list[str | None]:
        return [asked for _, asked in self.asked]


@contextmanager
def running() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, asked = self.path.removeprefix("/files/"), self.headers["Range"]
            state.asked.append((name, asked))
            if name not in state.files:
                self.send_error(404)
                return
            content, start, status = state.files[name], 0, 200
            if asked and state.ranges:
                start, status = int(asked.removeprefix("bytes=").removesuffix("-")) + state.shift, 206
                if start >= len(content):
                    self.send_error(416)
                    return
            body = content[start:]
            self.send_response(status)
            if state.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if not state.endless:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                while state.endless and not state.stop.is_set():
                    self.wfile.write(body)
                self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body[: 100 if state.silent else None])
            except OSError:
                return  # the client has gone
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
        state.files["digits.bin"] = CONTENT
        yield state


@pytest.fixture
def second() -> Iterator[Server]:
    with running() as state:
        state.files["digits.bin"] = CONTENT
        yield state


def remote(name: str = "digits.bin", content: bytes = CONTENT, algorithm: str = "sha256") -> RemoteFile:
    return RemoteFile(name, algorithm, hashlib.new(algorithm, content).hexdigest(), len(content))


def source(*servers: Server | str, files: tuple[RemoteFile, ...] = (remote(),)) -> dict[str, Source]:
    mirrors = tuple(server if isinstance(server, str) else server.address for server in servers)
    return {"mnist": Source("mnist", mirrors, files)}


def quiet(name: str, done: float) -> None:
    pass


def get(directory: Path, *servers: Server | str) -> list[Fetched]:
    return fetch("mnist", directory, quiet, sources=source(*servers))


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_download_arrives_whole_and_reports_how_far_it_is(algorithm: str, server: Server, tmp_path: Path) -> None:
    reports: list[tuple[str, float]] = []
    sources = source(server, files=(remote(algorithm=algorithm),))
    fetched = fetch("mnist", tmp_path / "new", lambda *report: reports.append(report), sources=sources)
    assert fetched == [Fetched(tmp_path / "new/mnist/digits.bin", downloaded=True)]
    assert tree(tmp_path) == {"new/mnist/digits.bin": CONTENT}
    assert {name for name, _ in reports} == {"digits.bin"}
    fractions = [fraction for _, fraction in reports]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] == 1


def test_several_files_and_only_the_missing_ones_are_asked_for(server: Server, tmp_path: Path) -> None:
    server.files["labels.bin"] = OTHER
    sources = source(server, files=(remote(), remote("labels.bin", OTHER)))
    (tmp_path / "labels.bin").write_bytes(OTHER)  # in the data directory itself, where the reader looks as well
    fetched = fetch("mnist", tmp_path, quiet, sources=sources)
    assert fetched == [
        Fetched(tmp_path / "mnist/digits.bin", downloaded=True),
        Fetched(tmp_path / "labels.bin", downloaded=False),
    ]
    assert server.asked == [("digits.bin", None)]
    assert not any(file.downloaded for file in fetch("mnist", tmp_path, quiet, sources=sources))
    assert len(server.asked) == 1


def test_a_wrong_file_that_is_there_is_never_replaced_and_stops_all(server: Server, tmp_path: Path) -> None:
    sources = source(server, files=(remote(), remote("labels.bin", OTHER)))
    mine = tmp_path / "mnist/labels.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    message = failure(lambda: fetch("mnist", tmp_path, quiet, sources=sources))
    assert message.startswith(f"{mine} is not the published file: its sha256 is not ")
    assert tree(tmp_path) == {"mnist/labels.bin": b"mine"}
    assert not server.asked


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_from_before_is_continued_if_the_server_can(ranges: bool, server: Server, tmp_path: Path) -> None:
    server.ranges = ranges
    part = tmp_path / "mnist/digits.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:100_000])
    get(tmp_path, server)
    assert server.received_ranges == ["bytes=100000-"]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


def test_a_whole_part_is_only_renamed(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "mnist/digits.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    get(tmp_path, server)
    assert not server.asked
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


@pytest.mark.parametrize("part_bytes", [OTHER[:100_000], OTHER, CONTENT + b"more"], ids=["wrong", "full", "too long"])
def test_a_useless_part_is_replaced(part_bytes: bytes, server: Server, tmp_path: Path) -> None:
    part = tmp_path / "mnist/digits.bin.part"
    part.parent.mkdir()
    part.write_bytes(part_bytes)
    get(tmp_path, server)
    assert server.received_ranges == [f"bytes={len(part_bytes)}-", None]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


def test_a_server_that_answers_with_another_part_is_asked_for_all(server: Server, tmp_path: Path) -> None:
    server.shift = -10
    part = tmp_path / "mnist/digits.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    get(tmp_path, server)
    assert server.received_ranges == ["bytes=1000-", None]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up_again(ranges: bool, server: Server, tmp_path: Path) -> None:
    server.ranges = ranges
    server.cuts = [70_000, 0]
    get(tmp_path, server)
    assert server.received_ranges == ([None, "bytes=70000-", "bytes=70000-"] if ranges else [None] * 3)
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


def test_a_part_is_kept_for_the_next_call_and_the_message_says_so(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000, 500, 200]
    message = failure(lambda: get(tmp_path, server))
    part = tmp_path / "mnist/digits.bin.part"
    assert "127.0.0.1" in message
    assert "the connection broke after 1,700 of 256,000 bytes" in message
    assert f"1,700 bytes are kept in {part}, and the same command goes on from there" in message
    assert tree(tmp_path) == {"mnist/digits.bin.part": CONTENT[:1700]}
    get(tmp_path, server)
    assert server.received_ranges[-1] == "bytes=1700-"
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


@pytest.mark.parametrize(("ranges", "cut"), [(False, 1000), (True, 0)], ids=["no ranges", "nothing came"])
def test_a_part_of_no_use_is_not_kept(ranges: bool, cut: int, server: Server, tmp_path: Path) -> None:
    server.ranges = ranges
    server.cuts = [cut] * 10
    message = failure(lambda: get(tmp_path, server))
    assert "the connection broke" in message
    assert "kept" not in message
    assert tree(tmp_path) == {}
    assert len(server.asked) == 3


def test_the_next_mirror_goes_on_where_the_first_broke(server: Server, second: Server, tmp_path: Path) -> None:
    server.cuts = [1000, 0, 0]
    get(tmp_path, server, second)
    assert second.received_ranges == ["bytes=1000-"]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


@pytest.mark.parametrize("trouble", ["missing", "wrong", "unreachable"])
def test_the_next_mirror_is_tried(trouble: str, server: Server, second: Server, tmp_path: Path) -> None:
    first: Server | str = server
    if trouble == "missing":
        server.files.clear()
    elif trouble == "wrong":
        server.files["digits.bin"] = OTHER
    else:
        first = "http://127.0.0.1:1/"
    get(tmp_path, first, second)
    assert second.received_ranges == [None]
    assert tree(tmp_path) == {"mnist/digits.bin": CONTENT}


def test_a_failure_of_all_mirrors_is_one_line_and_leaves_nothing(
    server: Server, second: Server, tmp_path: Path
) -> None:
    server.files.clear()
    second.files["digits.bin"] = b"<html>Please log in</html>"
    message = failure(lambda: get(tmp_path, server, second, "http://127.0.0.1:1/"))
    assert message.startswith("could not download digits.bin (127.0.0.1:")
    assert "HTTP 404 Not Found; " in message
    assert "its file is not the published one: wrong sha256; " in message
    assert "127.0.0.1:1: Connection refused)" in message
    assert tree(tmp_path) == {}


def test_an_unreachable_mirror_leaves_an_old_part_alone(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "mnist/digits.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:100])
    assert "100 bytes are kept" in failure(lambda: get(tmp_path, "http://127.0.0.1:1/"))
    assert tree(tmp_path) == {"mnist/digits.bin.part": CONTENT[:100]}


def test_a_server_without_end_is_given_up(server: Server, tmp_path: Path) -> None:
    server.endless = True
    assert "it sends more than the 256,000 bytes of the file" in failure(lambda: get(tmp_path, server))
    assert tree(tmp_path) == {}


def test_a_silent_server_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 1.0)
    monkeypatch.setattr(module, "_ATTEMPTS", 1)
    server.silent = True
    message = failure(lambda: get(tmp_path, server))
    assert "the connection broke: timed out" in message
    assert tree(tmp_path) == {"mnist/digits.bin.part": CONTENT[:100]}


def test_an_unknown_set_lists_the_choices(tmp_path: Path) -> None:
    message = failure(lambda: fetch("digits", tmp_path, quiet))
    assert message == "data set 'digits' cannot be downloaded, choose one of ['mnist', 'mnist-rot']"


def test_the_published_sources_are_the_files_that_are_read() -> None:
    names = [f"{name}.gz" for pair in MNIST_FILES for name in pair]
    assert [file.name for file in SOURCES["mnist"].files] == names
    assert [file.name for file in SOURCES["mnist-rot"].files] == [ROT_ARCHIVE]
    for known in SOURCES.values():
        assert all(mirror.startswith(("https://", "http://")) and mirror.endswith("/") for mirror in known.mirrors)
        for file in known.files:
            assert len(bytes.fromhex(file.checksum)) == hashlib.new(file.algorithm).digest_size


@REAL
def test_the_real_files_have_the_published_checksums() -> None:
    directory = Path(os.environ["SFCNN_DATA"])
    offline = {name: replace(known, mirrors=()) for name, known in SOURCES.items()}
    for dataset, known in SOURCES.items():
        places = search_places(dataset, directory)
        if all(any((place / file.name).exists() for place in places) for file in known.files):
            assert not any(file.downloaded for file in fetch(dataset, directory, quiet, sources=offline))
