"""Initial weights: the variance that they keep, each atom's share in it, and what they refuse."""

import pytest
import torch
from torch import Tensor

from sfcnn.harmonics import PRESETS, complex_atoms, real_atoms, resolve_basis
from sfcnn.initialization import INITS, SCHEMES, check_init, init_weight_, initial_std, natural_amplitudes
from sfcnn.nn.conv import GroupConv2d, LiftConv2d

presets = pytest.mark.parametrize("basis", sorted({*PRESETS} - {"pixels"}))  # pixels are in test_pixels
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Independent values of mean 0 and E[ζ²] = 1/2, the second moment of a rectified signal of variance 1."""
    return torch.randn(*shape, dtype=dtype) / 2**0.5


def layer(
    orientations: int, channels: tuple[int, int], kernel_size: int, *, lift: bool, **options: object
) -> LiftConv2d | GroupConv2d:
    kind = LiftConv2d if lift else GroupConv2d
    return kind(*channels, kernel_size, orientations, bias=False, **options)  # type: ignore[arg-type]


def input_shape(module: LiftConv2d | GroupConv2d, batch: int, size: int) -> tuple[int, ...]:
    depth = (module.orientations,) if isinstance(module, GroupConv2d) else ()
    return batch, module.in_channels, *depth, size, size


def mean_square(tensor: Tensor) -> float:
    return float(tensor.double().square().mean())


# Var[y] = N/2 Σ_q Var[w_q] ‖ψ_q‖² = 1. Channels are many so that the mean over drawn weights is good to about 1.5 %,
# and C ≠ Ĉ so that a layer with the fans exchanged is off by a factor.


@presets
@pytest.mark.parametrize(
    ("orientations", "kernel_size", "dtype"), [(1, 5, torch.float32), (5, 7, torch.float64), (8, 5, torch.float32)]
)
def test_coeff_keeps_variance_in_a_lifting_layer(
    basis: str, orientations: int, kernel_size: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    module = layer(orientations, (6, 400), kernel_size, lift=True, basis=basis, init="coeff", dtype=dtype)
    images = noise(*input_shape(module, 96, kernel_size + 2), dtype=dtype)
    assert mean_square(module(images).detach()) == pytest.approx(1, rel=0.05)


@presets
@pytest.mark.parametrize(
    ("orientations", "kernel_size", "dtype"), [(1, 5, torch.float32), (5, 7, torch.float64), (8, 5, torch.float32)]
)
def test_coeff_keeps_variance_in_a_group_layer(
    basis: str, orientations: int, kernel_size: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    channels = (8, 320 // orientations)
    module = layer(orientations, channels, kernel_size, lift=False, basis=basis, init="coeff", dtype=dtype)
    features = noise(*input_shape(module, 96, kernel_size + 2), dtype=dtype)
    assert mean_square(module(features).detach()) == pytest.approx(1, rel=0.05)


@presets
@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(("orientations", "dtype"), [(1, torch.float64), (5, torch.float64), (8, torch.float32)])
def test_coeff_backward_keeps_variance_of_gradients(
    basis: str, lift: bool, orientations: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    # Circular padding gives each pixel its full number of responses.
    options = {"padding": "same", "padding_mode": "circular", "dtype": dtype}
    channels = (96 if lift else 96 // orientations, 24)
    module = layer(orientations, channels, 5, lift=lift, basis=basis, init="coeff-backward", **options)
    features = noise(*input_shape(module, 24, 9), dtype=dtype).requires_grad_()
    responses = module(features)
    half = torch.rand_like(responses) < 0.5  # the ReLU's indicator, independent of the gradient (App. B)
    (gradient,) = torch.autograd.grad(responses, features, torch.randn_like(responses) * half)
    assert mean_square(gradient) == pytest.approx(1, rel=0.05)


@presets
@pytest.mark.parametrize("kernel_size", [1, 3, 5, 7, 9])
@pytest.mark.parametrize(("init", "fan"), [("coeff", 24), ("coeff-backward", 40)])
def test_coeff_keeps_variance_exactly_in_expectation(basis: str, kernel_size: int, init: str, fan: int) -> None:
    variance = initial_std(init, basis, kernel_size, fan_in=24, fan_out=40) ** 2
    energy = real_atoms(basis, kernel_size, dtype=torch.float64).square().sum((1, 2))
    assert float(fan / 2 * (variance * energy).sum()) == pytest.approx(1, rel=1e-12)


@presets
def test_constant_maps_gain_by_the_sums_of_the_atoms(basis: str) -> None:
    """Maps that are constant in space leave Var[y] = mean_q (Σ_x ψ_q)²: why variance grows without normalisation."""
    torch.manual_seed(3)
    module = layer(4, (8, 400), 5, lift=False, basis=basis, init="coeff")
    features = noise(8, 8, 4, 1, 1).expand(-1, -1, -1, 5, 5)
    features = features / (2 * mean_square(features)) ** 0.5  # few values: make E[ζ²] = 1/2 hold for the sample
    gain = mean_square(real_atoms(basis, 5, dtype=torch.float64).sum((1, 2)))
    assert gain > 1.5
    assert mean_square(module(features).detach()) == pytest.approx(gain, rel=0.1)


def measured_shares(basis: str, init: str, kernel_size: int) -> Tensor:
    """Part of the response's variance that each complex atom brings, measured with the other weights at 0."""
    torch.manual_seed(4)
    module = layer(1, (8, 400), kernel_size, lift=True, basis=basis, init=init, dtype=torch.float64)
    images = noise(*input_shape(module, 200, kernel_size), dtype=torch.float64)
    weight = module.weight.detach().clone()
    parts = torch.tensor([2 if k else 1 for _, k in module.basis.harmonics])
    owner = torch.repeat_interleave(torch.arange(len(parts)), parts)
    energies = []
    for atom in range(len(parts)):
        with torch.no_grad():
            module.weight.copy_(weight * (owner == atom))
            energies.append(mean_square(module(images)))
    return torch.tensor(energies, dtype=torch.float64) / sum(energies)


