"""The questions a run is tested on: rendered by the code that renders them for training.

Questions with a longer prompt than training allowed are left out, as published (MATH-500 becomes
496), and counted.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pods import tasks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import seed_of


@dataclass(frozen=True)
class Questions:
    """One split of one task, ready for an engine."""

    task: (
        str  # <name>; of the validation split <name>.validation, of a sample of k <name>.sample<k>
    )
    kind: str  # how answers are graded: math | choice
    ids: list[str]
    answers: list[str]
    prompts: list[str]
    prompt_ids: list[list[int]]
    dropped: int  # prompts that were too long
    total: int | None = None  # questions that a sample was drawn from

    @property
    def name(self) -> str:
        return self.task.partition(".")[0]

    @property
    def facts(self) -> dict[str, Any]:
        """What is noted beside scores; the digest changes with any prompt or gold answer."""
        content = json.dumps([self.ids, self.answers, self.prompt_ids])
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        facts = {"questions": len(self.ids), "dropped": self.dropped, "digest": digest}
        return facts | ({"sampled_from": self.total} if self.total else {})

    @property
    def count(self) -> str:
        dropped = f", {self.dropped} longer than in training left out" if self.dropped else ""
        return f"{self.task}: {len(self.ids)} questions{dropped}"

    @property
    def note(self) -> str:
        return f"{self.task}: a sample of {len(self.ids)} of {self.total} questions"


def load(
    name: str, split: str, config: TrainConfig, tokenizer: Any, sample: int | None = None,
    seed: int = 0,
) -> Questions:  # fmt: skip
    """One split of task `name`, prompted as the run's own task is; `sample` questions of it where
    it has more. A larger sample of one seed contains the smaller ones."""
    task = tasks.renamed(config.task, name)
    rows, dropped = tasks.read_prompts(config, task, split, tokenizer)
    if not len(rows):
        raise UserError(
            f"tasks={name}: all {dropped} prompts are longer than the run's "
            f"sampling.max_prompt_length={config.sampling.max_prompt_length}; name another task"
        )
    (kind,), total, label = set(rows["kind"]), None, name if split == "test" else f"{name}.{split}"
    if sample is not None and sample < len(rows):
        order = sorted(range(len(rows)), key=lambda i: seed_of(seed, name, split, rows[i]["id"]))
        rows, total = rows.select(sorted(order[:sample])), len(rows)
        label += f".sample{sample}"
    prompts = list(rows["prompt"])
    prompt_ids = tasks.encode_prompts(prompts, tokenizer)
    ids, answers = list(rows["id"]), list(rows["answer"])
    return Questions(label, kind, ids, answers, prompts, prompt_ids, dropped, total)
