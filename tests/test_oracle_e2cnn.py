"""e2cnn as an oracle: an independent derivation of equivariant filters arrives at the same filter spaces.

e2cnn solves the constraint on kernels between two representations of C_Λ. SFCNN never sees a constraint: it rotates
one filter to all orientations. Both give a linear space of filter banks (Λ_out, Λ_in, s, s), and here the two are
compared as subspaces, by their rank and by the largest principal angle between them.

Conventions. None has to be mapped, which is a finding and is checked below:
- Both have x to the right and y upward, and order orientations counter-clockwise from angle 0. Reversing the order of
  orientations on one side alone, or mirroring the filters alone, makes the spaces differ.
- The paper convolves and e2cnn correlates, a turn of every filter by 180°. That turn maps an atom of frequency k to
  (−1)^k times itself, so that each space is its own image and the flip does not show.
- Frequencies that are alike modulo Λ alias to the same irrep of C_Λ. e2cnn includes all of them up to the band limit
  (`maximum_offset=None`), so that the spaces agree for small Λ too.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from peer_e2cnn import PAPER, TOLERANCE, WARNINGS, e2cnn_nn, gspaces
from sfcnn import Basis, GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.harmonics import BasisLike, bandlimited, resolve_basis
from sfcnn.ops import direct, sample_atoms
from sfcnn.ops.reflections import expand_group_weight, expand_lift_weight

pytestmark = WARNINGS

# A direction whose share is smaller than this is rounding.
RANK_TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Many small decompositions: on a busy machine, threads that wait for each other make them 20 times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def our_banks(orientations: int, kernel_size: int, *, lift: bool, basis: BasisLike = "bandlimited") -> Tensor:
    """The filter bank of each unit weight: (weights, Λ, Λ or 1, s, s)."""
    resolved = resolve_basis(basis, kernel_size)
    atoms = sample_atoms(resolved, kernel_size, orientations, torch.float64)
    shape = (1, resolved.size) if lift else (1, orientations, resolved.size)
    weight = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)  # unit weights as output channels
    bank = (direct.lift_kernel if lift else direct.group_kernel)(weight, atoms)
    return bank.view(len(weight), orientations, -1, kernel_size, kernel_size)


def field(orientations: int, channels: int, *, lifted: bool) -> Any:
    """e2cnn's type of `channels` images or of `channels` features on C_Λ."""
    space = gspaces.Rot2dOnR2(orientations)
    return e2cnn_nn.FieldType(space, channels * [space.regular_repr if lifted else space.trivial_repr])


def e2cnn_banks(orientations: int, kernel_size: int, *, lift: bool, **limits: Any) -> Tensor:
    """The filter bank of each unit weight of R2Conv: (weights, Λ, Λ or 1, s, s)."""
    source, target = (field(orientations, 1, lifted=lifted) for lifted in (not lift, True))
    layer = e2cnn_nn.R2Conv(source, target, kernel_size, bias=False, initialize=False, **limits)
    units = torch.eye(layer.weights.numel())
    banks = torch.stack([layer.basisexpansion(unit).detach().double() for unit in units])
    return banks.view(len(units), orientations, -1, kernel_size, kernel_size)


def mirror_space(orientations: int) -> Any:
    """e2cnn has no FlipRot2dOnR2 of order 1, but a space of mirror images alone."""
    return gspaces.FlipRot2dOnR2(orientations) if orientations > 1 else gspaces.Flip2dOnR2()


def e2cnn_mirror_banks(orientations: int, kernel_size: int, *, lift: bool) -> Tensor:
    """The filter bank of each unit weight of R2Conv between fields of D_Λ: (weights, 2Λ, 2Λ or 1, s, s)."""
    space = mirror_space(orientations)
    source, target = (
        e2cnn_nn.FieldType(space, [space.regular_repr if lifted else space.trivial_repr]) for lifted in (not lift, True)
    )
    layer = e2cnn_nn.R2Conv(source, target, kernel_size, bias=False, initialize=False)
    units = torch.eye(layer.weights.numel())
    banks = torch.stack([layer.basisexpansion(unit).detach().double() for unit in units])
    return banks.view(len(units), 2 * orientations, -1, kernel_size, kernel_size)


