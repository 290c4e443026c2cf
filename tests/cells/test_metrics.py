import math
from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from skimage.metrics import adapted_rand_error, variation_of_information

from sfcnn.cells.metrics import (
    Agreement,
    Labels,
    Overlaps,
    f1,
    info_agreement,
    overlaps,
    pixel_error,
    rand_agreement,
    v_info,
    v_rand,
)

CLOSE = 1e-12


@st.composite
def label_images(draw: st.DrawFn, smallest: int = 0) -> tuple[Labels, Labels]:
    """A proposal with labels from `smallest` on, and a truth with some foreground."""
    shape = draw(array_shapes(min_dims=2, max_dims=2, max_side=7))
    most = draw(st.integers(1, 6))
    labels = draw(arrays(np.int64, shape, elements=st.integers(smallest, most)))
    truth = draw(arrays(np.int64, shape, elements=st.integers(0, most)))
    truth.flat[draw(st.integers(0, truth.size - 1))] = 1
    return labels, truth


def pixels_of(labels: Labels, truth: Labels) -> list[tuple[int, int]]:
    """(cell, segment) of each pixel of the foreground; each pixel with label 0 is a segment of its own."""
    pairs = zip(truth.flat, labels.flat, strict=True)
    return [(int(i), int(j) or -1 - k) for k, (i, j) in enumerate(pairs) if i > 0]


def rand_by_pairs(labels: Labels, truth: Labels) -> Agreement:
    """Over all ordered pairs of pixels, each with itself too: which are together in truth, proposal, both."""
    pixels = pixels_of(labels, truth)
    together = Counter((a[0] == b[0], a[1] == b[1]) for a in pixels for b in pixels)
    both, cells, segments = together[True, True], together[True, False], together[False, True]
    precision, recall = Fraction(both, both + segments), Fraction(both, both + cells)
    return Agreement(float(2 * precision * recall / (precision + recall)), float(precision), float(recall))


def entropy(names: list[object]) -> float:
    return -sum(count / len(names) * math.log(count / len(names)) for count in Counter(names).values())


def info_by_entropies(labels: Labels, truth: Labels) -> tuple[float, float, float]:
    """H(A), H(B) and I."""
    pixels = pixels_of(labels, truth)
    cells, segments = entropy([i for i, _ in pixels]), entropy([j for _, j in pixels])
    return cells, segments, cells + segments - entropy(list(pixels))


def image(*rows: str) -> Labels:
    return np.array([[int(digit) for digit in row] for row in rows])


@given(label_images())
def test_rand_counts_pairs_of_pixels(images: tuple[Labels, Labels]) -> None:
    found, expected = rand_agreement(overlaps(*images)), rand_by_pairs(*images)
    for name in ("score", "precision", "recall"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=CLOSE)
    assert v_rand(*images) == found.score


@given(label_images())
def test_info_is_shared_entropy(images: tuple[Labels, Labels]) -> None:
    found = info_agreement(overlaps(*images))
    cells, segments, shared = info_by_entropies(*images)
    assert v_info(*images) == found.score
    if cells > 1e-9 and segments > 1e-9:
        assert found.score == pytest.approx(2 * shared / (cells + segments), abs=CLOSE)
        assert found.precision == pytest.approx(shared / cells, abs=CLOSE)
        assert found.recall == pytest.approx(shared / segments, abs=CLOSE)
    else:
        assert found.score == (cells < 1e-9 and segments < 1e-9)


@given(label_images())
def test_truth_against_itself_is_one(images: tuple[Labels, Labels]) -> None:
    for labels in images:
        if labels.any():
            assert v_rand(labels, labels) == 1
            assert v_info(labels, labels) == 1


@given(label_images())
def test_scores_lie_between_their_parts(images: tuple[Labels, Labels]) -> None:
    table = overlaps(*images)
    for found in (rand_agreement(table), info_agreement(table)):
        low, high = sorted((found.precision, found.recall))
        assert 0 <= low <= high <= 1
        assert low - CLOSE <= found.score <= high + CLOSE


