"""Seeds: which numbers are one, and a generator of its own for each place that draws."""

import torch

#: That every random generator takes: those of torch, numpy and scikit-learn.
LARGEST_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Raise unless a seed is one that every random generator takes."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, got {seed}")


def seeded_generator(*numbers: int) -> torch.Generator:
    """A generator of its own for each tuple of small numbers, such as seed, epoch and step."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return torch.Generator().manual_seed(seed)
