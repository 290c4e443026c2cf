import math

import pytest
import torch
from torch import nn

from sfcnn import (
    LiftConv2d,
    OrientationPool,
    OrientationReadout,
    assert_equivariant,
    reflect,
    reflect_features,
    rotate,
    rotate_features,
)
from sfcnn.nn import SpatialMaxPool
from sfcnn.steering import orientation_angles

TURN = 2 * math.pi


def circular_distance(a: torch.Tensor, b: torch.Tensor, period: float) -> float:
    """Largest distance of two angles on a circle of this period."""
    difference = torch.remainder(a - b, period)
    return float(torch.minimum(difference, period - difference).max())


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_pooling(kind: str, dtype: torch.dtype) -> None:
    features = torch.randn(2, 3, 8, 6, 6, dtype=dtype)
    pool = OrientationPool(kind)
    expected = features.max(2).values if kind == "max" else features.sum(2) / 8
    torch.testing.assert_close(pool(features), expected)
    assert_equivariant(pool, features)
    assert_equivariant(pool, features, reflections=True)
    assert repr(pool) == f"OrientationPool('{kind}')"


@pytest.mark.parametrize("kind", ["argmax", "soft"])
@pytest.mark.parametrize("symmetry", [1, 2])
def test_rotating_the_input_adds_to_the_angle(kind: str, symmetry: int, dtype: torch.dtype) -> None:
    features = torch.randn(2, 3, 8, 6, 6, dtype=dtype)
    readout = OrientationReadout(kind, symmetry=symmetry)
    response, angle = readout(features)
    period = TURN / symmetry
    assert ((angle >= 0) & (angle < period)).all()
    for quarter in range(1, 4):
        phi = quarter * math.pi / 2
        turned = readout(rotate_features(features, phi))
        torch.testing.assert_close(turned.response, rotate(response, phi))
        # Near-ties of the softmax have an angle that hardly is one: rounding moves it in float32.
        limit = 1e-2 if dtype == torch.float32 else 1e-9
        assert circular_distance(turned.angle, rotate(angle, phi) + phi, period) < limit


@pytest.mark.parametrize("kind", ["argmax", "soft"])
@pytest.mark.parametrize("symmetry", [1, 2])
def test_mirroring_the_input_mirrors_the_angle(kind: str, symmetry: int) -> None:
    features = torch.randn(2, 3, 16, 6, 6, dtype=torch.float64)
    readout = OrientationReadout(kind, symmetry=symmetry, reflections=True)
    response, angle = readout(features)
    mirrored = readout(reflect_features(features))
    torch.testing.assert_close(mirrored.response, reflect(response))
    assert circular_distance(mirrored.angle, math.pi - reflect(angle), TURN / symmetry) < 1e-9
    turned = readout(rotate_features(features, math.pi / 4 * 2, reflections=True))
    assert circular_distance(turned.angle, rotate(angle, math.pi / 2) + math.pi / 2, TURN / symmetry) < 1e-9
    assert "reflections=True" in repr(readout)
    with pytest.raises(ValueError, match="2Λ orientations, an even number, got 5"):
        readout(features[:, :, :5])


def test_argmax_reads_the_sampled_angle() -> None:
    features = torch.zeros(1, 1, 16, 2, 2)
    features[:, :, 5] = 3.0
    response, angle = OrientationReadout("argmax")(features)
    assert (response == 3).all()
    torch.testing.assert_close(angle, torch.full((1, 1, 2, 2), 5 * TURN / 16))


def test_soft_reads_between_the_sampled_angles() -> None:
    """A response cos(θ − α) has its circular mean at α, wherever α lies between the samples."""
    alpha = 0.3
    for symmetry in (1, 2):
        wave = torch.cos(symmetry * (orientation_angles(16) - alpha)).float().view(1, 1, 16, 1, 1)
        angle = OrientationReadout("soft", symmetry=symmetry)(wave).angle
        assert float(angle) == pytest.approx(alpha, abs=1e-5)


def test_soft_comes_close_to_argmax_when_cold_and_has_gradients() -> None:
    features = torch.randn(1, 2, 8, 3, 3, requires_grad=True)
    soft, hard = OrientationReadout("soft", temperature=1e-3)(features), OrientationReadout("argmax")(features)
    torch.testing.assert_close(soft.response, hard.response, atol=1e-2, rtol=0)
    response, angle = OrientationReadout("soft")(features)
    (response + angle).sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


@torch.no_grad()
def test_the_direction_of_a_stripe_is_read() -> None:
    """End to end: an edge filter's strongest orientation follows the stripes of an image."""
    layer = LiftConv2d(1, 1, 7, 16, padding="same", bias=False)
    torch.nn.init.zeros_(layer.weight)
    layer.weight.data[0, 0, -2] = 1.0  # k = 2 on the outer ring: a line detector
    readout = OrientationReadout("soft", symmetry=2)
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    angles = []
    for phi in (0.0, 0.4, 1.1, 2.0):
        stripes = torch.cos(0.5 * ((x - 16) * -math.sin(phi) + (16 - y) * math.cos(phi)))
        angles.append(float(readout(layer(stripes[None, None])).angle[0, 0, 16, 16]) - phi)
    turned = torch.tensor(angles)
    assert circular_distance(turned, turned[:1], math.pi) < 0.05


def test_wrong_use_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"unknown kind of orientation pooling 'median', choose one of \['max', 'mean'\]"
    ):
        OrientationPool("median")
    with pytest.raises(ValueError, match=r"choose one of \['argmax', 'soft'\]"):
        OrientationReadout("max")
    with pytest.raises(ValueError, match=r"temperature must be positive, got 0"):
        OrientationReadout("soft", temperature=0)
    with pytest.raises(ValueError, match=r"symmetry must be a whole number of at least 1, got 0"):
        OrientationReadout("soft", symmetry=0)
    for module in (OrientationPool(), OrientationReadout()):
        with pytest.raises(ValueError, match=r"expects features of shape \(B, C, Λ, H, W\), got \(2, 3, 4, 5\)"):
            module(torch.zeros(2, 3, 4, 5))


@pytest.mark.parametrize("size", [(6, 8), (7, 5), (2, 3)])
def test_the_maximum_over_pixels_is_that_of_pytorch(size: tuple[int, int], dtype: torch.dtype) -> None:
    features = torch.randn(2, 3, 4, *size, dtype=dtype)
    features[0, 0, 0, 0, 0] = torch.nan
    layer, reference = SpatialMaxPool(), nn.MaxPool3d((1, 2, 2))
    with torch.no_grad():
        found = layer(features)
    torch.testing.assert_close(found, reference(features), rtol=0, atol=0, equal_nan=True)
    given = features.nan_to_num().requires_grad_()
    gradient = torch.autograd.grad(layer(given).sum(), given)[0]
    assert gradient.equal(torch.autograd.grad(reference(given).sum(), given)[0])
    with torch.no_grad(), pytest.raises(RuntimeError, match="too small"):
        layer(features[..., :1])
