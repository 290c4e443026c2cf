import numpy as np
import pytest

from sfcnn.segmentation.offsets import oriented_offsets

RADII = (1, 1.5, 2.5, 3, 3.5 * 2**0.5, 9, 27)  # some of them lie between two pixels


@pytest.mark.parametrize("orientations", [2, 4, 6, 8, 12, 16, 30])
def test_turned_and_mirrored_steps_are_steps(orientations: int) -> None:
    steps = oriented_offsets(RADII, orientations)
    rows, columns = steps[..., 0], steps[..., 1]
    assert steps.shape == (len(RADII), orientations, 2)
    assert steps.dtype == np.int64
    np.testing.assert_array_equal(np.roll(steps, -orientations // 2, axis=1), -steps)
    mirrored = (orientations // 2 - np.arange(orientations)) % orientations
    np.testing.assert_array_equal(steps[:, mirrored], np.stack([rows, -columns], axis=-1))
    if orientations % 4 == 0:  # counter-clockwise, with rows that grow downwards
        turned = np.stack([-columns, rows], axis=-1)
        np.testing.assert_array_equal(np.roll(steps, -orientations // 4, axis=1), turned)


def test_steps_lead_to_the_pixel_at_their_radius_and_angle() -> None:
    for orientations in (5, 8, 17):
        angles = 2 * np.pi * np.arange(orientations) / orientations
        rows, columns = np.moveaxis(oriented_offsets(RADII, orientations), -1, 0)
        exact = np.asarray(RADII)[:, None] * np.exp(1j * angles)
        assert np.abs(columns - exact.real).max() <= 0.5 + 1e-6
        assert np.abs(-rows - exact.imag).max() <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("radii", "orientations", "message"),
    [
        ((0.5, 3), 8, r"radii must be at least 1 pixel, got 0\.5"),
        ((1, float("nan")), 8, "radii must be at least 1 pixel, got nan"),
        ((1, float("inf")), 8, "radii must be at least 1 pixel, got inf"),
        ((1, 3, 3), 8, r"radii must increase, got \[1, 3, 3\]"),
        ((9, 3), 8, "radii must increase"),
        ((), 8, "expected at least one radius"),
        ((1, 3), 1, "orientations must be at least 2, got 1"),
    ],
)
def test_wrong_radii_are_refused(radii: tuple[float, ...], orientations: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        oriented_offsets(radii, orientations)
