"""A look at the data of a training before its model loads: gold answers that no completion can
meet, and test questions that are trained on."""

import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pods import ranks
from pods.config import keys
from pods.config.errors import UserError
from pods.tasks.gold import after_hashes, boxed

if TYPE_CHECKING:
    from datasets import Dataset

MOST = 5000  # gold answers that are graded; of more questions a sample
# Verdicts on completions, with their gold answers and kinds; None: no verdict.
Grade = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[bool | None]]


def refuse_unmet_golds(config: keys.TrainConfig, dataset: "Dataset", grade: Grade) -> None:
    """Grade each gold answer as the answer of a completion. A line for each kind that is wrong;
    UserError if most of them are."""
    sample = dataset.select_columns(["id", "answer", "kind"])[:: -(-len(dataset) // MOST)]
    golds = sample["answer"]
    completions = [f"<think>\n</think>\n<answer>\n{final(gold)}\n</answer>" for gold in golds]
    verdicts = grade(completions, golds, sample["kind"])
    faults: dict[tuple[str, str], list[int]] = defaultdict(list)  # fault and remedy -> places
    for i, gold in enumerate(golds):
        if "####" in gold:
            faults['hold "####"', "set task.gold=after_hashes"].append(i)
        elif final(gold) != gold:
            faults["hold \\boxed", "set task.gold=boxed"].append(i)
        elif verdicts[i] is False and sample["kind"][i] == "choice":
            faults["are no letter", "set task.kind=math, or give letters"].append(i)
        elif verdicts[i] is False:
            fault = f"are met by no completion under rewards={config.rewards.version}"
            faults[fault, "give short final answers (task.gold)"].append(i)
    count = f"{len(golds)} sampled" if len(golds) < len(dataset) else str(len(golds))
    for (fault, remedy), places in sorted(faults.items(), key=lambda item: -len(item[1])):
        gold = golds[places[0]]
        line = (
            f"task={config.task.name}: {len(places)} of {count} gold answers {fault} (first: id "
            f"{sample['id'][places[0]]!r}, {reprlib.repr(gold)}, {len(gold)} characters); {remedy}"
        )
        if 2 * verdicts.count(False) > len(golds):
            raise UserError(f"{line}, or rewards.weights.correctness=0 if functions of yours grade")
        ranks.say(line)


def final(gold: str) -> str:
    """What a completion states for a gold answer that is a solution: its end, or its box."""
    for read in (after_hashes, boxed):
        with suppress(ValueError):
            return read({"gold": gold}, "gold")
    return gold


def say_overlap(task: str, training: Iterable[str], test: Sequence[str]) -> None:
    """Say how many test questions are trained on; letter case and blanks do not count."""
    known = set(map(folded, training))
    count = sum(folded(question) in known for question in test)
    if count:
        ranks.say(
            f"task={task}: {count} of {len(test)} test questions are training questions too; "
            "their scores are no test, so remove them from one split"
        )


def folded(question: str) -> str:
    return " ".join(question.split()).casefold()
