"""The compiled kernel computes what the direct engine computes, in all its ways of filling the lanes of vectors."""

import ctypes
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sfcnn import GroupConv2d
from sfcnn.ops import ENGINES, Atoms, Geometry, Padding, sample_atoms
from sfcnn.ops.spectral import compiled
from sfcnn.ops.spectral.kernel import INSTRUCTION_SETS, Library, build, library_path, load
from sfcnn.ops.spectral.kernel.library import find_team
from sfcnn.ops.spectral.kernel.tables import components, make_tables

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
LARGEST_WORKSPACE = 32 << 20

if load() is None and "SFCNN_KERNEL_LIBRARY" not in os.environ:
    build()
    load.cache_clear()
LIBRARY = load()
SETS = LIBRARY.instruction_sets() if LIBRARY else ()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the kernel is not there and cannot be built")


@pytest.fixture(autouse=True)
def _kernel_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", "1")


@pytest.fixture
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Problem:
    """A group convolution, and how the kernel is to compute it."""

    kernel_size: int = 5
    padding: Padding = "same"
    basis: str = "bandlimited"
    orientations: int = 8
    batch: int = 2
    inputs: int = 3
    outputs: int = 4
    size: tuple[int, int] = (9, 11)
    dtype: torch.dtype = torch.float64
    tiles: int = 0
    instructions: str = "1"

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.kernel_size, padding=self.padding)

    def atoms(self) -> Atoms:
        return sample_atoms(self.basis, self.kernel_size, self.orientations, self.dtype)

    def arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features, weights and a gradient of the output."""
        torch.manual_seed(1)
        size = [self.geometry.output_size(size) for size in self.size]
        count = len(self.atoms().frequencies)
        return (
            torch.randn(self.batch, self.inputs, self.orientations, *self.size, dtype=self.dtype),
            torch.randn(self.outputs, self.inputs, self.orientations, count, dtype=self.dtype),
            torch.randn(self.batch, self.outputs, self.orientations, *size, dtype=self.dtype),
        )


def solve(problem: Problem, engine: str, arguments: tuple[Tensor, Tensor, Tensor] | None = None) -> list[Tensor]:
    """The output and the gradients of features and weights."""
    features, weight, gradient = arguments or problem.arguments()
    x, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
    atoms = problem.atoms()
    y = ENGINES[engine].group(x, ENGINES[engine].group_kernel(w, atoms), atoms, None, problem.geometry)
    return [y.detach(), *torch.autograd.grad(y, (x, w), gradient)]


def by_kernel(problem: Problem, arguments: tuple[Tensor, Tensor, Tensor] | None = None) -> list[Tensor]:
    """The same by the kernel, which must not leave it to PyTorch."""
    calls: list[compiled.Call] = []

    def prepare(*args: Any, **options: Any) -> compiled.Call:
        call = original(*args, **(options | {"tiles": problem.tiles}))
        assert call is not None, "left to PyTorch"
        calls.append(call)
        return call

    original = compiled.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "prepare", prepare)
        patch.setenv("SFCNN_KERNEL", problem.instructions)
        results = solve(problem, "spectral", arguments)
    assert len(calls) == 2
    return results


def assert_equal(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        if one.numel():
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * max(1e-30, other.abs().max().item()))


def check(problem: Problem) -> None:
    assert_equal(by_kernel(problem), solve(problem, "direct"), TOLERANCE[problem.dtype])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kernel_size, orientations = draw(st.sampled_from([1, 3, 5, 7, 9, 11])), draw(st.integers(1, 17))
    widest = 20 if orientations * kernel_size < 20 else 5
    padding: Any = draw(st.sampled_from(["same", "valid", 0, 1, 2, kernel_size + 1]))
    margin = Geometry(kernel_size, padding=padding).margin
    least = max(1, kernel_size - 2 * margin)
    return Problem(
        kernel_size,
        padding,
        draw(st.sampled_from(["bandlimited", "averaged", "paper"])),
        orientations,
        draw(st.integers(1, 3)),
        draw(st.integers(1, widest)),
        draw(st.integers(1, widest)),
        (draw(st.integers(least, least + 8)), draw(st.integers(least, least + 8))),
        draw(st.sampled_from([torch.float32, torch.float64])),
        draw(st.sampled_from([0, 1, 2, 16])),
        draw(st.sampled_from(SETS or ("1",))),
    )


@settings(max_examples=150)
@given(problems())
def test_drawn_problems(problem: Problem) -> None:
    check(problem)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("tiles", [0, 1, 16])
@pytest.mark.parametrize("batch", [0, 1, 2, 15, 16, 17, 33])
def test_any_batch(batch: int, tiles: int, instructions: str, dtype: torch.dtype) -> None:
    check(Problem(3, batch=batch, dtype=dtype, tiles=tiles, instructions=instructions, size=(5, 4), orientations=4))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("tiles", [1, 4, 16])
def test_bands_that_meet(tiles: int, instructions: str) -> None:
    """Maps that need several jobs, whose gradients overlap."""
    problem = Problem(7, inputs=2, outputs=2, orientations=3, size=(61, 47), tiles=tiles, instructions=instructions)
    check(problem)


@pytest.mark.parametrize("orientations", range(1, 18))
def test_any_number_of_orientations(orientations: int) -> None:
    check(Problem(5, basis="paper", orientations=orientations, size=(6, 7)))


@pytest.mark.parametrize("basis", ["bandlimited", "averaged", "paper"])
@pytest.mark.parametrize("kernel_size", [1, 3, 5, 7, 9, 11])
def test_any_kernel_size(kernel_size: int, basis: str, dtype: torch.dtype) -> None:
    check(Problem(kernel_size, basis=basis, orientations=5, size=(12, 13), dtype=dtype))


@pytest.mark.parametrize("channels", [(1, 1), (1, 20), (20, 1), (7, 13), (16, 16), (20, 19)])
def test_any_channels(channels: tuple[int, int], dtype: torch.dtype) -> None:
    check(Problem(3, inputs=channels[0], outputs=channels[1], dtype=dtype, batch=17))


@pytest.mark.parametrize("tiles", [1, 16])
def test_gradients_are_those_of_the_function(tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "prepare", partial(compiled.prepare, tiles=tiles))
    layer = GroupConv2d(2, 3, 3, 5, padding="same", engine="spectral", dtype=torch.float64)
    features = torch.randn(2, 2, 5, 4, 3, dtype=torch.float64, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()

    def convolve(features: Tensor, weight: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(layer, {"weight": weight}, (features,))
        return output

    assert torch.autograd.gradcheck(convolve, (features, weight))


@pytest.mark.usefixtures("_threads_restored")
@pytest.mark.parametrize("problem", [Problem(batch=40), Problem(batch=2, size=(50, 40)), Problem(7, batch=3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_matter(problem: Problem, dtype: torch.dtype) -> None:
    """The operators of the kernel; `spectral_kernel`, a product of PyTorch, may round otherwise with more threads."""
    problem = replace(problem, dtype=dtype)
    features, weight, gradient = problem.arguments()
    atoms = problem.atoms()
    kernel = ENGINES["spectral"].group_kernel(weight, atoms)
    options = kernel, atoms.filters, list(atoms.frequencies), [1, problem.geometry.margin, 1]
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        output = torch.ops.sfcnn.spectral_group(features, *options)
        results.append([output, *torch.ops.sfcnn.spectral_group_backward(gradient, features, *options, True)])
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("_threads_restored")
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_of_its_own_give_the_same_as_those_of_pytorch(threads: int) -> None:
    library, problem = load(), Problem(batch=40)
    assert library is not None
    torch.set_num_threads(threads)
    expected = by_kernel(problem)
    library.use_team(None)
    try:
        results = by_kernel(problem)
    finally:
        library.use_team(find_team())
    assert all(torch.equal(one, two) for one, two in zip(results, expected, strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has another library for threads")
def test_the_threads_of_pytorch_are_found() -> None:
    assert torch.backends.openmp.is_available() == (find_team() is not None)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kernel_too", [True, False])
def test_layers_that_need_too_much_memory_are_differentiated_in_parts(
    size: int, kernel_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(inputs=5)
    features, weight, gradient = problem.arguments()
    atoms = problem.atoms()
    kernel = ENGINES["spectral"].group_kernel(weight, atoms)
    options = kernel, atoms.filters, list(atoms.frequencies), [1, problem.geometry.margin, 1], kernel_too
    expected = torch.ops.sfcnn.spectral_group_backward(gradient, features, *options)
    prepare = compiled.prepare

    def only_few(features: Tensor, *arguments: Any, **options: Any) -> compiled.Call | None:
        return prepare(features, *arguments, **options) if features.shape[1] <= size else None

    monkeypatch.setattr(compiled, "prepare", only_few)
    monkeypatch.setattr(compiled, "channels_at_once", lambda *arguments: size)
    found = torch.ops.sfcnn.spectral_group_backward(gradient, features, *options)
    assert_equal(found, expected, 1e-11)


def test_a_layer_too_large_for_the_backward_pass_is_split() -> None:
    layer = GroupConv2d(96, 96, 7, 32, padding="same", engine="spectral")
    features = torch.empty(16, 96, 32, 14, 14)
    atoms, kernel = layer._atoms(), layer.build_kernel(ENGINES["spectral"])
    arguments = features, kernel, atoms.filters, list(atoms.frequencies), layer.geometry
    assert compiled.prepare(*arguments, backward=True) is None
    assert 0 < compiled.channels_at_once(*arguments) < 96
    assert compiled.prepare(*arguments, backward=False) is not None


def test_memory_that_was_used_before_changes_nothing() -> None:
    """Workspaces keep what the last call left in them, here NaN and numbers of another precision."""
    problem = Problem(batch=40, dtype=torch.float32)
    expected = by_kernel(problem)
    features, weight, gradient = problem.arguments()
    by_kernel(problem, (features * float("nan"), weight * float("nan"), gradient * float("nan")))
    by_kernel(replace(problem, dtype=torch.float64))
    assert all(torch.equal(one, two) for one, two in zip(by_kernel(problem), expected, strict=True))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("tiles", [1, 0])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_bad_image_leaves_the_others_alone(number: float, tiles: int, instructions: str) -> None:
    problem = Problem(batch=18, tiles=tiles, instructions=instructions)
    features, weight, gradient = problem.arguments()
    before = by_kernel(problem)
    features[3, 1, 2, 4, 5] = gradient[3, 0, 1, 2, 3] = number
    after = by_kernel(problem, (features, weight, gradient))
    others = [image for image in range(18) if image != 3]
    for one, two in zip(before[:2], after[:2], strict=True):
        assert torch.equal(one[others], two[others])
        assert not torch.isfinite(two[3]).all()
        assert torch.isfinite(two[3]).any() or tiles == 1


def test_nothing_beyond_the_batch_is_written() -> None:
    problem = Problem(batch=3)
    features, weight, gradient = problem.arguments()
    atoms = problem.atoms()
    kernel = ENGINES["spectral"].group_kernel(weight, atoms)
    room, gradients = torch.full((16, *gradient.shape[1:]), 7.0).double(), torch.zeros(16, *features.shape[1:]).double()
    arguments = features, kernel, atoms.filters, list(atoms.frequencies), problem.geometry
    forward, backward = (compiled.prepare(*arguments, backward=backward, tiles=1) for backward in (False, True))
    assert forward is not None
    assert backward is not None
    forward.forward(features, kernel, room)
    backward.backward(gradient, features, kernel, gradients, None)
    expected = solve(problem, "direct")
    assert_equal([room[:3], gradients[:3]], expected[:2], 1e-11)
    assert (room[3:] == 7).all()
    assert (gradients[3:] == 0).all()


def test_frozen_weights_have_no_gradient() -> None:
    layer = GroupConv2d(3, 4, 5, 8, engine="spectral").requires_grad_(False)
    features = torch.randn(2, 3, 8, 9, 9, requires_grad=True)
    layer(features).sum().backward()
    expected = GroupConv2d(3, 4, 5, 8, engine="direct")
    expected.load_state_dict(layer.state_dict())
    gradient = features.grad
    features.grad = None
    expected(features).sum().backward()
    assert features.grad is not None
    torch.testing.assert_close(gradient, features.grad, rtol=1e-4, atol=1e-4)


def test_two_python_threads_at_once() -> None:
    problem = Problem(batch=20, size=(20, 20))
    expected, results = by_kernel(problem), {}
    arguments = problem.arguments()

    def work(name: int) -> None:
        results[name] = [solve(problem, "spectral", arguments) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in (*results[0], *results[1]):
        assert all(torch.equal(one, two) for one, two in zip(result, expected, strict=True))


def _solve_elsewhere(path: str) -> None:
    torch.set_num_threads(1)  # PyTorch's own threads do not outlive a fork
    torch.get_num_threads = lambda: 2  # but the kernel's do
    torch.save(by_kernel(Problem(batch=20)), path)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_another_process(method: str, tmp_path: Path) -> None:
    expected = by_kernel(Problem(batch=20))
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=_solve_elsewhere, args=(str(tmp_path / "results"),))
    process.start()
    process.join(120)
    process.kill()
    assert process.exitcode == 0
    results = torch.load(tmp_path / "results")
    assert all(torch.equal(one, two) for one, two in zip(results, expected, strict=True))


def _prepare(problem: Problem, geometry: Geometry | None = None, filters: Tensor | None = None) -> compiled.Call | None:
    features, weight, _ = problem.arguments()
    atoms = problem.atoms()
    kernel = ENGINES["spectral"].group_kernel(weight, atoms)
    filters = atoms.filters if filters is None else filters
    frequencies = list(atoms.frequencies)
    return compiled.prepare(features, kernel, filters, frequencies, geometry or problem.geometry, backward=True)


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.instruction_set() == SETS[-1]
    assert _prepare(Problem()) is not None
    monkeypatch.setenv("SFCNN_KERNEL", "0")
    assert compiled.instruction_set() is None
    assert _prepare(Problem()) is None
    assert_equal(solve(Problem(), "spectral"), solve(Problem(), "direct"), 1e-11)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_an_instruction_set_can_be_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", name)
    assert compiled.instruction_set() == (name if name in SETS else None)


def test_what_it_does_not_cover() -> None:
    problem = Problem()
    assert _prepare(problem, Geometry(5, stride=2)) is None
    assert _prepare(problem, Geometry(5, dilation=2)) is None
    atoms = problem.atoms()
    assert _prepare(problem, filters=atoms.filters + 1e-6 * torch.randn_like(atoms.filters)) is None
    assert _prepare(problem, filters=atoms.filters.float()) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(16, 24, 32, 28), (1, 12, 12, 320), (32, 64, 96, 7), (2, 48, 48, 80), (16, 4, 4, 300)]
)
def test_the_workspace_is_bounded(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    batch, inputs, outputs, size = shape
    atoms = sample_atoms("bandlimited", 7, 16, dtype)
    features = torch.empty(1, dtype=dtype).expand(batch, inputs, 16, size, size)
    kernel = torch.empty(1, dtype=dtype).expand(9, 2 * outputs, 2 * inputs * len(atoms.frequencies))
    geometry = Geometry(7, padding="same")
    for backward in (False, True):
        call = compiled.prepare(features, kernel, atoms.filters, list(atoms.frequencies), geometry, backward)
        assert call is not None
        assert 0 < call.workspace(backward) <= LARGEST_WORKSPACE


def test_too_large_a_workspace_is_left_to_pytorch() -> None:
    atoms = sample_atoms("bandlimited", 7, 16)
    features = torch.empty(1).expand(16, 2000, 16, 30, 30)
    kernel = torch.empty(1).expand(9, 2, 2 * 2000 * len(atoms.frequencies))
    geometry = Geometry(7, padding="same")
    assert compiled.prepare(features, kernel, atoms.filters, list(atoms.frequencies), geometry, True) is None


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9])
def test_components_are_orthogonal_and_complete(size: int) -> None:
    pixels = torch.eye(size * size, dtype=torch.float64).view(-1, size, size)
    matrix = torch.cat(components(pixels), dim=1)
    gram = matrix.T @ matrix
    assert matrix.shape == (size * size, size * size)
    assert (gram.diag() > 0).all()
    assert torch.equal(gram, gram.diag().diag())


@pytest.mark.parametrize("orientations", range(1, 18))
def test_every_slab_feeds_one_frequency(orientations: int) -> None:
    atoms = sample_atoms("paper", 9, orientations)
    tables = make_tables(atoms.filters, atoms.frequencies, orientations)
    assert tables is not None
    for feeds in tables.feeds.T.tolist():
        assert len(set(feeds)) == orientations
        assert min(feeds) >= 0


def test_without_a_compiler_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert build(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_with_a_broken_compiler_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build(tmp_path / "here") is None
    assert list((tmp_path / "here").iterdir()) == []


def test_where_nothing_can_be_written_there_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert build(tmp_path / "file" / "beneath") is None


@pytest.mark.skipif("SFCNN_KERNEL_LIBRARY" in os.environ, reason="another library")
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("readelf") is None, reason="needs readelf")
def test_the_library_needs_the_c_library_only() -> None:
    """Its C++ runtime is its own, and hidden from that of PyTorch."""
    archive = subprocess.check_output([os.environ.get("CXX", "c++"), "-print-file-name=libstdc++.a"], text=True)
    if not Path(archive.strip()).is_absolute():
        pytest.skip("the compiler has no runtime to link with")
    words = ["readelf", "--wide", "--dynamic", "--dyn-syms", str(library_path())]
    text = subprocess.check_output(words, text=True)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert needed
    assert all(re.match(r"libc\.|libm\.|libpthread\.|ld-linux", name) for name in needed)
    symbols = [line.split() for line in text.splitlines() if re.match(r"\s*\d+: ", line)]
    shown = {words[7] for words in symbols if words[6] != "UND"}
    assert {name for name in shown if not name.startswith("sfcnn_")} == set()
    assert len(shown) == 12


@pytest.mark.slow
@pytest.mark.skipif("SFCNN_KERNEL_LIBRARY" in os.environ, reason="would run itself")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """These tests and those of the passes, with a library that watches its memory and its arithmetic."""
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
    library = build(tmp_path, options)
    if library is None:
        pytest.skip("the compiler has no sanitizers")
    compiler = os.environ.get("CXX", "c++")
    names = ("libasan.so", "libubsan.so", "libstdc++.so")  # the last before Python: it throws through the first
    found = [subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip() for name in names]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0,verify_asan_link_order=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "SFCNN_KERNEL_LIBRARY": str(library),
    }
    tests = [__file__, str(Path(__file__).parents[1] / "passes")]
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *tests]  # -s: a report ends it at once
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-4000:]


def test_a_library_of_another_kind_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "spectral.so"
    path.write_bytes(b"no library")
    with pytest.raises(OSError, match="spectral"):
        Library(path)
    assert ctypes.sizeof(ctypes.c_void_p) == 8
