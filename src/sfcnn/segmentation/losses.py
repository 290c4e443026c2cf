"""Pixel losses: cross-entropy, class-balanced cross-entropy, and Dice.

With K classes, p_k the probability and t_k ∈ {0, 1} the target of class k at a pixel, and f_k the fraction of training
pixels in class k,

    cross-entropy   −mean_x Σ_k t_k ln p_k
    balanced        −mean_x Σ_k w_k t_k ln p_k     with w_k = 1 / (K f_k): all classes have the same total weight
    dice            1 − mean_k 2 Σ_x p_k t_k / Σ_x (p_k + t_k) + ½ cross-entropy     over the classes k ≥ 1

A network with a single foreground class has one logit, that of class 1. With label smoothing s, the target of the
cross-entropy is (1 − s) t_k + s / K.

For pairs of pixels, with q the probability that they are in different cells and u ∈ {0, 1} the target, the loss is

    affinities      1 − mean_d 2 Σ q u / Σ (q + u) + ½ cross-entropy     over valid pairs, d the radii
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LOSSES = ("cross-entropy", "balanced", "dice")

_RAREST = 1e-3  # classes rarer than this get no more weight


def class_weights(loss: str, frequencies: Tensor) -> Tensor:
    """w_k: the weight of a pixel of each class, (K,)."""
    if loss != "balanced":
        return torch.ones_like(frequencies)
    return 1 / (len(frequencies) * frequencies.clamp_min(_RAREST))


def prior_logits(loss: str, frequencies: Tensor) -> Tensor:
    """The logits that predict the class frequencies: (1,) for K = 2, else (K,).

    >>> prior_logits("cross-entropy", torch.tensor([0.9, 0.1])).sigmoid()
    tensor([0.1000])
    """
    share = (class_weights(loss, frequencies) * frequencies).clamp_min(_RAREST)
    share = share / share.sum()
    return (share[1] / share[0]).log()[None] if len(share) == 2 else share.log()


def log_probabilities(logits: Tensor) -> Tensor:
    """ln p_k of all classes: (B, 1 or K, H, W) → (B, K, H, W)."""
    if logits.shape[1] > 1:
        return logits.log_softmax(1)
    return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=1)


def pixel_loss(
    loss: str, logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Loss and error rate, with pixels weighted in both as in the loss: (B,) and (B,).

    logits (B, 1 or K, H, W), targets (B, H, W) int64, weights (K,) from `class_weights`.
    """
    logp = log_probabilities(logits.float())
    found = logp.detach().argmax(1)
    weight = weights.to(logp)[targets]  # (B, H, W)
    likelihood = logp.gather(1, targets[:, None])[:, 0]
    if smoothing:
        likelihood = (1 - smoothing) * likelihood + smoothing * logp.mean(1)
    entropy = -(weight * likelihood).mean((1, 2))
    if loss != "dice":
        return entropy, (weight * (found != targets)).mean((1, 2))
    truth = F.one_hot(targets, logp.shape[1]).movedim(-1, 1).to(logp)
    hard = F.one_hot(found, logp.shape[1]).movedim(-1, 1).to(logp)
    return 1 - dice(logp.exp(), truth) + entropy / 2, 1 - dice(hard, truth)


def dice(shares: Tensor, truth: Tensor) -> Tensor:
    """2 Σ p t / Σ (p + t), averaged over the foreground classes: two (B, K, H, W) → (B,); 1 for empty classes."""
    both = (shares * truth).sum((2, 3))[:, 1:]
    either = (shares + truth).sum((2, 3))[:, 1:]
    return ((2 * both + 1) / (either + 1)).mean(1)


def affinity_loss(logits: Tensor, same: Tensor, valid: Tensor) -> Tensor:
    """Dice loss of pairs in different cells plus half the cross-entropy, over valid pairs: (B, D, Λ, H, W) each → (B,).

    The logits are for being in the same cell. A radius without valid pairs adds nothing.
    """
    logits, weight, truth = logits.float(), valid.to(torch.float32), (~same).to(torch.float32)
    pairs = weight.sum((1, 2, 3, 4)).clamp_min(1)
    entropy = (weight * F.binary_cross_entropy_with_logits(-logits, truth, reduction="none")).sum((1, 2, 3, 4)) / pairs
    different = torch.sigmoid(-logits)
    both = (weight * different * truth).sum((2, 3, 4))  # (B, D)
    either = (weight * (different + truth)).sum((2, 3, 4))
    return 1 - ((2 * both + 1) / (either + 1)).mean(1) + entropy / 2