@pytest.mark.parametrize(("a", "b"), [(6, 6), (1, 11), (40, 2)])
def test_two_cells_merged(a: int, b: int) -> None:
    """One segment over cells of a and b pixels: Σ c² = Σ a² = a² + b², Σ b² = (a + b)²."""
    truth = np.repeat([1, 0, 2], [a, 3, b])[None]
    merged = np.full_like(truth, 7)
    n, squares = a + b, a * a + b * b
    found = rand_agreement(overlaps(merged, truth))
    assert found.score == pytest.approx(2 * squares / (squares + n * n), abs=CLOSE)
    assert found.precision == pytest.approx(squares / n**2, abs=CLOSE)
    assert found.recall == 1
    assert v_info(merged, truth) == 0  # a single segment tells nothing


def test_one_merge_of_three_cells() -> None:
    """Two of three equal cells are one segment: I = H(B) = ln 3 − ⅔ ln 2, H(A) = ln 3."""
    truth, merged = image("112233"), image("444455")
    assert v_rand(merged, truth) == pytest.approx(2 * 12 / (12 + 20), abs=CLOSE)
    shared = math.log(3) - 2 / 3 * math.log(2)
    found = info_agreement(overlaps(merged, truth))
    assert found.score == pytest.approx(2 * shared / (shared + math.log(3)), abs=CLOSE)
    assert found.precision == pytest.approx(shared / math.log(3), abs=CLOSE)
    assert found.recall == pytest.approx(1, abs=CLOSE)


@pytest.mark.parametrize(("a", "b", "rest"), [(5, 5, 10), (1, 9, 3), (30, 2, 1)])
def test_one_cell_split(a: int, b: int, rest: int) -> None:
    """A cell of a + b pixels is two segments, another of `rest` pixels is whole: I = H(A)."""
    truth = np.repeat([1, 2], [a + b, rest])[None]
    split = np.repeat([1, 2, 3], [a, b, rest])[None]
    n, parts = a + b + rest, a * a + b * b + rest * rest
    assert v_rand(split, truth) == pytest.approx(2 * parts / (parts + (a + b) ** 2 + rest**2), abs=CLOSE)
    cells = -sum(size / n * math.log(size / n) for size in (a + b, rest))
    segments = -sum(size / n * math.log(size / n) for size in (a, b, rest))
    found = info_agreement(overlaps(split, truth))
    assert found.score == pytest.approx(2 * cells / (cells + segments), abs=CLOSE)
    assert found.precision == pytest.approx(1, abs=CLOSE)
    assert found.recall == pytest.approx(cells / segments, abs=CLOSE)


@pytest.mark.parametrize("joined", [True, False])
def test_one_dam_line(joined: bool) -> None:
    """A line of d pixels of label 0 through a cell of 2m + d: with one label on its sides, only the line is lost."""
    m, d, rest = 20, 4, 16
    truth = np.repeat([1, 1, 1, 2], [m, d, m, rest])[None]
    labels = np.repeat([1, 0, 1 if joined else 3, 2], [m, d, m, rest])[None]
    n, sides = 2 * m + d + rest, [2 * m] if joined else [m, m]
    both = sum(side**2 for side in sides) + rest**2 + d
    assert v_rand(labels, truth) == pytest.approx(2 * both / (both + (2 * m + d) ** 2 + rest**2), abs=CLOSE)
    # Each segment, and each pixel of the line, lies in one cell: H(AB) = H(B), and I = H(A).
    cells = -sum(size / n * math.log(size / n) for size in (2 * m + d, rest))
    segments = -sum(size / n * math.log(size / n) for size in (*sides, rest)) + d / n * math.log(n)
    assert v_info(labels, truth) == pytest.approx(2 * cells / (cells + segments), abs=CLOSE)


