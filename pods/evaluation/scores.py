"""From the records of one (checkpoint, task) to its numbers: the published entry, and our details.

Records keep their grades, so a second grader costs no new generation. Intervals resample questions,
because the repeats of one question are not independent. In arrays axis 0 is the question, axis 1
the repeat.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np

from pods import rewards
from pods.batch import Row
from pods.evaluation.records import GradedCompletion
from pods.runs import results
from pods.scoring import call_once

Interval = dict[str, float]  # mean, low, high
EXAMPLES = 5  # completions kept per dataset, as in the published files
RESAMPLES = 1000  # the 2.5 % ends then vary by about 2 % of the interval's width
EDGE = 10  # expected correct (or wrong) questions; with fewer a bootstrap interval is too narrow


def grade(repeat: list[GradedCompletion], versions: Sequence[str], kind: str) -> None:
    """Add the missing verdicts."""
    for version in versions:
        for record in repeat:
            if version not in record["correct"]:
                verdict = rewards.grade(record["completion"], record["answer"], version, kind)
                record["correct"][version] = verdict


def reward(
    repeat: list[GradedCompletion],
    rows: Sequence[Row],
    functions: Sequence[Callable],
    tokenizer: Any,
) -> None:
    """Recompute the values of the training's own reward functions: the function of a name may have
    changed, and a base model serves many runs."""
    for record in repeat:
        record.pop("rewards", None)
    if not functions:
        return
    texts = [record["completion"] for record in repeat]
    columns = {
        **{name: [row[name] for row in rows] for name in rows[0]},
        "prompts": [row["prompt"] for row in rows],
        "completions": texts,
        "completion_ids": tokenizer(texts, add_special_tokens=False)["input_ids"],
    }
    values = {function.__name__: call_once(function, columns) for function in functions}
    for i, record in enumerate(repeat):
        record["rewards"] = {name: numbers[i] for name, numbers in values.items()}


def summary(
    repeats: list[list[GradedCompletion]],
    versions: Sequence[str],
    pass_at: Sequence[int] = (),
    prompts: Sequence[str] = (),
) -> tuple[results.Entry, dict[str, Any]]:
    """The published entry by the first grader, one number a repeat, and every metric's interval."""
    formed = _table(repeats, "well_formed")
    tokens = _table(repeats, "tokens")
    correct = {version: _table(repeats, version, "correct") for version in versions}
    details: dict[str, Any] = {
        "questions": len(repeats[0]),
        "repeats": len(repeats),
        "format": interval(formed.mean(axis=1), len(repeats)),
        "tokens": interval(tokens.mean(axis=1)),
        "clipped": interval(_table(repeats, "clipped").mean(axis=1), len(repeats)),
        "rewards": {name: _graded(table, formed, pass_at) for name, table in correct.items()},
    }
    own = repeats[0][0].get("rewards")
    if own:
        details["functions"] = {
            name: interval(_table(repeats, name, "rewards").mean(axis=1)) for name in own
        }
    examples = [
        {
            "prompt": prompt,
            "answer": record["answer"],
            "completion": record["completion"],
            "correct": str(record["correct"][versions[0]]),  # text, as in the published files
            "format_correct": str(record["well_formed"]),
        }
        for prompt, record in zip(prompts[:EXAMPLES], repeats[0], strict=False)
    ]
    published = correct[versions[0]]
    entry = results.Entry(
        ans_acc=published.mean(axis=0).tolist(),
        for_acc=formed.mean(axis=0).tolist(),
        both_acc=(published * formed).mean(axis=0).tolist(),
        lengths=tokens.mean(axis=0).tolist(),
        examples=examples,
    )
    return entry, details


def _table(repeats: list[list[GradedCompletion]], name: str, of: str | None = None) -> np.ndarray:
    """(questions, repeats) of a record's value, or of one in its object `of`."""
    table = [[(record[of] if of else record)[name] for record in repeat] for repeat in repeats]
    return np.array(table, dtype=float).T


def _graded(correct: np.ndarray, formed: np.ndarray, pass_at: Sequence[int]) -> dict[str, Interval]:
    """Metrics of one grader's verdicts, (questions, repeats) of 0/1."""
    repeats = correct.shape[1]
    metrics = {"correct": correct.mean(axis=1), "both": (correct * formed).mean(axis=1)}
    for k in sorted(pass_at):
        if k <= repeats:
            metrics[f"pass@{k}"] = pass_at_k(correct, k)
    if repeats > 1:  # a group of as many rollouts has no signal
        metrics["unanimous"] = (np.ptp(correct, axis=1) == 0).astype(float)
    return {name: interval(values, repeats) for name, values in metrics.items()}


def pass_at_k(correct: np.ndarray, k: int) -> np.ndarray:
    """(questions,) chance that k repeats sampled without replacement hold a correct one,
    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, eq. 1); correct: (questions, repeats) of 0/1."""
    n = correct.shape[1]
    return np.array([1 - comb(n - int(c), k) / comb(n, k) for c in correct.sum(axis=1)])


def interval(values: np.ndarray, repeats: float = np.inf) -> Interval:
    """The mean over questions of one metric with its 95 % interval; values: (questions,), of 0/1
    verdicts the means over `repeats`.

    One set of resamples serves all metrics and checkpoints of a task: differences are paired. A
    share near 0 or 1 has Wilson's interval, because every resample of 0 of 30 is 0.
    """
    mean = values.mean()
    n = len(values)
    is_share = values.min() >= 0 and values.max() <= 1
    if is_share and n * min(mean, 1 - mean) < EDGE:
        low, high = np.clip(_wilson(values, repeats), 0, 1)  # of 0 it rounds to -1e-18
    else:
        low, high = np.quantile(_resample_weights(n) @ values, [0.025, 0.975])
    return {"mean": float(mean), "low": float(low), "high": float(high)}


def _wilson(values: np.ndarray, repeats: float) -> tuple[float, float]:
    """Wilson's 95 % interval of shares, (questions,).

    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    n = questions min(repeats, p (1 - p) / variance): means over repeats count as so many more
    questions, but never as more than the completions.
    """
    mean = values.mean()
    z = 1.96
    n = len(values)
    if values.var() > 0:
        n *= min(repeats, mean * (1 - mean) / values.var())
    centre = mean + z**2 / (2 * n)
    half = z * np.sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2)
    scale = 1 + z**2 / n
    return (centre - half) / scale, (centre + half) / scale


@lru_cache
def _resample_weights(questions: int) -> np.ndarray:
    """(RESAMPLES, questions): each row, the share of every question in one bootstrap resample."""
    rng = np.random.default_rng(questions)
    return rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions
