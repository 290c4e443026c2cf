"""Check seeds, and derive independent random generators from them."""

import torch

#: Largest seed that the random generators of torch, numpy and scikit-learn all accept.
LARGEST_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Raise unless every random generator accepts the seed."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, got {seed}")


def seeded_generator(*numbers: int) -> torch.Generator:
    """A separate generator for each tuple of small numbers, such as seed, epoch and step."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return torch.Generator().manual_seed(seed)
