"""Tiles give what the whole image gives."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfcnn.models import membrane_unet, plain_unet
from sfcnn.models.unet import UNet
from sfcnn.segmentation.tiles import largest_tile, predict_image, predict_tiles, receptive_radius


def small_net(crop: int = 0, **options: object) -> UNet:
    torch.manual_seed(0)
    sizes = {"channels": 3, "levels": 3, "input_kernel_size": 5, "kernel_size": 3, "dropout": 0.0}
    net = membrane_unet(4, crop=crop, **{**sizes, **options})  # type: ignore[arg-type]
    for module in net.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.uniform_(module.bias, 0.2, 0.6)  # so that few units are dead
    return net.eval()


@settings(max_examples=12)
@given(
    height=st.integers(5, 150),
    width=st.integers(5, 150),
    tile=st.integers(20, 90),
    margin=st.sampled_from([0, 4, 7, 40]),
)
def test_tiles_do_not_matter(height: int, width: int, tile: int, margin: int) -> None:
    net = small_net(margin)
    image = torch.rand(1, height, width)
    whole = predict_tiles(net, image, tile=10**6, margin=margin)
    assert whole.shape == (1, height, width)
    torch.testing.assert_close(predict_tiles(net, image, tile=tile, margin=margin), whole, rtol=0, atol=1e-5)


@settings(max_examples=10)
@given(height=st.integers(10, 40), width=st.integers(10, 40), turns=st.integers(1, 3))
def test_turning_an_image_of_even_sides_turns_its_probabilities(height: int, width: int, turns: int) -> None:
    """Also where sides are no multiples of the coarsest pixel, since what they lack is shared by both ends."""
    net = small_net(4)
    image = torch.rand(1, 2 * height, 2 * width)
    turned = predict_tiles(net, image.rot90(turns, (-2, -1)), margin=4)
    torch.testing.assert_close(turned, predict_tiles(net, image, margin=4).rot90(turns, (-2, -1)), rtol=0, atol=1e-5)


def test_a_whole_image_in_one_piece_is_the_network_itself() -> None:
    net = small_net()
    image = torch.rand(1, 32, 48)
    with torch.no_grad():
        expected = torch.sigmoid(net(image.unsqueeze(0))[0])
    torch.testing.assert_close(predict_tiles(net, image), expected)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_radius_is_as_far_as_a_pixel_has_influence_and_not_much_more(levels: int) -> None:
    net = small_net(levels=levels).double()
    side = 2 * (receptive_radius(net) + 8)
    side += -side % 8
    image = torch.rand(1, 1, side, side, dtype=torch.float64, requires_grad=True)
    centre = side // 2
    net(image)[0, 0, centre, centre].backward()
    assert image.grad is not None
    rows, columns = image.grad[0, 0].nonzero(as_tuple=True)
    reach = int(torch.maximum((rows - centre).abs().max(), (columns - centre).abs().max()))
    assert reach <= receptive_radius(net)
    assert receptive_radius(net) <= reach + 3 * 2**levels + 8


def test_too_small_a_halo_would_be_noticed() -> None:
    net = small_net()
    image = torch.rand(1, 96, 96)
    whole = predict_tiles(net, image, tile=96)
    assert (predict_tiles(net, image, tile=24, halo=0) - whole).abs().max() > 1e-4


def test_turning_the_image_turns_the_prediction() -> None:
    net = small_net()
    image = torch.rand(1, 40, 40)
    turned = predict_tiles(net, image.rot90(1, (-2, -1)))
    torch.testing.assert_close(turned, predict_tiles(net, image).rot90(1, (-2, -1)), rtol=0, atol=1e-4)


def test_averaging_over_views_makes_a_plain_network_equivariant() -> None:
    net = plain_unet(channels=2, levels=2, input_kernel_size=3, kernel_size=3).eval()
    image = torch.rand(1, 24, 36)
    for average, act in (("rotations", lambda x: x.rot90(1, (-2, -1))), ("all", lambda x: x.flip(-1))):
        expected = act(predict_image(net, image, average=average))
        torch.testing.assert_close(predict_image(net, act(image), average=average), expected, rtol=0, atol=1e-5)
        assert not torch.allclose(act(predict_image(net, image)), predict_image(net, act(image)), atol=1e-4)


def test_progress_reaches_the_end() -> None:
    done: list[float] = []
    predict_image(small_net(), torch.rand(1, 40, 40), tile=20, average="rotations", progress=done.append)
    assert done == sorted(done)
    assert len(done) == 16
    assert math.isclose(done[-1], 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"tile": 0}, "tile must be at least 1"), ({"average": "some"}, "unknown average 'some', choose one of")],
)
def test_mistakes_are_said(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict_image(small_net(), torch.rand(1, 16, 16), **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected an image \(C, H, W\)"):
        predict_image(small_net(), torch.rand(16, 16))


@pytest.mark.parametrize("plain", [False, True])
def test_more_memory_makes_larger_tiles(plain: bool) -> None:
    net = plain_unet(12, levels=3) if plain else small_net()
    sides = [largest_tile(net, memory) for memory in (1e3, 1e9, 4e9)]
    assert sides[0] == 64
    assert sides[2] + 2 * receptive_radius(net) == pytest.approx(2 * (sides[1] + 2 * receptive_radius(net)), abs=2)
    assert largest_tile(net, 1e9, halo=0) == sides[1] + 2 * receptive_radius(net)


def test_the_halo_knows_dilation() -> None:
    net = small_net()
    middle = net.encoder[0][1].body[0][0]  # type: ignore[index]
    before = receptive_radius(net)
    middle.geometry = replace(middle.geometry, dilation=4)
    assert receptive_radius(net) == before + 3
    image = torch.rand(1, 150, 90)
    whole = predict_tiles(net, image, tile=10**6)
    torch.testing.assert_close(predict_tiles(net, image, tile=40), whole, rtol=0, atol=1e-5)


def test_probabilities_of_several_classes_sum_to_one() -> None:
    net = small_net(classes=3, in_channels=3)
    found = predict_image(net, torch.rand(3, 30, 40), tile=20)
    assert found.shape == (3, 30, 40)
    torch.testing.assert_close(found.sum(0), torch.ones(30, 40))
