"""The table of a group, and restriction to a subgroup: the same features, seen as those of fewer elements.

A group G splits into cosets of its subgroup H, G = ⋃_t Ht, and H acts on each of them as on itself. Features ζ_c(g) on
G are therefore |G| / |H| times as many channels of features on H, (c, t) ↦ ζ_c(ht), and no number is lost:

    D_Λ → C_Λ      t = 1, m              (B, C, 2Λ, H, W) → (B, 2C, Λ, H, W)
    C_Λ → C_Λ'     t = r^j, j < Λ/Λ'     (B, C, Λ, H, W)  → (B, C·Λ/Λ', Λ', H, W)
    D_Λ → D_Λ'     t = r^j, j < Λ/Λ'     (B, C, 2Λ, H, W) → (B, C·Λ/Λ', 2Λ', H, W)

Λ' must divide Λ. Later layers are equivariant only to the subgroup: a network can use more symmetries for small parts
of an image than for the whole.
"""

import torch
from torch import Tensor


def split_orientations(size: int, reflections: bool) -> int:
    """Λ of features whose axis of orientations has this size."""
    if reflections and size % 2:
        raise ValueError(f"features with reflections have 2Λ orientations, an even number, got {size}")
    return size // 2 if reflections else size


def products(orientations: int, reflections: bool = False) -> Tensor:
    """The group's table: entry (h, e) is the number of he among the orientations, int64 (Λ, Λ) or (2Λ, 2Λ).

    With h = r_φ m^u and e = r_d m^t, he = r_{φ + (−1)^u d} m^{u+t}.

    >>> products(2, reflections=True)[3]
    tensor([3, 2, 1, 0])
    """
    phi, d = torch.arange(orientations)[:, None], torch.arange(orientations)
    forward, backward = (phi + d) % orientations, (phi - d) % orientations
    if not reflections:
        return forward
    plain = torch.cat([forward, orientations + forward], dim=1)
    mirrored = torch.cat([orientations + backward, backward], dim=1)
    return torch.cat([plain, mirrored])


def coset_indices(
    size: int, orientations: int | None = None, *, reflections: bool = False, keep_reflections: bool = False
) -> Tensor:
    """Where ht lies on an axis of `size` orientations, for all cosets t and elements h: int64 (|G|/|H|, |H|).

    Arguments are those of `restrict`.

    >>> coset_indices(4, 2)
    tensor([[0, 2],
            [1, 3]])
    """
    before = split_orientations(size, reflections)
    after = before if orientations is None else orientations
    if keep_reflections and not reflections:
        raise ValueError("keep_reflections needs features with reflections: pass reflections=True as well")
    if isinstance(after, bool) or not isinstance(after, int) or after < 1 or before % after:
        divisors = [number for number in range(1, before + 1) if before % number == 0]
        raise ValueError(f"cannot restrict Λ = {before} orientations to {after}, choose one of {divisors}")
    turns = torch.arange(0, before, before // after, device="cpu")
    steps = torch.arange(before // after, device="cpu")[:, None]
    turned = turns + steps
    if not reflections:
        return turned
    if keep_reflections:  # h t = r^a m r^j = r^{a−j} m
        return torch.cat([turned, before + (turns - steps) % before], dim=1)
    return torch.cat([turned, before + turned])


def restrict(
    features: Tensor, orientations: int | None = None, *, reflections: bool = False, keep_reflections: bool = False
) -> Tensor:
    """Features of D_Λ or C_Λ as those of a subgroup, in more channels; the shapes are those of the module.

    Args:
        features: (B, C, Λ, H, W), or (B, C, 2Λ, H, W) with reflections.
        orientations: Λ', a divisor of Λ; by default Λ itself.
        reflections: whether the features have mirrored orientations.
        keep_reflections: whether the result has them too.

    >>> restrict(torch.randn(2, 8, 32, 5, 5), reflections=True).shape  # from D_16 to C_16
    torch.Size([2, 16, 16, 5, 5])
    >>> restrict(torch.randn(2, 8, 16, 5, 5), 4).shape  # from C_16 to C_4
    torch.Size([2, 32, 4, 5, 5])
    """
    if features.dim() != 5:
        raise ValueError(f"restrict expects features of shape (B, C, Λ, H, W), got {tuple(features.shape)}")
    options = {"reflections": reflections, "keep_reflections": keep_reflections}
    index = coset_indices(features.shape[2], orientations, **options)
    if orientations not in (None, split_orientations(features.shape[2], reflections)):  # else they are in order
        features = features.index_select(2, index.flatten().to(features.device))
    return features.unflatten(2, tuple(index.shape)).flatten(1, 2)
