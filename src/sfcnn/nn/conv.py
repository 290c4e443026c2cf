"""The lifting and group convolutions as layers: `nn.Conv2d` with one more argument, the number of orientations."""

from functools import partial

import torch
from torch import Tensor

from sfcnn.nn.steerable import SteerableConv2d
from sfcnn.ops import ENGINES, Engine, known_size, resolve_engine
from sfcnn.ops.combine import combines_quickly
from sfcnn.ops.cost import Problem, fastest_engine
from sfcnn.ops.measured import describe, measured_engine
from sfcnn.ops.reflections import as_reflections, as_rotations, expand_group_weight, expand_lift_weight
from sfcnn.ops.spectral.compiled import is_covered

_LARGE_OUTPUT = 24e6  # bytes, for which memory comes anew from the system in each call


class LiftConv2d(SteerableConv2d):
    """Lift images to the group: y_ĉ(x, θ) = Σ_c (I_c ∗ ρ_θ Ψ_ĉc)(x) + β_ĉ, for θ = 2πa/Λ (§3.2, input layer).

    The filters are Ψ_ĉc = Re Σ_jk w_ĉcjk ψ_jk, learned by their weights. Rotating the image rotates the features
    and shifts their orientations: L(ρ_φ I) = R_φ L(I).

    With `reflections` each filter is applied mirrored as well, y_ĉ(x, g) = Σ_c (I_c ∗ gΨ_ĉc)(x) + β_ĉ for all g = r_θ
    and r_θ m of the group D_Λ, where m exchanges left and right. Mirroring the image then mirrors the features,
    exchanges the two halves of their orientations and reverses each (`reflect_features`).

    Shapes: images (B, C, H, W) → features (B, Ĉ, Λ, H', W'), with reflections (B, Ĉ, 2Λ, H', W'), of which the second
    half are the mirrored orientations; weight (Ĉ, C, Q), bias (Ĉ,).

    Args:
        in_channels: C.
        out_channels: Ĉ, the number of learned filters; each is applied in all orientations.
        kernel_size: side of the square filter, odd.
        orientations: Λ ≥ 1.
        reflections: whether filters are also mirrored; all layers up to a `Restrict` must agree on it.
        stride, padding, dilation, padding_mode, bias: as in `nn.Conv2d`, one value for both axes.
        basis: a preset ("bandlimited", "averaged", "paper", or "pixels" for 1, 2 or 4 orientations), a `Basis`, or a
            function from kernel size to `Basis`.
        init: "coeff" or "he", with "-backward" to keep the variance of gradients instead.
        engine: how it is computed, "direct", "atomic" or "spectral"; "auto" picks the one predicted to be fastest,
            "measured" times them once for each input shape. The result is the same.
        device, dtype: of the weights.

    >>> import torch
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
        engine = self._choose_engine(images)
        features = engine.lift(images, self._kernel(engine), self._atoms(), self._bias(), self.geometry)
        return as_reflections(features) if self.reflections else features

    def _choose_engine(self, images: Tensor) -> Engine:
        """The layer's engine; with "auto" and "measured" it is "direct", one convolution with few filters.

        The exception is a large output, where "atomic" has a faster way and fewer products: Q (s² + ΛĈ) for each pixel
        and channel instead of s² ΛĈ.
        """
        if self.engine not in ("auto", "measured"):
            return resolve_engine(self.engine)
        if not combines_quickly(images):
            return resolve_engine("direct")
        taps, maps = self.kernel_size**2, self.out_channels * self.group_order
        height, width = (self.geometry.output_size(size) for size in images.shape[-2:])
        large = len(images) * maps * height * width * images.element_size() >= _LARGE_OUTPUT
        fewer = self.basis.size * (taps + maps) < taps * maps
        return resolve_engine("atomic" if large and fewer else "direct")

    def rectified(self, maps: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """max(0, scale · y + shift) for the layer's output y: filters are scaled, and the shift is their bias."""
        engine = self._choose_engine(maps)
        self._check_input(maps, ("batch", self.in_channels, "height", "width"))
        if self.bias is not None:
            shift = shift + scale * self.bias
        if self.reflections:
            scale, shift = scale.repeat_interleave(2), shift.repeat_interleave(2)
        kernel = self._kernel(engine)
        kernel = scale.repeat_interleave(self.orientations).to(kernel).view(-1, 1, 1, 1) * kernel
        features = engine.lift(maps, kernel, self._atoms(), shift.to(kernel), self.geometry).relu_()
        return as_reflections(features) if self.reflections else features

    def _prepare(self, engine: Engine) -> Tensor:
        weight = expand_lift_weight(self.weight, self.mirror) if self.reflections else self.weight
        return engine.lift_kernel(weight, self._atoms())


