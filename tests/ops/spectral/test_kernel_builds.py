"""The kernel built in other ways: for ARM, run by an emulator, and with a watch for races between its threads.

There is no PyTorch in either, so a small program runs the library on problems in files (`run_problems.cpp`).
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.nn import MaxBlurPool
from sfcnn.ops import ENGINES, Atoms, Geometry, Padding, sample_atoms
from sfcnn.ops.spectral.kernel import Problem, build
from sfcnn.ops.spectral.kernel.build import SOURCES
from sfcnn.ops.spectral.kernel.tables import make_tables

PROGRAM = Path(__file__).with_name("run_problems.cpp")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
ARM_COMPILER = "aarch64-linux-gnu-g++"
ARM_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

#: Runs the program on these arguments.
Run = Callable[[Sequence[Path]], None]


@dataclass(frozen=True)
class Case:
    """A group convolution."""

    kernel_size: int = 5
    padding: Padding = "same"
    basis: str = "bandlimited"
    orientations: int = 8
    batch: int = 2
    channels: tuple[int, int] = (3, 4)
    size: tuple[int, int] = (9, 11)
    dtype: torch.dtype = torch.float64
    tiles: int = 0
    threads: int = 1

    def atoms(self) -> Atoms:
        return sample_atoms(self.basis, self.kernel_size, self.orientations, self.dtype)

    def arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features, kernel and a gradient of the result."""
        torch.manual_seed(1)
        geometry, atoms = Geometry(self.kernel_size, padding=self.padding), self.atoms()
        inputs, outputs = self.channels
        weight = torch.randn(outputs, inputs, self.orientations, len(atoms.frequencies), dtype=self.dtype)
        size = [geometry.output_size(length) for length in self.size]
        return (
            torch.randn(self.batch, inputs, self.orientations, *self.size, dtype=self.dtype),
            ENGINES["spectral"].group_kernel(weight, atoms),
            torch.randn(self.batch, outputs, self.orientations, *size, dtype=self.dtype),
        )

    def expected(self) -> list[Tensor]:
        """The result and both gradients, by PyTorch if the kernel is off."""
        features, kernel, gradient = self.arguments()
        atoms, margin = self.atoms(), Geometry(self.kernel_size, padding=self.padding).margin
        options = kernel, atoms.filters, list(atoms.frequencies), [1, margin, 1]
        result = torch.ops.sfcnn.spectral_group(features, *options)
        gradients = torch.ops.sfcnn.spectral_group_backward(gradient, features, *options, True)
        return [result, *gradients, *self.expected_of_passes(features)]

    def expected_of_passes(self, features: Tensor) -> list[Tensor]:
        """Results and gradients of the passes between convolutions, where each result is its own gradient."""
        if min(self.size) < 2:
            return []
        found = []
        layers = (
            lambda x: F.batch_norm(x, None, None, training=True).relu(),
            lambda x: F.max_pool3d(x, (1, 2, 2)),
            MaxBlurPool().to(self.dtype),
        )
        for layer in layers:
            given = features.clone().requires_grad_()
            result = layer(given)
            found += [result.detach(), *torch.autograd.grad(result, given, result.detach())]
        return found

    def write(self, path: Path) -> None:
        """The file that the program reads."""
        atoms = self.atoms()
        tables = make_tables(atoms.filters, atoms.frequencies, self.orientations)
        assert tables is not None
        numbers = {
            "real_bytes": self.dtype.itemsize,
            "instruction_set": -1,
            "tiles": self.tiles,
            "threads": self.threads,
            "batch": self.batch,
            "channels": self.channels[0],
            "out_channels": self.channels[1],
            "orientations": self.orientations,
            "height": self.size[0],
            "width": self.size[1],
            "kernel_size": self.kernel_size,
            "margin": Geometry(self.kernel_size, padding=self.padding).margin,
            "atoms": len(atoms.frequencies),
            "harmonics": len(tables.rings),
        }
        names = [name for name, *_ in Problem._fields_]
        assert names == [*numbers, *vars(tables), "scale", "shift"]  # the last two are null
        blocks = [torch.tensor(list(numbers.values()), dtype=torch.int32), *vars(tables).values(), *self.arguments()]
        with path.open("wb") as file:
            for block in blocks:
                data = block.contiguous().numpy().tobytes()
                file.write(len(data).to_bytes(8, "little") + data)

    def read(self, path: Path) -> list[Tensor]:
        """The file that the program has written."""
        features, kernel, gradient = self.arguments()
        halved = features[..., : self.size[0] // 2, : self.size[1] // 2]
        passes = (features, features, halved, features, halved, features) if min(self.size) > 1 else ()
        data, found = path.read_bytes(), []
        for like in (gradient, features, kernel, *passes):
            size, data = int.from_bytes(data[:8], "little"), data[8:]
            found.append(torch.frombuffer(bytearray(data[:size]), dtype=self.dtype).view(like.shape))
            data = data[size:]
        assert not data
        return found


def drawn_cases(count: int) -> list[Case]:
    draw = random.Random(0)
    cases = []
    for _ in range(count):
        kernel_size = draw.choice([1, 3, 5, 7, 9])
        padding: Padding = draw.choice(["same", "valid", 1, kernel_size + 1])
        least = max(1, kernel_size - 2 * Geometry(kernel_size, padding=padding).margin)
        cases.append(
            Case(
                kernel_size,
                padding,
                draw.choice(["bandlimited", "averaged", "paper"]),
                draw.randint(1, 12),
                draw.choice([1, 2, 3, 17]),
                (draw.randint(1, 8), draw.randint(1, 8)),
                (draw.randint(least, least + 12), draw.randint(least, least + 12)),
                draw.choice([torch.float32, torch.float64]),
                draw.choice([0, 1, 2, 16]),
                draw.choice([1, 2]),
            )
        )
    return cases


def solve(cases: Sequence[Case], run: Run, directory: Path) -> list[list[Tensor]]:
    paths = []
    for number, case in enumerate(cases):
        paths += [directory / f"{number}.problem", directory / f"{number}.result"]
        case.write(paths[-2])
    run(paths)
    return [case.read(path) for case, path in zip(cases, paths[1::2], strict=True)]


def make_program(compiler: str, options: tuple[str, ...], directory: Path) -> tuple[Path, Path]:
    """The library and the program that calls it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler)
        library = build(directory, options)
    if library is None:
        pytest.skip(f"{compiler} cannot compile the kernel with {options}")
    program = directory / "run_problems"
    words = [compiler, "-std=c++17", "-O1", *options, f"-I{SOURCES}", str(PROGRAM), str(library)]
    subprocess.run([*words, f"-Wl,-rpath,{directory}", "-pthread", "-o", str(program)], check=True)
    return library, program


def check(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


def check_results(cases: Sequence[Case], results: Sequence[list[Tensor]]) -> None:
    for case, result in zip(cases, results, strict=True):
        for one, other in zip(result, case.expected(), strict=True):
            tolerance = TOLERANCE[case.dtype] * max(1e-30, other.abs().max().item())
            assert (one - other).abs().max().item() <= tolerance, case


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(ARM_COMPILER) is None, reason=f"{ARM_COMPILER} is not installed")
@pytest.mark.skipif(ARM_EMULATOR is None, reason="qemu-aarch64 is not installed")
@pytest.mark.usefixtures("without_kernel")
def test_it_computes_the_same_on_arm(tmp_path: Path) -> None:
    library, program = make_program(ARM_COMPILER, (), tmp_path)
    listing = subprocess.check_output([ARM_COMPILER.replace("g++", "objdump"), "-d", str(library)], text=True)
    assert "fmla\tv" in listing  # products of whole vectors
    loader = subprocess.check_output([ARM_COMPILER, "-print-file-name=ld-linux-aarch64.so.1"], text=True).strip()
    system = Path(loader).resolve().parent.parent

    def run(paths: Sequence[Path]) -> None:
        check([str(ARM_EMULATOR), "-L", str(system), str(program), *map(str, paths)])

    cases = [
        *drawn_cases(60),
        *(Case(threads=threads, batch=17, dtype=dtype) for dtype in TOLERANCE for threads in (1, 2, 3)),
        *(Case(7, size=(61, 47), channels=(2, 2), tiles=tiles, threads=2) for tiles in (1, 16)),
    ]
    check_results(cases, solve(cases, run, tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("without_kernel")
def test_threads_do_not_race(tmp_path: Path) -> None:
    _, program = make_program(os.environ.get("CXX", "c++"), ("-fsanitize=thread", "-g", "-O1"), tmp_path)

    def run(paths: Sequence[Path]) -> None:
        check([str(program), *map(str, paths)], {"TSAN_OPTIONS": "halt_on_error=1"})

    cases = [
        *drawn_cases(12),
        Case(batch=40),
        Case(batch=2, size=(50, 40)),
        Case(7, batch=1, size=(61, 47), channels=(2, 2), tiles=16, dtype=torch.float32),
    ]
    by_threads = [solve([replace(case, threads=threads) for case in cases], run, tmp_path) for threads in (1, 2, 3)]
    check_results(cases, by_threads[0])
    for others in by_threads[1:]:
        for one, other in zip(by_threads[0], others, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
