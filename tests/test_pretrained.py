"""Networks that come with sfcnn: small runs with cards, found by name, made in one way; one finds membranes."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from PIL import Image

from classification.test_predict import make_run
from sfcnn.cells.pipeline import find_cells
from sfcnn.cells.scoring import score_labels, score_probabilities, truth_cells
from sfcnn.classification import ClassificationConfig, Classifier, ImagesConfig, ModelConfig
from sfcnn.cli import main
from sfcnn.io import names
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.io.settings import load_yaml
from sfcnn.io.stacks import read_labels, read_stack, write_stack
from sfcnn.pretrained import PRETRAINED, find_run, load
from sfcnn.pretrained.cards import FACTS, card_text, read_purposes
from sfcnn.pretrained.ship import main as ship_main
from sfcnn.pretrained.ship import ship
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
    assert isinstance(network, Segmenter | Classifier)
    assert network.config.images.path == getattr(network.config.images, "masks", "") == ""
    assert not network.network.training
    plain = name.endswith("-plain")  # which cannot tell an angle
    assert isinstance(network, Segmenter) or (network.pose is None) == plain


@pytest.mark.parametrize("name", PRETRAINED)
def test_each_has_a_card_that_says_what_is_there(name: str) -> None:
    """If this fails: python -m sfcnn.pretrained.ship."""
    directory = find_run(name)
    card = json.loads((directory / "card.json").read_text(encoding="utf-8"))
    assert (card["name"], card["purpose"]) == (name, PRETRAINED[name])
    assert {key: card[key] for key in asdict(FACTS[name])} == json.loads(json.dumps(asdict(FACTS[name])))
    there = {path.name: path.stat().st_size for path in directory.iterdir()}
    cards = {key: there.pop(key) for key in ("card.json", "README.md")}
    assert len(cards) == 2
    assert card["files"] == there
    assert card["scores"]
    result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    assert card["parameters"] == result["parameters"]
    assert (directory / "README.md").read_text(encoding="utf-8") == card_text(card)


@pytest.mark.parametrize("name", PRETRAINED)
def test_each_is_used_by_its_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.arange(64 * 64, dtype=np.uint8).reshape(64, 64)).save("a.png")
    if isinstance(load(name), Segmenter):
        assert main(["segment", "predict", name, "a.png", "--out", "found"]) == 0
    else:
        assert main(["classify", "predict", name, "a.png", "--out", "found.csv"]) == 0
        angle = "" if name.endswith("-plain") else ",angle"
        assert Path("found.csv").read_text().startswith(f"file,class,probability,orientation{angle}\n")


@pytest.fixture(name="trained")
def _trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of a classifier of digits, with angles and scores."""
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("run"), ClassificationConfig(ModelConfig(orientations=4, width=0.1), ImagesConfig("digits")))
    numbers = {"parameters": 123, "train_images": 10, "seconds": 60.0, "provenance": provenance()}
    write_json(run / "result.json", numbers)
    write_json(run / "checkpoints" / "not-needed.json", {})
    assert main(["classify", "pose", "run", "--examples", "20"]) == 0
    assert main(["classify", "evaluate", "run", "--images", "20", "--out", "scores.json"]) == 0
    return run


