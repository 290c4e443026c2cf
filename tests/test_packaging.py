"""What is installed: a core that needs torch and numpy only, light to import, with its data files, version and licence.

The slow tests build the wheel and the sdist (or take those in the directory that SFCNN_DIST names), install them into
an empty environment and use them from outside of the checkout. They need a package index.
"""

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml

import sfcnn
from sfcnn.cli import COMMANDS, EXTRAS
from sfcnn.ops.spectral.kernel.build import find_compiler, library_name
from sfcnn.pretrained import PRETRAINED

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(package: str) -> set[str]:
    """Names of the packages that a package needs, without those of its extras, and of those that they need."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        try:
            lines = requires(waiting.pop()) or []
        except PackageNotFoundError:
            continue  # for other systems
        for line in lines:
            name = re.match(r"[\w.-]+", line)
            if name and "extra ==" not in line and normal(name[0]) not in found:
                found.add(normal(name[0]))
                waiting.append(name[0])
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def distributions() -> Mapping[str, list[str]]:
    """The packages that are installed, by the modules that they have."""
    return packages_distributions()


def optional_modules() -> set[str]:
    """Top-level modules of all installed packages but sfcnn, torch, numpy and what these need."""
    core = {"sfcnn", "torch", "numpy", *requirements("torch"), *requirements("numpy")}
    return {
        module for module, packages in distributions().items() if not core & {normal(package) for package in packages}
    }


#: Runs code as if the modules that the first argument names were not installed.
BLOCKED = """
import sys
from importlib.machinery import PathFinder

