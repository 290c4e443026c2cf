"""Deformations are rotations where nothing is stretched or bent, stretch by their matrix and move by their field."""

import math

import pytest
import torch

from sfcnn.classification.augmentation import RESAMPLINGS, random_angles, rotate_each
from sfcnn.classification.deformation import centre_bends, deform_each, random_bends, random_stretches
from sfcnn.classification.digits import load_digits


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def still(count: int, side: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What changes nothing."""
    zeros = torch.zeros(count, side, side, 2, dtype=torch.float64)
    return zeros[:, 0, 0, 0], torch.eye(2, dtype=torch.float64).expand(count, 2, 2), zeros


@pytest.mark.parametrize("mode", RESAMPLINGS)
def test_without_stretch_and_bend_images_are_turned(mode: str, dtype: torch.dtype) -> None:
    images = torch.zeros(12, 2, 15, 15, dtype=dtype)
    images[..., 3:-3, 3:-3] = torch.rand(12, 2, 9, 9, dtype=dtype, generator=seeded())
    angles = random_angles("continuous", 12, seeded())
    _, stretches, bends = still(12, 15)
    turned = rotate_each(images, angles, mode).clamp(torch.zeros(()), images.amax((2, 3), keepdim=True))
    found = deform_each(images, angles, stretches, bends, mode)
    torch.testing.assert_close(found, turned, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-10)


def test_a_stretch_changes_second_moments_by_its_inverse() -> None:
    """A Gaussian blob with covariance C, read at S x, has the covariance S⁻¹ C S⁻¹."""
    side, width = 61, 6.0
    places = torch.arange(side, dtype=torch.float64) - side // 2
    x, y = torch.meshgrid(places, places, indexing="xy")
    blob = torch.exp(-(x**2 + y**2) / (2 * width**2))[None, None].expand(5, 1, side, side)
    stretches = random_stretches(0.2, 5, seeded())
    angles, _, bends = still(5, side)
    found = deform_each(blob, angles, stretches, bends, "bicubic")[:, 0]
    mass = found.sum((1, 2))
    moments = torch.stack([(found * a * b).sum((1, 2)) / mass for a, b in ((x, x), (x, y), (x, y), (y, y))], -1)
    inverse = stretches.inverse()
    torch.testing.assert_close(moments.view(5, 2, 2), width**2 * inverse @ inverse, rtol=0.02, atol=0.2)


def test_a_bend_moves_pixels_by_its_field() -> None:
    image = torch.rand(1, 1, 12, 12, generator=seeded())
    angles, stretches, bends = still(1, 12)
    bends = bends + torch.tensor([2.0, -3.0])  # read two pixels to the right and three up
    found = deform_each(image, angles, stretches, bends)
    torch.testing.assert_close(found[0, 0, 3:, :-2], image[0, 0, :-3, 2:], rtol=0, atol=1e-5)


def test_centred_bends_leave_the_centre_of_mass_where_it_is() -> None:
    digits = load_digits().images[:40].double() / 255
    axis = torch.arange(28, dtype=torch.float64) - 13.5
    angles = random_angles("continuous", 40, seeded())
    stretches, bends = random_stretches(0.1, 40, seeded()), random_bends(0.8, 28, 40, seeded())

    def centres(bends: torch.Tensor) -> torch.Tensor:
        found = deform_each(digits, angles, stretches, bends)[:, 0]
        moments = [(found * axis).sum((1, 2)), (found * axis[:, None]).sum((1, 2))]
        return torch.stack(moments, -1) / found.sum((1, 2))[:, None]

    still = centres(torch.zeros_like(bends))
    moved = (centres(bends) - still).norm(dim=1).mean()
    left = (centres(centre_bends(digits, angles, stretches, bends)) - still).norm(dim=1).mean()
    assert float(moved) > 0.4
    assert float(left) < 0.3 * float(moved)


def test_bends_of_an_empty_image_stay_as_they_are() -> None:
    angles, stretches, _ = still(2, 9)
    bends = random_bends(1.0, 9, 2, seeded())
    assert torch.equal(centre_bends(torch.zeros(2, 1, 9, 9), angles, stretches, bends), bends)


def test_bends_are_smooth_and_as_large_as_asked() -> None:
    bends = random_bends(1.5, 28, 400, seeded())
    assert 1.0 < float(bends.std()) < 1.6
    steps = bends.diff(dim=1)
    assert float(steps.std()) < 0.35 * float(bends.std())  # a node is seven pixels from the next
    assert abs(float((bends[..., 0] * bends[..., 1]).mean())) < 0.1


def test_stretches_prefer_no_direction() -> None:
    stretches = random_stretches(0.3, 20_000, seeded())
    values = torch.linalg.eigvalsh(stretches).log()
    assert float(values.abs().max()) <= 0.3 + 1e-12
    mean = stretches.mean(0)
    torch.testing.assert_close(mean, mean[0, 0] * torch.eye(2, dtype=torch.float64), rtol=0, atol=0.005)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "cubic"}, "unknown resampling 'cubic', choose one of"),
        ({"images": torch.zeros(2, 1, 8, 9)}, r"square images \(B, C, H, H\), got \(2, 1, 8, 9\)"),
        ({"angles": torch.zeros(3)}, r"expected angles \(2,\) for 2 images, got \(3,\)"),
        ({"bends": torch.zeros(2, 8, 8)}, r"expected bends \(2, 8, 8, 2\) for 2 images, got \(2, 8, 8\)"),
    ],
)
def test_wrong_shapes_are_named(change: dict[str, object], message: str) -> None:
    angles, stretches, bends = still(2, 8)
    given = {"images": torch.zeros(2, 1, 8, 8), "angles": angles, "stretches": stretches, "bends": bends}
    with pytest.raises(ValueError, match=message):
        deform_each(**(given | change))  # type: ignore[arg-type]


def test_the_range_of_an_image_is_kept() -> None:
    image = (torch.rand(4, 1, 28, 28, generator=seeded()) > 0.5).float()
    angles = torch.full((4,), math.pi / 7, dtype=torch.float64)
    found = deform_each(image, angles, random_stretches(0.2, 4, seeded()), random_bends(1, 28, 4, seeded()), "bicubic")
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
