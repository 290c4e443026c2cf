"""Restriction to a subgroup as a layer."""

from torch import Tensor, nn

from sfcnn.subgroups import restrict


class Restrict(nn.Module):
    """Continue with fewer rotations, or without reflections: `sfcnn.restrict` between two layers.

    Shapes: features (B, C, Λ, H, W) → (B, C·Λ/Λ', Λ', H, W). With reflections, (B, C, 2Λ, H, W) →
    (B, 2C·Λ/Λ', Λ', H, W), or (B, C·Λ/Λ', 2Λ', H, W) if they are kept.

    Args:
        orientations: Λ', a divisor of the features' Λ; by default Λ itself.
        reflections: whether the features have mirrored orientations.
        keep_reflections: whether the result has them too.

    >>> import torch
    >>> from sfcnn.nn import GroupConv2d
    >>> net = nn.Sequential(Restrict(reflections=True), GroupConv2d(2 * 8, 8, 5, orientations=16))
    >>> net(torch.randn(1, 8, 2 * 16, 9, 9)).shape
    torch.Size([1, 8, 16, 5, 5])
    """

    def __init__(
        self, orientations: int | None = None, *, reflections: bool = False, keep_reflections: bool = False
    ) -> None:
        super().__init__()
        self.orientations, self.reflections, self.keep_reflections = orientations, reflections, keep_reflections

    def forward(self, features: Tensor) -> Tensor:
        """Features of the group → features of the subgroup."""
        return restrict(
            features, self.orientations, reflections=self.reflections, keep_reflections=self.keep_reflections
        )

    def extra_repr(self) -> str:
        """Arguments that are not at their default."""
        parts = [] if self.orientations is None else [f"orientations={self.orientations}"]
        parts += [f"{name}=True" for name in ("reflections", "keep_reflections") if getattr(self, name)]
        return ", ".join(parts)
