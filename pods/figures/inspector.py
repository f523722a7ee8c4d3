"""The data of the rollout inspector: every rollout of a run, kept or dropped, with the reason.

The paper reports only the m kept rollouts; judging a rule also needs the dropped ones.
Used by `uv run scripts/report.py run=<run>`; pods/runs/ledger.py writes the records.
"""

import json
from collections.abc import Iterable
from typing import Any

REASONS = {  # kept, dropped
    "all": ("kept: every rollout is", ""),
    "max_reward": ("kept: among the m highest", "dropped: below the m highest"),
    "random": ("kept: drawn at random", "dropped: not drawn"),
    "percentile": ("kept: at one of the m mid-quantiles", "dropped: between the mid-quantiles"),
}
# max_variance keeps the top i and the bottom m - i of the sorted rewards.
TOP, BOTTOM, MIDDLE = "kept: top end", "kept: bottom end", "dropped: between the ends"
TIED = "dropped: tied with kept ones"  # ties go by index
EQUAL_KEPT = "kept: all rewards are equal, ties go by index"
EQUAL_DROPPED = "dropped: all rewards are equal, ties go by index"


def reasons(total: list[float], kept: list[int], rule: str) -> list[str]:
    """The reason why each of the n rollouts was kept or dropped, from its reward and the rule."""
    chosen = set(kept)
    why_kept, why_dropped = REASONS.get(rule, ("kept", "dropped"))
    if rule == "max_variance":
        if min(total) != max(total):
            return _ends(total, chosen)
        why_kept, why_dropped = EQUAL_KEPT, EQUAL_DROPPED
    return [why_kept if i in chosen else why_dropped for i in range(len(total))]


def _ends(total: list[float], chosen: set[int]) -> list[str]:
    ends = {total[i] for i in chosen}
    middle, found = (min(ends) + max(ends)) / 2, []
    for i, reward in enumerate(total):
        if i in chosen:
            found.append(TOP if reward >= middle else BOTTOM)
        else:
            found.append(TIED if reward in ends else MIDDLE)
    return found


def group(record: dict[str, Any], rule: str) -> dict[str, Any]:
    """One ledger record for the page; `why` indexes `reasons`, and texts may be absent."""
    why = reasons(record["total"], record["kept"], rule)
    for i, own in zip(record["kept"], record.get("reasons", ()), strict=False):  # the rule's words
        why[i] = f"kept: {own}"
    names = sorted(set(why))
    rewards = record["rewards"]
    return {
        "id": str(record.get("question_id", "")),
        "prompt": record.get("prompt", ""),
        "answer": str(record.get("answer", "")),
        "rewards": {name: _rounded(values) for name, values in rewards.items()},
        "correct": [value > 0 for value in rewards.get("correctness", [])],
        "total": _rounded(record["total"]),
        "lengths": record.get("lengths", []),
        "kept": record["kept"],
        "reasons": names,
        "why": [names.index(reason) for reason in why],
        "completions": record.get("completions"),
    }


def steps(
    records: Iterable[dict[str, Any]], rule: str, most: float
) -> tuple[dict[int, list[dict[str, Any]]], str]:
    """{step: groups} of at most `most` bytes as JSON, and a note about steps left out.

    Of a longer ledger the page has evenly spaced steps and the last one, because browsers cannot
    open a page of gigabytes.
    """
    by_step: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        by_step.setdefault(record["step"], []).append(group(record, rule))
    sizes = {step: len(json.dumps(by_step[step])) for step in sorted(by_step)}
    newest_first, every = list(sizes)[::-1], 1
    while every < len(sizes) and sum(sizes[step] for step in newest_first[::every]) > most:
        every += 1
    shown = newest_first[::every][::-1]
    note = "" if every == 1 else f"Shown: {len(shown)} of {len(sizes)} steps, evenly spaced."
    return {step: by_step[step] for step in shown}, note


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]
