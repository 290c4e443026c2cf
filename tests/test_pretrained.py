"""The network that comes with sfcnn finds membranes, out of the box, however the image is turned."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfcnn.cells.pipeline import find_cells
from sfcnn.cells.scoring import score_labels, score_probabilities, truth_cells
from sfcnn.cli import main
from sfcnn.io.stacks import read_labels, read_stack, write_stack
from sfcnn.pretrained import PRETRAINED, find_run, load
from sfcnn.segmentation import Segmenter, SlicesConfig, load_slices, synthetic_membranes

DATA = os.environ.get("SFCNN_DATA")


@pytest.fixture(scope="module", name="net")
def _net() -> Segmenter:
    network = load("isbi2012", device="cpu")
    assert isinstance(network, Segmenter)
    return network


@pytest.mark.parametrize("name", PRETRAINED)
def test_each_is_a_small_run_without_paths_of_the_machine_that_made_it(name: str) -> None:
    directory = find_run(name)
    assert sum(path.stat().st_size for path in directory.iterdir()) < 20e6
    assert {"config.yaml", "best.safetensors", "result.json"} <= {path.name for path in directory.iterdir()}
    network = load(name)
    assert isinstance(network, Segmenter)
    assert network.config.images.path == network.config.images.masks == ""
    assert not network.network.training


def test_a_directory_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_run("isbi2012").is_dir()
    Path("isbi2012").mkdir()
    assert find_run("isbi2012") == Path("isbi2012")
    with pytest.raises(ValueError, match=r"no run elsewhere: .* one of \['isbi2012'\]"):
        find_run("elsewhere")


@pytest.mark.parametrize("size", [(96, 96), (70, 98)], ids=str)
def test_turning_an_image_turns_membranes_and_cells(net: Segmenter, size: tuple[int, int]) -> None:
    """Probabilities to 1e-4, cells to the last pixel; also where sizes are no multiples of the coarsest pixel."""
    image = synthetic_membranes(1, 98, cell=40).images[0, : size[0], : size[1]]
    _check_turns(net, image.numpy())


def _check_turns(net: Segmenter, image: NDArray[np.float32]) -> None:
    membranes = net.predict(image)
    assert membranes.std() > 0.05
    labels = find_cells(membranes)
    assert labels.max() > 1
    for turns in (1, 2, 3):
        turned = net.predict(np.rot90(image, turns))
        np.testing.assert_allclose(turned, np.rot90(membranes, turns), rtol=0, atol=1e-4)
        found, expected = find_cells(turned), np.rot90(labels, turns)
        pairs = np.unique(np.stack([found.ravel(), expected.ravel()]), axis=1).shape[1]
        assert pairs == found.max() == labels.max()  # the same cells, up to their names


def test_the_command_works_out_of_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = synthetic_membranes(1, 64, cell=30).images[0]
    write_stack(Path("em.tif"), (255 * image).byte().numpy())
    assert main(["segment", "predict", "isbi2012", "em.tif", "--out", "found"]) == 0
    membranes, labels = read_stack(Path("found/em-membranes.tif")), read_labels(Path("found/em-cells.tif"))
    assert membranes.shape == labels.shape == (1, 64, 64)
    assert labels.min() == 1


@pytest.mark.skipif(not DATA, reason="SFCNN_DATA is not set")
def test_slices_that_it_has_not_seen_are_segmented_well(net: Segmenter) -> None:
    slices = load_slices(SlicesConfig(source="isbi"), Path(DATA or ""))
    image, membrane = slices.images[20][0, :256, :256].numpy(), slices.masks[20][:256, :256].numpy() > 0
    found = net.predict(image)
    truth = truth_cells(~membrane[None])
    scores = score_probabilities(1 - found[None], truth)
    assert scores.pixel_error is not None
    assert scores.pixel_error.best < 0.12
    labels = score_labels(find_cells(found), truth[0])
    assert min(labels.v_rand.best, labels.v_info.best) > 0.75
    _check_turns(net, image[:120, :200])
