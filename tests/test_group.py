import math

import pytest
import torch
from torch import nn

from sfcnn import (
    GroupConv2d,
    LiftConv2d,
    assert_equivariant,
    equivariance_error,
    reflect,
    reflect_features,
    rotate,
    rotate_features,
)


def blob(row: int, column: int, size: int = 33) -> torch.Tensor:
    """A smooth spot on an image."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return torch.exp(-((y - row) ** 2 + (x - column) ** 2) / 18.0).double()


def test_rotation_is_counter_clockwise_as_seen() -> None:
    """A spot right of the centre goes up, that is to a smaller row, at 90° and half-way at 45°."""
    right, up = blob(16, 24), blob(8, 16)
    torch.testing.assert_close(rotate(right, math.pi / 2), up)
    diagonal = rotate(right, math.pi / 4)
    offset = 8 / math.sqrt(2)
    row, column = divmod(int(diagonal.argmax()), 33)
    assert (row, column) == (round(16 - offset), round(16 + offset))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_small_turns_add_up_to_a_quarter(mode: str) -> None:
    image = blob(16, 22) - blob(12, 14)
    turned = image
    for _ in range(6):
        turned = rotate(turned, math.pi / 12, mode)
    error = torch.linalg.vector_norm(turned - rotate(image, math.pi / 2)) / torch.linalg.vector_norm(image)
    assert error < {"bilinear": 0.15, "bicubic": 0.06}[mode]


def test_other_angles_keep_shape_leading_axes_and_the_centre() -> None:
    images = torch.randn(2, 3, 5, 7)
    turned = rotate(images, 0.3)
    assert turned.shape == images.shape
    torch.testing.assert_close(turned[..., 2, 3], images[..., 2, 3])
    assert rotate(images, math.pi / 2).shape == (2, 3, 7, 5)


def test_features_turn_and_shift() -> None:
    features = torch.randn(2, 3, 8, 6, 6)
    turned = rotate_features(features, math.pi / 2)
    torch.testing.assert_close(turned[:, :, 2], torch.rot90(features[:, :, 0], 1, (-2, -1)))
    back = rotate_features(turned, -math.pi / 2)
    assert torch.equal(back, features)


def test_features_with_reflections_obey_the_law_of_the_group() -> None:
    """m² = 1 and m r_φ = r_{−φ} m, on images and on features."""
    images, features, quarter = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 8, 6, 6), math.pi / 2

    def turn(values: torch.Tensor, angle: float) -> torch.Tensor:
        return rotate_features(values, angle, reflections=True)

    assert torch.equal(reflect(reflect(images)), images)
    assert torch.equal(reflect(rotate(images, quarter)), rotate(reflect(images), -quarter))
    assert torch.equal(reflect_features(reflect_features(features)), features)
    assert torch.equal(reflect_features(turn(features, quarter)), turn(reflect_features(features), -quarter))
    assert torch.equal(turn(features, quarter)[:, :, 5], torch.rot90(features[:, :, 4], 1, (-2, -1)))
    assert torch.equal(reflect_features(features)[:, :, 3], features[:, :, 5].flip(-1))


class TurnsWrong(nn.Module):
    """A network that looks at one side of the image only."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * torch.linspace(0, 1, images.shape[-1])


def test_the_check_finds_what_is_not_equivariant() -> None:
    images = torch.rand(2, 1, 16, 16)
    assert equivariance_error(TurnsWrong(), images, math.pi / 2) > 0.1
    with pytest.raises(AssertionError, match=r"relative error .* at 90° exceeds 1e-05"):
        assert_equivariant(TurnsWrong(), images)
    assert_equivariant(nn.ReLU(), images)


def test_the_check_takes_images_features_and_numbers() -> None:
    images, features = torch.rand(2, 1, 12, 12), torch.rand(2, 3, 4, 12, 12)
    assert_equivariant(LiftConv2d(1, 2, 3, 4), images)
    assert_equivariant(GroupConv2d(3, 2, 3, 4), features)
    assert_equivariant(nn.Sequential(LiftConv2d(1, 2, 3, 4), nn.AdaptiveMaxPool3d(1), nn.Flatten()), images)


class MarksACorner(nn.Module):
    """A network that is the identity but for one corner."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        marked = images.clone()
        marked[..., :4, :4] += 1
        return marked


def test_the_central_disk_leaves_the_corners_out() -> None:
    images = torch.rand(1, 1, 33, 33)
    assert equivariance_error(MarksACorner(), images, math.pi / 2) > 0.1
    assert equivariance_error(MarksACorner(), images, math.pi / 2, radius=14) == 0
    assert equivariance_error(nn.Identity(), images, math.pi / 8, radius=14) == 0


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"expects maps of shape \(…, H, W\), got \(5,\)"):
        rotate(torch.zeros(5), 0.1)
    with pytest.raises(ValueError, match="unknown mode 'nearest'"):
        rotate(torch.zeros(5, 5), 0.1, "nearest")
    with pytest.raises(ValueError, match=r"angle 0.1 is not a sampled orientation: with Λ = 8 .* 2π/8"):
        rotate_features(torch.zeros(1, 1, 8, 3, 3), 0.1)
    with pytest.raises(ValueError, match=r"expects shape \(B, C, Λ, H, W\), got \(1, 8, 3, 3\)"):
        rotate_features(torch.zeros(1, 8, 3, 3), 0.1)
    with pytest.raises(ValueError, match=r"reflect expects maps of shape \(…, H, W\), got \(5,\)"):
        reflect(torch.zeros(5))
    with pytest.raises(ValueError, match=r"reflect_features expects shape \(B, C, 2Λ, H, W\), got \(1, 8, 3, 3\)"):
        reflect_features(torch.zeros(1, 8, 3, 3))
    with pytest.raises(ValueError, match="2Λ orientations, an even number, got 7"):
        rotate_features(torch.zeros(1, 1, 7, 3, 3), 0.0, reflections=True)
    with pytest.raises(ValueError, match="only features with reflections can be mirrored: pass reflections=True"):
        equivariance_error(nn.Identity(), torch.zeros(1, 1, 8, 3, 3), 0.0, mirror=True)
    with pytest.raises(ValueError, match=r"inputs must be images .* got \(3, 3\)"):
        equivariance_error(nn.Identity(), torch.zeros(3, 3), 0.1)
