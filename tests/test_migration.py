"""Layers of e2cnn in ours: the same outputs where band limits allow, and a refusal with the error where they do not."""

import ast
import importlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sfcnn
from peer_e2cnn import PAPER, TOLERANCE, WARNINGS, e2cnn_nn, gspaces
from sfcnn import (
    Basis,
    GroupConv2d,
    LiftConv2d,
    OrientationPool,
    migration,
    reflect,
    reflect_features,
    rotate,
    rotate_features,
)
from sfcnn.harmonics import bandlimited
from sfcnn.migration import load_r2conv, r2conv_basis

pytestmark = WARNINGS

PAGE = Path(__file__).parent.parent / "docs" / "from-escnn.md"


def space_of(orientations: int) -> Any:
    """e2cnn has no rotations of order 1, but a space without symmetry."""
    return gspaces.Rot2dOnR2(orientations) if orientations > 1 else gspaces.TrivialOnR2()


def fields(orientations: int, channels: int, *, lifted: bool = True) -> Any:
    space = space_of(orientations)
    return e2cnn_nn.FieldType(space, channels * [space.regular_repr if lifted else space.trivial_repr])


def r2conv(
    orientations: int, kernel_size: int, *, lift: bool, dtype: torch.dtype = torch.float32, **options: Any
) -> Any:
    """From two channels to three, with random weights and biases: e2cnn's own scheme is slow."""
    source, target = fields(orientations, 2, lifted=not lift), fields(orientations, 3)
    # Without `recompute` layers share their tables, and casting one layer casts all of them.
    layer = e2cnn_nn.R2Conv(source, target, kernel_size, initialize=False, recompute=True, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer.to(dtype)


def features_of(orientations: int, dtype: torch.dtype, *, lift: bool, size: int = 12) -> Tensor:
    shape = (2, size, size) if lift else (2, orientations, size, size)
    return torch.randn(2, *shape, dtype=dtype)


@torch.no_grad()
def outputs(theirs: Any, ours: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """What both make of the same features, in our layout."""
    field = e2cnn_nn.GeometricTensor(features.flatten(1, -3), theirs.in_type)
    result = theirs(field).tensor
    return ours(features), result.unflatten(1, (3, -1))


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert relative(ours, theirs) < TOLERANCE


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float(torch.linalg.vector_norm(ours - theirs) / torch.linalg.vector_norm(theirs))


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("orientations", [1, 4, 8])
def test_the_same_output(orientations: int, kernel_size: int, lift: bool, dtype: torch.dtype) -> None:
    theirs = r2conv(orientations, kernel_size, lift=lift, dtype=dtype)
    ours = load_r2conv(theirs)
    assert type(ours) is (LiftConv2d if lift else GroupConv2d)
    assert ours.basis_name == "bandlimited"  # e2cnn's default limits
    assert ours.bias is not None
    assert ours.bias.abs().min() > 0
    assert_same(*outputs(theirs, ours, features_of(orientations, dtype, lift=lift)))


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2, "padding": 1},
        {"padding": 2, "padding_mode": "circular"},
        {"padding": (2, 2), "padding_mode": "reflect"},
        {"dilation": 2, "padding": 3},
        {"bias": False},
    ],
    ids=str,
)
def test_options_are_carried_over(options: dict[str, Any], lift: bool) -> None:
    theirs = r2conv(4, 5, lift=lift, **options).eval()
    ours = load_r2conv(theirs)
    assert (ours.bias is None) == (theirs.bias is None)
    for name in ("stride", "dilation", "padding_mode"):
        assert getattr(ours.geometry, name) == getattr(theirs, name)
    assert_same(*outputs(theirs, ours, features_of(4, torch.float32, lift=lift)))


def test_options_may_be_given_anew() -> None:
    theirs = r2conv(4, 3, lift=False, padding=1)
    ours = load_r2conv(theirs, stride=2, engine="direct", dtype=torch.float64)
    assert (ours.geometry.stride, ours.geometry.padding, ours.engine) == (2, 1, "direct")
    assert ours.weight.dtype == torch.float64


def own_rings(kernel_size: int) -> Basis:
    """Rings that no preset has."""
    assert kernel_size == 5
    return Basis((0, 1, 1.8), (0.3, 0.5, 0.7), (0, 2, 4))


OWN_RINGS: dict[str, Any] = {
    "rings": [0.0, 1.0, 1.8],
    "sigma": [0.3, 0.5, 0.7],
    "frequencies_cutoff": lambda r: 4 if r > 1.5 else 2 * r,
}


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(("limits", "basis"), [(PAPER, "paper"), (OWN_RINGS, own_rings)], ids=["paper", "own"])
def test_other_band_limits(limits: dict[str, Any], basis: Any, lift: bool) -> None:
    theirs = r2conv(8, 5, lift=lift, **limits)
    found = r2conv_basis(theirs)
    assert found == (basis if isinstance(basis, str) else basis(5))
    features = features_of(8, torch.float32, lift=lift)
    for choice in (None, basis):  # read from the layer, or named
        assert_same(*outputs(theirs, load_r2conv(theirs, basis=choice), features))


