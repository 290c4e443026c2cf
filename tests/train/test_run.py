"""Runs: what is kept, what is selected, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfcnn.classification import load
from sfcnn.classification.evaluate import error_rate
from sfcnn.io.settings import write_settings
from sfcnn.io.state import read_state, write_state
from sfcnn.train.loop import EpochRecord, NonFiniteLossError, Progress
from sfcnn.train.run import check_directory
from train.conftest import splits, train
from train.test_resume import CONFIG, final_state


def record(epoch: int, error: float, loss: float) -> EpochRecord:
    return EpochRecord(epoch, 0.1, 0.0, 0.0, 0.0, loss, error, 0.0)


def test_the_smallest_validation_error_is_selected_and_then_the_smallest_loss() -> None:
    history = [record(1, 5.0, 0.3), record(2, 4.0, 0.3), record(3, 4.0, 0.2), record(4, 4.0, 0.2), record(5, 6.0, 0.1)]
    assert Progress(history=history).selected().epoch == 3
    assert Progress(history=history).selected(last=True).epoch == 5


def test_the_kept_network_has_the_validation_error_of_its_epoch(tmp_path: Path) -> None:
    data = splits()
    result = train(CONFIG, data, tmp_path / "run")
    classifier = load(tmp_path / "run", device="cpu")
    assert classifier.config == CONFIG
    assert not classifier.network.training
    assert error_rate(classifier.network, data.validation) == pytest.approx(result.validation_error)


def test_joined_validation_images_are_trained_on_and_the_last_weights_kept(tmp_path: Path) -> None:
    config = replace(CONFIG, images=replace(CONFIG.images, join_validation=True))
    result = train(config, splits(), tmp_path / "run")
    assert (result.train_images, result.best_epoch) == (56 + 16, 3)
    last = final_state(tmp_path / "run")["model"]
    torch.testing.assert_close(read_state(tmp_path / "run" / "best.safetensors")["model"], last, rtol=0, atol=0)


def test_the_same_seed_gives_the_same_weights_and_another_one_others(tmp_path: Path) -> None:
    config = replace(CONFIG, optimization=replace(CONFIG.optimization, epochs=1))
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(config, seed=seed), splits(), tmp_path / name)
    weights = [final_state(tmp_path / name)["model"]["features.0.0.weight"] for name in "abc"]  # type: ignore[index]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_checkpoint_before_it(tmp_path: Path) -> None:
    data = splits()
    data.train.images[17] = torch.nan
    with pytest.raises(NonFiniteLossError, match=r"became nan at epoch 1, step \d; .*learning_rate") as caught:
        train(replace(CONFIG, checkpoint_steps=1), data, tmp_path / "run")
    assert "\n" not in str(caught.value)
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        state = read_state(path)["model"]
        assert all(torch.isfinite(value).all() for value in state.values())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains(precision: str, tmp_path: Path) -> None:
    optimization = replace(CONFIG.optimization, precision=precision, epochs=1)
    if precision == "float16" and not torch.cuda.is_available():
        with pytest.raises(ValueError, match="float16 needs a GPU"):
            train(replace(CONFIG, optimization=optimization), splits(), tmp_path / "run")
        return
    train(replace(CONFIG, optimization=optimization), splits(), tmp_path / "run")
    exact = replace(CONFIG, optimization=replace(optimization, precision="float32"))
    train(exact, splits(), tmp_path / "exact")
    weights = [final_state(tmp_path / name)["model"]["features.0.0.weight"] for name in ("run", "exact")]  # type: ignore[index]
    assert weights[0].dtype == torch.float32
    assert not torch.equal(*weights)
    assert torch.linalg.vector_norm(weights[0] - weights[1]) < 0.3 * torch.linalg.vector_norm(weights[1])


def test_only_the_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    train(CONFIG, splits(), tmp_path / "run")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def test_a_run_of_few_steps_is_warned_about_once(tmp_path: Path) -> None:
    said: list[str] = []
    train(
        replace(CONFIG, optimization=replace(CONFIG.optimization, epochs=2, batch_size=28)),
        splits(),
        tmp_path / "few",
        warn=said.append,
    )
    assert said == [
        "few steps: 2 per epoch, 4 in all, which may be too few to learn anything; choose a smaller "
        "optimization.batch_size or more optimization.epochs"
    ]
    said.clear()
    train(
        replace(CONFIG, optimization=replace(CONFIG.optimization, epochs=3, batch_size=28)),
        splits(),
        tmp_path / "few",
        resume=True,
        warn=said.append,
    )
    train(
        replace(CONFIG, optimization=replace(CONFIG.optimization, epochs=1, batch_size=8)),
        splits(),
        tmp_path / "more",
        warn=said.append,
    )
    assert said == []


def test_resuming_a_finished_run_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    first = train(CONFIG, splits(), tmp_path / "run", warn=said.append)
    again = train(CONFIG, splits(), tmp_path / "run", resume=True, warn=said.append)
    assert said == [f"{tmp_path / 'run'} finished with epoch 3: raise optimization.epochs to train longer"]
    assert again == first


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    train(CONFIG, splits(), tmp_path / "run")
    leftover = tmp_path / "run" / "checkpoints" / ".000000007-abc123.part.safetensors"
    leftover.write_bytes(b"half")
    train(CONFIG, splits(), tmp_path / "run", resume=True)
    assert not leftover.exists()


def test_a_directory_with_other_things_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("my own")
    with pytest.raises(ValueError, match="exists but does not contain a run"):
        check_directory(tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run"):
        load(tmp_path)
    write_settings(tmp_path / "config.yaml", CONFIG)
    with pytest.raises(ValueError, match=r"has no best\.safetensors yet"):
        load(tmp_path)
    write_state(tmp_path / "best.safetensors", {"model": {"weight": torch.zeros(2)}})
    with pytest.raises(ValueError, match="does not fit the network"):
        load(tmp_path)
    write_state(tmp_path / "best.safetensors", {"other": 3})
    with pytest.raises(ValueError, match="does not hold the weights"):
        load(tmp_path)
