"""The order of the prompts: that of TRL's sampler, resumed in any epoch, and read ahead."""

from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import Sampler

from pods.rollouts import Prompt, Row


class DataOrder:
    """The prompt at any place of the data's order over all epochs, that of TRL's RepeatSampler."""

    def __init__(self, dataset: Dataset, sampler: Any) -> None:
        self.dataset, self.size = dataset, sampler.num_samples
        self.seed, self.shuffle = sampler.seed, sampler.shuffle
        self.epoch_length = self.size - self.size % sampler.batch_size  # the rest is left out
        self._orders: dict[int, list[int]] = {}

    def index(self, place: int) -> int:
        """The row of the data set at this place, 0 being the first prompt of the training."""
        epoch, place = divmod(place, self.epoch_length)
        if epoch not in self._orders:
            self._orders = {epoch: self._order(epoch)}
        return self._orders[epoch][place]

    def _order(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.size))
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(epoch):
            torch.randperm(self.size, generator=generator)
        return torch.randperm(self.size, generator=generator).tolist()


class Stream:
    """The prompts of one step and those after it, all of them different while the data has others.

    Args:
        rows: (P,) rows that TRL sends for the step.
        place: of the first of them in the data's order.
        earlier: fresh prompts that earlier steps took, by which the order has moved on.
        order: None for a streamed data set, which has no fresh prompts.
    """

    def __init__(self, rows: list[Row], place: int, earlier: int, order: DataOrder | None) -> None:
        self.order, self.columns = order, list(rows[0])
        self.next, self.after = place + earlier, place + earlier + len(rows)
        self.indices: set[int | None] = set()  # rows of the data set that are in the step
        if earlier:
            self.own = self.fresh(len(rows))
        else:
            self.own = [
                self._prompt(order and order.index(place + i), row, place + i)
                for i, row in enumerate(rows)
            ]
            self.next = self.after

    @property
    def taken(self) -> int:
        """By how many prompts, beside its own, the step has moved the order on."""
        return self.next - self.after

    def fresh(self, count: int) -> list[Prompt]:
        """The next `count` prompts of the data that are not in the step."""
        if self.order is None and count:
            raise ValueError(
                "a streamed data set has no fresh prompts; load it as a datasets.Dataset"
            )
        return [self._next() for _ in range(count)]

    def _next(self) -> Prompt:
        if len(self.indices) >= self.order.epoch_length:  # no other is left
            self.indices.clear()
        while (index := self.order.index(self.next)) in self.indices:
            self.next += 1
        row = self.order.dataset[index]
        self.next += 1
        return self._prompt(index, {name: row[name] for name in self.columns}, self.next - 1)

    def _prompt(self, index: int | None, row: Row, place: int) -> Prompt:
        """Named by the column `id`, else by its row, else by its place."""
        self.indices.add(index)
        number = place if index is None else index
        return Prompt(number if row.get("id") is None else row["id"], row)


class EpochOrder(Sampler):
    """TRL's sampler, whose generator runs on from epoch to epoch: also after a resume, before which
    TRL would repeat the order of its first epoch."""

    def __init__(self, sampler: Any, trainer: Any) -> None:
        self.sampler, self.trainer, self.started = sampler, trainer, False

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        if not self.started:
            epochs, micro_steps = self._done()
            self.trainer.start_at(micro_steps)
            for _ in range(epochs if self.sampler.shuffle else 0):
                torch.randperm(self.sampler.num_samples, generator=self.sampler.generator)
        self.started = True
        return iter(self.sampler)

    def _done(self) -> tuple[int, int]:
        """Finished epochs and micro-steps, counted as transformers does on a resume: the last
        update of an epoch has the micro-steps that are left."""
        accumulated, sampler = self.trainer.args.gradient_accumulation_steps, self.sampler
        batches = sampler.num_samples // sampler.batch_size * sampler.repeat_count
        epochs, steps = divmod(self.trainer.state.global_step, max(1, -(-batches // accumulated)))
        if self.trainer.args.ignore_data_skip:
            steps = 0  # the epoch starts again
        return epochs, epochs * batches + steps * accumulated
