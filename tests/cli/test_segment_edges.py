import errno
import resource
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

import sfcnn.io.state
from cells.conftest import Texture, make_texture
from cli.conftest import Fails, files
from sfcnn.cells import Forest, ForestConfig, LearnedForest, SuperpixelsConfig, learn_forest, truth_cells
from sfcnn.cells.scoring import score_labels
from sfcnn.cli import main
from sfcnn.io.stacks import as_fraction, write_labels, write_stack

SHAPE = (2, 72, 64)
TREES = ("--trees", "12")


@pytest.fixture
def texture() -> Texture:
    """Noisy probabilities in membrane.tif, the truth in truth.tif and labels.tif, images in raw.tif."""
    one = make_texture(SHAPE, 14, seed=1, noise=2)
    one.truth[0, :40] = 0  # nobody has drawn cells there
    write_stack(Path("membrane.tif"), one.probabilities)
    write_stack(Path("truth.tif"), np.where(one.truth > 0, 255, 0).astype(np.uint8))
    write_labels(Path("labels.tif"), one.truth)
    write_stack(Path("raw.tif"), noise())
    return one


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**16, SHAPE, np.uint16)


def train(*words: str, name: str = "membrane.tif", truth: str = "truth.tif") -> Forest:
    """Run `sfcnn segment train-edges` and return the forest that it writes."""
    out = ("--out", "edges.safetensors", "--overwrite")
    assert main(["segment", "train-edges", name, truth, *out, *TREES, *words]) == 0
    return Forest.load(Path("edges.safetensors"))


def grown(
    probabilities: np.ndarray,
    truth: np.ndarray,
    raw: np.ndarray | None = None,
    superpixels: SuperpixelsConfig | None = None,
    **settings: int,
) -> LearnedForest:
    """The same by the library."""
    return learn_forest(probabilities, truth, raw, superpixels, ForestConfig(**{"trees": 12} | settings))


def same(forest: Forest, other: Forest) -> bool:
    arrays = (field.name for field in fields(Forest) if field.name != "names")
    return forest.names == other.names and all(
        np.array_equal(getattr(forest, name), getattr(other, name)) for name in arrays
    )


def test_the_forest_is_that_of_the_library(texture: Texture, capsys: pytest.CaptureFixture[str]) -> None:
    learned = grown(texture.probabilities, truth_cells(texture.truth > 0))
    assert same(train(), learned.forest)
    assert files() == {"membrane.tif", "truth.tif", "labels.tif", "raw.tif", "edges.safetensors"}
    borders, within, ignored = learned.borders, learned.within, learned.ignored
    assert min(borders, within, ignored) > 0
    shown = capsys.readouterr().out
    used = borders + within
    assert f"{used} edges to learn from in 2 slices: {borders} borders and {within} within cells; " in shown
    assert f"; {ignored} ignored, " in shown
    assert f"by the mean probability along the edge: {learned.mean_error:.2%} of {used} edges\n" in shown
    assert f"(out of bag): {learned.error:.2%} of {used} edges" in shown
    assert "slices: 100 %\n" in shown
    assert "trees: 100 %\n" in shown
    assert shown.endswith("wrote edges.safetensors\n")


def test_images_interior_and_labels(texture: Texture) -> None:
    truth = texture.truth
    assert same(train("--truth-labels", truth="labels.tif"), grown(texture.probabilities, truth).forest)
    with_raw = grown(texture.probabilities, truth_cells(truth > 0), as_fraction(noise(), "")).forest
    assert same(train("--image", "raw.tif"), with_raw)
    interior = (255 * (1 - texture.probabilities)).round().astype(np.uint8)
    write_stack(Path("interior.tif"), interior)
    wanted = grown(1 - as_fraction(interior, ""), truth_cells(truth > 0)).forest
    assert same(train("--interior", name="interior.tif"), wanted)


def test_options_change_the_forest(texture: Texture) -> None:
    arguments = texture.probabilities, truth_cells(texture.truth > 0)
    plain = train()
    for words, wanted in (
        ("--trees 5 --depth 3 --seed 2", grown(*arguments, trees=5, depth=3, seed=2).forest),
        (
            "--threshold 0.5 --seed-sigma 1.5",
            grown(*arguments, superpixels=SuperpixelsConfig(threshold=0.5, seed_sigma=1.5)).forest,
        ),
    ):
        forest = train(*words.split())
        assert same(forest, wanted)
        assert not same(forest, plain)


