"""A count sketch: a few thousand numbers in place of a gradient, with the same inner products.

A gradient is cut into rows of `size` numbers. A row is rotated by a random number of places, gets a
random sign and is added to the sketch; each column has a random sign, too. The inner product of two
sketches has the mean <x, y> and a standard deviation of about |x| |y| / sqrt(size) (Charikar et al.
2002). Rows in place of single numbers need no table as long as the gradient, and no atomic sums on
a GPU.
"""

import math
from collections.abc import Iterable

import torch
from torch.nn.functional import pad

ROWS = 256  # at once: with 4,096 numbers in a row, 16 MB for the places and as much for two copies
SEED = 0


class Sketch:
    """Sums up gradients of `elements` numbers."""

    def __init__(self, elements: int, size: int, device: torch.device) -> None:
        self.size = size
        rows = math.ceil(elements / size)
        random = torch.Generator().manual_seed(SEED)  # of the CPU: the same on every device
        self.shifts = torch.randint(size, (rows, 1), generator=random).to(device)
        row_bits = torch.randint(2, (rows, 1), generator=random)
        column_bits = torch.randint(2, (size,), generator=random)
        self.row_signs = (2.0 * row_bits - 1).to(device)
        self.column_signs = (2.0 * column_bits - 1).to(device)
        self.places = torch.arange(size, device=device)

    def __call__(self, gradients: Iterable[torch.Tensor]) -> torch.Tensor:
        """(size,) float32 of the gradients of all parameters, on their device."""
        parts = [gradient.detach().flatten().float() for gradient in gradients]
        whole = torch.cat(parts)
        missing = -len(whole) % self.size  # numbers of the last row
        table = pad(whole, (0, missing)).view(-1, self.size)
        total = torch.zeros_like(self.column_signs)
        for start in range(0, len(table), ROWS):
            chunk = slice(start, start + ROWS)
            places = (self.places + self.shifts[chunk]) % self.size
            rows = table[chunk] * self.column_signs
            rows = rows.gather(1, places)
            rows = rows * self.row_signs[chunk]
            total += rows.sum(0)
        return total