@pytest.mark.parametrize("lift", [True, False])
def test_other_band_limits_are_refused_with_the_error(lift: bool) -> None:
    theirs = r2conv(8, 5, lift=lift, **PAPER)
    with pytest.raises(ValueError, match=r"8 orientations and basis 'bandlimited': the relative error is") as refusal:
        load_r2conv(theirs, basis="bandlimited")
    told = re.search(r"error is ([\d.e-]+), the tolerance 1e-05", str(refusal.value))
    assert told
    error = float(told[1])
    assert 0.1 < error < 1
    # The number is the error of the filters, and that of the output on white noise is about the same.
    near = load_r2conv(theirs, basis="bandlimited", tolerance=1.01 * error)
    ours, want = outputs(theirs, near, features_of(8, torch.float32, lift=lift, size=24))
    assert near.bias is not None
    bias = near.bias.detach().view(-1, 1, 1, 1)
    assert 0.8 * error < relative(ours - bias, want - bias) < 1.25 * error
    with pytest.raises(ValueError, match="the relative error is"):
        load_r2conv(theirs, basis="bandlimited", tolerance=0.98 * error)


def test_the_filters_of_a_trained_network_survive_a_basis_with_more_atoms() -> None:
    """Every band limit of the default is among those of a larger basis with the same rings."""
    theirs = r2conv(8, 5, lift=False)
    default = bandlimited(5)
    more = Basis(default.radii, default.sigmas, tuple(cutoff + 1 if cutoff else 0 for cutoff in default.cutoffs))
    assert_same(*outputs(theirs, load_r2conv(theirs, basis=more), features_of(8, torch.float32, lift=False)))


@pytest.mark.parametrize("lift", [True, False])
def test_filters_without_their_layer(lift: bool) -> None:
    theirs = r2conv(8, 5, lift=lift, padding=2)
    exported = theirs.export()
    theirs.train()
    features = features_of(8, torch.float32, lift=lift)
    channels = exported.bias.view(3, 8)[:, 0]
    for bias in (exported.bias, channels):
        ours = load_r2conv(exported.weight, 8, lift=lift, bias=bias, padding=2)
        assert_same(*outputs(theirs, ours, features))
    assert load_r2conv(exported.weight, 8, lift=lift).bias is None


def test_zeros_are_filters() -> None:
    layer = load_r2conv(torch.zeros(8, 4, 3, 3), 4)
    assert not layer.weight.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: torch.randn(16, 24, 5, 5),
            r"GroupConv2d with 8 orientations and basis 'bandlimited': the relative error",
        ),
        (lambda: torch.randn(12, 24, 5, 5), r"filters of shape \(8·Ĉ, 8·C, s, s\), got \(12, 24, 5, 5\)"),
        (lambda: torch.randn(16, 12, 5, 5), r"filters of shape \(8·Ĉ, 8·C, s, s\), got \(16, 12, 5, 5\)"),
        (lambda: torch.randn(16, 24, 5), r"filters of shape .*, got \(16, 24, 5\)"),
        (lambda: torch.randn(16, 24, 5, 3), "square filters, got 5×3 pixels"),
        (lambda: torch.randn(16, 24, 4, 4), "kernel_size must be an odd whole number"),
    ],
)
def test_filters_that_are_none_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_r2conv(make(), 8)


def test_other_arguments_are_checked() -> None:
    filters = torch.zeros(8, 4, 3, 3)
    with pytest.raises(ValueError, match="pass orientations=N"):
        load_r2conv(filters)
    with pytest.raises(ValueError, match=r"orientations .* at least 1, got 0"):
        load_r2conv(filters, 0)
    with pytest.raises(ValueError, match=r"a bias of shape \(8,\) or \(2,\), got \(3,\)"):
        load_r2conv(filters, 4, bias=torch.zeros(3))
    with pytest.raises(ValueError, match=r"the bias differs by 1\.5 between the orientations of a channel"):
        load_r2conv(filters, 4, bias=torch.arange(8.0))
    with pytest.raises(ValueError, match="expected an R2Conv of e2cnn or escnn, or a tensor of filters, got Conv2d"):
        load_r2conv(nn.Conv2d(1, 1, 3))
    with pytest.raises(ValueError, match="of an R2Conv are its own"):
        load_r2conv(r2conv(4, 3, lift=True), orientations=4)