def test_dams_on_the_true_membrane_cost_nothing() -> None:
    assert v_rand(image("1102", "1022"), image("1102", "1022")) == 1
    assert v_rand(image("1112", "1022"), image("1102", "1002")) == 1


def test_nothing_proposed_is_a_pixel_each() -> None:
    truth = image("1122")
    assert v_rand(np.zeros_like(truth), truth) == pytest.approx(2 * 4 / (8 + 4), abs=CLOSE)
    assert v_info(np.zeros_like(truth), truth) == pytest.approx(2 / 3, abs=CLOSE)  # I = ln 2, H(B) = 2 ln 2


@pytest.mark.parametrize(
    ("labels", "truth", "expected"),
    [
        ("5555", "3333", Agreement(1, 1, 1)),
        ("0", "1", Agreement(1, 1, 1)),
        ("5566", "3333", Agreement(0, 0, 1)),
        ("5550", "3333", Agreement(0, 0, 1)),
        ("5555", "3344", Agreement(0, 1, 0)),
    ],
)
def test_partitions_without_information(labels: str, truth: str, expected: Agreement) -> None:
    assert info_agreement(overlaps(image(labels), image(truth))) == expected


@given(label_images(), st.randoms(use_true_random=False), st.integers(0, 3), st.booleans())
def test_names_turns_and_mirrors_do_not_matter(
    images: tuple[Labels, Labels], random: Random, turns: int, mirrored: bool
) -> None:
    def renamed(labels: Labels) -> Labels:
        names = [0, *random.sample(range(1, 2**61), 6)]
        return np.array(names)[labels]

    def turned(labels: Labels) -> Labels:
        return np.rot90(labels[:, ::-1] if mirrored else labels, turns)

    for other in ([renamed(part) for part in images], [turned(part) for part in images]):
        assert v_rand(*other) == v_rand(*images)
        assert v_info(*other) == pytest.approx(v_info(*images), abs=CLOSE)


