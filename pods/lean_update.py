"""What an update need not compute (PodsConfig.lean_update): rows whose gradient is 0, padding, and
a prompt once more for each of its completions.

Tensors in, tensors out; pods/trl_adapter.py knows TRL's names, docs/trl.md says when it applies.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pods import ranks

Tensors = dict[str, torch.Tensor]  # TRL's batch: a value of each row, and scalars


def fill_micro_batches(
    micro_batches: list[Tensors],
    weight: Callable[[Tensors], torch.Tensor | float],
    *,
    by_prompt: bool,
    cut_prompts: bool,
) -> list[Tensors]:
    """The micro-batches of one update with only the rows that have a gradient.

    The last micro-batches hold them, since the last backward pass exchanges the gradients of
    several processes. Those before are empty dictionaries, as many in each process.

    weight: what a row of a micro-batch counts in its loss, beside the row's advantage.
    by_prompt: whether rows of one prompt come together, else those of one length.
    cut_prompts: whether columns before all prompts may go, which shifts absolute positions.
    """
    size = len(micro_batches[0]["advantages"])
    rows = joined(micro_batches, weight)
    has_gradient = rows["advantages"] != 0
    has_gradient &= counted_tokens(rows).any(dim=1)
    keys = rows["prompt_ids"] if by_prompt else lengths(rows)
    indices = has_gradient.nonzero().flatten().tolist()
    indices.sort(key=keys.tolist().__getitem__)
    most = max(ranks.gather([len(indices)]))
    height = max(1, most)  # TRL gathers tensors of as many rows in each process
    shortest = int(lengths(rows).argmin())
    rows = selected(rows, [*indices, *[shortest] * (height - len(indices))])
    leave_out(rows, len(indices))
    if most == 0:
        rows["unlogged"] = torch.tensor(True)
    count = math.ceil(height / size)
    filled = []
    for chunk in torch.arange(height).tensor_split(count):
        batch = selected(rows, chunk)
        batch["advantages"] = batch["advantages"] / weight(batch)
        filled.append(without_padding(batch, cut_prompts))
    empty: list[Tensors] = [{} for _ in range(len(micro_batches) - count)]
    return empty + filled


def joined(
    micro_batches: list[Tensors], weight: Callable[[Tensors], torch.Tensor | float]
) -> Tensors:
    """All rows, each advantage times what its row counts; scalars are those of each micro-batch."""
    rows = {}
    for key, value in micro_batches[0].items():
        if getattr(value, "ndim", 0):
            value = torch.cat([batch[key] for batch in micro_batches])
        rows[key] = value
    weighted = [batch["advantages"] * weight(batch) for batch in micro_batches]
    rows["advantages"] = torch.cat(weighted)
    rows.pop("rows_counted", None)  # the weights hold it
    return rows


def counted_tokens(batch: Tensors) -> torch.Tensor:
    """(rows, tokens) 1 where a token of a completion is in the loss, else 0."""
    return batch["completion_mask"] * batch.get("tool_mask", 1)


def lengths(batch: Tensors) -> torch.Tensor:
    """(rows,) tokens of prompt and completion."""
    return batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)


def selected(batch: Tensors, rows: torch.Tensor | list[int]) -> Tensors:
    """The batch of these rows."""
    return {
        key: value[rows] if getattr(value, "ndim", 0) else value for key, value in batch.items()
    }


def leave_out(batch: Tensors, first: int) -> None:
    """Rows from `first` on are in no loss. They give gradients of 0 instead of none, for which an
    optimizer would skip its decay."""
    if first == len(batch["advantages"]):
        return
    mask = torch.ones_like(batch["completion_mask"])
    mask[first:] = 0
    batch["tool_mask"] = mask * batch.get("tool_mask", 1)
    batch["advantages"][first:] = 0


def without_padding(batch: Tensors, cut_prompts: bool) -> Tensors:
    """Without the columns that are padding in all rows: before the prompts, after completions."""
    first = 0
    if cut_prompts:
        first = int(batch["prompt_mask"].any(dim=0).int().argmax())
    width = batch["completion_mask"].shape[1]
    last = int(batch["completion_mask"].any(dim=0).sum())
    cut = dict(batch)
    for key, value in batch.items():
        if key in ("prompt_ids", "prompt_mask"):
            cut[key] = value[:, first:]
        elif getattr(value, "ndim", 0) == 2 and value.shape[1] == width:
            cut[key] = value[:, :last]
    return cut


@dataclass(frozen=True)
class Cells:
    """Some queries of a packed sequence as a padded batch, and the keys that they see."""

    mask: torch.Tensor  # (B, Q) False for padding
    queries: torch.Tensor  # (B, Q) their places in the sequence
    keys: torch.Tensor  # (B, K)
    seen: torch.Tensor  # (B, 1, Q, K)

    def attention(
        self,
        attend: Callable[..., tuple],
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        **keywords: Any,
    ) -> torch.Tensor:
        """(tokens, heads, size) of the queries that are no padding."""
        query = at_places(query, self.queries)
        key = at_places(key, self.keys)
        value = at_places(value, self.keys)
        output, _ = attend(module, query, key, value, self.seen, **keywords)
        return output[self.mask]


@dataclass(frozen=True)
class PackedRows:
    """The rows of a micro-batch as one sequence without padding, in which each prompt stands once.

    First come the prompts without their last token. Then, for each row, that token and the
    completion without its last token: what predicts a completion. One token ends the sequence,
    because TRL drops the prediction of the last.
    """

    tokens: torch.Tensor  # (1, T)
    positions: torch.Tensor  # (1, T) columns of the padded batch: where TRL's call has them
    targets: torch.Tensor  # (1, T) the last ones are the tokens of the completions
    completion_mask: torch.Tensor  # (rows, width)
    prompts: Cells
    rows: Cells

    @classmethod
    def of(cls, ids: torch.Tensor, mask: torch.Tensor, width: int) -> "PackedRows":
        """ids, mask: (rows, columns) of prompts and completions. width: columns of completions, at
        least two fewer than all."""
        mask = mask.bool()
        columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        last = ids.shape[1] - width - 1  # column of the prompts' last tokens
        prompts = torch.cat([ids[:, :last], mask[:, :last]], dim=1)
        prompts, prompt_of = prompts.unique(dim=0, return_inverse=True)
        prompt_ids, prompt_mask = prompts.tensor_split(2, dim=1)
        prompt_mask = prompt_mask.bool()
        row_mask = mask[:, last + 1 :]  # a token predicts if another follows

        prompt_cells = places(prompt_mask)
        count = int(prompt_mask.sum())
        row_cells = places(row_mask) + count
        keys = torch.cat([prompt_cells[prompt_of], row_cells], dim=1)
        itself = torch.eye(last, dtype=torch.bool, device=ids.device)
        # A padded query sees itself: if it saw nothing its gradient would be NaN.
        seen = torch.ones_like(itself).tril() & prompt_mask[:, None] | itself
        before = prompt_mask[prompt_of][:, None].expand(-1, width, -1)
        causal = row_mask.new_ones(width, width).tril().expand(len(ids), -1, -1)
        seen_by_row = torch.cat([before, causal], dim=2)

        tokens = [prompt_ids[prompt_mask], ids[:, last:-1][row_mask], ids[0, :1]]
        starts = columns[: len(prompts), :last]
        positions = [starts[prompt_mask], columns[:, last:-1][row_mask], columns[0, :1]]
        targets = [ids.new_zeros(count + 1), ids[:, last + 1 :][row_mask]]
        return cls(
            tokens=torch.cat(tokens)[None],
            positions=torch.cat(positions)[None],
            targets=torch.cat(targets)[None],
            completion_mask=row_mask,
            prompts=Cells(prompt_mask, prompt_cells, prompt_cells, seen[:, None]),
            rows=Cells(row_mask, row_cells, keys, seen_by_row[:, None]),
        )

    def attention(
        self,
        attend: Callable[..., tuple],
        module: Any,
        *states: torch.Tensor,
        attention_mask: None = None,
        **keywords: Any,
    ) -> tuple[torch.Tensor, None]:
        """(1, T, heads, size) by `attend`, an attention function of transformers.

        states: query, key and value, each (1, heads, T, size), and no mask.
        """
        states = states[:3]
        prompts = self.prompts.attention(attend, module, *states, **keywords)
        rows = self.rows.attention(attend, module, *states, **keywords)
        end = torch.zeros_like(rows[:1])
        return torch.cat([prompts, rows, end])[None], None

    def unpacked(self, values: torch.Tensor) -> torch.Tensor:
        """(rows, width) of (1, tokens of the completions) values; 0 for padding."""
        zeros = values.new_zeros(self.completion_mask.shape)
        return zeros.masked_scatter(self.completion_mask, values)


def at_places(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(B, heads, L, size) the states, (1, heads, T, size), at the places (B, L) of a sequence."""
    heads, _, size = states.shape[1:]
    table = states[0].transpose(0, 1).flatten(1)
    found = torch.nn.functional.embedding(places, table)  # faster backwards than an index
    return found.unflatten(-1, (heads, size)).transpose(1, 2)


def places(mask: torch.Tensor) -> torch.Tensor:
    """Number of each True cell among them, in the order of rows; of padding some other number."""
    return (mask.flatten().cumsum(dim=0) - 1).clamp(min=0).view_as(mask)
