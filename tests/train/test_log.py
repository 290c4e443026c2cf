"""The log is a table that spreadsheets read, whole at any time."""

import csv
from dataclasses import fields
from pathlib import Path

import pytest

from sfcnn.train.log import Log, write_history
from sfcnn.train.loop import EpochRecord, Progress


def record(epoch: int) -> EpochRecord:
    return EpochRecord(epoch, 0.015 / epoch, 1 / 3, 1e-7, 12.5, 0.1 + epoch, 1 / 7, 1.5)


def read(path: Path) -> list[EpochRecord]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [EpochRecord(int(row.pop("epoch")), **{name: float(text) for name, text in row.items()}) for row in rows]


def test_the_table_holds_every_number_exactly(tmp_path: Path) -> None:
    history = [record(epoch) for epoch in (1, 2, 3)]
    write_history(tmp_path / "log.csv", history)
    assert read(tmp_path / "log.csv") == history
    header = (tmp_path / "log.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header.split(",") == [field.name for field in fields(EpochRecord)]
    write_history(tmp_path / "log.csv", history[:1])  # a resumed run goes back to its checkpoint
    assert read(tmp_path / "log.csv") == history[:1]
    write_history(tmp_path / "log.csv", [])
    assert read(tmp_path / "log.csv") == []


def test_it_grows_by_a_row_per_epoch_and_no_more_files(tmp_path: Path) -> None:
    log = Log(tmp_path, tensorboard=False, start=0)
    progress = Progress()
    for epoch in (1, 2):
        log.step(progress, 10, 0.5)
        progress.history.append(record(epoch))
        log.epoch(progress)
        assert read(tmp_path / "log.csv") == progress.history
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_history(tmp_path / "log.csv", [record(1)])
    with pytest.raises(TypeError):
        write_history(tmp_path / "log.csv", [record(1), None])  # type: ignore[list-item]
    assert read(tmp_path / "log.csv") == [record(1)]
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    progress = Progress()
    log = Log(tmp_path, tensorboard=True, start=0)
    for epoch in (1, 2, 3):  # the third epoch is lost when the run is killed …
        progress.history.append(record(epoch))
        log.epoch(progress)
    log.close()
    log = Log(tmp_path, tensorboard=True, start=2)  # … and done again
    log.epoch(progress)
    log.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    names = {field.name for field in fields(EpochRecord)} - {"epoch"}
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        found = [(event.step, event.value) for event in events.Scalars(name)]
        expected = [(row.epoch, pytest.approx(getattr(row, name))) for row in progress.history]
        assert found == expected