@given(label_images(), st.integers(0, 2**31))
def test_the_order_of_pixels_does_not_matter(images: tuple[Labels, Labels], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(images[0].size)
    shuffled = [part.ravel()[order].reshape(part.shape) for part in images]
    assert v_rand(*shuffled) == v_rand(*images)
    assert v_info(*shuffled) == v_info(*images)


@given(label_images(smallest=1))
def test_exchanging_the_images_exchanges_precision_and_recall(images: tuple[Labels, Labels]) -> None:
    labels, truth = images[0], images[1] + 1
    for agreement in (rand_agreement, info_agreement):
        there, back = agreement(overlaps(labels, truth)), agreement(overlaps(truth, labels))
        assert (back.precision, back.recall) == pytest.approx((there.recall, there.precision), abs=CLOSE)
        assert back.score == pytest.approx(there.score, abs=CLOSE)


@given(label_images(smallest=1))
def test_adapted_rand_error_of_scikit_image_is_converted(images: tuple[Labels, Labels]) -> None:
    """It leaves out the n pairs of a pixel with itself, and calls precision what is recall here.

    (Σ c² − n) / (Σ a² − n) is its precision, (Σ c² − n) / (Σ b² − n) its recall. With Σ a² from the truth, Σ c² and
    Σ b² follow.
    """
    labels, truth = images
    sizes = np.bincount(truth[truth > 0])
    n, cells = int(sizes.sum()), int((sizes**2).sum())
    assume(len(set(pixels_of(labels, truth))) < n)  # else no two pixels are together, and it divides by zero
    error, precision, recall = adapted_rand_error(truth, labels)
    both = precision * (cells - n) + n
    segments = (both - n) / recall + n
    found = rand_agreement(overlaps(labels, truth))
    assert found.score == pytest.approx(2 * both / (cells + segments), abs=CLOSE)
    assert found.recall == pytest.approx(both / cells, abs=CLOSE)
    assert found.precision == pytest.approx(both / segments, abs=CLOSE)
    # 1 − error = 2 (Σ c² − n) / (Σ a² + Σ b² − 2n)
    whole = cells + segments
    assert 1 - error == pytest.approx((found.score * whole - 2 * n) / (whole - 2 * n), abs=CLOSE)


@given(label_images(smallest=1))
def test_variation_of_information_of_scikit_image_is_converted(images: tuple[Labels, Labels]) -> None:
    """It gives H(B|A) and H(A|B) in bits: I = H(A) − H(A|B), H(B) = I + H(B|A)."""
    labels, truth = images
    splits, merges = variation_of_information(truth, labels, ignore_labels=[0]) * math.log(2)
    cells = entropy([i for i, _ in pixels_of(labels, truth)])
    shared = cells - merges
    assume(cells > 1e-9 and shared + splits > 1e-9)
    assert v_info(labels, truth) == pytest.approx(2 * shared / (cells + shared + splits), abs=CLOSE)


def test_sums_of_squares_beyond_the_whole_numbers_of_float64_are_exact() -> None:
    n = 10**9
    table = Overlaps(*(np.array(values) for values in ([1, 1], [1, 2], [n - 1, 1])))
    parts = (n - 1) ** 2 + 1
    assert rand_agreement(table).score == float(Fraction(2 * parts, parts + n * n))


@pytest.mark.parametrize(
    ("labels", "truth", "message"),
    [
        (np.ones((2, 3), int), np.ones((3, 2), int), r"labels \(2, 3\) and truth \(3, 2\) must have the same shape"),
        (np.ones((2, 3)), np.ones((2, 3), int), "labels must be integers, got float64"),
        (np.ones((2, 3), int), np.ones((2, 3), bool), "truth must be integers, got bool; .*components"),
        (np.full((2, 3), -1), np.ones((2, 3), int), r"labels must be in 0 … 2⁶² - 1, got -1 … -1"),
        (np.ones((2, 3), int), np.full((2, 3), 2**63, np.uint64), r"truth must be in 0 … 2⁶² - 1"),
        (np.ones((2, 3), int), np.zeros((2, 3), int), "truth has no foreground"),
        (np.ones((0, 3), int), np.ones((0, 3), int), "truth has no foreground"),
        (np.ones((1, 2, 3), int), np.ones((1, 2, 3), int), r"must be an image \(H, W\), got shape .* scores stacks"),
        (np.ones(3, int), np.ones(3, int), r"labels must be an image \(H, W\), got shape \(3,\)"),
    ],
)
def test_mistakes_are_named(labels: Labels, truth: Labels, message: str) -> None:
    for score in (v_rand, v_info):
        with pytest.raises(ValueError, match=message) as caught:
            score(labels, truth)
        assert "\n" not in str(caught.value)


@given(arrays(np.bool_, (3, 5)), arrays(np.bool_, (3, 5)))
def test_pixel_scores(prediction: np.ndarray, truth: np.ndarray) -> None:
    hits = int((prediction & truth).sum())
    false, missed = int((prediction & ~truth).sum()), int((~prediction & truth).sum())
    assert pixel_error(prediction, truth) == (false + missed) / 15
    assert f1(prediction, truth) == (2 * hits / (2 * hits + false + missed) if hits + false + missed else 1)
    assert f1(prediction, prediction) == 1
    assert pixel_error(prediction, ~prediction) == 1


@pytest.mark.parametrize("score", [f1, pixel_error])
def test_masks_are_checked(score: type[float]) -> None:
    mask = np.ones((2, 3), bool)
    with pytest.raises(ValueError, match=r"prediction \(2, 3\) and truth \(3, 2\) must have the same shape"):
        score(mask, mask.T)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="must be boolean masks, got uint8 and bool"):
        score(mask.astype(np.uint8), mask)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"must have at least one pixel, got shape \(0, 3\)"):
        score(mask[:0], mask[:0])  # type: ignore[call-arg]
