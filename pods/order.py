"""The order of the prompts: that of TRL's sampler, resumed in any epoch, and read ahead."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import Sampler
from trl.trainer.utils import RepeatSampler

from pods.batch import Prompt


def generator_of(sampler: RepeatSampler, epoch: int) -> torch.Generator:
    """The random state in which TRL's sampler begins an epoch."""
    generator = torch.Generator().manual_seed(sampler.seed)
    for _ in range(epoch):
        torch.randperm(sampler.num_samples, generator=generator)
    return generator


@lru_cache(maxsize=2)
def order_of(sampler: RepeatSampler, epoch: int) -> list[int]:
    """The rows of the data set in the order of an epoch."""
    if not sampler.shuffle:
        return list(range(sampler.num_samples))
    return torch.randperm(sampler.num_samples, generator=generator_of(sampler, epoch)).tolist()


def row_at(sampler: RepeatSampler, place: int) -> int:
    """The row of the data set at this place, counted over epochs from the first prompt of all."""
    epoch, place = divmod(place, epoch_length(sampler))
    return order_of(sampler, epoch)[place]


def epoch_length(sampler: RepeatSampler) -> int:
    """Prompts of an epoch: those that fill no whole batch are left out."""
    return sampler.num_samples // sampler.batch_size * sampler.batch_size


class Stream:
    """The prompts of one step and those after it, all of them different while the data has others.

    columns: of the rows that TRL sends. place: of the step's first prompt in the order of
    `sampler`. earlier: fresh prompts that earlier steps took, by which the order has moved on.
    """

    def __init__(
        self, dataset: Dataset, sampler: RepeatSampler, columns: list[str], P: int, place: int,
        earlier: int,
    ) -> None:  # fmt: skip
        self.dataset, self.sampler, self.columns = dataset, sampler, columns
        self.next, self.after = place + earlier, place + earlier + P
        self.indices: set[int] = set()  # rows of the data set that are in the step
        self.own = self.fresh(P)

    @property
    def taken(self) -> int:
        """By how many prompts, beside its own, the step has moved the order on."""
        return self.next - self.after

    def fresh(self, count: int) -> list[Prompt]:
        """The next `count` prompts of the data that are not in the step."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Prompt:
        if len(self.indices) >= epoch_length(self.sampler):  # no other is left
            self.indices.clear()
        while (index := row_at(self.sampler, self.next)) in self.indices:
            self.next += 1
        self.next += 1
        self.indices.add(index)
        row = self.dataset[index]
        row = {name: row[name] for name in self.columns}
        return Prompt(index if row.get("id") is None else row["id"], row)


class EpochOrder(Sampler):
    """TRL's sampler, which after a resume would repeat the order of its first epoch."""

    def __init__(self, sampler: RepeatSampler, trainer: Any) -> None:
        self.sampler, self.trainer = sampler, trainer

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        """The epoch that begins, or is resumed: steps are skipped as transformers skips them."""
        args, sampler = self.trainer.args, self.sampler
        length = sampler.num_samples // sampler.batch_size * sampler.repeat_count  # micro-steps
        updates = max(1, -(-length // args.gradient_accumulation_steps))
        epoch, before = divmod(self.trainer.state.global_step, updates)
        skipped = 0 if args.ignore_data_skip else before * args.gradient_accumulation_steps
        self.trainer.start_at(epoch * length + skipped)
        if sampler.shuffle:
            sampler.generator = generator_of(sampler, epoch)
        return iter(sampler)
