import pytest
import torch
import torch.nn.functional as F

from sfcnn.ops import PADDING_MODES, Geometry


@pytest.mark.parametrize("mode", PADDING_MODES)
def test_geometry_means_what_conv2d_means(mode: str) -> None:
    geometry = Geometry(3, stride=2, padding=2, dilation=2, padding_mode=mode)
    maps, filters = torch.randn(2, 3, 9, 10), torch.randn(4, 3, 3, 3)
    reference = torch.nn.Conv2d(3, 4, 3, stride=2, padding=2, dilation=2, padding_mode=mode, bias=False)  # type: ignore[arg-type]
    reference.weight.data.copy_(filters)
    expected = reference(maps)
    torch.testing.assert_close(geometry.correlate(maps, filters), expected)
    assert expected.shape[-2:] == (geometry.output_size(9), geometry.output_size(10))
    same = Geometry(3, padding="same", padding_mode=mode).correlate(maps, filters)
    padded = F.pad(maps, (1,) * 4, mode="constant" if mode == "zeros" else mode)
    torch.testing.assert_close(same, F.conv2d(padded, filters))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, "stride must be a whole number of at least 1, got 0"),
        ({"dilation": -1}, "dilation must be a whole number of at least 1, got -1"),
        ({"stride": (1, 2)}, r"stride must be a whole number of at least 1, got \(1, 2\)"),
        ({"padding": -1}, "padding must be a whole number ≥ 0, 'same' or 'valid', got -1"),
        ({"padding": "full"}, "padding must be a whole number, 'same' or 'valid', got 'full'"),
        ({"padding": "same", "stride": 2}, "padding='same' needs stride 1, got stride 2"),
        ({"padding_mode": "mirror"}, r"unknown padding_mode 'mirror', choose one of \['zeros', 'reflect'"),
    ],
)
def test_wrong_geometry_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Geometry(3, **options)  # type: ignore[arg-type]
