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
REMEDIES = {
    "choice": "give the letter of an option, or set task.kind=math",
    "math": "give final answers, which are short, by task.answer or task.gold",
}
# Verdicts on completions, with their gold answers and kinds; None: no verdict.
Grade = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[bool | None]]


def refuse_unmet_golds(config: keys.TrainConfig, dataset: "Dataset", grade: Grade) -> None:
    """Grade each gold answer as the answer of a completion, and say what is wrong with them, a line
    for each kind. UserError if no completion can meet most of them."""
    step = -(-len(dataset) // MOST)
    rows = dataset.select_columns(["id", "answer", "kind"])[::step]
    golds = rows["answer"]
    finals = [final(gold) for gold in golds]
    completions = [f"<think>\n</think>\n<answer>\n{text}\n</answer>" for text in finals]
    verdicts = grade(completions, golds, rows["kind"])
    faults: dict[str, list[int]] = defaultdict(list)  # with the remedy -> numbers of rows
    for i, gold in enumerate(golds):
        if "####" in gold:
            faults['hold "####"; set task.gold=after_hashes'].append(i)
        elif finals[i] != gold:
            faults["hold \\boxed; set task.gold=boxed"].append(i)
        elif verdicts[i] is False:
            fault = f"are met by no completion under rewards={config.rewards.version}"
            faults[f"{fault}; {REMEDIES[rows['kind'][i]]}"].append(i)
    for fault, found in sorted(faults.items(), key=lambda item: -len(item[1])):
        first = found[0]
        gold = golds[first]
        line = (
            f"task={config.task.name}: {len(found)} of {len(golds)} gold answers {fault} "
            f"(the first: id {rows['id'][first]!r}, {reprlib.repr(gold)}, {len(gold)} characters)"
        )
        if 2 * verdicts.count(False) > len(golds):
            raise UserError(f"{line}; if only your functions grade: rewards.weights.correctness=0")
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
