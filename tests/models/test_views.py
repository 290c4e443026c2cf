"""Views of images: what they are, and that pooling over them makes any network invariant or equivariant."""

import math

import pytest
import torch
from torch import Tensor, nn

from sfcnn import assert_equivariant, rotate
from sfcnn.group import ground
from sfcnn.models import BASELINE, ViewPool, plain_classifier, plain_unet
from sfcnn.models.views import make_views


def classifier(dtype: torch.dtype, classes: int = 4) -> nn.Module:
    layers = [nn.Conv2d(2, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), nn.Flatten(), nn.LazyLinear(classes)]
    net = nn.Sequential(*layers).to(dtype)
    net(torch.rand(1, 2, 13, 13, dtype=dtype))
    return net


def dense(dtype: torch.dtype) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 5, padding=2), nn.ReLU(), nn.Conv2d(6, 3, 3, padding=1)).to(dtype)


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("views", [4, 8, 12])
def test_pooled_outputs_do_not_change_under_quarter_turns(pool: str, views: int, dtype: torch.dtype) -> None:
    images = torch.rand(3, 2, 13, 13, dtype=dtype)
    net = classifier(dtype)
    assert_equivariant(ViewPool(net, views, pool=pool), images)
    with pytest.raises(AssertionError):
        assert_equivariant(net, images)
    with pytest.raises(AssertionError):
        assert_equivariant(ViewPool(net, 2, pool=pool), images, [math.pi / 2])


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("size", [(12, 12), (9, 14)], ids=str)
def test_dense_outputs_are_equivariant(pool: str, size: tuple[int, int], dtype: torch.dtype) -> None:
    images = torch.rand(2, 2, *size, dtype=dtype)
    net = dense(dtype)
    assert_equivariant(ViewPool(net, 4, pool=pool, dense=True), images)
    with pytest.raises(AssertionError):
        assert_equivariant(net, images)
    if size[0] == size[1]:
        assert_equivariant(ViewPool(net, 8, pool=pool, dense=True), images)


def test_mirrored_views_make_it_invariant_under_mirrors_too(dtype: torch.dtype) -> None:
    images = torch.rand(2, 2, 13, 13, dtype=dtype)
    for net, is_dense in ((classifier(dtype), False), (dense(dtype), True)):
        once, twice = (ViewPool(net, 4, mirrored=mirrored, dense=is_dense) for mirrored in (False, True))
        for axes in ((-1,), (-2,)):
            expected = twice(images).flip(axes) if is_dense else twice(images)
            torch.testing.assert_close(twice(images.flip(axes)), expected)
            changed = once(images).flip(axes) if is_dense else once(images)
            assert not torch.allclose(once(images.flip(axes)), changed, rtol=1e-3)
        assert_equivariant(twice, images)


def test_one_view_is_the_network_and_the_mean_is_that_of_rotated_images() -> None:
    net, images = classifier(torch.float64), torch.rand(3, 2, 13, 13, dtype=torch.float64)
    torch.testing.assert_close(ViewPool(net, 1)(images), net(images))
    behind = ground(images)
    turned = [net(rotate(images - behind, 2 * math.pi * n / 6, "bilinear") + behind) for n in range(6)]
    torch.testing.assert_close(ViewPool(net, 6, pool="mean")(images), torch.stack(turned).mean(0))
    torch.testing.assert_close(ViewPool(net, 6, pool="max")(images), torch.stack(turned).amax(0))


@pytest.mark.parametrize("views", [3, 4, 5, 8, 16])
@pytest.mark.parametrize("mirrored", [False, True])
def test_views_can_be_undone(views: int, mirrored: bool) -> None:
    made = make_views(views, mirrored)
    assert len(set(made)) == views * (1 + mirrored)
    x = torch.linspace(-1, 1, 41, dtype=torch.float64)
    blob = torch.exp(-6 * ((x - 0.1) ** 2 + 2 * (x[:, None] + 0.2) ** 2))
    for view in made:
        torch.testing.assert_close(view.undo(view.apply(blob)), blob, atol=0.02, rtol=0)


def test_pixels_that_a_view_does_not_see_do_not_count() -> None:
    """A network that returns its input: so does the pool, wherever all views or some see the pixel."""
    images = 1 + torch.rand(1, 1, 1, 1, dtype=torch.float64).expand(1, 1, 16, 16)
    for pool in ("max", "mean"):
        torch.testing.assert_close(ViewPool(nn.Identity(), 8, pool=pool, dense=True)(images), images)


def test_it_trains_and_takes_classifiers_and_unets() -> None:
    images = torch.rand(4, 1, 28, 28)
    net = plain_classifier(BASELINE, 0.25)
    pooled = nn.Sequential(ViewPool(net[:2], 4), net[2])
    pooled(images).sum().backward()
    assert all(parameter.grad is not None for parameter in pooled.parameters())
    assert_equivariant(pooled.eval(), images)
    unet = plain_unet(channels=2, levels=3, kernel_size=3, input_kernel_size=5).eval()
    assert_equivariant(ViewPool(nn.Sequential(unet, nn.Sigmoid()), 4, pool="mean", dense=True), images[:1])


def test_batch_norm_in_training_mode_sees_all_views() -> None:
    images = torch.rand(4, 1, 28, 28, dtype=torch.float64)
    pooled = ViewPool(plain_classifier(BASELINE, 0.25, dropout=0.0).double(), 4)
    torch.testing.assert_close(pooled(images), pooled(images.rot90(1, (-2, -1))))


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown pool 'sum', choose one of \['max', 'mean'\]"):
        ViewPool(nn.Identity(), pool="sum")
    for views in (0, -4, 1000, 4.0, True):
        with pytest.raises(ValueError, match=f"views must be a whole number from 1 to 360, got {views}"):
            ViewPool(nn.Identity(), views)  # type: ignore[arg-type]


def test_four_views_are_exported() -> None:
    from sfcnn.export import to_plain

    net = ViewPool(classifier(torch.float32), 4).eval()
    images: Tensor = torch.rand(3, 2, 13, 13)
    torch.testing.assert_close(to_plain(net)(images), net(images))
