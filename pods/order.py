"""The order of the prompts: that of TRL's sampler, resumed in any epoch, and read ahead."""

import math
from functools import lru_cache

import torch
from datasets import Dataset
from trl import GRPOConfig
from trl.trainer.utils import RepeatSampler

from pods.batch import NO_FRESH, Prompt, Row, prompt_of


@lru_cache(maxsize=2)
def order_of(sampler: RepeatSampler, epoch: int) -> list[int]:
    """The rows of the data set in the order of an epoch."""
    rows = torch.arange(sampler.num_samples)
    if sampler.shuffle:
        generator = torch.Generator().manual_seed(sampler.seed)
        for _ in range(epoch + 1):
            rows = torch.randperm(sampler.num_samples, generator=generator)
    return rows.tolist()


class DataOrder:
    """The rows of the data set in the order of TRL's sampler over all epochs."""

    def __init__(self, dataset: Dataset, sampler: RepeatSampler) -> None:
        self.dataset = dataset
        self.sampler = sampler
        # TRL's sampler drops the rows that do not fill a batch.
        self.batches = sampler.num_samples // sampler.batch_size  # of an epoch
        self.epoch_length = self.batches * sampler.batch_size  # rows

    def index(self, position: int) -> int:
        """The row at this position, counted from the first prompt of the training."""
        epoch, position_in_epoch = divmod(position, self.epoch_length)
        return order_of(self.sampler, epoch)[position_in_epoch]

    def micro_steps(self, step: int, args: GRPOConfig) -> int:
        """The number of micro-steps before this optimiser step; an epoch's last update may have
        fewer."""
        length = self.batches * self.sampler.repeat_count  # of an epoch, micro steps
        steps = max(1, math.ceil(length / args.gradient_accumulation_steps))
        epoch, steps_in_epoch = divmod(step, steps)
        if args.ignore_data_skip:  # a resumed run begins its epoch again
            steps_in_epoch = 0
        return epoch * length + steps_in_epoch * args.gradient_accumulation_steps


class Stream:
    """The prompts of one step and those after it, all of them different while the data has others.

    rows: (P,) rows that TRL sends for the step. position: of its first prompt in the data's
    order; `next` is that after its newest. order: None if there is none (TrlAdapter.data_order):
    then there are no fresh prompts.
    """

    def __init__(self, rows: list[Row], position: int, order: DataOrder | None) -> None:
        self.order = order
        self.columns = list(rows[0])
        self.next = position
        self.indices: set[int] = set()  # rows of the data set that are in the step
        if order is None:
            self.own = [prompt_of(row, number) for number, row in enumerate(rows, position)]
            self.next += len(rows)
        else:
            self.own = self.fresh(len(rows))

    def fresh(self, count: int) -> list[Prompt]:
        """The next `count` prompts of the data that are not in the step."""
        if self.order is None and count:
            raise ValueError(NO_FRESH)
        return [self._next() for _ in range(count)]

    def _next(self) -> Prompt:
        if len(self.indices) >= self.order.epoch_length:  # no other is left
            self.indices.clear()
        while self.order.index(self.next) in self.indices:
            self.next += 1
        index = self.order.index(self.next)
        self.next += 1
        self.indices.add(index)
        row = self.order.dataset[index]
        return prompt_of({name: row[name] for name in self.columns}, index)
