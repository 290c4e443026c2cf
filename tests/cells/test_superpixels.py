"""Superpixels cover the image, keep to the membranes, and turn with the image."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy import ndimage

from cells.conftest import make_texture
from sfcnn.cells.superpixels import SuperpixelsConfig, signed_distance, superpixels, turn, upright_turns

#: Few values and few pixels: plateaus and ties everywhere.
BLOCKY = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
CONFIGS = st.builds(
    SuperpixelsConfig,
    minimum_membrane=st.integers(1, 3),
    minimum_size=st.integers(1, 6),
    seed_sigma=st.sampled_from([0.0, 0.5, 2.0]),
    flood_sigma=st.sampled_from([0.0, 1.0, 2.6]),
)


def partition(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same labels, numbered in the order of their first pixels."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].reshape(labels.shape)


@given(BLOCKY, CONFIGS)
def test_labels_run_from_one_without_gaps_and_each_superpixel_is_in_one_piece(
    probabilities: NDArray[np.float32], config: SuperpixelsConfig
) -> None:
    labels = superpixels(probabilities, config)
    assert labels.shape == probabilities.shape
    assert labels.dtype == np.int64
    assert np.array_equal(np.unique(labels), np.arange(1, labels.max() + 1))
    for label in range(1, labels.max() + 1):
        assert ndimage.label(labels == label, np.ones((3, 3)))[1] == 1


@given(BLOCKY, CONFIGS, st.integers(1, 3))
@settings(max_examples=300)
def test_turning_the_image_turns_the_superpixels_however_many_ties_there_are(
    probabilities: NDArray[np.float32], config: SuperpixelsConfig, turns: int
) -> None:
    assume(not np.array_equal(probabilities, turn(probabilities, 2)))
    assert np.array_equal(
        superpixels(turn(probabilities, turns), config), turn(superpixels(probabilities, config), turns)
    )


@given(BLOCKY, CONFIGS)
def test_an_image_that_is_its_own_half_turn_gives_one_of_two_half_turns(
    probabilities: NDArray[np.float32], config: SuperpixelsConfig
) -> None:
    symmetric = np.concatenate([probabilities, turn(probabilities, 2)])
    ours = superpixels(turn(symmetric, 1), config)
    theirs = turn(superpixels(symmetric, config), 1)
    if symmetric.shape[0] == symmetric.shape[1] and np.array_equal(symmetric, turn(symmetric, 1)):
        assert any(np.array_equal(ours, turn(theirs, turns)) for turns in range(4))
    else:
        assert np.array_equal(ours, theirs) or np.array_equal(ours, turn(theirs, 2))


@pytest.mark.parametrize("shape", [(96, 96), (70, 101)])
@pytest.mark.parametrize("digits", [8, 1], ids=["fine", "coarse"])
def test_turning_a_texture_turns_its_superpixels(shape: tuple[int, int], digits: int) -> None:
    probabilities = make_texture(shape, 25, seed=3).probabilities.round(digits)
    labels = superpixels(probabilities)
    assert labels.max() > 20
    for turns in (1, 2, 3):
        assert np.array_equal(superpixels(turn(probabilities, turns)), turn(labels, turns))


def test_rounding_errors_in_the_probabilities_change_nothing() -> None:
    probabilities = make_texture((96, 96), 25, seed=4).probabilities
    assert np.abs(probabilities - 0.3).min() > 1e-6  # else the mask itself may change
    noise = np.random.default_rng(0).uniform(-1e-6, 1e-6, probabilities.shape).astype(np.float32)
    turned = np.clip(turn(probabilities, 1) + noise, 0, 1)
    assert np.array_equal(superpixels(turned), turn(superpixels(probabilities), 1))


@given(BLOCKY, st.integers(0, 3))
def test_every_turn_of_an_image_has_the_same_upright_orientation(
    probabilities: NDArray[np.float32], turns: int
) -> None:
    turned = turn(probabilities, turns)
    ours = turn(turned, upright_turns(turned, 0.3))
    assert np.array_equal(ours, turn(probabilities, upright_turns(probabilities, 0.3)))


def test_walls_part_superpixels() -> None:
    probabilities = np.zeros((30, 40))
    probabilities[:, 11] = probabilities[17] = 1
    labels = superpixels(probabilities, SuperpixelsConfig(seed_sigma=1, flood_sigma=0))
    quarters = [labels[:17, :11], labels[:17, 12:], labels[18:, :11], labels[18:, 12:]]
    seen = [set(np.unique(quarter)) for quarter in quarters]
    for index, ours in enumerate(seen):
        assert all(ours.isdisjoint(theirs) for theirs in seen[:index])


def test_superpixels_hardly_ever_reach_over_membranes() -> None:
    one = make_texture((128, 128), 30, seed=5, noise=0.5)
    labels = superpixels(one.probabilities)
    inside = one.truth > 0
    table = np.zeros((labels.max() + 1, one.truth.max() + 1))
    np.add.at(table, (labels[inside], one.truth[inside]), 1)
    assert table.max(axis=1).sum() > 0.98 * inside.sum()


@pytest.mark.parametrize("value", [0.0, 0.29, 0.3, 1.0])
def test_a_constant_image_is_one_superpixel(value: float) -> None:
    assert (superpixels(np.full((7, 5), value)) == 1).all()


def test_slices_of_a_stack_are_on_their_own_and_share_no_labels() -> None:
    probabilities = make_texture((3, 48, 40), 8, seed=6).probabilities
    labels = superpixels(probabilities)
    for index, image in enumerate(probabilities):
        assert np.array_equal(partition(labels[index]), partition(superpixels(image)))
    assert np.array_equal(np.unique(labels), np.arange(1, labels.max() + 1))
    assert labels[0].max() < labels[1].min() <= labels[1].max() < labels[2].min()


def test_small_superpixels_go_to_their_neighbours() -> None:
    probabilities = make_texture((96, 96), 30, seed=7, noise=2).probabilities
    assert np.bincount(superpixels(probabilities).ravel())[1:].min() < 60
    sizes = np.bincount(superpixels(probabilities, SuperpixelsConfig(minimum_size=60)).ravel())[1:]
    assert sizes.min() >= 60
    assert sizes.sum() == 96 * 96
    assert (superpixels(probabilities, SuperpixelsConfig(minimum_size=10**4)) == 1).all()


def test_small_pieces_of_membrane_are_no_membrane() -> None:
    probabilities = np.zeros((20, 21))
    probabilities[4:6, 4:7] = 1  # six pixels
    whole = SuperpixelsConfig(minimum_membrane=7, seed_sigma=0)
    assert superpixels(probabilities, SuperpixelsConfig(minimum_membrane=6, seed_sigma=0)).max() > 1
    assert (superpixels(probabilities, whole) == 1).all()


def test_signed_distance_is_one_beside_the_membrane_and_falls_inside_it() -> None:
    membrane = np.array([[False, False, True, True, True, True, True, False]])
    assert np.allclose(signed_distance(membrane), [[2, 1, 0, -1, -2, -1, 0, 1]])


@pytest.mark.parametrize("shape", [(2, 2), (40, 37), (1, 9000), (9000, 2)])
@pytest.mark.parametrize("density", [0.9, 0.2, 0.001])
def test_signed_distance_is_that_of_scipy_to_the_bit(shape: tuple[int, int], density: float) -> None:
    membrane = np.random.default_rng(0).random(shape) < density
    membrane.flat[0], membrane.flat[-1] = True, False
    outside, inside = (ndimage.distance_transform_edt(mask) for mask in (~membrane, membrane))
    assert np.array_equal(signed_distance(membrane), outside - np.maximum(inside - 1, 0))


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (np.zeros(5), r"got \(5,\)"),
        (np.zeros((0, 5)), r"got \(0, 5\)"),
        (np.zeros((4, 4), dtype=np.uint8), "divide 8-bit images by 255"),
        (np.full((4, 4), np.nan), "from nan to nan"),
        (np.array([[0.0, 1.5]]), "from 0 to 1.5"),
        (np.array([[-0.1, 1.0]]), "from -0.1 to 1"),
    ],
)
def test_what_are_no_probabilities_is_refused(probabilities: NDArray[np.float64], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        superpixels(probabilities)


@pytest.mark.parametrize(
    "values",
    [{"threshold": 0}, {"threshold": 1.1}, {"minimum_size": 0}, {"minimum_membrane": 0}, {"seed_sigma": -1},
     {"flood_sigma": np.nan}],
)  # fmt: skip
def test_settings_without_sense_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(values))} must be"):
        SuperpixelsConfig(**values)  # type: ignore[arg-type]
