import numpy as np
import pytest
import torch

from sfcnn.segmentation.affinities import affinity_targets, average_pairs, same_shares, turn_affinities
from sfcnn.segmentation.offsets import oriented_offsets

OFFSETS = oriented_offsets((1, 3, 20), 8)  # the last radius leaves small images altogether


def random_labels(height: int, width: int) -> torch.Tensor:
    """Cells of a few pixels, some of them in several pieces, membrane, and pixels that are not known."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = torch.randint(-1, 4, (height // 2 + 1, width // 2 + 1), generator=generator)
    return coarse.repeat_interleave(2, 0).repeat_interleave(2, 1)[:height, :width]


@pytest.mark.parametrize("orientations", [5, 8])
def test_targets_are_those_of_all_pairs_one_by_one(orientations: int) -> None:
    labels, offsets = random_labels(9, 11), oriented_offsets((1, 3, 20), orientations)
    same, valid = affinity_targets(labels, offsets)
    for d, a, row, column in np.ndindex(3, orientations, 9, 11):
        there = row + int(offsets[d, a, 0]), column + int(offsets[d, a, 1])
        one = int(labels[row, column])
        other = int(labels[there]) if 0 <= there[0] < 9 and 0 <= there[1] < 11 else -1
        assert bool(valid[d, a, row, column]) == (one >= 0 and other >= 0)
        if valid[d, a, row, column]:
            assert bool(same[d, a, row, column]) == (one == other > 0)
    batch = affinity_targets(torch.stack([labels, labels.flip(0)]), offsets)
    assert torch.equal(batch.same[0], same)
    assert torch.equal(batch.valid[1], affinity_targets(labels.flip(0), offsets).valid)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("turns", range(4))
def test_turned_and_mirrored_labels_have_turned_and_mirrored_targets(turns: int, mirrored: bool) -> None:
    labels = random_labels(30, 41)
    view = (labels.flip(-1) if mirrored else labels).rot90(turns, (-2, -1))
    for found, expected in zip(affinity_targets(view, OFFSETS), affinity_targets(labels, OFFSETS), strict=True):
        assert torch.equal(found, turn_affinities(expected, turns, mirrored=mirrored))


def test_both_ends_of_a_pair_get_their_mean() -> None:
    affinities = torch.rand(2, 3, 8, 12, 13, dtype=torch.float64)
    averaged = average_pairs(affinities, OFFSETS)
    for d, a, row, column in np.ndindex(3, 8, 12, 13):
        there = row + int(OFFSETS[d, a, 0]), column + int(OFFSETS[d, a, 1])
        expected = affinities[:, d, a, row, column]
        if 0 <= there[0] < 12 and 0 <= there[1] < 13:
            back = affinities[:, d, (a + 4) % 8, there[0], there[1]]
            expected = (expected + back) / 2
            assert torch.equal(averaged[:, d, a, row, column], averaged[:, d, (a + 4) % 8, there[0], there[1]])
        assert torch.equal(averaged[:, d, a, row, column], expected)
    same, valid = affinity_targets(random_labels(12, 13), OFFSETS)
    truth = (same & valid).double()
    assert torch.equal(average_pairs(truth, OFFSETS), truth)  # both ends of a true pair agree


def test_an_odd_number_of_directions_has_no_partners() -> None:
    affinities = torch.rand(1, 5, 6, 6)
    assert torch.equal(average_pairs(affinities, oriented_offsets((2,), 5)), affinities)
    with pytest.raises(ValueError, match="affinities in 5 directions cannot be rotated by 90°"):
        turn_affinities(affinities, 1)
    with pytest.raises(ValueError, match="affinities in 5 directions cannot be mirrored"):
        turn_affinities(affinities, 0, mirrored=True)


def test_shares_of_pairs() -> None:
    labels = torch.tensor([[1, 1, 1, 0, 2, 2]])
    shares = same_shares([labels, labels], oriented_offsets((1, 2, 9), 2))
    torch.testing.assert_close(shares, torch.tensor([3 / 5, 1 / 4, 1 / 2]))
    assert same_shares([torch.zeros(8, 8).long()], oriented_offsets((1,), 4)).tolist() == [0.0]


def test_other_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected integer label images \(…, H, W\)"):
        affinity_targets(torch.rand(5, 5), OFFSETS)
    with pytest.raises(ValueError, match=r"expected affinities \(…, 3, 8, H, W\), got \(2, 8, 5, 5\)"):
        average_pairs(torch.rand(2, 8, 5, 5), OFFSETS)