def conv(space: Any, source: Any, target: Any, **options: Any) -> Any:
    types = (e2cnn_nn.FieldType(space, list(each)) for each in (source, target))
    return e2cnn_nn.R2Conv(*types, 3, initialize=False, **options)


def field_type(space: Any, letters: str) -> Any:
    """Fields that are named by letters: regular, trivial, vectors."""
    kinds = {"r": "regular_repr", "t": "trivial_repr"}
    return e2cnn_nn.FieldType(
        space, [space.irrep(1) if kind == "v" else getattr(space, kinds[kind]) for kind in letters]
    )


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        ("v", "r", {}, "input of the R2Conv has irrep_1 fields, expected"),
        ("rt", "r", {}, "input of the R2Conv has regular and trivial fields, expected"),
        ("r", "vr", {}, "output of the R2Conv has irrep_1 and regular fields, expected"),
        ("r", "t", {}, r"trivial fields, .* use GroupConv2d and OrientationPool\('mean'\)"),
        ("rr", "rr", {"groups": 2}, "groups=2, expected 1"),
        ("r", "r", {"padding": (1, 2)}, r"padding of the R2Conv is \(1, 2\), expected the same"),
    ],
)
def test_layers_without_a_counterpart_are_refused(
    source: str, target: str, options: dict[str, Any], message: str
) -> None:
    types = (field_type(space_of(4), letters) for letters in (source, target))
    with pytest.raises(ValueError, match=message):
        load_r2conv(e2cnn_nn.R2Conv(*types, 3, initialize=False, **options))


@pytest.mark.parametrize(
    ("make", "letter", "name"),
    [
        (lambda: gspaces.Rot2dOnR2(-1, 2), "v", "Continuous-Rotations"),
        (lambda: gspaces.FlipRot2dOnR2(-1, 2), "t", "Flip_Continuous-Rotations"),
    ],
)
def test_other_groups_are_refused(make: Callable[[], Any], letter: str, name: str) -> None:
    # A layer of C_4 lends its other attributes: what its fields are is read after their group.
    layer = r2conv(4, 3, lift=False)
    layer.in_type = layer.out_type = field_type(make(), letter)
    with pytest.raises(ValueError, match=f"the symmetry of the R2Conv is {name}.*, expected rotations of the plane"):
        load_r2conv(layer)


