"""Constants of the ChaCha stream cipher, for the noise generator and its compiled kernels."""

COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
LANES = 16
"""Blocks of 16 words come in groups of this many, computed side by side."""