@presets
def test_coeff_shares_are_equal(basis: str) -> None:
    resolved = resolve_basis(basis, 5)
    expected = torch.tensor([2.0 if k else 1.0 for _, k in resolved.harmonics], dtype=torch.float64) / resolved.size
    torch.testing.assert_close(measured_shares(basis, "coeff", 5), expected, rtol=0.1, atol=0)


@presets
def test_he_shares_are_natural_energies(basis: str) -> None:
    natural = complex_atoms(basis, 5, normalize=False).abs().square().sum((1, 2))
    shares = measured_shares(basis, "he", 5)
    torch.testing.assert_close(shares, natural / natural.sum(), rtol=0.1, atol=0)
    assert float(shares.max() / shares.min()) > 2  # far from equal, so that the two schemes are told apart


@presets
def test_natural_amplitudes_restore_the_sampled_atoms(basis: str) -> None:
    atoms = complex_atoms(basis, 7, normalize=False)
    parts = torch.stack([atoms.real, -atoms.imag], dim=1).flatten(0, 1)
    keep = torch.tensor([part == 0 or k > 0 for _, k in resolve_basis(basis, 7).harmonics for part in (0, 1)])
    restored = natural_amplitudes(basis, 7)[:, None, None] * real_atoms(basis, 7, dtype=torch.float64)
    torch.testing.assert_close(restored, parts[keep])


@presets
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("kernel_size", [3, 5, 9])
def test_both_parts_of_a_pair_have_one_std(basis: str, scheme: str, kernel_size: int) -> None:
    """Otherwise a drawn filter would prefer a direction, and rotated filters would differ in distribution."""
    resolved = resolve_basis(basis, kernel_size)
    std = initial_std(scheme, basis, kernel_size, fan_in=3, fan_out=5)
    pairs = std[torch.tensor(resolved.frequencies) > 0].view(-1, 2)
    assert std.shape == (resolved.size,)
    assert bool((std > 0).all())
    assert torch.equal(pairs[:, 0], pairs[:, 1])


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_directions_differ_by_the_fan_only(scheme: str) -> None:
    forward = initial_std(scheme, "paper", 5, fan_in=6, fan_out=24)
    backward = initial_std(scheme + "-backward", "paper", 5, fan_in=6, fan_out=24)
    torch.testing.assert_close(forward, 2 * backward)


@dtypes
@pytest.mark.parametrize("init", INITS)
def test_drawn_weights_have_the_stated_std(dtype: torch.dtype, init: str) -> None:
    std = initial_std(init, "bandlimited", 5, fan_in=6, fan_out=24)
    weight = init_weight_(torch.empty(20_000, len(std), dtype=dtype), std, torch.Generator().manual_seed(5))
    assert weight.dtype == dtype
    torch.testing.assert_close(weight.double().std(0), std, rtol=0.03, atol=0)
    assert float((weight.double().mean(0) / std).abs().max()) < 0.03


@dtypes
def test_a_generator_makes_weights_repeatable(dtype: torch.dtype) -> None:
    std = torch.linspace(0.5, 2, 7, dtype=torch.float64)

    def draw(seed: int) -> Tensor:
        torch.rand(3)  # moves the global generator, which must not matter
        return init_weight_(torch.empty(4, 3, 7, dtype=dtype), std, torch.Generator().manual_seed(seed))

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


def test_weights_are_filled_in_place_and_stay_trainable() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    assert init_weight_(weight, torch.ones(3)) is weight
    assert weight.requires_grad
    assert bool((weight != 0).all())


@pytest.mark.parametrize("name", ["xavier", "coeff-forward", "Coeff", "", "coeff-backward-backward"])
def test_an_unknown_init_is_refused_with_the_choices(name: str) -> None:
    def layer_of_that_init() -> None:
        LiftConv2d(1, 2, 5, 4, init=name)

    def std_of_that_init() -> None:
        initial_std(name, "paper", 5, fan_in=1, fan_out=1)

    for refused in (lambda: check_init(name), layer_of_that_init, std_of_that_init):
        with pytest.raises(ValueError, match="unknown init") as error:
            refused()
        assert repr(name) in str(error.value)
        assert all(repr(choice) in str(error.value) for choice in INITS)


def test_every_listed_init_is_accepted() -> None:
    assert set(INITS) == {scheme + direction for scheme in SCHEMES for direction in ("", "-backward")}
    for init in INITS:
        check_init(init)
