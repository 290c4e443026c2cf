"""The lifting and group convolutions as layers: `nn.Conv2d` with one more argument, the number of orientations."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sfcnn.harmonics import BasisLike, resolve_basis
from sfcnn.initialization import check_init, init_weight_, initial_std
from sfcnn.nn.cache import FrozenKernel
from sfcnn.ops import (
    Atoms,
    Geometry,
    Padding,
    check_engine,
    choose_group_engine,
    group_convolution,
    lift_convolution,
    prepare_group,
    prepare_lift,
    sample_atoms,
)
from sfcnn.steering import check_orientations


class _SteerableConv2d(nn.Module):
    """What the two layers share: weights of atoms, and the atoms themselves as derived, unsaved tensors."""

    atoms: Tensor  # (Q, s, s)
    rotations: Tensor  # (Λ, Q, Q)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        orientations: int,
        *,
        stride: int = 1,
        padding: Padding = 0,
        dilation: int = 1,
        padding_mode: str = "zeros",
        bias: bool = True,
        basis: BasisLike = "bandlimited",
        init: str = "coeff",
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {channels!r}")
        check_orientations(orientations)
        check_init(init)
        check_engine(engine)
        self.in_channels, self.out_channels, self.orientations = in_channels, out_channels, orientations
        self.basis_name = basis if isinstance(basis, str) else "custom"
        self.basis = resolve_basis(basis, kernel_size)
        self.geometry = Geometry(kernel_size, stride, padding, dilation, padding_mode)
        self.init, self.engine = init, engine
        self.weight = nn.Parameter(torch.empty(self._weight_shape(), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self._frozen = FrozenKernel()
        self._sample_atoms()
        self.reset_parameters()

    @property
    def kernel_size(self) -> int:
        """Side s of the square grid that the filters live on."""
        return self.geometry.kernel_size

    @property
    def _fan_in(self) -> int:
        raise NotImplementedError

    def _weight_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _sample_atoms(self) -> None:
        place = self.weight.dtype, self.weight.device
        atoms = sample_atoms(self.basis, self.kernel_size, self.orientations, *place)
        self.register_buffer("atoms", atoms.filters, persistent=False)
        self.register_buffer("rotations", atoms.rotations, persistent=False)

    def _atoms(self) -> Atoms:
        return Atoms(self.atoms, self.rotations, self.basis.frequencies)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "_SteerableConv2d":
        """Follow `.to()`, `.double()` …: atoms are sampled anew, since casting a float32 atom gains no digits."""
        super()._apply(fn, recurse)
        self._sample_atoms()
        self._frozen.clear()
        return self

    def train(self, mode: bool = True) -> "_SteerableConv2d":
        """Set the mode as every module does; the kernel kept for evaluation is let go."""
        if mode:
            self._frozen.clear()
        return super().train(mode)

    def reset_parameters(self) -> None:
        """Draw the weights anew by the scheme `init` and set the bias to zero."""
        fan_out = self.out_channels * self.orientations
        std = initial_std(self.init, self.basis, self.kernel_size, fan_in=self._fan_in, fan_out=fan_out)
        init_weight_(self.weight, std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _learning(self) -> bool:
        """Whether the weights may change or a gradient of them is wanted."""
        return self.training or (torch.is_grad_enabled() and self.weight.requires_grad)

    def _kernel(self, prepare: Callable[[Tensor, Atoms, str], Tensor], engine: str) -> Tensor:
        """What the engine convolves with, kept in eval mode as long as the weights are frozen."""

        def build() -> Tensor:
            return prepare(self.weight, self._atoms(), engine)

        if self._learning() or torch.compiler.is_compiling():
            return build()
        return self._frozen.get(engine, self.weight, build)

    def _check_input(self, maps: Tensor, shape: tuple[int | str, ...]) -> None:
        """Compare with the expected shape, whose names stand for any size."""
        fits = maps.dim() == len(shape) and all(
            isinstance(want, str) or have == want for have, want in zip(maps.shape, shape, strict=True)
        )
        if not fits:
            expected = ", ".join(map(str, shape))
            raise ValueError(f"{type(self).__name__} expects a tensor of shape ({expected}), got {tuple(maps.shape)}")
        self.geometry.check_map(*maps.shape[-2:])

    def extra_repr(self) -> str:
        """Arguments that tell what the layer is; those at their default are left out."""
        g, default = self.geometry, Geometry(self.kernel_size)
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts.append(f"orientations={self.orientations}")
        for name in ("stride", "padding", "dilation", "padding_mode"):
            if getattr(g, name) != getattr(default, name):
                parts.append(f"{name}={getattr(g, name)!r}")
        if self.bias is None:
            parts.append("bias=False")
        parts.append(f"basis={self.basis_name!r} K={list(self.basis.cutoffs)}, engine={self.engine!r}")
        return ", ".join(parts)


class LiftConv2d(_SteerableConv2d):
    """Lift images to the group: y_ĉ(x, θ) = Σ_c (I_c ∗ ρ_θ Ψ_ĉc)(x) + β_ĉ, for θ = 2πa/Λ (§3.2, input layer).

    The filters are Ψ_ĉc = Re Σ_jk w_ĉcjk ψ_jk, learned by their weights. Rotating the image rotates the features
    and shifts their orientations: L(ρ_φ I) = R_φ L(I).

    Shapes: images (B, C, H, W) → features (B, Ĉ, Λ, H', W'); weight (Ĉ, C, Q), bias (Ĉ,).

    Args:
        in_channels: C.
        out_channels: Ĉ, the number of learned filters; each is applied in all orientations.
        kernel_size: side of the square filter, odd.
        orientations: Λ ≥ 1.
        stride, padding, dilation, padding_mode, bias: as in `nn.Conv2d`, one value for both axes.
        basis: a preset ("bandlimited", "averaged", "paper"), a `Basis`, or a function from kernel size to `Basis`.
        init: "coeff" or "he", with "-backward" to keep the variance of gradients instead.
        engine: how it is computed, "direct", "atomic" or "spectral", or "auto" for the fastest; the result is the same.
        device, dtype: of the weights.

    >>> LiftConv2d(1, 16, 7, orientations=8)(torch.randn(2, 1, 28, 28)).shape
    torch.Size([2, 16, 8, 22, 22])
    """

    def _weight_shape(self) -> tuple[int, ...]:
        return self.out_channels, self.in_channels, self.basis.size

    @property
    def _fan_in(self) -> int:
        return self.in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) → features (B, Ĉ, Λ, H', W')."""
        self._check_input(images, ("batch", self.in_channels, "height", "width"))
        engine = "direct" if self.engine == "auto" else self.engine
        kernel = self._kernel(prepare_lift, engine)
        return lift_convolution(images, kernel, self._atoms(), self.geometry, bias=self.bias, engine=engine)


