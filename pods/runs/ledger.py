"""The record of every rollout, one line per prompt and step, append-only.

`rollouts.jsonl.gz` is a chain of gzip members, one per flush. A kill can tear only the last member,
which readers drop. `scripts/replay.py` and `scripts/report.py` read it.
"""

import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pods.batch import Batch, Selection
from pods.config.errors import UserError
from pods.files import write_atomic

if TYPE_CHECKING:
    from pods.rollouts import Record

FLUSH_EVERY = 16  # steps in one member; smaller loses less on a kill, larger compresses better


class Ledger:
    """Writes the ledger of one run.

    Args:
        path: <run folder>/rollouts.jsonl.gz.
        texts: first: the texts of each step's first prompt; all; none.
    """

    def __init__(self, path: Path, texts: str) -> None:
        self.path, self.texts = path, texts
        self._pending: list[str] = []
        self._steps = 0

    def append(self, step: "Record") -> None:
        """Add the records of a finished step, one for each prompt."""
        for p in range(len(step.prompts)):
            texts = self.texts == "all" or (self.texts == "first" and p == 0)
            record = {"step": step.step.number + 1, "group": p, **self.record(step, p, texts)}
            self._pending.append(json.dumps(record) + "\n")
        self._steps += 1
        if self._steps % FLUSH_EVERY == 0:
            self.flush()

    @staticmethod
    def record(step: "Record", p: int, texts: bool) -> dict[str, Any]:
        """The rollouts of prompt p as a plain dict; `kept` are indices among them."""
        prompt, batch, group = step.prompts[p], step.batch, step.batch.groups[p]
        trained = np.flatnonzero(batch.prompt[step.selection.kept] == p)
        kept = step.selection.kept[trained]
        written = {
            "prompt": prompt.row["prompt"],
            "completions": [step.rollouts[i].text for i in group],
        }
        return {
            "question_id": str(prompt),
            **(written if texts else {}),
            "answer": str(prompt.row["answer"]),
            "lengths": batch.lengths[group].tolist(),
            "clipped": batch.clipped[group].tolist(),
            "rewards": {name: short(of[group]) for name, of in batch.by_function.items()},
            "total": short(batch.rewards[group]),
            "kept": np.searchsorted(group, kept).tolist(),
            "advantages": short(step.selection.advantages[trained]),
        }

    def flush(self) -> None:
        """Append the pending records as one member and wait for the disk."""
        if not self._pending:
            return
        with open(self.path, "ab") as file:
            file.write(gzip.compress("".join(self._pending).encode()))
            file.flush()
            os.fsync(file.fileno())
        self._pending.clear()


def short(values: np.ndarray) -> list[float]:
    """Floats with the digits that float32 has: 1.2, not 1.2000000476837158."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32)]


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a ledger in order of writing; a member torn by a kill ends it."""
    data = path.read_bytes()
    while data:
        member = zlib.decompressobj(wbits=31)  # 31: gzip
        try:
            text = member.decompress(data)
        except zlib.error:
            return
        if not member.eof:
            return
        data = member.unused_data
        yield from map(json.loads, text.decode().splitlines())


def find(output_dir: str, run: str) -> Path:
    """The ledger of a run; UserError naming the runs that have one where it is absent."""
    path = Path(output_dir) / run / "rollouts.jsonl.gz"
    if not path.is_file():
        runs = sorted(p.parent.name for p in Path(output_dir).glob("*/rollouts.jsonl.gz"))
        raise UserError(f"run={run}: no ledger {path}; runs with one: {', '.join(runs) or 'none'}")
    return path


def steps(path: Path) -> Iterator[tuple[Batch, Selection]]:
    """Every recorded step: its rollouts prompt by prompt, and those that were kept."""
    for _, group in itertools.groupby(read(path), key=lambda record: record["step"]):
        records = list(group)
        starts = np.cumsum([0, *(len(record["total"]) for record in records)])

        def column(name: str, records: list = records) -> np.ndarray:
            return np.concatenate([record[name] for record in records])

        batch = Batch(
            prompt=np.repeat(np.arange(len(records)), np.diff(starts)),
            rewards=column("total"),
            by_function={
                name: np.concatenate([record["rewards"][name] for record in records])
                for name in records[0]["rewards"]
            },
            lengths=column("lengths"),
            clipped=column("clipped"),
        )
        kept = [start + i for start, r in zip(starts, records, strict=False) for i in r["kept"]]
        yield batch, Selection(np.array(kept), column("advantages"))


def forget_after(path: Path, step: int) -> None:
    """Drop the records after `step`, and a torn end: a resumed run writes them again."""
    if not path.is_file():
        return
    lines = [json.dumps(record) + "\n" for record in read(path) if record["step"] <= step]
    write_atomic(path, gzip.compress("".join(lines).encode()))
