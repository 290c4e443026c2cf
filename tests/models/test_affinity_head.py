import pytest
import torch

from sfcnn.models import count_parameters, membrane_unet, membrane_unet_cnn
from sfcnn.models.affinity_head import affinity_head, split_affinities
from sfcnn.models.unet import UNet
from sfcnn.segmentation.affinities import turn_affinities

SIZES = {"channels": 2, "levels": 2, "input_kernel_size": 5, "kernel_size": 3, "dropout": 0.0}
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def small(orientations: int = 4, **options: object) -> UNet:
    torch.manual_seed(0)
    return membrane_unet(orientations, **{**SIZES, "affinities": 3, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("crop", [0, 4])
@pytest.mark.parametrize("reflections", [False, True])
def test_affinities_turn_with_the_image(reflections: bool, crop: int, dtype: torch.dtype) -> None:
    net = small(8, reflections=reflections, crop=crop).to(dtype)
    images = torch.rand(2, 1, 20, 20, dtype=dtype)
    net(images, affinities=True)
    net.eval()
    with torch.no_grad():
        logits, affinities = split_affinities(net(images, affinities=True), 3, 8)
        for turns, mirrored in [(1, False), (2, False), *([(0, True), (3, True)] if reflections else [])]:
            view = (images.flip(-1) if mirrored else images).rot90(turns, (-2, -1))
            found, pairs = split_affinities(net(view, affinities=True), 3, 8)
            expected = turn_affinities(affinities, turns, mirrored=mirrored)
            assert (pairs - expected).norm() <= TOLERANCES[dtype] * expected.norm()
            turned = (logits.flip(-1) if mirrored else logits).rot90(turns, (-2, -1))
            assert (found - turned).norm() <= TOLERANCES[dtype] * turned.norm()
    assert not torch.allclose(affinities[:, :, 0], affinities[:, :, 1], rtol=0.01)  # directions differ


def test_the_rest_of_the_network_is_the_same_with_and_without_affinities() -> None:
    torch.manual_seed(0)
    bare = membrane_unet(4, **SIZES).eval()  # type: ignore[arg-type]
    net = small().eval()
    images = torch.rand(1, 1, 21, 26)  # sizes that are continued
    assert torch.equal(net(images), bare(images))
    both = net(images, affinities=True)
    assert both.shape == (1, 1 + 3 * 4, 21, 26)
    assert torch.equal(both[:, :1], bare(images))
    missing = net.load_state_dict(bare.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(name.startswith("affinity_head.") for name in missing.missing_keys)
    with pytest.raises(ValueError, match="this UNet has no affinities"):
        bare(images, affinities=True)


@pytest.mark.parametrize("match", ["channels", "effective-channels", "parameters"])
def test_a_plain_twin_has_the_same_pairs(match: str) -> None:
    plain = membrane_unet_cnn(match, 4, **SIZES, affinities=3, crop=2)
    assert plain(torch.rand(1, 1, 16, 16)).shape == (1, 1, 12, 12)
    assert plain(torch.rand(1, 1, 16, 16), affinities=True).shape == (1, 13, 12, 12)
    if match == "parameters":
        assert abs(count_parameters(plain) / count_parameters(small(crop=2)) - 1) < 0.1


def test_a_crop_is_the_inner_part() -> None:
    torch.manual_seed(0)
    whole = affinity_head(2, 4, 3, 4).eval()
    part = affinity_head(2, 4, 3, 4, crop=3).eval()
    part.load_state_dict(whole.state_dict())
    features = torch.rand(1, 2, 4, 14, 15)
    torch.testing.assert_close(part(features), whole(features)[..., 3:-3, 3:-3])


def test_mirrored_directions_need_an_even_number() -> None:
    with pytest.raises(ValueError, match="need an even number of orientations, got 5"):
        small(5, reflections=True)
