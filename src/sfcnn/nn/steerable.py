"""What the lifting and the group convolution share: weights of atoms, the atoms themselves, and a saved basis."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.harmonics import Basis, BasisLike, describe_basis, preset_name, resolve_basis
from sfcnn.initialization import check_init, init_weight_, initial_std
from sfcnn.nn.cache import FrozenKernel
from sfcnn.ops import Atoms, Engine, Geometry, Padding, check_engine, sample_atoms
from sfcnn.ops.rectify import rectify_
from sfcnn.ops.spectral.compiled import read_switch
from sfcnn.steering import check_orientations

_BASIS_KEY = "_extra_state"  # torch's name for what `get_extra_state` returns


class SteerableConv2d(nn.Module):
    """A convolution with steerable filters: learned weights of fixed atoms, which are derived and not saved.

    The state dict holds the parameters and, as extra state, the rings of the basis that the weights belong to
    (`Basis.to_tensor`). In another basis the same weights give different filters, so loading them there is an error.
    """

    atoms: Tensor  # (Q, s, s)
    rotations: Tensor  # (Λ, Q, Q)
    mirror: Tensor  # (Q,), only with reflections

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        orientations: int,
        *,
        reflections: bool = False,
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
        if not isinstance(reflections, bool):
            raise ValueError(f"reflections must be True or False, got {reflections!r}")
        check_init(init)
        check_engine(engine)
        read_switch()  # a mistake in it shows before anything is computed or written
        self.in_channels, self.out_channels, self.orientations = in_channels, out_channels, orientations
        self.reflections = reflections
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
    def group_order(self) -> int:
        """Size of the axis of orientations: Λ, or 2Λ with reflections."""
        return 2 * self.orientations if self.reflections else self.orientations

    @property
    def basis_name(self) -> str:
        """The preset that the basis is, or "custom"."""
        return preset_name(self.basis, self.kernel_size) or "custom"

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
        if self.reflections:
            signs = torch.tensor(self.basis.mirror_signs, dtype=place[0], device=place[1])
            self.register_buffer("mirror", signs, persistent=False)

    def _atoms(self) -> Atoms:
        return Atoms(self.atoms, self.rotations, self.basis.frequencies)

    def _bias(self) -> Tensor | None:
        """The bias of each channel that an engine computes: two with reflections."""
        return self.bias.repeat_interleave(2) if self.reflections and self.bias is not None else self.bias

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SteerableConv2d":
        """Follow `.to()`, `.double()` …: atoms are resampled, because casting a float32 atom does not add precision."""
        super()._apply(fn, recurse)
        self._sample_atoms()
        self._frozen.clear()
        return self

    def train(self, mode: bool = True) -> "SteerableConv2d":
        """Set the mode like any module; the kernel cached for evaluation is dropped."""
        if mode:
            self._frozen.clear()
        return super().train(mode)

    def reset_parameters(self) -> None:
        """Redraw the weights with the scheme `init` and set the bias to zero."""
        fan_out = self.out_channels * self.group_order
        std = initial_std(self.init, self.basis, self.kernel_size, fan_in=self._fan_in, fan_out=fan_out)
        init_weight_(self.weight, std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _learning(self) -> bool:
        """Whether the weights may change or a gradient of them is wanted."""
        return self.training or (torch.is_grad_enabled() and self.weight.requires_grad)

    def rectified(self, maps: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """max(0, scale · y + shift) for the layer's output y, without gradients; scale and shift (Ĉ,)."""
        return rectify_(self(maps), scale, shift)

    def _prepare(self, engine: Engine) -> Tensor:
        """The engine's kernel for the weights as they are."""
        raise NotImplementedError

    def build_kernel(self, engine: Engine) -> Tensor:
        """What the engine convolves with, in the weights' own precision also under autocast."""
        device = self.weight.device.type
        if not torch.amp.is_autocast_available(device):  # the meta device, on which a network only shows its shapes
            return self._prepare(engine)
        with torch.autocast(device, enabled=False):
            return self._prepare(engine)

    def _kernel(self, engine: Engine) -> Tensor:
        """The engine's kernel, kept in eval mode as long as the weights are frozen."""
        if self._learning() or torch.compiler.is_compiling() or self.weight.is_meta:  # nothing to compare on meta
            return self.build_kernel(engine)
        return self._frozen.get(engine, self.weight, lambda: self.build_kernel(engine))

    def get_extra_state(self) -> Tensor:
        """The basis that the weights belong to: float64 (4, rings), as `Basis.to_tensor` gives it."""
        return self.basis.to_tensor()

    def set_extra_state(self, state: Any) -> None:
        """Raise unless `state` is the layer's own basis, to the precision that it was saved in."""
        if isinstance(state, Tensor) and state.is_meta:  # a state dict of shapes only
            return
        saved, own = Basis.from_tensor(state), self.basis.to_tensor()
        rounding = torch.finfo(state.dtype).eps  # a state dict may have been cast as a whole
        if state.shape != own.shape or not torch.allclose(state.to(own), own, rtol=rounding, atol=0):
            raise ValueError(
                f"the weights belong to the basis {describe_basis(saved)}, the layer has {describe_basis(self.basis)}"
            )

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the parameters unless they belong to another basis; older files do not name their basis."""
        key = prefix + _BASIS_KEY
        try:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
        except ValueError as error:
            error_msgs.append(f"{prefix}weight: {error}")
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if key in missing_keys:
            missing_keys.remove(key)

    def _check_input(self, maps: Tensor, shape: tuple[int | str, ...]) -> None:
        """Compare with the expected shape, whose names stand for any size."""
        fits = maps.dim() == len(shape) and all(
            isinstance(want, str) or have == want for have, want in zip(maps.shape, shape, strict=True)
        )
        if not fits:
            expected = ", ".join(map(str, shape))
            message = f"{type(self).__name__} expects a tensor of shape ({expected}), got {tuple(maps.shape)}"
            raise ValueError(message + self._explain_orientations(maps))
        self.geometry.check_map(*maps.shape[-2:])

    def _explain_orientations(self, maps: Tensor) -> str:
        """A hint for features whose orientation axis has the wrong size."""
        size, order = maps.shape[2] if maps.dim() == 5 else 0, self.group_order
        if self.reflections and size == self.orientations:
            return (
                f": with reflections features have 2Λ = {order} orientations, as layers with reflections=True make them"
            )
        if not self.reflections and size == 2 * order:
            return ": features with reflections need a layer with reflections=True, or sfcnn.restrict before this one"
        return ""

    def extra_repr(self) -> str:
        """Arguments that tell what the layer is; those at their default are left out."""
        g, default = self.geometry, Geometry(self.kernel_size)
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts.append(f"orientations={self.orientations}")
        if self.reflections:
            parts.append("reflections=True")
        for name in ("stride", "padding", "dilation", "padding_mode"):
            if getattr(g, name) != getattr(default, name):
                parts.append(f"{name}={getattr(g, name)!r}")
        if self.bias is None:
            parts.append("bias=False")
        parts.append(f"basis={self.basis_name!r} K={list(self.basis.cutoffs)}, engine={self.engine!r}")
        return ", ".join(parts)