class GroupConv2d(_SteerableConv2d):
    """Convolve on the group: y_ĉ(x, θ) = Σ_c Σ_φ (ζ_c(·, φ) ∗ ρ_φ Ψ_ĉc(·, θ−φ))(x) + β_ĉ (§3.2).

    The filters Ψ_ĉc(x, θ) = Re Σ_jk w_ĉcjkθ ψ_jk(x) live on the group, with one set of weights for each relative
    orientation. The layer commutes with rotations of features: L(R_φ ζ) = R_φ L(ζ).

    Shapes: features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W'); weight (Ĉ, C, Λ, Q), bias (Ĉ,).
    Arguments are those of `LiftConv2d`.

    >>> GroupConv2d(16, 24, 5, orientations=8, padding="same")(torch.randn(2, 16, 8, 14, 14)).shape
    torch.Size([2, 24, 8, 14, 14])
    """

    def _weight_shape(self) -> tuple[int, ...]:
        return self.out_channels, self.in_channels, self.orientations, self.basis.size

    @property
    def _fan_in(self) -> int:
        return self.in_channels * self.orientations

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W')."""
        self._check_input(features, ("batch", self.in_channels, self.orientations, "height", "width"))
        learning = self._learning()
        engine = choose_group_engine(features, self.weight, self.geometry, training=learning, engine=self.engine)
        kernel = self._kernel(prepare_group, engine)
        return group_convolution(features, kernel, self._atoms(), self.geometry, bias=self.bias, engine=engine)
