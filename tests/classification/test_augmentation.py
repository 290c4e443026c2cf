import math

import pytest
import torch

from sfcnn.classification.augmentation import (
    AUGMENTATIONS,
    RESAMPLINGS,
    angles_between,
    ground,
    move_each,
    random_angles,
    random_shifts,
    rotate_each,
)
from sfcnn.group import rotate


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("mode", RESAMPLINGS)
@pytest.mark.parametrize("size", [7, 28])
def test_each_image_is_rotated_as_the_group_acts(mode: str, size: int, dtype: torch.dtype) -> None:
    images = torch.zeros(24, 2, size, size, dtype=dtype)
    images[..., 1:-1, 1:-1] = torch.rand(24, 2, size - 2, size - 2, dtype=dtype)
    angles = torch.linspace(-7, 13, 24, dtype=torch.float64)
    expected = torch.stack([rotate(image, float(angle), mode) for image, angle in zip(images, angles, strict=True)])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(rotate_each(images, angles, mode), expected, rtol=0, atol=tolerance)


def test_quarter_turns_are_exact_at_any_number_of_turns() -> None:
    images = torch.rand(21, 1, 6, 6)
    turns = torch.arange(-10, 11)
    expected = torch.stack([image.rot90(int(turn), (-2, -1)) for image, turn in zip(images, turns, strict=True)])
    for angles in (turns.float() * (math.pi / 2), turns.double() * (math.pi / 2)):
        for mode in RESAMPLINGS:
            assert torch.equal(rotate_each(images, angles, mode), expected)


