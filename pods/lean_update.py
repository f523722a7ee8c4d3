"""What an update need not compute (PodsConfig.lean_update): rows whose gradient is 0, and padding.

Tensors in, tensors out; pods/trl_adapter.py knows TRL's names, docs/trl.md says when it applies.
"""

import math
from collections.abc import Callable

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