def test_superpixels_are_made_as_the_forest_has_learned(texture: Texture) -> None:
    """What is typed comes first, then what the forest was grown with, then the defaults."""
    train("--threshold", "0.5", "--seed-sigma", "1.5")
    assert Forest.load(Path("edges.safetensors")).superpixels == SuperpixelsConfig(threshold=0.5, seed_sigma=1.5)
    found = []
    for words in ("", "--threshold 0.5 --seed-sigma 1.5", "--seed-sigma 2"):
        command = ["segment", "cells", "membrane.tif", "--out", "cells.tif", "--overwrite", "--forest"]
        assert main([*command, "edges.safetensors", *words.split()]) == 0
        found.append(tifffile.imread("cells.tif"))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_the_help_tells_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["segment", "train-edges", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for field in fields(ForestConfig):
        start = shown.index(f"--{field.name} ", shown.index("forest:"))
        assert shown[start:].partition("(default: ")[2].partition(")")[0] == str(field.default)


def test_what_is_learned_finds_cells_in_other_slices(texture: Texture) -> None:
    """Where the network has found membranes faintly, the mean probability merges all cells, and the forest does not."""
    write_stack(Path("faint.tif"), (0.4 * texture.probabilities).astype(np.float32))
    train(name="faint.tif")
    other = make_texture(SHAPE, 14, seed=2, noise=2)
    write_stack(Path("new.tif"), (0.4 * other.probabilities).astype(np.float32))
    scores = []
    for words in ((), ("--forest", "edges.safetensors")):
        assert main(["segment", "cells", "new.tif", "--out", "cells.tif", "--overwrite", *words]) == 0
        scores.append(score_labels(tifffile.imread("cells.tif").astype(np.int64), other.truth).v_rand.best)
    assert scores[1] > scores[0] + 0.1


def test_a_mistake_is_one_line_and_nothing_is_written(texture: Texture, fails: Fails) -> None:
    write_stack(Path("few.tif"), texture.probabilities[:1])
    write_stack(Path("empty.tif"), np.zeros(SHAPE, np.uint8))
    Path("page.tif").write_text("no image")
    Path("mine.safetensors").write_text("my own")

    def line(*words: str, name: str = "membrane.tif", truth: str = "truth.tif", out: str = "edges.safetensors") -> str:
        return fails("segment", "train-edges", name, truth, "--out", out, *TREES, *words)

    assert "missing.tif does not exist" in line(name="missing.tif")
    assert "missing.tif does not exist" in line(truth="missing.tif")
    assert "page.tif is not a TIFF or PNG file" in line("--image", "page.tif")
    assert "truth.tif is (2, 72, 64), but few.tif is (1, 72, 64), expected the same size" in line(name="few.tif")
    assert "few.tif is (1, 72, 64), but membrane.tif is" in line("--image", "few.tif")
    assert "expected a two-valued mask" in line(truth="membrane.tif")
    assert "membrane.tif does not hold labels" in line("--truth-labels", truth="membrane.tif")
    assert "expected both borders and other edges to learn from, got 0 borders among 0 edges" in line(truth="empty.tif")
    assert "trees must be at least 1, got 0" in line("--trees", "0")
    assert "seed must be at least 0, got -1" in line("--seed", "-1")
    assert "threshold must be in (0, 1], got 2.0" in line("--threshold", "2")
    assert "output mine.safetensors exists" in line(out="mine.safetensors")
    assert "truth.tif is named twice" in line("--overwrite", out="truth.tif")
    assert Path("mine.safetensors").read_text() == "my own"


def test_a_full_disk_leaves_no_file(texture: Texture, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(tensors: dict[str, Any], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sfcnn.io.state, "save_file", half)
        words = ("segment", "train-edges", "membrane.tif", "truth.tif", "--out", "edges.safetensors", *TREES)
        assert "No space left on device" in fails(*words)
    # The same by the system itself, whose error comes through safetensors.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert "cannot write edges.safetensors: " in fails(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
