import errno
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from cells.conftest import Texture, make_texture
from cli.conftest import Fails, files
from sfcnn.cells import CellsConfig, Forest, ForestConfig, find_cells, learn_forest
from sfcnn.cells.scoring import score_labels
from sfcnn.cells.superpixels import SuperpixelsConfig
from sfcnn.cells.thinning import components, draw_borders
from sfcnn.cli import main
from sfcnn.io.stacks import as_fraction, read_labels, read_stack, write_labels, write_stack

SHAPE = (3, 64, 56)


@pytest.fixture
def texture() -> Texture:
    """Noisy probabilities of membrane, in membrane.tif; images that show as much are in raw.tif."""
    one = make_texture(SHAPE, 12, seed=1, noise=2)
    write_stack(Path("membrane.tif"), one.probabilities)
    write_stack(Path("raw.tif"), (255 * (1 - one.probabilities)).astype(np.uint8))
    return one


def grown(raw: bool = False) -> Forest:
    """A forest from other slices of the same kind, in edges.safetensors."""
    slices = [make_texture((96, 96), 25, seed, noise=2) for seed in (100, 101)]
    probabilities, truth = (np.stack([getattr(one, name) for one in slices]) for name in ("probabilities", "truth"))
    images = as_fraction((255 * (1 - probabilities)).astype(np.uint8), "") if raw else None
    forest = learn_forest(probabilities, truth, images, settings=ForestConfig(trees=15)).forest
    forest.save(Path("edges.safetensors"))
    return forest


def find(*words: str, name: str = "membrane.tif") -> np.ndarray:
    """Run `sfcnn segment cells` and return the labels that it writes, as tifffile reads them."""
    assert main(["segment", "cells", name, "--out", "cells.tif", "--overwrite", *words]) == 0
    return tifffile.imread("cells.tif")


