"""Stage 8: the record of every rollout, one line per prompt and step, append-only.

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

from pods.config.errors import UserError
from pods.rules import Batch, Selection
from pods.runs.files import write_atomic

if TYPE_CHECKING:
    from pods.rollouts import Step  # imports torch, which readers of a ledger need not wait for

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

    def append(self, number: int, step: "Step") -> None:
        """Add the records of optimiser step `number`, one per prompt."""
        for p in range(len(step.rows)):
            texts = self.texts == "all" or (self.texts == "first" and p == 0)
            record = {"step": number, "group": p, **self.record(step, p, texts)}
            self._pending.append(json.dumps(record) + "\n")
        self._steps += 1
        if self._steps % FLUSH_EVERY == 0:
            self.flush()

    @staticmethod
    def record(step: "Step", p: int, texts: bool) -> dict[str, Any]:
        """The n rollouts of prompt p as a plain dict."""
        row, batch = step.rows[p], step.batch
        kept = step.kept_of(p)
        before = sum(int(i) < p * batch.shape[1] for i in step.selection.kept)
        mine, reasons = slice(before, before + len(kept)), step.selection.reasons
        return {
            "question_id": str(row["id"]),
            **({"prompt": row["prompt"]} if texts else {}),
            "answer": str(row["answer"]),
            **({"completions": step.texts[p]} if texts else {}),
            "lengths": batch.lengths[p].tolist(),
            "clipped": batch.clipped[p].tolist(),
            "rewards": {name: values[p].tolist() for name, values in batch.by_function.items()},
            "total": short(batch.rewards[p]),
            "kept": kept,
            "advantages": short(step.selection.advantages[mine]),
            **({"reasons": list(reasons[mine])} if reasons else {}),
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
    """Every recorded step: the batch as the rule saw it, and its selection."""
    for number, group in itertools.groupby(read(path), key=lambda record: record["step"]):
        records = list(group)
        n = len(records[0]["total"])
        batch = Batch(
            rewards=np.array([record["total"] for record in records]),
            by_function={
                name: np.array([record["rewards"][name] for record in records])
                for name in records[0]["rewards"]
            },
            lengths=np.array([record["lengths"] for record in records]),
            clipped=np.array([record["clipped"] for record in records]),
            question_ids=np.array([record["question_id"] for record in records]),
            step=number - 1,  # steps done before it, as in training
        )
        kept = [p * n + i for p, record in enumerate(records) for i in record["kept"]]
        reasons = [reason for record in records for reason in record.get("reasons", [])]
        yield batch, Selection(np.array(kept), reasons=reasons or None)


def forget_after(path: Path, step: int) -> None:
    """Drop the records after `step`, and a torn end: a resumed run writes them again."""
    if not path.is_file():
        return
    lines = [json.dumps(record) + "\n" for record in read(path) if record["step"] <= step]
    write_atomic(path, gzip.compress("".join(lines).encode()))
