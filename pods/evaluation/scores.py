"""From the records of one (checkpoint, task) to its numbers: the published entry, and our details.

Records keep their grades, so a second grader costs no new generation. Intervals, pass@k and
majority@k are ours; the published files hold one number per repeat.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

import rewards
from pods import results
from pods.evaluation import metrics
from pods.evaluation.records import Record, Store
from rewards import choice, strict, tags

EXAMPLES = 5  # completions kept per dataset, as in the published files
RIGHT = "right"  # the class of the completions graded right; a letter or a number is a wrong one
MOST_CLASSES = 16  # wrong answers of one question that others are compared with


def grade(records: list[Record], versions: Sequence[str], kind: str) -> bool:
    """Add the missing grades; returns whether any was missing."""
    added = False
    for version in versions:
        todo = [record for record in records if version not in record["correct"]]
        texts, answers = [r["completion"] for r in todo], [r["answer"] for r in todo]
        scores = rewards.score(texts, answers, version, kind)["correctness"]
        for record, score in zip(todo, scores, strict=True):
            record["correct"][version] = bool(score)
            added = True
    return added


def graded(
    store: Store, checkpoint: str, task: str, versions: Sequence[str], kind: str
) -> list[list[Record]]:
    """The records of every repeat on disk; grades that a file lacked are written back to it."""
    repeats = []
    for repeat in store.repeats(checkpoint, task):
        records = store.read(checkpoint, task, repeat)
        if grade(records, versions, kind):
            store.write(checkpoint, task, repeat, records)
        repeats.append(records)
    return repeats


def entry(repeats: list[list[Record]], version: str, prompts: Sequence[str]) -> results.Entry:
    """The published form: one number a repeat, graded by `version`."""
    right = _column(repeats, lambda r: r["correct"][version])
    formed = _column(repeats, lambda r: r["well_formed"])
    return results.Entry(
        ans_acc=right.mean(axis=0).tolist(),
        for_acc=formed.mean(axis=0).tolist(),
        both_acc=(right * formed).mean(axis=0).tolist(),
        lengths=_column(repeats, lambda r: r["tokens"]).mean(axis=0).tolist(),
        examples=[
            {
                "prompt": prompt,
                "answer": record["answer"],
                "completion": record["completion"],
                "correct": str(record["correct"][version]),  # text, as published
                "format_correct": str(record["well_formed"]),
            }
            for prompt, record in zip(prompts[:EXAMPLES], repeats[0], strict=False)
        ],
    )


def details(
    repeats: list[list[Record]],
    versions: Sequence[str],
    pass_at: Sequence[int],
    kind: str = "math",
) -> dict[str, Any]:
    """Every metric with its interval; a k above the number of repeats cannot be estimated."""
    formed = _column(repeats, lambda r: r["well_formed"])
    ks = [k for k in pass_at if k <= len(repeats)]
    rows: dict[str, np.ndarray] = {
        "format": formed.mean(axis=1),
        "tokens": _column(repeats, lambda r: r["tokens"]).mean(axis=1),
        "truncated": _column(repeats, lambda r: r["truncated"]).mean(axis=1),
    }
    for version in versions:
        right = _column(repeats, lambda r, v=version: r["correct"][v])
        rows[f"{version} answer"] = right.mean(axis=1)
        rows[f"{version} both"] = (right * formed).mean(axis=1)
        votes = [ballots(row, version, kind) for row in zip(*repeats, strict=True)] if ks else []
        for k in ks:
            rows[f"{version} pass@{k}"] = metrics.pass_at_k(right, k)
            rows[f"{version} majority@{k}"] = metrics.majority_at_k(votes, right, k)
    summary = dict(zip(rows, metrics.intervals(np.array(list(rows.values()))), strict=True))
    nested: dict[str, Any] = {"questions": len(repeats[0]), "repeats": len(repeats)}
    for name, value in summary.items():
        version, _, metric = name.rpartition(" ")
        target = nested.setdefault("rewards", {}).setdefault(version, {}) if version else nested
        target[metric] = value
    return nested


def ballots(row: Sequence[Record], version: str, kind: str) -> list[int | str | None]:
    """The class of equal answers that each repeat of one question votes for; None: no answer.

    Completions graded right are one class. Wrong options are grouped by letter, other wrong answers
    by the grader's equality with the first of a class, for MOST_CLASSES classes (bounded cost).
    """
    classes: dict[str, int] = {}  # answer -> its class
    firsts: list[str] = []  # the first answer of each class
    votes: list[int | str | None] = []
    for record in row:
        answer = vote(record["completion"], kind)
        if record["correct"][version]:
            votes.append(RIGHT)
        elif answer is None or kind == "choice":
            votes.append(answer)
        else:
            if answer not in classes:
                near = firsts[:MOST_CLASSES]
                equal = (i for i, other in enumerate(near) if _equal(answer, other, version))
                classes[answer] = next(equal, len(firsts))
                firsts += [answer] * (classes[answer] == len(firsts))
            votes.append(classes[answer])
    return votes


def vote(completion: str, kind: str) -> str | None:
    """The answer for the majority: the option's letter, else the answer block or last number."""
    if kind == "choice":
        return choice.letter(completion)
    answer = tags.last_closed_answer(completion)
    if answer is None:
        answer = tags.last_number(completion, tags.NUMBER_SEARCH_V1)
        if answer == "-1":  # the published sign for "no number at all"
            return None
    return answer[: strict.MAX_LENGTH]


@lru_cache(maxsize=2**16)
def _equal(answer: str, other: str, version: str) -> bool:
    """Whether the grader takes one answer for the other, without computer algebra."""
    texts = [f"<answer>{text}</answer>" for text in (answer, other)]
    return any(_grader(version).grade(texts, [other, answer], ["math"] * 2))


@cache
def _grader(version: str) -> rewards.Scorer:
    return rewards.Scorer(version, workers=0, deadline_seconds=1.0)  # starts no process


def _column(repeats: list[list[Record]], value: Any) -> np.ndarray:
    """(questions, repeats)"""
    return np.array([[float(value(record)) for record in records] for records in repeats]).T
