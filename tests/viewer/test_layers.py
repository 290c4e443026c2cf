"""What is read from layers, and where results lie."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfcnn.viewer.layers import pixel_size, read_images, take_layer
from viewer.conftest import REASON

if REASON:
    pytest.skip(REASON, allow_module_level=True)

from napari.layers import Image, Labels

RANDOM = np.random.default_rng(0)
GREY = RANDOM.random((5, 7)).astype(np.float32)


def read(data: Any, *, colours: bool = False, **options: Any) -> Any:
    return read_images(take_layer(Image(data, name="em", **options)), colours=colours)


@pytest.mark.parametrize(("dtype", "white"), [("uint8", 255), (">u2", 65535), ("bool", 1)])
def test_whole_numbers_are_fractions_of_the_largest(dtype: str, white: int) -> None:
    stored = (GREY * white).round().astype(dtype)
    found = read(stored, contrast_limits=(0, white / 2))  # how a layer is shown does not matter
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], stored.astype(np.float64) / white, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_from_0_to_1_are_taken_as_they_are(dtype: str) -> None:
    found = read(GREY.astype(dtype), contrast_limits=(0.2, 0.4))
    np.testing.assert_array_equal(found[0], GREY.astype(dtype).astype(np.float32))


def test_other_floats_are_mapped_by_the_contrast_limits_and_not_clipped() -> None:
    wide = 3000 * GREY.astype(np.float64) - 1000
    np.testing.assert_allclose(read(wide, contrast_limits=(-1000, 2000))[0], GREY, atol=1e-6)
    narrow = read(wide, contrast_limits=(0, 1000))[0]
    np.testing.assert_allclose(narrow, wide / 1000, atol=1e-6)
    assert narrow.min() < 0
    assert narrow.max() > 1


def test_colours_and_grey() -> None:
    photograph = RANDOM.integers(0, 256, (5, 7, 3), np.uint8)
    grey = np.repeat(photograph[..., :1], 3, -1)
    opaque = np.concatenate([photograph, np.full((5, 7, 1), 255, np.uint8)], -1)
    np.testing.assert_allclose(read(photograph, colours=True, rgb=True)[0], photograph / 255, atol=1e-7)
    np.testing.assert_allclose(read(opaque, colours=True, rgb=True)[0], photograph / 255, atol=1e-7)
    np.testing.assert_allclose(read(grey, rgb=True)[0], photograph[..., 0] / 255, atol=1e-7)  # as from files
    np.testing.assert_allclose(read(GREY, colours=True)[0], np.stack([GREY] * 3, -1))
    for wrong, reason in ((photograph, "em is a colour image"), (opaque // 2, "em has transparent pixels")):
        with pytest.raises(ValueError, match=reason):
            read(wrong, rgb=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (np.zeros((5, 7), np.int16), "em has values of type int16, expected one of uint8, uint16, float32"),
        (np.zeros((5, 7), np.complex64), "em has values of type complex64, expected"),
        (np.where(GREY > 0.5, np.nan, GREY), r"em has \d+ pixels that are not numbers"),
        (np.zeros((0, 5, 7), np.uint8), "em has no pixels"),
    ],
)
def test_other_values_are_refused(data: Any, reason: str) -> None:
    """Some of them already by napari, when a layer is made."""
    source = replace(take_layer(Image(GREY, name="em")), pixels=data)
    with pytest.raises(ValueError, match=reason):
        read_images(source, colours=False)


def test_layers_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="nuclei is a labels layer, expected an image layer"):
        take_layer(Labels(np.zeros((4, 4), int), name="nuclei"))
    with pytest.raises(ValueError, match="there is no image layer"):
        take_layer(None)


def test_pyramids_are_read_at_their_finest_level() -> None:
    np.testing.assert_array_equal(read([GREY, GREY[::2, ::2]], multiscale=True)[0], GREY)


def test_a_slice_lies_where_it_lay_in_the_stack(viewer: Any) -> None:
    """Also in layers that are turned and sheared, with other axes before theirs in the viewer."""
    rng = np.random.default_rng(1)
    data = rng.random((2, 3, 5, 7))
    angle = np.eye(4)
    angle[2:, 2:] = [[0.6, -0.8], [0.8, 0.6]]
    options: dict[str, Any] = {
        "scale": (1, 2, 0.5, 0.5),
        "translate": (0, 5, 6, 7),
        "rotate": angle,
        "shear": [0.1] * 6,
    }
    layer = viewer.add_image(data, name="em", **options)
    viewer.add_image(np.zeros((4, 2, 3, 5, 7)), name="longer")
    viewer.dims.set_point((0, 1, 2), (2, *layer.data_to_world((1, 2, 0, 0))[:2]))
    source = take_layer(layer, viewer.dims)
    assert source.shape == (1, 1, 5, 7)
    np.testing.assert_array_equal(np.asarray(source.pixels)[0, 0], data[1, 2])
    result = Image(np.zeros(source.shape), **source.place)
    for point in ((0, 0), (4, 6), (1.5, 2)):
        np.testing.assert_allclose(result.data_to_world((0, 0, *point)), layer.data_to_world((1, 2, *point)))


def test_only_slices_of_the_last_axes_are_visible_ones(viewer: Any) -> None:
    layer = viewer.add_image(np.zeros((3, 5, 7)), name="em")
    viewer.dims.order = (1, 0, 2)
    with pytest.raises(ValueError, match="the viewer does not show a slice of the last two axes of em"):
        take_layer(layer, viewer.dims)
    viewer.dims.order = (0, 1, 2)
    viewer.add_image(np.zeros((9, 5, 7)), name="longer")
    viewer.dims.set_current_step(0, 6)
    with pytest.raises(ValueError, match="em has no slice at the viewer's position"):
        take_layer(layer, viewer.dims)


@pytest.mark.parametrize(
    ("unit", "scale", "expected"),
    [("nm", 4, 0.004), ("micrometer", 0.5, 0.5), ("mm", -0.01, 10), ("pixel", 4, 0), ("second", 4, 0)],
)
def test_pixel_sizes_are_those_of_physical_units(unit: str, scale: float, expected: float) -> None:
    layer = Image(GREY, scale=(abs(scale), scale), units=(unit, unit))
    assert pixel_size(layer) == pytest.approx(expected)
    assert pixel_size(None) == 0
