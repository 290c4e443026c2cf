"""Sweeps in small: a few dozen embedded digits and a network a tenth as wide."""
