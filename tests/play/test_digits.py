"""Digits that are turned: samples, drawings, what both networks say of them, and what the page says about that."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sfcnn.classification.digits import read_mnist
from sfcnn.models import count_parameters
from sfcnn.play.digits import ANGLES, Answers, ask, ask_all, drawn_digit, networks, samples, show, turn, verdict

DATA = os.environ.get("SFCNN_DATA")


@pytest.fixture(scope="module", name="answers")
def _answers() -> Answers:
    return ask_all(samples()[0][7], "cpu")


def test_samples_are_two_of_each_class() -> None:
    digits, labels = samples()
    assert sorted(labels) == sorted([*range(10), *range(10)])
    assert all(digit.shape == (28, 28) and digit.max() > 0.9 and digit.min() == 0 for digit in digits)


@pytest.mark.skipif(not DATA, reason="SFCNN_DATA is not set")
def test_samples_are_the_first_of_the_file_that_nothing_learned_from() -> None:
    images, classes = (part[60_000:] for part in read_mnist(Path(DATA or "")))
    for number, (digit, label) in enumerate(zip(*samples(), strict=True)):
        place = torch.nonzero(classes == label)[number // 10]
        np.testing.assert_allclose(digit, images[place].squeeze().numpy() / 255, atol=1e-6)


def test_quarter_turns_change_nothing_for_the_steerable_network_and_much_for_the_plain_one(answers: Answers) -> None:
    steerable, plain = answers.probabilities["steerable"], answers.probabilities["plain"]
    assert steerable.shape == plain.shape == (len(ANGLES), 10)
    quarters = [ANGLES.index(angle) for angle in (90, 180, 270)]
    np.testing.assert_allclose(steerable[quarters], steerable[[0] * 3], atol=1e-5)
    assert np.abs(plain[quarters] - plain[0]).max() > 1e-3
    np.testing.assert_allclose(steerable.sum(1), 1, atol=1e-5)
    assert (steerable.argmax(1) == 7).all()


def test_the_networks_that_are_compared_have_as_many_parameters() -> None:
    steerable, plain = (count_parameters(network.network) for network in networks("cpu").values())
    assert abs(plain / steerable - 1) < 0.01


def test_asking_all_at_once_is_asking_one_after_the_other(answers: Answers) -> None:
    for kind, network in networks("cpu").items():
        alone = ask(network, turn(answers.digit, [45]))[0]
        np.testing.assert_allclose(answers.probabilities[kind][ANGLES.index(45)], alone, atol=1e-4)


def test_what_is_said_is_what_was_measured() -> None:
    rows = np.full((len(ANGLES), 10), 0.05, np.float32)
    rows[:, 4] = 0.55
    rows[ANGLES.index(45)] = rows[0].copy()
    rows[ANGLES.index(45), [4, 9]] = 0.3, 0.3  # the first of both is named
    rows[ANGLES.index(135), [4, 9]] = 0.2, 0.4
    text = verdict(Answers(samples()[0][4], {"steerable": rows, "plain": rows[::-1].copy()}), 4)
    steerable, plain = text.split("\n\n")
    assert "not exact" in steerable
    assert "change by up to 0.25" in steerable
    assert "is 0.550 upright, 0.300 at 45°, and at worst 0.200 at 135°; 1 of 24 angles are misclassified" in steerable
    assert plain.startswith("**Plain.**")


def test_the_view_has_both_networks_and_marks_the_angle(answers: Answers) -> None:
    page = show(answers, 30, 7, "cpu")
    assert "at 30°" in page
    assert page.count("<polyline") == 2
    assert page.count("<rect") == 2 * 10 + 2  # bars and the legend
    assert "Probability of 7" in page
    assert "http" not in page


def draw(line: slice, ground: int = 0, opacity: int = 255) -> dict[str, np.ndarray]:
    """A vertical stroke as the sketchpad gives it: black where it is opaque."""
    pixels = np.zeros((280, 280, 4), np.uint8)
    pixels[..., 3] = ground
    pixels[line, 130:150, 3] = opacity
    return {"composite": pixels}


def test_a_drawing_becomes_a_digit() -> None:
    digit = drawn_digit(draw(slice(60, 220)))
    assert digit.shape == (28, 28)
    assert digit.max() == 1
    rows, columns = np.nonzero(digit > 0.5)
    assert rows.max() - rows.min() > 4 * (columns.max() - columns.min())
    assert ask(networks("cpu")["steerable"], turn(digit, [0]))[0].argmax() == 1


@pytest.mark.parametrize("drawing", [None, {}, {"composite": None}, draw(slice(0, 0)), draw(slice(0, 280), 255)])
def test_an_empty_sketchpad_is_a_sentence(drawing: dict[str, np.ndarray] | None) -> None:
    with pytest.raises(ValueError, match="draw a digit first"):
        drawn_digit(drawing)