class GroupConv2d(SteerableConv2d):
    """Convolve on the group: y_ĉ(x, θ) = Σ_c Σ_φ (ζ_c(·, φ) ∗ ρ_φ Ψ_ĉc(·, θ−φ))(x) + β_ĉ (§3.2).

    The filters Ψ_ĉc(x, θ) = Re Σ_jk w_ĉcjkθ ψ_jk(x) live on the group, with one set of weights for each relative
    orientation. The layer commutes with rotations of features: L(R_φ ζ) = R_φ L(ζ).

    With `reflections` the sum is over the group D_Λ, y_ĉ(x, g) = Σ_c Σ_h (ζ_c(·, h) ∗ hΨ_ĉc(·, h⁻¹g))(x) + β_ĉ, and the
    layer commutes with `reflect_features` as well (`sfcnn.ops.reflections`).

    Shapes: features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W'); weight (Ĉ, C, Λ, Q), bias (Ĉ,). With reflections, 2Λ
    takes the place of Λ.
    Arguments are those of `LiftConv2d`.

    >>> import torch
    >>> GroupConv2d(16, 24, 5, orientations=8, padding="same")(torch.randn(2, 16, 8, 14, 14)).shape
    torch.Size([2, 24, 8, 14, 14])
    """

    def _weight_shape(self) -> tuple[int, ...]:
        return self.out_channels, self.in_channels, self.group_order, self.basis.size

    @property
    def _fan_in(self) -> int:
        return self.in_channels * self.group_order

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W'); 2Λ in the place of Λ with reflections."""
        self._check_input(features, ("batch", self.in_channels, self.group_order, "height", "width"))
        engine = self._choose_engine(features)
        return self._convolve(engine, features, self._kernel(engine))

    def _convolve(self, engine: Engine, features: Tensor, kernel: Tensor) -> Tensor:
        if not self.reflections:
            return engine.group(features, kernel, self._atoms(), self.bias, self.geometry)
        return as_reflections(engine.group(as_rotations(features), kernel, self._atoms(), self._bias(), self.geometry))

    def rectified(self, maps: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """max(0, scale · y + shift) for the layer's output y, in one pass with the convolution where the engine can."""
        self._check_input(maps, ("batch", self.in_channels, self.group_order, "height", "width"))
        engine = self._choose_engine(maps)
        kernel, atoms = self._kernel(engine), self._atoms()
        if self.bias is not None:
            shift = shift + scale * self.bias
        if not self.reflections:
            return engine.rectified(maps, kernel, atoms, scale, shift, self.geometry)
        pairs = scale.repeat_interleave(2), shift.repeat_interleave(2)
        return as_reflections(engine.rectified(as_rotations(maps), kernel, atoms, *pairs, self.geometry))

    def _prepare(self, engine: Engine) -> Tensor:
        weight = expand_group_weight(self.weight, self.mirror) if self.reflections else self.weight
        return engine.group_kernel(weight, self._atoms())

    def _choose_engine(self, features: Tensor) -> Engine:
        """The layer's engine, or for "auto" and "measured" the fastest for features (B, C, Λ, H, W).

        The cost model of "auto" covers only CPUs; on other devices "auto" measures too.
        """
        if self.engine not in ("auto", "measured"):
            return resolve_engine(self.engine)
        timed = self.engine == "measured" or features.device.type != "cpu"
        if timed and not features.is_meta and not torch.compiler.is_compiling():
            return resolve_engine(self._measure(features))
        batch, height, width = (known_size(features.shape[axis]) for axis in (0, 3, 4))
        return resolve_engine(self._fastest(batch, height, width, self._learning()))

    def _problem(self, batch: int, height: int, width: int) -> Problem:
        fold = self.group_order // self.orientations
        shape = batch, fold * self.in_channels, fold * self.out_channels, self.orientations, self.basis.size
        return Problem(*shape, height, width, self.geometry)

    def _fastest(self, batch: int, height: int, width: int, training: bool) -> str:
        """The name of the engine with the least predicted time."""
        compiled = is_covered(self.weight, self.geometry)
        return fastest_engine(self._problem(batch, height, width), training, compiled)

    # torch.compile calls `_fastest` instead of tracing the cost model, and takes its result as a constant. A method of
    # the layer, since it reads the geometry from the layer itself: an object among the arguments would tie the graph
    # to that one object, and layers of equal shapes could no longer share a graph. The shapes it reads are guarded by
    # the rest of `forward`. The mark is all that `torch.compiler.assume_constant_result` does, but that function
    # imports the compiler: 850 modules that most programs never need.
    _fastest._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def _measure(self, features: Tensor) -> str:
        """The name of the engine that took the least time on features like these, with gradients if they are wanted."""
        learning = self._learning()
        batch, height, width = (features.shape[axis] for axis in (0, 3, 4))
        name = describe(self._problem(batch, height, width), learning, features.device, features.dtype)
        return measured_engine(name, {engine: partial(self._try, engine, features, learning) for engine in ENGINES})

    def _try(self, name: str, features: Tensor, learning: bool) -> None:
        """What a step does with this layer; it leaves no gradients behind."""
        engine = resolve_engine(name)
        with torch.set_grad_enabled(learning):
            inputs = features.detach().requires_grad_(learning)
            result = self._convolve(engine, inputs, self.build_kernel(engine))
            if learning and self.weight.requires_grad:
                with torch.autocast(features.device.type, enabled=False):  # as in a step, whose backward is outside it
                    torch.autograd.grad(result.sum(), [inputs, self.weight])