def our_mirror_banks(orientations: int, kernel_size: int, *, lift: bool, sign: int = 1) -> Tensor:
    """The same of our layers; a sign of −1 on the mirrored atoms makes them wrong."""
    resolved = bandlimited(kernel_size)
    atoms = sample_atoms(resolved, kernel_size, orientations, torch.float64)
    mirror = sign * torch.tensor(resolved.mirror_signs, dtype=torch.float64)
    mirror[0] = 1  # the centre is symmetric
    shape = (1, resolved.size) if lift else (1, 2 * orientations, resolved.size)
    weight = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    if lift:
        bank = direct.lift_kernel(expand_lift_weight(weight, mirror), atoms)
    else:
        bank = direct.group_kernel(expand_group_weight(weight, mirror), atoms)
    return bank.view(len(weight), 2 * orientations, -1, kernel_size, kernel_size)


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("orientations", [1, 2, 3, 4, 5, 6, 7, 8])
def test_filters_with_reflections_span_the_same_space(orientations: int, lift: bool) -> None:
    kernel_size = 5
    ours = our_mirror_banks(orientations, kernel_size, lift=lift)
    theirs = e2cnn_mirror_banks(orientations, kernel_size, lift=lift)
    assert len(span(ours)) == len(ours) == len(theirs)
    assert_same_span(ours, theirs)
    wrong = span(our_mirror_banks(orientations, kernel_size, lift=lift, sign=-1))
    assert wrong.shape != span(theirs).shape or largest_angle_sine(wrong, span(theirs)) > 0.1


def span(banks: Tensor) -> Tensor:
    """Orthonormal rows that span the banks: (rank, D)."""
    _, values, rows = torch.linalg.svd(banks.flatten(1), full_matrices=False)
    return rows[values > RANK_TOLERANCE * values[0]]


def largest_angle_sine(first: Tensor, second: Tensor) -> float:
    """Sine of the largest principal angle from one span to another of the same rank: 0 if they are equal."""
    return float(torch.linalg.matrix_norm(first - first @ second.T @ second, 2))


def assert_same_span(ours: Tensor, theirs: Tensor) -> None:
    first, second = span(ours), span(theirs)
    assert first.shape == second.shape
    assert largest_angle_sine(first, second) < TOLERANCE


@pytest.mark.parametrize("kernel_size", [3, 5, 7, 9])  # 1×1 filters fail inside e2cnn 0.2.3 on this PyTorch
@pytest.mark.parametrize("orientations", [2, 3, 4, 8, 16])
def test_lifting_filters_span_the_same_space(orientations: int, kernel_size: int) -> None:
    ours = our_banks(orientations, kernel_size, lift=True)
    theirs = e2cnn_banks(orientations, kernel_size, lift=True)
    assert len(span(ours)) == len(ours) == len(theirs)
    assert_same_span(ours, theirs)


@pytest.mark.parametrize(
    ("orientations", "kernel_size"),
    [(2, 7), (3, 7), (4, 3), (4, 5), (4, 7), (8, 3), (8, 5), (8, 7), (16, 3), (16, 5)],
)
def test_group_filters_span_the_same_space(orientations: int, kernel_size: int) -> None:
    ours = our_banks(orientations, kernel_size, lift=False)
    theirs = e2cnn_banks(orientations, kernel_size, lift=False)
    assert len(span(ours)) == len(ours) == len(theirs)
    assert_same_span(ours, theirs)


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(("orientations", "kernel_size"), [(3, 5), (4, 3), (4, 7), (8, 5)])
def test_papers_limits_span_the_same_space(orientations: int, kernel_size: int, lift: bool) -> None:
    # Here atoms may be dependent on the grid or for this Λ, so that the rank says more than the number of weights.
    ours = our_banks(orientations, kernel_size, lift=lift, basis="paper")
    theirs = e2cnn_banks(orientations, kernel_size, lift=lift, **PAPER)
    assert_same_span(ours, theirs)


