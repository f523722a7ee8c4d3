"""rollouts.jsonl.gz, every rollout: a line per prompt and step, a gzip member per step, appended:
a kill tears only the last one."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pods.files import JsonObject, named_errors, write_through

if TYPE_CHECKING:
    from pods.rollouts import Record  # pandas: a wrong run= is named before it loads


def append(path: Path, number: int, step: "Record", texts: str) -> None:
    """Add the records of a step as one gzip member, and wait until they are on the disk.

    number: of the step, as in metrics.jsonl.
    texts: which prompts keep their prompt and completions: all, or the first of each step.
    """
    lines = "".join(
        json.dumps(record, default=str) + "\n" for record in records(number, step, texts)
    )
    with named_errors(path), open(path, "ab") as file:
        write_through(file, gzip.compress(lines.encode()))


def records(number: int, step: "Record", texts: str) -> Iterator[JsonObject]:
    """The rollouts of each prompt as a plain dict; `kept` are indices among them."""
    batch = step.batch
    kept = step.selection.kept
    for p, (prompt, group) in enumerate(zip(step.prompts, batch.groups, strict=True)):
        words = {}
        if texts == "all" or (texts == "first" and p == 0):
            words["prompt"] = prompt.row["prompt"]
            words["completions"] = [step.rollouts[i].text for i in group]
            if any(step.extras):
                words["log_extra"] = [step.extras[i] for i in group]
        trained = np.flatnonzero(batch.prompt[kept] == p)  # places of the group's in `kept`
        yield {
            "step": number,
            "group": p,
            "question_id": str(prompt),
            **words,
            "answer": str(prompt.row["answer"]),
            "lengths": batch.lengths[group].tolist(),
            "clipped": batch.clipped[group].tolist(),
            "rewards": {name: short(values[group]) for name, values in batch.by_function.items()},
            "correct": None if batch.correct is None else batch.correct[group].tolist(),
            "total": short(batch.rewards[group]),
            "kept": np.searchsorted(group, kept[trained]).tolist(),
            "advantages": short(step.selection.advantages[trained]),
        }


def short(values: np.ndarray) -> list[float]:
    """Floats with the digits that float32 has: 1.2, not 1.2000000476837158."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32)]
