"""The spectral group convolution by the compiled kernel, if available and applicable.

It supports CPUs, single and double precision, stride and dilation 1, and atoms that follow the symmetry of the grid.
The environment variable `SFCNN_KERNEL=0` disables it; the name of an instruction set selects that one.
"""

import ctypes
import os

import torch
from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.kernel import INSTRUCTION_SETS, Library, Problem, check, load
from sfcnn.ops.spectral.kernel.tables import Tables, make_tables

_LARGEST_KERNEL, _MOST_ATOMS = 31, 512
_SWITCH = "SFCNN_KERNEL"


def read_switch() -> str:
    """The setting of the kernel in the environment: empty, "0", "1" or an instruction set."""
    choice = os.environ.get(_SWITCH, "")
    if choice not in ("", "0", "1", *INSTRUCTION_SETS):
        raise ValueError(f"{_SWITCH} is {choice!r}, expected 0, 1 or one of {', '.join(INSTRUCTION_SETS)}")
    return choice


def instruction_set() -> str | None:
    """The instruction set that the kernel uses: "plain", "avx2" or "avx512"; None if it is not used."""
    choice, library = read_switch(), load()
    if choice == "0" or library is None:
        return None
    name = library.name(INSTRUCTION_SETS.index(choice) if choice in INSTRUCTION_SETS else -1)
    return None if name is None else str(name.decode())


def is_covered(tensor: Tensor, geometry: Geometry) -> bool:
    """Whether the kernel supports this geometry, and the device and precision of the tensor."""
    plain = geometry.stride == geometry.dilation == 1 and geometry.kernel_size <= _LARGEST_KERNEL
    here = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    return plain and here and instruction_set() is not None


class Call:
    """One call of the kernel, with everything that it points to."""

    def __init__(self, library: Library, problem: Problem, tables: Tables) -> None:
        self._library, self._problem, self._tables = library, problem, tables

    def fits(self, backward: bool) -> bool:
        """Whether the workspace stays within its limit."""
        return self.workspace(backward) >= 0

    def workspace(self, backward: bool) -> int:
        """Bytes of workspace per thread, -1 if too large."""
        return int(self._library.workspace(self._problem, backward))

    def forward(
        self, features: Tensor, kernel: Tensor, result: Tensor, scale: Tensor | None = None, shift: Tensor | None = None
    ) -> None:
        """Fill the result y (B, Ĉ, Λ, H', W'), or max(0, scale · y + shift) if scale and shift (Ĉ,) are given."""
        features, kernel = features.contiguous(), kernel.contiguous()
        if scale is not None and shift is not None:
            scale, shift = scale.to(features).contiguous(), shift.to(features).contiguous()
            self._problem.scale, self._problem.shift = _address(scale), _address(shift)
        check(self._library.forward(self._problem, *map(_address, (features, kernel, result))))

    def backward(
        self,
        gradient: Tensor,
        features: Tensor,
        kernel: Tensor,
        features_gradient: Tensor,
        kernel_gradient: Tensor | None,
    ) -> None:
        """Fill the gradient of the features, and that of the kernel if given."""
        given = gradient.contiguous(), features.contiguous(), kernel.contiguous(), features_gradient, kernel_gradient
        check(self._library.backward(self._problem, *map(_address, given)))


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def prepare(
    features: Tensor,
    kernel: Tensor,
    filters: Tensor,
    frequencies: list[int],
    geometry: Geometry,
    backward: bool,
    tiles: int = 0,
) -> Call | None:
    """The call for these arguments, or None if the kernel is disabled or does not support them.

    `tiles` is for tests: the minimum number of pieces an image is cut into, to fill vector lanes, or 1 for none.
    """
    name = instruction_set()
    alike = features.dtype == kernel.dtype == filters.dtype and features.device == kernel.device == filters.device
    if name is None or not alike or not is_covered(features, geometry) or len(frequencies) > _MOST_ATOMS:
        return None
    tables, library = make_tables(filters, tuple(frequencies), features.shape[2]), load()
    if tables is None or library is None:
        return None
    batch, channels, orientations, height, width = features.shape
    problem = Problem(
        real_bytes=features.element_size(),
        instruction_set=INSTRUCTION_SETS.index(name),
        tiles=tiles,
        threads=torch.get_num_threads(),
        batch=batch,
        channels=channels,
        out_channels=kernel.shape[1],
        orientations=orientations,
        height=height,
        width=width,
        kernel_size=geometry.kernel_size,
        margin=geometry.margin,
        atoms=len(frequencies),
        harmonics=len(tables.rings),
        **{name: table.data_ptr() for name, table in vars(tables).items()},
    )
    call = Call(library, problem, tables)
    return call if call.fits(backward) else None


def channels_at_once(
    features: Tensor, kernel: Tensor, filters: Tensor, frequencies: list[int], geometry: Geometry
) -> int:
    """How many input channels the backward pass can take at once if it cannot take all; 0 if it can take none."""
    for parts in (2, 4, 8):
        size = -(-features.shape[1] // parts)
        if prepare(features[:, :size], kernel, filters, frequencies, geometry, backward=True) is not None:
            return size
    return 0
