"""From the records of one (checkpoint, task) to its numbers: the published entry, and our details.

Records keep their grades, so a second grader costs no new generation. Intervals, pass@k and
majority@k are ours; the published files hold one number per repeat.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import rewards
from pods.evaluation import metrics, records
from pods.evaluation.records import Record
from pods.runs import results
from rewards import choice, strict, tags

EXAMPLES = 5  # completions kept per dataset, as in the published files
RIGHT = "right"  # the class of the completions graded right; a letter or a number is a wrong one
MOST_CLASSES = 16  # wrong answers of one question that others are compared with


def grade(found: list[Record], versions: Sequence[str], kind: str) -> bool:
    """Add the missing grades; returns whether any was missing."""
    added = False
    for version in versions:
        todo = [record for record in found if version not in record["correct"]]
        texts, answers = [r["completion"] for r in todo], [r["answer"] for r in todo]
        scores = rewards.score(texts, answers, version, kind)["correctness"]
        for record, score in zip(todo, scores, strict=True):
            record["correct"][version] = bool(score)
        added = added or bool(todo)
    return added


def graded(path: Path, versions: Sequence[str], kind: str) -> list[Record]:
    """The records of one repeat; grades that its file lacks are written back to it."""
    found = records.read(path)
    if grade(found, versions, kind):
        records.write(path, found)
    return found


def entry(repeats: list[list[Record]], version: str, prompts: Sequence[str]) -> results.Entry:
    """The published form: one number a repeat, by grader `version`; grades of examples are text."""
    right, formed = _correct(repeats, version), _column(repeats, "well_formed")
    examples = zip(prompts[:EXAMPLES], repeats[0], strict=False)
    return results.Entry(
        ans_acc=right.mean(axis=0).tolist(),
        for_acc=formed.mean(axis=0).tolist(),
        both_acc=(right * formed).mean(axis=0).tolist(),
        lengths=_column(repeats, "tokens").mean(axis=0).tolist(),
        examples=[
            {"prompt": prompt, "answer": record["answer"], "completion": record["completion"],
             "correct": str(record["correct"][version]),
             "format_correct": str(record["well_formed"])}
            for prompt, record in examples
        ],
    )  # fmt: skip


def details(
    repeats: list[list[Record]], versions: Sequence[str], pass_at: Sequence[int], kind: str = "math"
) -> dict[str, Any]:
    """Every metric with its interval; a k above the number of repeats cannot be estimated."""
    ks = [k for k in pass_at if k <= len(repeats)]
    formed = _column(repeats, "well_formed")
    rows = {("", "format"): formed.mean(axis=1)}  # (grader, metric) -> (questions,)
    rows |= {("", name): _column(repeats, name).mean(axis=1) for name in ("tokens", "truncated")}
    for version in versions:
        right = _correct(repeats, version)
        rows[version, "answer"] = right.mean(axis=1)
        rows[version, "both"] = (right * formed).mean(axis=1)
        votes = [ballots(row, version, kind) for row in zip(*repeats, strict=True)] if ks else []
        for k in ks:
            rows[version, f"pass@{k}"] = metrics.pass_at_k(right, k)
            rows[version, f"majority@{k}"] = metrics.majority_at_k(votes, right, k)
    nested: dict[str, dict[str, Any]] = {name: {} for name in ("", *versions)}
    intervals = metrics.intervals(np.array(list(rows.values())))
    for (version, metric), interval in zip(rows, intervals, strict=True):
        nested[version][metric] = interval
    counts = {"questions": len(repeats[0]), "repeats": len(repeats)}
    return counts | nested.pop("") | {"rewards": nested}


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
        if record["correct"][version] or answer is None or kind == "choice":
            votes.append(RIGHT if record["correct"][version] else answer)
            continue
        if answer not in classes:
            near = enumerate(firsts[:MOST_CLASSES])
            equal = (i for i, other in near if _equal(answer, other, version))
            classes[answer] = next(equal, len(firsts))
            if classes[answer] == len(firsts):
                firsts.append(answer)
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
    grader = rewards.Scorer(version, workers=0, deadline_seconds=1.0)  # starts no process
    return any(grader.grade(texts, [other, answer], ["math"] * 2))


def _correct(repeats: list[list[Record]], version: str) -> np.ndarray:
    """(questions, repeats)"""
    return np.array([[float(r["correct"][version]) for r in found] for found in repeats]).T


def _column(repeats: list[list[Record]], name: str) -> np.ndarray:
    """(questions, repeats)"""
    return np.array([[float(record[name]) for record in found] for found in repeats]).T