def other_widths(kernel_size: int) -> Basis:
    """The default's rings and limits with other widths: as many atoms, other filters."""
    default = bandlimited(kernel_size)
    return Basis(default.radii, tuple(0.5 for _ in default.sigmas), default.cutoffs)


@pytest.mark.parametrize("lift", [True, False])
def test_comparison_tells_bases_apart(lift: bool) -> None:
    theirs = span(e2cnn_banks(8, 5, lift=lift))
    assert len(span(our_banks(8, 5, lift=lift, basis="paper"))) > len(theirs)
    other = span(our_banks(8, 5, lift=lift, basis=other_widths))
    assert other.shape == theirs.shape
    assert largest_angle_sine(other, theirs) > 0.05


def _reverse(banks: Tensor) -> Tensor:
    """Count orientations clockwise, at the output and, if there are any, at the input."""
    clockwise = -torch.arange(banks.shape[1]) % banks.shape[1]
    turned = banks[:, clockwise]
    return turned[:, :, clockwise] if banks.shape[2] > 1 else turned


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(
    ("convention", "agrees"),
    [
        (lambda banks: banks.flip(-2, -1), True),  # correlation instead of convolution
        (_reverse, False),  # orientations clockwise
        (lambda banks: banks.flip(-2), False),  # y downward
        (lambda banks: _reverse(banks.flip(-2)), True),  # both: the same rotations seen in a mirror
    ],
    ids=["turned-180", "clockwise", "mirrored", "clockwise-and-mirrored"],
)
def test_conventions(convention: Callable[[Tensor], Tensor], agrees: bool, lift: bool) -> None:
    ours, theirs = span(convention(our_banks(8, 5, lift=lift))), span(e2cnn_banks(8, 5, lift=lift))
    sine = largest_angle_sine(ours, theirs)
    assert sine < TOLERANCE if agrees else sine > 0.5


def copy_filters(ours: LiftConv2d | GroupConv2d, theirs: Any) -> None:
    """Find the weights with which our layer has the filters of an R2Conv. Exact, as the spaces are the same."""
    lift = isinstance(ours, LiftConv2d)
    units = our_banks(ours.orientations, ours.kernel_size, lift=lift, basis=ours.basis).flatten(1)  # (weights, D)
    bank, bias = theirs.expand_parameters()
    axes = (ours.out_channels, ours.orientations, ours.in_channels, -1, *bank.shape[2:])
    pairs = bank.detach().double().view(axes).transpose(1, 2).flatten(2)  # (Ĉ, C, D)
    weight = torch.linalg.lstsq(units.T, pairs.flatten(0, 1).T).solution.T
    with torch.no_grad():
        ours.weight.copy_(weight.view_as(ours.weight))
        assert ours.bias is not None
        ours.bias.copy_(bias.view(ours.out_channels, ours.orientations)[:, 0])


def test_network_with_the_same_filters_gives_the_same_output() -> None:
    """Two layers, ReLU, biases and orientation pooling: e2cnn's network with our layers in its place."""
    torch.manual_seed(0)
    orientations, channels = 8, 3
    image, features = field(orientations, 2, lifted=False), field(orientations, channels, lifted=True)
    convolutions = [e2cnn_nn.R2Conv(image, features, 5), e2cnn_nn.R2Conv(features, features, 3)]
    for convolution in convolutions:
        nn.init.normal_(convolution.bias)
    theirs = e2cnn_nn.SequentialModule(
        convolutions[0], e2cnn_nn.ReLU(features), convolutions[1], e2cnn_nn.GroupPooling(features)
    )
    lift = LiftConv2d(2, channels, 5, orientations, dtype=torch.float64)
    group = GroupConv2d(channels, channels, 3, orientations, dtype=torch.float64)
    copy_filters(lift, convolutions[0])
    copy_filters(group, convolutions[1])
    ours = nn.Sequential(lift, nn.ReLU(), group, OrientationPool("max"))
    images = torch.randn(2, 2, 13, 13)
    with torch.no_grad():
        want = theirs(e2cnn_nn.GeometricTensor(images, image)).tensor
        got = ours(images.double())
    torch.testing.assert_close(got, want.double(), rtol=0, atol=1e-4 * float(want.std()))