def test_the_sense_is_counter_clockwise() -> None:
    image = torch.zeros(1, 1, 13, 13)
    image[0, 0, 6, 11] = 1  # five pixels to the right of the centre
    turned = rotate_each(image, torch.tensor([math.atan2(3, 4)]))[0, 0]
    assert divmod(int(turned.argmax()), 13) == (6 - 3, 6 + 4)  # three up, four to the right
    assert float(turned.max()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("mode", RESAMPLINGS)
def test_an_image_does_not_depend_on_its_batch(mode: str) -> None:
    images = torch.rand(9, 1, 28, 28)
    angles = random_angles("continuous", 9, seeded(0))
    angles[::4] = math.pi
    together = rotate_each(images, angles, mode)
    apart = torch.cat([rotate_each(images[i : i + 1], angles[i : i + 1], mode) for i in range(9)])
    assert torch.equal(together, apart)


def test_the_input_is_left_alone_and_nothing_is_shared() -> None:
    images = torch.rand(4, 1, 5, 5)
    before = images.clone()
    rotated = rotate_each(images, torch.tensor([0.0, 0.3, math.pi, 0.0]))
    rotated += 1
    assert torch.equal(images, before)


def test_no_images_give_no_images() -> None:
    assert rotate_each(torch.rand(0, 1, 5, 5), torch.rand(0)).shape == (0, 1, 5, 5)
    assert random_angles("continuous", 0, seeded(0)).shape == (0,)


@pytest.mark.parametrize(("kind", "turns"), [("none", 1), ("quarter-turns", 4), ("eighth-turns", 8)])
def test_steps_are_whole_and_all_come_up_equally_often(kind: str, turns: int) -> None:
    steps = random_angles(kind, 4000, seeded(0)) / (2 * math.pi / turns)
    assert torch.equal(steps, steps.round())
    assert steps.long().bincount(minlength=turns).shape == (turns,)
    share = steps.long().bincount() / 4000
    torch.testing.assert_close(share, torch.full((turns,), 1 / turns), rtol=0, atol=0.03)


def test_continuous_angles_are_uniform_on_the_circle() -> None:
    angles = random_angles("continuous", 10_000, seeded(0))
    assert angles.dtype == torch.float64
    assert float(angles.min()) >= 0
    assert float(angles.max()) < 2 * math.pi
    share = angles.histc(16, 0, 2 * math.pi) / 10_000
    torch.testing.assert_close(share, torch.full((16,), 1 / 16, dtype=torch.float64), rtol=0, atol=0.01)


@pytest.mark.parametrize("kind", [kind for kind in AUGMENTATIONS if kind != "between-orientations"])
def test_a_seed_gives_the_same_angles(kind: str) -> None:
    first, again, other = (random_angles(kind, 50, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (kind == "none")


def test_shifts_move_to_the_right_and_down_after_the_turn(dtype: torch.dtype) -> None:
    images = torch.rand(2, 1, 7, 7, dtype=dtype)
    angles = torch.tensor([0.0, math.pi / 2], dtype=torch.float64)
    moved = rotate_each(images, angles, shifts=torch.tensor([[2.0, 0.0], [0.0, -1.0]]))
    torch.testing.assert_close(moved[0, :, :, 2:], images[0, :, :, :-2])
    assert moved[0, :, :, :2].max() < 1e-6  # zeros from outside
    torch.testing.assert_close(moved[1, :, :-1], images[1].rot90(1, (-2, -1))[:, 1:])
    unmoved = rotate_each(images, angles + 0.3, shifts=torch.zeros(2, 2))
    assert torch.equal(unmoved, rotate_each(images, angles + 0.3))


def test_shifts_between_pixels_are_interpolated() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 1
    moved = rotate_each(image, torch.tensor([0.7]), shifts=torch.tensor([[0.25, -0.5]]))
    rows, columns = torch.meshgrid(torch.arange(9.0), torch.arange(9.0), indexing="ij")
    centre = [float((moved[0, 0] * places).sum() / moved.sum()) for places in (rows, columns)]
    assert centre == pytest.approx([4 - 0.5, 4 + 0.25], abs=0.05)


def test_random_shifts_fill_the_square() -> None:
    shifts = random_shifts(1.5, 4000, seeded(0))
    assert (shifts.shape, shifts.dtype) == ((4000, 2), torch.float64)
    assert float(shifts.abs().max()) <= 1.5
    assert float(shifts.abs().max()) > 1.45
    assert shifts.mean(0).abs().max() < 0.05
    assert shifts.var(0).sqrt().sub(1.5 / math.sqrt(3)).abs().max() < 0.05
    assert not random_shifts(0.0, 5, seeded(0)).any()


def test_mistakes_are_named() -> None:
    images = torch.rand(2, 1, 5, 5)
    with pytest.raises(ValueError, match=r"expected two shifts for each of 2 images, got shape \(2, 3\)"):
        rotate_each(images, torch.zeros(2), shifts=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="unknown augmentation 'flips', choose one of"):
        random_angles("flips", 3, seeded(0))
    with pytest.raises(ValueError, match=r"unknown resampling 'nearest', choose one of \['bilinear', 'bicubic'\]"):
        rotate_each(images, torch.zeros(2), "nearest")
    for wrong in (images[0], images[..., :4]):
        with pytest.raises(ValueError, match=r"square images \(B, C, H, H\), got \("):
            rotate_each(wrong, torch.zeros(len(wrong)))
    for angles in (torch.zeros(3), torch.zeros(2, 1), torch.tensor(0.0)):
        with pytest.raises(ValueError, match="expected one angle for each of 2 images"):
            rotate_each(images, angles)


def test_the_ground_is_the_colour_of_the_border() -> None:
    images = torch.rand(2, 3, 9, 7)
    images[0, 1, [0, -1]] = images[0, 1, :, [0, -1]] = 0.25
    images[0, 1, 0, 3] = 1.0  # something that reaches the border
    found = ground(images)
    assert found.shape == (2, 3, 1, 1)
    assert found[0, 1] == 0.25
    assert not ground(torch.zeros(4, 1, 28, 28)).any()


@pytest.mark.parametrize("orientations", [1, 8, 16])
@pytest.mark.parametrize("epochs", [1, 2, 5, 12, 40])
def test_angles_between_orientations_are_spread_evenly_over_epochs(orientations: int, epochs: int) -> None:
    """Gaps on the circle of [0, 2π/Λ) are at most 2.7 times and at least a third of even ones, for every image."""
    offsets = torch.rand(50, dtype=torch.float64, generator=seeded(0))
    angles = torch.stack([angles_between(orientations, epoch, offsets) for epoch in range(epochs)])
    step = 2 * math.pi / orientations
    assert 0 <= float(angles.min()) <= float(angles.max()) < step
    ordered = angles.sort(0).values / step
    gaps = torch.cat([ordered, ordered[:1] + 1]).diff(dim=0) * epochs
    assert float(gaps.max()) < 2.7
    assert float(gaps.min()) > 1 / 3


def test_angles_between_orientations_are_uniform_in_every_epoch() -> None:
    offsets = torch.rand(8000, dtype=torch.float64, generator=seeded(0))
    for epoch in (0, 1, 17):
        counts = torch.histc(angles_between(8, epoch, offsets) / (2 * math.pi / 8), 8, 0, 1)
        assert float((counts / 1000 - 1).abs().max()) < 0.15


def test_each_image_is_moved_by_its_own_offset(dtype: torch.dtype) -> None:
    images = torch.rand(9, 2, 7, 5, dtype=dtype)
    offsets = torch.tensor([[0, 0], [1, 0], [0, 1], [-2, 1], [3, -4], [6, 4], [-7, 0], [0, 5], [-9, 9]])
    for image, (down, right), moved in zip(images, offsets.tolist(), move_each(images, offsets), strict=True):
        for row in range(7):
            for column in range(5):
                inside = 0 <= row - down < 7 and 0 <= column - right < 5
                expected = image[:, row - down, column - right] if inside else torch.zeros(2, dtype=dtype)
                assert torch.equal(moved[:, row, column], expected)


def test_moving_turned_images_is_turning_moved_ones() -> None:
    images, (down, right) = torch.rand(1, 1, 8, 8), (2, -3)
    turned = move_each(images.rot90(1, (-2, -1)), torch.tensor([[-right, down]]))
    assert torch.equal(turned, move_each(images, torch.tensor([[down, right]])).rot90(1, (-2, -1)))


@pytest.mark.parametrize("offsets", [torch.zeros(3, 2), torch.zeros(2, 2, dtype=torch.int64)])
def test_offsets_of_moves_are_checked(offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected integer offsets \(B, 2\) for 3 images, got torch"):
        move_each(torch.rand(3, 1, 4, 4), offsets)