def test_cells_are_those_of_the_library(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    labels = find()
    assert labels.dtype == np.uint16
    assert labels.shape == SHAPE
    assert np.array_equal(labels, find_cells(texture.probabilities))
    with tifffile.TiffFile("cells.tif") as file:
        assert file.is_imagej
        assert file.series[0].axes == "ZYX"
    shown = capsys.readouterr().out
    membrane = (texture.probabilities >= 0.3).mean()
    assert f"membrane.tif read as probabilities of membrane: {membrane:.0%} of the pixels are membrane\n" in shown
    assert "slices: 100 %\n" in shown
    assert shown.endswith(f"{labels.max()} cells in 3 slices\nwrote cells.tif\n")
    assert files() == {"membrane.tif", "raw.tif", "cells.tif"}


def test_interior_and_whole_numbers(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    interior = (65535 * (1 - texture.probabilities)).round().astype(np.uint16)
    write_stack(Path("interior.tif"), interior)
    wanted = find_cells(1 - as_fraction(interior, ""))
    assert np.array_equal(find("--interior", name="interior.tif"), wanted)
    assert "interior.tif read as probabilities of the interior of cells: " in capsys.readouterr().out
    assert not np.array_equal(find(name="interior.tif"), wanted)


def test_one_image_gives_one_image(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    write_stack(Path("one.tif"), texture.probabilities[0])
    labels = find(name="one.tif")
    assert np.array_equal(labels, find_cells(texture.probabilities[0]))
    assert "cells in 1 slice\n" in capsys.readouterr().out


OPTIONS: dict[str, tuple[Any, str]] = {
    "beta": (0.7, ""),
    "solver": ("greedy", ""),
    "time_limit": (30.0, "--solver exact"),
    "across_weight": (3.0, "--stack"),
    "threshold": (0.6, ""),
    "minimum_membrane": (40, ""),
    "minimum_size": (60, ""),
    "seed_sigma": (1.0, ""),
    "flood_sigma": (1.5, ""),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_setting_is_an_option(name: str, texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    value, others = OPTIONS[name]
    seen = []

    def spy(probabilities: np.ndarray, settings: CellsConfig, *arguments: Any) -> np.ndarray:
        seen.append(settings)
        return np.ones(SHAPE, np.int64)

    monkeypatch.setattr("sfcnn.cells.pipeline.find_cells", spy)
    find("--" + name.replace("_", "-"), str(value), *others.split())
    rest: dict[str, Any] = {"joined": "--stack" in others}
    if "exact" in others:
        rest["solver"] = "exact"
    if name in {field.name for field in fields(SuperpixelsConfig)}:
        assert seen == [CellsConfig(SuperpixelsConfig(**{name: value}))]
    else:
        assert seen == [CellsConfig(**{name: value}, **rest)]


def test_the_help_tells_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["segment", "cells", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for settings in (CellsConfig(), SuperpixelsConfig()):
        for field in fields(settings):
            if field.name in OPTIONS:
                start = shown.index("--" + field.name.replace("_", "-"), shown.index("multicut:"))
                text = shown[start:].partition("(default: ")[2].partition(")")[0]
                assert text == str(getattr(settings, field.name)), field.name


def test_options_change_the_cells(texture: Texture) -> None:
    words = ("--beta", "0.8", "--solver", "fusion-moves", "--threshold", "0.5")
    settings = CellsConfig(SuperpixelsConfig(threshold=0.5), beta=0.8, solver="fusion-moves")
    assert np.array_equal(find(*words), find_cells(texture.probabilities, settings))
    assert find("--beta", "0.02").max() < find("--beta", "0.98").max()


def test_slices_are_joined_if_asked_for(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    joined = find("--stack")
    assert np.array_equal(joined, find_cells(texture.probabilities, CellsConfig(joined=True)))
    assert np.intersect1d(joined[0], joined[1]).size
    assert "all slices together: 100 %\n" in capsys.readouterr().out
    apart = find()
    assert not np.intersect1d(apart[0], apart[1]).size


@pytest.mark.parametrize("raw", [False, True])
def test_a_forest_tells_borders(raw: bool, texture: Texture) -> None:
    forest = grown(raw)
    images = as_fraction(read_stack(Path("raw.tif")), "") if raw else None
    labels = find("--forest", "edges.safetensors", *(("--image", "raw.tif") if raw else ()))
    assert np.array_equal(labels, find_cells(texture.probabilities, forest=forest, raw=images))
    assert not np.array_equal(labels, find())


def test_a_forest_helps_where_the_mean_probability_misleads() -> None:
    """Membranes that are seen faintly, though the same everywhere: their mean is no border, but the forest knows."""
    one = make_texture(SHAPE, 12, seed=3, noise=2)
    faint = (0.45 * one.probabilities).astype(np.float32)
    write_stack(Path("membrane.tif"), faint)
    other = make_texture((96, 96), 25, 100, noise=2)
    learned = learn_forest(0.45 * other.probabilities, other.truth, settings=ForestConfig(trees=15))
    learned.forest.save(Path("edges.safetensors"))
    plain = score_labels(find().astype(np.int64), one.truth).v_rand.best
    assert score_labels(find("--forest", "edges.safetensors").astype(np.int64), one.truth).v_rand.best > plain + 0.1


def test_the_mask_of_boundaries_parts_the_cells(texture: Texture) -> None:
    labels = find("--boundaries", "parts.tif").astype(np.int64)
    mask = tifffile.imread("parts.tif")
    assert mask.dtype == np.uint8
    assert np.array_equal(mask, np.where(draw_borders(labels), 255, 0))
    assert set(np.unique(mask)) == {0, 255}
    for cut, whole in zip(mask, labels, strict=True):
        pieces = components(cut == 255)
        for piece in range(1, pieces.max() + 1):
            assert len(np.unique(whole[pieces == piece])) == 1
    assert main(["segment", "score", "parts.tif", "parts.tif"]) == 0


def test_many_labels_are_floats(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    many = np.arange(1, np.prod(SHAPE) + 1).reshape(SHAPE) * 10
    monkeypatch.setattr("sfcnn.cells.pipeline.find_cells", lambda *arguments: many)
    assert find().dtype == np.float32
    assert np.array_equal(read_labels(Path("cells.tif")), many)


def test_an_unproved_solution_is_told_in_a_line(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    find("--solver", "exact", "--time-limit", "0")
    shown, errors = capsys.readouterr()
    assert shown.count("note: multicut not proved optimal within 0 s") == 1
    assert "times more)\n" in shown
    assert not errors


def test_a_mistake_is_one_line_and_nothing_is_written(texture: Texture, fails: Fails) -> None:
    write_stack(Path("few.tif"), texture.probabilities[:2])
    write_stack(Path("wild.tif"), texture.probabilities * 3)
    write_labels(Path("mine.tif"), texture.truth)
    mine = Path("mine.tif").read_bytes()
    broken = texture.probabilities.copy()
    broken[1, 2, 3] = np.nan
    tifffile.imwrite("nan.tif", broken, photometric="minisblack")
    Path("page.tif").write_text("no image")
    Path("folder.tif").mkdir()

    def line(*words: str, name: str = "membrane.tif", out: str = "cells.tif") -> str:
        return fails("segment", "cells", name, "--out", out, "--boundaries", "parts.tif", *words)

    assert "missing.tif does not exist" in line(name="missing.tif")
    assert "page.tif is not a TIFF or PNG file" in line(name="page.tif")
    assert ", expected 0 … 1" in line(name="wild.tif")
    assert "nan.tif has 1 pixels that are not numbers" in line(name="nan.tif")
    assert "beta must be in (0, 1), got 1.0" in line("--beta", "1")
    assert "invalid float value: 'half'" in line("--beta", "half")
    assert "threshold must be in (0, 1], got 0.0" in line("--threshold", "0")
    assert "minimum_size must be at least 1, got 0" in line("--minimum-size", "0")
    assert "unknown solver 'ilp', choose one of ['greedy'" in line("--solver", "ilp")
    assert "pass --solver exact too" in line("--time-limit", "3")
    assert "pass --stack too" in line("--across-weight", "3")
    assert "pass --forest too" in line("--image", "raw.tif")
    assert "page.tif is not a complete state" in line("--forest", "page.tif")
    assert "missing.safetensors does not exist" in line("--forest", "missing.safetensors")
    assert "output cells.png must end in .tif or .tiff" in line(out="cells.png")
    assert "output folder.tif is a directory" in line(out="folder.tif")
    assert "output mine.tif exists: choose another name or pass --overwrite" in line(out="mine.tif")
    assert "output mine.tif exists" in line("--boundaries", "mine.tif")
    assert "cells.tif is named twice" in line("--boundaries", "cells.tif")
    assert "membrane.tif is named twice" in line("--overwrite", out="membrane.tif")
    assert "required: --out" in fails("segment", "cells", "membrane.tif")
    grown(raw=True)
    forest = ("--forest", "edges.safetensors")
    assert "edges.safetensors has learned from images: pass them with --image RAW.tif" in line(*forest)
    assert "few.tif is (2, 64, 56), but membrane.tif is (3, 64, 56), expected" in line(*forest, "--image", "few.tif")
    grown()
    assert "edges.safetensors has learned without images" in line(*forest, "--image", "raw.tif")
    assert Path("mine.tif").read_bytes() == mine


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_no_file(
    failing: int, texture: Texture, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two files it is that has no space: there are both or none."""
    calls, write = [], tifffile.imwrite

    def half(path: Path, stack: np.ndarray, **options: Any) -> None:
        calls.append(path)
        write(path, stack, **options)
        if len(calls) == failing:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tifffile, "imwrite", half)
    words = ("segment", "cells", "membrane.tif", "--out", "new/cells.tif", "--boundaries", "parts.tif")
    assert "No space left on device" in fails(*words)
    assert len(calls) == failing
    calls.clear()
    Path("parts.tif").write_text("my own")
    assert "No space left on device" in fails(*words, "--overwrite")
    assert Path("parts.tif").read_text() == "my own"


def test_cells_by_threshold(texture: Texture) -> None:
    settings = CellsConfig(SuperpixelsConfig(threshold=0.5), method="threshold")
    assert np.array_equal(
        find("--method", "threshold", "--threshold", "0.5"), find_cells(texture.probabilities, settings)
    )
    assert np.array_equal(find("--method", "multicut"), find())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "mutex-watershed"], "predict RUN IMAGE --method mutex-watershed"),
        (["--method", "lifted-multicut"], "the affinities of a network"),
        (["--method", "voronoi"], "unknown method 'voronoi', choose one of"),
        (["--method", "threshold", "--forest", "edges.safetensors"], "--forest is for the method multicut"),
        (
            ["--method", "threshold", "--stack"],
            "joining cells across slices needs the method 'multicut', got 'threshold'",
        ),
    ],
)
def test_methods_that_cannot_be_used_here(
    words: list[str], message: str, texture: Texture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segment", "cells", "membrane.tif", "--out", "cells.tif", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
