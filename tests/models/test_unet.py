import pytest
import torch
from torch import nn

from sfcnn import GroupConv2d, LiftConv2d, assert_equivariant
from sfcnn.models import MATCHES, count_parameters, membrane_unet, membrane_unet_cnn
from sfcnn.ops import ENGINES


def test_it_is_the_network_of_the_appendix() -> None:
    with torch.device("meta"):
        net = membrane_unet(readout="paper")
    lift = [m for m in net.modules() if isinstance(m, LiftConv2d)]
    group = [m for m in net.modules() if isinstance(m, GroupConv2d)]
    assert [(m.kernel_size, m.out_channels, m.orientations) for m in lift] == [(11, 12, 17)]
    assert {m.kernel_size for m in group} == {7}
    assert {m.orientations for m in group} == {17}
    assert [level[0][0].out_channels for level in net.encoder] == [12, 24, 48, 48, 48]  # type: ignore[index]
    assert [m[0].out_channels for m in net.decoder] == [48, 48, 24, 12]  # type: ignore[index]
    assert sum(m.kernel_size == (1, 1) for m in net.modules() if isinstance(m, nn.Conv2d)) == 2
    assert {m.p for m in net.modules() if isinstance(m, nn.Dropout3d | nn.Dropout2d)} == {0.4}
    assert sum(isinstance(m, nn.Dropout3d) for m in net.modules()) == len(lift) + len(group)


@pytest.mark.parametrize("readout", ["group", "paper"])
@pytest.mark.parametrize("engine", ["direct", "atomic"])
def test_quarter_turns_turn_the_prediction(engine: str, readout: str, dtype: torch.dtype) -> None:
    sizes = {"channels": 3, "levels": 3, "input_kernel_size": 5, "kernel_size": 3}
    net = membrane_unet(4, **sizes, engine=engine, readout=readout)  # type: ignore[arg-type]
    net = net.to(dtype)
    images = torch.rand(2, 1, 24, 24, dtype=dtype)
    net(images)
    assert_equivariant(net.eval(), images)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [4, 8, 16])
def test_turned_and_mirrored_images_have_turned_and_mirrored_predictions(
    orientations: int, engine: str, dtype: torch.dtype
) -> None:
    sizes = {"channels": 2, "levels": 3, "input_kernel_size": 5, "kernel_size": 3}
    net = membrane_unet(orientations, **sizes, engine=engine, reflections=True).to(dtype)  # type: ignore[arg-type]
    images = torch.rand(2, 1, 16, 16, dtype=dtype)
    net(images)
    assert_equivariant(net.eval(), images, reflections=True)


def test_a_twin_has_the_maps_of_a_network_with_reflections() -> None:
    twin = membrane_unet_cnn("effective-channels", 3, channels=2, levels=2, reflections=True)
    assert twin.encoder[0][0][0].out_channels == 2 * 2 * 3  # type: ignore[index]


def test_sizes_are_arguments() -> None:
    net = membrane_unet(3, in_channels=2, classes=3, channels=2, levels=2, residual_depth=2, crop=4, dropout=0.0)
    assert net(torch.rand(2, 2, 16, 24)).shape == (2, 3, 8, 16)
    assert membrane_unet(2, channels=2, levels=1)(torch.rand(1, 1, 9, 9)).shape == (1, 1, 9, 9)


def test_wrong_inputs_are_named() -> None:
    net = membrane_unet(2, channels=2, levels=3)
    with pytest.raises(ValueError, match=r"expects images of shape \(B, C, H, W\), got \(16, 16\)"):
        net(torch.rand(16, 16))
    with pytest.raises(ValueError, match="levels must be at least 1, got 0"):
        membrane_unet(2, levels=0)
    with pytest.raises(ValueError, match="unknown readout 'late', choose one of"):
        membrane_unet(2, readout="late")
    with pytest.raises(ValueError, match="crop must be at least 0, got -1"):
        membrane_unet(2, crop=-1)


def test_twins_match() -> None:
    options = {"channels": 4, "levels": 3}
    with torch.device("meta"):
        ours = membrane_unet(8, **options)  # type: ignore[arg-type]
        twins = {match: membrane_unet_cnn(match, 8, **options) for match in MATCHES}
    widths = {match: twin.encoder[0][0][0].out_channels for match, twin in twins.items()}  # type: ignore[index]
    assert (widths["channels"], widths["effective-channels"]) == (4, 32)
    assert count_parameters(twins["parameters"]) / count_parameters(ours) == pytest.approx(1, abs=0.02)
    assert membrane_unet_cnn("channels", 8, **options)(torch.rand(1, 1, 16, 16)).shape == (1, 1, 16, 16)


@pytest.mark.parametrize("crop", [0, 3])
def test_any_size_is_continued_by_reflection(crop: int) -> None:
    net = membrane_unet(4, channels=2, levels=3, input_kernel_size=3, kernel_size=3, crop=crop)
    net(torch.rand(2, 1, 32, 32))
    net.eval()
    for height, width in ((18, 22), (17, 32), (7, 9)):
        images = torch.rand(2, 1, height, width)
        assert net(images).shape == (2, 1, height - 2 * crop, width - 2 * crop)
    images = torch.rand(1, 1, 18, 22)  # lacks 2 in each direction, one on each side
    whole = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    torch.testing.assert_close(net(images), net(whole)[..., 1:-1, 1:-1])
    assert_equivariant(net, images)


def test_a_narrow_network_can_say_yes() -> None:
    """Lines on 5 % of the pixels: after a few steps the network is sure of some of them, and right."""
    torch.manual_seed(0)
    net = membrane_unet(8, channels=4, levels=2, input_kernel_size=7, kernel_size=5, dropout=0.0)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(40):
        lines = torch.zeros(2, 1, 32, 32)
        for image in lines[:, 0]:
            row = int(torch.randint(4, 28, ()))
            image[row : row + 2] = 1
        lines = lines.transpose(-2, -1) if torch.rand(()) < 0.5 else lines
        images = lines + 0.5 * torch.randn_like(lines)
        loss = nn.functional.binary_cross_entropy_with_logits(net(images), lines)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = net.eval()(images).sigmoid().detach()
    assert float(found.max()) > 0.9
    assert float(lines[found > 0.5].mean()) > 0.8
    assert float(found[lines > 0].mean()) > 0.5