def test_a_run_becomes_a_network_with_a_name(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ship_main(["run", "mnist-rot", "--scores", "scores.json", "--to", "shipped/mnist-rot"])
    made = Path("shipped/mnist-rot")
    assert capsys.readouterr().out.endswith(f"wrote {made}\n")
    files = {"config.yaml", "best.safetensors", "result.json", "pose.safetensors", "pose.json"}
    assert {path.name for path in made.iterdir()} == {*files, "card.json", "README.md"}
    for file in files:
        assert (made / file).read_bytes() == (trained / file).read_bytes()
    scores = json.loads(Path("scores.json").read_text(encoding="utf-8"))
    card = json.loads((made / "card.json").read_text(encoding="utf-8"))
    values = {(score["name"], score["images"].split()[1]): score["value"] for score in card["scores"]}
    assert values["error", "test"] == scores["errors"][0]
    assert values["mean angle error", "test"] == scores["angle_error"]["mean"]
    learned = json.loads((trained / "pose.json").read_text(encoding="utf-8"))
    assert values["median angle error", "validation"] == learned["angle_error"]["median"]
    text = (made / "README.md").read_text(encoding="utf-8")
    for words in ("20 test images, embedded digits", "Attribution-Share Alike 3.0", "upside", "sfcnn classify pose"):
        assert words in text
    monkeypatch.setattr(names, "SHIPPED", Path("shipped").resolve())
    assert names.shipped_names() == list(read_purposes(Path("shipped"))) == ["mnist-rot"]
    network = load("mnist-rot", device="cpu")
    assert isinstance(network, Classifier)
    assert network.predict(torch.rand(2, 1, 28, 28)).angles is not None
    Image.new("L", (50, 40), 255).save("digit.png")
    assert main(["classify", "predict", "mnist-rot", "digit.png"]) == 0
    assert capsys.readouterr().out.startswith("file,class,probability,orientation,angle\ndigit.png,")
    assert main(["classify", "evaluate", "mnist-rot", "--images", "10"]) == 0
    assert main(["classify", "pose", "mnist-rot"]) == 2
    assert "mnist-rot is shipped with sfcnn" in capsys.readouterr().err


def test_the_card_of_a_directory_is_made_anew_in_place(trained: Path) -> None:
    made = ship(trained, "mnist-rot", Path("scores.json"), trained)
    assert made == trained
    assert (trained / "card.json").is_file()
    assert (trained / "checkpoints").is_dir()
    kept = (trained / "best.safetensors").read_bytes()
    ship(trained, "mnist-rot", Path("scores.json"), trained)
    assert (trained / "best.safetensors").read_bytes() == kept


def test_weights_can_be_kept_in_half_the_space(trained: Path) -> None:
    made = ship(trained, "mnist-rot", Path("scores.json"), Path("half"), half=True)
    sizes = [(run / "best.safetensors").stat().st_size for run in (made, trained)]
    assert sizes[0] < 0.7 * sizes[1]
    images = torch.rand(4, 1, 28, 28)
    half, whole = (load(run, device="cpu") for run in (made, trained))
    assert next(half.network.parameters()).dtype == torch.float32
    torch.testing.assert_close(
        half.predict(images).probabilities, whole.predict(images).probabilities, atol=0.01, rtol=0
    )
    assert half.predict(images).angles is not None  # the read-out of angles belongs to the rounded weights


def test_paths_of_the_machine_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = ImagesConfig("folder", path="/home/somebody/photos", size=28, channels=1, classes=("a", "b"))
    run = make_run(Path("run"), ClassificationConfig(ModelConfig(orientations=4, width=0.1), images))
    numbers = {"parameters": 1, "train_images": 1, "seconds": 1.0, "provenance": provenance()}
    write_json(run / "result.json", numbers)
    scores = {"run": "run", "images": 3, "split": "test", "dataset": "photos", "errors": [1.0]}
    write_json(Path("scores.json"), scores)
    made = ship(run, "mnist-rot", Path("scores.json"), Path("made"))
    assert "somebody" not in (made / "config.yaml").read_text(encoding="utf-8")
    assert load(made, device="cpu").config.images.path == ""


def test_mistakes_in_shipping_are_one_line(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            ship_main([*words, "--to", "made"])
        assert stop.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert "unknown network 'mine'" in fails("run", "mine", "--scores", "scores.json")
    assert "is not a run" in fails("elsewhere", "mnist-rot", "--scores", "scores.json")
    assert "No such file" in fails("run", "mnist-rot", "--scores", "nowhere.json")
    write_json(Path("other.json"), json.loads(Path("scores.json").read_text()) | {"run": "another"})
    assert "the scores are those of another, expected those of run" in fails(
        "run", "mnist-rot", "--scores", "other.json"
    )
    write_json(Path("empty.json"), {})
    assert "the scores have no 'run'" in fails("run", "mnist-rot", "--scores", "empty.json")
    Path("text.json").write_text("no JSON")
    assert "text.json is not a JSON file" in fails("run", "mnist-rot", "--scores", "text.json")
    Path("made").mkdir()
    assert "output made exists" in fails("run", "mnist-rot", "--scores", "scores.json")
    (trained / "result.json").unlink()
    assert "is not a finished run, since it has no result.json" in fails("run", "mnist-rot", "--scores", "scores.json")


@pytest.mark.parametrize(("start", "kept"), [("runs/mine", ""), ("mnist-rot-plain", "mnist-rot-plain")])
def test_a_run_that_started_from_another_is_shipped_without_its_path(trained: Path, start: str, kept: str) -> None:
    values = load_yaml(trained / "config.yaml") | {"start": start}
    (trained / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    made = ship(trained, "mnist-rot", Path("scores.json"), Path("made"))
    assert load_yaml(made / "config.yaml") == values | {"start": kept}


def test_a_directory_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_run("isbi2012").is_dir()
    Path("isbi2012").mkdir()
    assert find_run("isbi2012") == Path("isbi2012")
    with pytest.raises(ValueError, match=r"no run elsewhere: .* one of isbi2012,"):
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