class Blocking(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in MODULES else PathFinder.find_spec(name, path, target)

MODULES = set(sys.argv[1].split(","))
sys.meta_path[sys.meta_path.index(PathFinder)] = Blocking
"""


def run_code(code: str, *arguments: str, python: str = sys.executable, cwd: Path | None = None) -> str:
    """Run code in a process of its own and return what it prints; warnings are errors."""
    words = [python, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


#: Every layer and network forward and backward, in a state that is saved and read, and a check of equivariance.
SMOKE = """
import math, io
import torch
import sfcnn, sfcnn.nn, sfcnn.models
from sfcnn.models import membrane_unet, mnist_baseline, mnist_benchmark

torch.manual_seed(0)
for engine in ("direct", "atomic", "spectral", "auto"):
    net = mnist_baseline(4, engine=engine)
    net(torch.rand(2, 1, 28, 28)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
unet = membrane_unet(4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, crop=0)
assert unet(torch.rand(1, 1, 16, 16)).shape == (1, 1, 16, 16)
net = mnist_benchmark(4).eval()
file = io.BytesIO()
torch.save(net.state_dict(), file)
file.seek(0)
twin = mnist_benchmark(4).eval()
twin.load_state_dict(torch.load(file))
images = torch.rand(1, 1, 28, 28)
assert torch.equal(net(images), twin(images))
assert sfcnn.equivariance_error(net, images, math.pi / 2) < 1e-5
print("works", sfcnn.__version__, sfcnn.__file__)
"""


def test_the_core_needs_torch_and_numpy_only() -> None:
    declared = {normal(re.match(r"[\w.-]+", line)[0]) for line in requires("sfcnn") or [] if "extra ==" not in line}  # type: ignore[index]
    assert declared == {"torch", "numpy"}
    blocked = optional_modules()
    assert {"PIL", "matplotlib", "yaml", "rich", "scipy", "safetensors", "accelerate", "onnx"} <= blocked
    assert not {"torch", "numpy", "sympy", "sfcnn"} & blocked
    assert run_code(BLOCKED + SMOKE, ",".join(blocked)).startswith("works")


#: Words for which each command would start; without the optional packages it says which one it needs.
COMMAND_LINES = {
    "demo": "",
    "play": "--port 0",
    "classify train": "--out new",
    "classify evaluate": "run",
    "classify predict": "run digit.png",
    "classify pose": "run",
    "segment train": "--out new",
    "segment predict": "isbi2012 a.tif --out b",
    "segment cells": "a.tif --out b.tif",
    "segment train-edges": "a.tif b.tif --out c.safetensors",
    "segment tune": "isbi2012 a.tif b.tif",
    "segment score": "a.tif b.tif",
    "export": "isbi2012 --format onnx --out m.onnx",
    **{
        f"experiment {name}": "--list"
        for name in ("orientations", "generalization", "benchmark", "symmetry", "recipes", "isbi")
    },
    "data fetch": "mnist",
    "data show": "",
    "filters": "",
    "info": "",
}


TRY_COMMANDS = """
import contextlib, io
from sfcnn.cli import main

for line in sys.argv[2:]:
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main(line.split())
    print(line, code, error.getvalue().strip(), sep="|")
"""


def test_commands_name_the_package_that_they_need(tmp_path: Path) -> None:
    assert COMMAND_LINES.keys() == COMMANDS.keys()
    lines = [f"{command} {words}" for command, words in COMMAND_LINES.items()]
    answers = run_code(BLOCKED + TRY_COMMANDS, ",".join(optional_modules()), *lines, cwd=tmp_path).splitlines()
    known = "|".join(sorted({package for package, _ in EXTRAS.values()}))
    for line, answer in zip(lines, answers, strict=True):
        expected = rf"{re.escape(line)}\|2\|sfcnn: error: .*({known}).*pip install 'sfcnn\[\w+\]'"
        works = answer in ("data show |0|", "info |0|")  # which need no packages to say what there is
        assert works or re.fullmatch(expected, answer), answer
    assert not list(tmp_path.iterdir())


def in_extra(extra: str) -> set[str]:
    """The packages of an extra, and of those that it includes."""
    found: set[str] = set()
    for line in PROJECT["optional-dependencies"][extra]:
        others = re.fullmatch(r"sfcnn\[(.*)\]", line)
        found |= {normal(re.split(r"[<>=\[]", line)[0])}
        for other in others[1].split(",") if others else ():
            found |= in_extra(other)
    return found


@pytest.mark.parametrize("module", EXTRAS)
def test_the_extra_that_is_named_has_the_package(module: str) -> None:
    package, extra = EXTRAS[module]
    assert package in in_extra(extra)
    assert package in {normal(name) for name in distributions()[module]}


def test_importing_sfcnn_imports_nothing_heavy() -> None:
    """Beyond what torch has imported: the standard library and sfcnn, and not torch's compiler."""
    code = """
import sys, torch
before = set(sys.modules)
import sfcnn, sfcnn.nn, sfcnn.models, sfcnn.cli
print(*sorted(set(sys.modules) - before))
"""
    new = run_code(code).split()
    others = {name for name in new if name.partition(".")[0] not in ("sfcnn", *sys.stdlib_module_names)}
    assert not others
    assert len(new) < 60


def test_the_version_is_in_one_place() -> None:
    number = PROJECT["version"]
    assert sfcnn.__version__ == version("sfcnn") == number
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(rf"\b{re.escape(number)}\b", path.read_text(encoding="utf-8")), path
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert latest is not None
    assert latest[1] == number


def test_the_change_log_names_every_command() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        group, _, name = command.partition(" ")
        assert re.search(rf"`sfcnn {group}( \S*\b{name}\b|`)", text) or f"`{group}`" in text, command


def test_the_citation_file_can_be_read() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"] == PROJECT["name"]
    assert citation["license"] == PROJECT["license"]
    assert "version" not in citation  # it is in one place
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert [author["family-names"] for author in paper["authors"]] == ["Weiler", "Hamprecht", "Storath"]
    assert paper["year"] == 2018


def test_it_is_marked_as_typed_and_licensed() -> None:
    assert (ROOT / "src" / "sfcnn" / "py.typed").is_file()
    assert metadata("sfcnn")["License-Expression"] == "Apache-2.0"


def data_files() -> set[str]:
    """What is no Python in the package, as it lies in a wheel."""
    paths = (ROOT / "src" / "sfcnn").rglob("*")
    files = (path for path in paths if path.is_file() and path.suffix not in (".py", ".pyc", ".so"))
    return {str(path.relative_to(ROOT / "src")) for path in files}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with a wheel and the sdist that it was built from."""
    if "SFCNN_DIST" in os.environ:
        return Path(os.environ["SFCNN_DIST"]).resolve()
    directory = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def only(directory: Path, pattern: str) -> Path:
    (path,) = directory.glob(pattern)
    return path


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    assert f"-{PROJECT['version']}-" in only(built, "*.whl").name
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        names = set(wheel.namelist())
        information = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        assert (ROOT / "LICENSE").read_bytes() == wheel.read(f"{information}/licenses/LICENSE")
    package = {name for name in names if not name.startswith(information)}
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "sfcnn").rglob("*.py")}
    compiled = {name for name in package if name.endswith(".so")}
    assert compiled == ({f"sfcnn/ops/spectral/kernel/{library_name()}"} if find_compiler() else set())
    assert package - compiled == modules | data_files()
    assert "sfcnn/py.typed" in package
    assert "sfcnn/experiments/configs/orientations.yaml" in package
    for name in PRETRAINED:
        assert {f"sfcnn/pretrained/{name}/{file}" for file in ("best.safetensors", "card.json", "README.md")} <= package


@pytest.mark.slow
def test_the_sdist_holds_what_tests_and_documentation_need(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "constraints.txt")
    assert {*wanted, "mkdocs.yml", "tests/conftest.py", "examples/quickstart.py", "docs/guide.md"} <= names
    made = ("build/", "dist/", "data/", "runs/", "experiments/", ".")
    unwanted = {name for name in names if "__pycache__" in name or name.startswith(made)}
    assert unwanted <= {".gitignore"}


@pytest.mark.slow
@pytest.mark.skipif(find_compiler() is None or sys.platform != "linux", reason="needs a compiler, and Linux")
def test_the_wheel_says_where_it_works(built: Path, tmp_path: Path) -> None:
    """Its tag names the newest glibc that the kernel needs, if it needs nothing else."""
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        library = Path(wheel.extract(f"sfcnn/ops/spectral/kernel/{library_name()}", tmp_path))
    needed = re.findall(r"NEEDED +(\S+)", subprocess.check_output(["objdump", "-p", str(library)], text=True))
    symbols = subprocess.check_output(["objdump", "-T", str(library)], text=True)
    newest = max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    alone = not any(name.startswith(("libstdc++", "libgcc_s")) for name in needed)
    place = f"manylinux_{newest[0]}_{newest[1]}" if alone else "linux"
    assert only(built, "*.whl").name.endswith(f"-py3-none-{place}_{platform.machine()}.whl")


BROKEN = "#!/bin/sh\necho broken >&2\nexit 1\n"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PATH": "nothing"}, "no working C++ compiler"),
        ({"CXX": "./broken"}, "no working C++ compiler"),
        ({"SFCNN_KERNEL": "0"}, "SFCNN_KERNEL=0"),
    ],
)
def test_a_wheel_without_the_kernel(variables: dict[str, str], reason: str, tmp_path: Path) -> None:
    """Where there is no compiler it is built all the same, for any machine, and says so in one line."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    without = shutil.ignore_patterns("*.so", "__pycache__", "pretrained")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=without)
    (tmp_path / "broken").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "broken").chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in ("CXX", "SFCNN_KERNEL")}
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"]
    done = subprocess.run(words, cwd=tmp_path, env=clean | variables, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert only(tmp_path / "dist", "*.whl").name.endswith("-py3-none-any.whl")
    (line,) = [line for line in output.splitlines() if "without its compiled kernel" in line]
    assert reason in line


class Environment:
    """A virtual environment, and the directory outside of the checkout from which it is used."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory / "environment", with_pip=True)
        self.bin = directory / "environment" / "bin"
        self.outside = directory / "outside"
        self.outside.mkdir()

    def install(self, *words: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), *words)

    def run(self, program: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SFCNN_"))}
        command = [str(self.bin / program), *words]
        done = subprocess.run(command, cwd=self.outside, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An empty environment into which the wheel was installed, without any extra."""
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(str(only(built, "*.whl")))
    return environment


@pytest.mark.slow
def test_an_installed_core_works_from_outside(environment: Environment) -> None:
    (where,) = environment.run("python", "-c", SMOKE).stdout.splitlines()
    assert where.startswith(f"works {PROJECT['version']} {environment.bin.parent}")
    for words in (("sfcnn",), ("python", "-m", "sfcnn")):
        assert environment.run(*words, "--version").stdout == f"sfcnn {PROJECT['version']}\n"
    kernel = environment.run("sfcnn", "info").stdout.splitlines()[-1]
    assert re.match(r"kernel +compiled \(" if find_compiler() else r"kernel +PyTorch only \(not compiled", kernel)
    refusal = environment.run("sfcnn", "train", "--out", "run", code=2).stderr
    assert "pip install 'sfcnn[train]'" in refusal
    listed = json.loads(environment.run("python", "-m", "pip", "list", "--format", "json").stdout)
    needed = {"sfcnn", "torch", "numpy", *requirements("torch"), *requirements("numpy")}
    assert {normal(package["name"]) for package in listed} <= needed | {"pip", "setuptools"}


@pytest.mark.slow
def test_an_installed_sdist_works_too(built: Path, environment: Environment) -> None:
    environment.install("--no-deps", "--force-reinstall", str(only(built, "*.tar.gz")))
    assert "works" in environment.run("python", "-c", SMOKE).stdout


IMAGES = """
import numpy, tifffile
from PIL import Image
Image.fromarray(numpy.arange(784, dtype=numpy.uint8).reshape(28, 28)).save("digit.png")
tifffile.imwrite("em.tif", numpy.random.default_rng(0).integers(0, 256, (64, 64), dtype=numpy.uint8))
"""


@pytest.mark.slow
def test_all_commands_work_with_the_extras(built: Path, environment: Environment) -> None:
    """Training, use, drawing and export of a small network, and the network that comes with the package."""
    environment.install(f"sfcnn[demo,em,export] @ {only(built, '*.whl').as_uri()}")
    environment.run("python", "-c", IMAGES)
    small = "--images.train_images 40 --images.validation_images 20"
    small += " --optimization.epochs 1 --optimization.batch_size 20"
    for line in (
        f"train --out run --images.dataset digits --model.width 0.1 --model.orientations 4 {small}",
        "evaluate run --images 20",
        "predict run digit.png --out predictions.csv",
        "filters --weights run/best.safetensors",
        "experiment orientations --quick --list",
        "data show",
        "export run --format onnx",
        "export run --format torch",
        "segment predict isbi2012 em.tif --out found",
    ):
        environment.run("sfcnn", *line.split())
    made = {str(path.relative_to(environment.outside)) for path in environment.outside.rglob("*")}
    assert {"predictions.csv", "run/model.onnx", "run/model.pt2", "filters/atoms.png", "found/em-cells.tif"} <= made