def mirror_r2conv(orientations: int, kernel_size: int, *, lift: bool, axis: float = math.pi / 2) -> Any:
    """From two channels to three on D_Λ; mirror images alone are D_1."""
    space = gspaces.FlipRot2dOnR2(orientations, axis=axis) if orientations > 1 else gspaces.Flip2dOnR2(axis)
    source, target = (e2cnn_nn.FieldType(space, n * [kind]) for n, kind in (
        (2, space.trivial_repr if lift else space.regular_repr), (3, space.regular_repr)
    ))  # fmt: skip
    layer = e2cnn_nn.R2Conv(source, target, kernel_size, initialize=False, recompute=True, padding=kernel_size // 2)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("orientations", [1, 2, 3, 4, 8])
def test_the_same_output_with_reflections(orientations: int, lift: bool) -> None:
    theirs = mirror_r2conv(orientations, 5, lift=lift)
    ours = load_r2conv(theirs)
    assert (type(ours), ours.reflections) == (LiftConv2d if lift else GroupConv2d, True)
    assert (ours.orientations, ours.basis_name) == (orientations, "bandlimited")
    features = features_of(2 * orientations, torch.float32, lift=lift)
    assert_same(*outputs(theirs, ours, features))
    filters, bias = theirs.expand_parameters()
    again = load_r2conv(filters, orientations, lift=lift, reflections=True, bias=bias.detach(), padding=2)
    torch.testing.assert_close(again(features), ours(features))


def test_reflections_act_alike() -> None:
    layer = mirror_r2conv(4, 3, lift=False)
    features = features_of(8, torch.float32, lift=False)
    theirs = e2cnn_nn.GeometricTensor(features.flatten(1, 2), layer.in_type)
    mirrored, turned = (theirs.transform(element).tensor.unflatten(1, (2, 8)) for element in ((1, 0), (0, 1)))
    torch.testing.assert_close(mirrored, reflect_features(features))
    torch.testing.assert_close(turned, rotate_features(features, math.pi / 2, reflections=True))
    image = e2cnn_nn.GeometricTensor(features[:, :, 0], mirror_r2conv(4, 3, lift=True).in_type)
    torch.testing.assert_close(image.transform((1, 0)).tensor, reflect(features[:, :, 0]))


def test_other_axes_of_reflection_are_refused() -> None:
    with pytest.raises(ValueError, match=r"mirrors at 0°, expected 90°, left and right exchanged$"):
        load_r2conv(mirror_r2conv(4, 3, lift=False, axis=0.0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ((math.pi, 4), None),
        ((0.0, 4), "mirrors at 0°, expected 90°"),
        ((None, 4), "does not state its axis .* pass its filters"),
    ],
)
def test_escnn_names_the_axis_in_the_id_of_the_group(name: tuple[float | None, int], message: str | None) -> None:
    """escnn 1.0 has no attribute `axis`; its `_sg_id` is (2 · axis, N)."""
    layer = mirror_r2conv(4, 3, lift=False)
    space = layer.in_type.gspace
    del space.axis
    space._sg_id = name
    if message is None:
        assert load_r2conv(layer).reflections
    else:
        with pytest.raises(ValueError, match=message):
            load_r2conv(layer)


def test_nothing_of_the_other_libraries_is_imported() -> None:
    assert migration.__file__
    tree = ast.parse(Path(migration.__file__).read_text(encoding="utf-8"))
    imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported
    assert {name.partition(".")[0] for name in imported} <= {
        "collections",
        "dataclasses",
        "math",
        "typing",
        "torch",
        "sfcnn",
    }


# What docs/from-escnn.md says.


def layer_pairs() -> dict[str, tuple[Any, nn.Module]]:
    """Rows of the table: e2cnn's layer and ours, on three regular fields of C_4."""
    field = fields(4, 3)
    return {
        "InnerBatchNorm": (e2cnn_nn.InnerBatchNorm(field), nn.BatchNorm3d(3)),
        "ReLU": (e2cnn_nn.ReLU(field), nn.ReLU()),
        "ELU": (e2cnn_nn.ELU(field), nn.ELU()),
        "PointwiseMaxPool": (e2cnn_nn.PointwiseMaxPool(field, 2, 2), nn.MaxPool3d((1, 2, 2))),
        "PointwiseAvgPool": (e2cnn_nn.PointwiseAvgPool(field, 2, 2), nn.AvgPool3d((1, 2, 2))),
        "PointwiseAdaptiveMaxPool": (e2cnn_nn.PointwiseAdaptiveMaxPool(field, 1), nn.AdaptiveMaxPool3d((None, 1, 1))),
        "PointwiseAdaptiveAvgPool": (e2cnn_nn.PointwiseAdaptiveAvgPool(field, 1), nn.AdaptiveAvgPool3d((None, 1, 1))),
        "R2Upsampling": (
            e2cnn_nn.R2Upsampling(field, 2),
            nn.Upsample(scale_factor=(1, 2, 2), mode="trilinear"),
        ),
        "R2Upsampling nearest": (e2cnn_nn.R2Upsampling(field, 2, mode="nearest"), nn.Upsample(scale_factor=(1, 2, 2))),
        "GroupPooling": (e2cnn_nn.GroupPooling(field), OrientationPool("max")),
    }


@pytest.mark.parametrize("name", layer_pairs())
def test_layers_of_the_table_do_the_same(name: str, dtype: torch.dtype) -> None:
    theirs, ours = (module.to(dtype) for module in layer_pairs()[name])
    features = torch.randn(2, 3, 4, 6, 6, dtype=dtype)
    result = theirs(e2cnn_nn.GeometricTensor(features.flatten(1, 2), fields(4, 3))).tensor
    expected = result.to(dtype) if name == "GroupPooling" else result.unflatten(1, (3, 4))
    torch.testing.assert_close(ours(features), expected)


def test_rotations_turn_and_shift_alike() -> None:
    """Element 1 of C_4 is a quarter turn counter-clockwise in both libraries, and adds 1 to the orientation."""
    images, features = torch.randn(1, 2, 5, 5), torch.randn(1, 3, 4, 5, 5)
    turned = e2cnn_nn.GeometricTensor(images, fields(4, 2, lifted=False)).transform(1).tensor
    torch.testing.assert_close(rotate(images, math.pi / 2), turned)
    turned = e2cnn_nn.GeometricTensor(features.flatten(1, 2), fields(4, 3)).transform(1).tensor
    torch.testing.assert_close(rotate_features(features, math.pi / 2), turned.unflatten(1, (3, 4)))


def test_every_name_in_the_table_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    places = {"enn": e2cnn_nn, "nn": nn, "sfcnn": sfcnn, "torch": torch}
    found = 0
    for alias, name in re.findall(r"`(\w+)\.(\w+)", " ".join(cell for row in rows for cell in row)):
        if alias in places:
            assert hasattr(places[alias], name) or importlib.import_module(f"{alias}.{name}"), name
            found += 1
    assert found > 40


def test_the_page_s_network_gives_the_same_output() -> None:
    """Its blocks that need e2cnn, one after the other."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
