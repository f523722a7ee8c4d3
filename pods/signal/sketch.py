"""A count sketch: a few thousand numbers in place of a gradient, with the same inner products.

A gradient is cut into rows of `size` numbers. A row is rotated by a random number of places, gets a
random sign and is added to the sketch; each column has a random sign, too. The inner product of two
sketches has the mean <x, y> and a standard deviation of about |x| |y| / sqrt(size) (Charikar et al.
2002). Rows in place of single numbers need no table as long as the gradient, and no atomic sums on
a GPU.
"""

from collections.abc import Iterable

import torch
from torch.nn.functional import pad

ROWS = 256  # at once: with 4,096 numbers in a row, 16 MB for the places and as much for two copies
SEED = 0


class Sketch:
    """Sums up gradients of `elements` numbers."""

    def __init__(self, elements: int, size: int, device: torch.device) -> None:
        random = torch.Generator().manual_seed(SEED)
        rows = -(-elements // size)
        shifts = torch.randint(size, (rows, 1), generator=random)
        signs = torch.randint(2, (rows + size, 1), generator=random) * 2.0 - 1
        self.size = size
        self.shifts = shifts.to(device)
        self.signs = signs[:rows].to(device)  # of the rows
        self.columns = signs[rows:, 0].to(device)
        self.places = torch.arange(size, device=device)

    def __call__(self, gradients: Iterable[torch.Tensor]) -> torch.Tensor:
        """(size,) float32 of the gradients of all parameters, on their device."""
        whole = torch.cat([gradient.detach().flatten().float() for gradient in gradients])
        total = torch.zeros_like(self.columns)
        for first, part in enumerate(whole.split(ROWS * self.size)):
            rows = pad(part, (0, -len(part) % self.size)).view(-1, self.size)
            here = slice(ROWS * first, ROWS * first + len(rows))
            places = (self.places + self.shifts[here]) % self.size
            rotated = (rows * self.columns).gather(1, places)
            total += (rotated * self.signs[here]).sum(0)
        return total
