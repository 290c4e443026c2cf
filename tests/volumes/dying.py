"""A call that ends its process; by itself, since each new process has to import it."""

import os


def end_process(number: int) -> int:
    """Die without a word if the number is 1, as a worker does that takes too much memory."""
    if number == 1:
        os._exit(1)
    return number
