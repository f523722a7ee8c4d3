"""Checks of a training's data before its model loads: gold answers that no completion can meet, and
test questions that are trained on."""

import re
import reprlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
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
OWN_GOLD = "let task.gold=path/to/file.py:function return"
IMPOSSIBLE = {  # a gold answer of kind=math -> its fault
    re.compile(
        r"""\[\s*(['"]).*\1\s*\]"""
    ): f"are a list in a text; {OWN_GOLD} the entry that counts",
    re.compile("(?i:proof|n/a|none|null|nan|unknown|unanswerable|no answer)[.]?"): (
        f"say that there is none; {OWN_GOLD} None, which leaves a row out"
    ),
    re.compile(r".*(±|\\pm(?![a-z])).*"): (
        "hold ±, which a completion that states both values does not meet; "
        f"{OWN_GOLD} both, as in 3, -3, with rewards=strict"
    ),
}
NO_OPTION = (
    "are letters that stand before no option in their question; write the options into the column "
    "of task.question, as in (A) 5 (B) 6"
)
# Verdicts on completions, with their gold answers and kinds.
Grade = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[bool]]


def refuse_unmet_golds(config: keys.TrainConfig, dataset: "Dataset", grade: Grade) -> None:
    """Grade each gold answer as the answer of a completion, and say what is wrong with them, a line
    for each kind. UserError if no completion can meet most of them."""
    step = -(-len(dataset) // MOST)
    rows = dataset.select_columns(["id", "question", "answer", "kind"])[::step]
    golds = rows["answer"]
    finals = [final(gold) for gold in golds]
    completions = [f"<think>\n</think>\n<answer>\n{text}\n</answer>" for text in finals]
    verdicts = grade(completions, golds, rows["kind"])
    faults: dict[str, list[int]] = defaultdict(list)  # with the remedy -> numbers of rows
    useless = {i for i, verdict in enumerate(verdicts) if verdict is False}
    for i, gold in enumerate(golds):
        is_math = rows["kind"][i] == "math"
        impossible = [IMPOSSIBLE[form] for form in IMPOSSIBLE if is_math and form.fullmatch(gold)]
        if "####" in gold:
            faults['hold "####"; set task.gold=after_hashes'].append(i)
        elif finals[i] != gold:
            faults["hold \\boxed; set task.gold=boxed"].append(i)
        elif impossible:
            faults[impossible[0]].append(i)
            useless.add(i)
        elif not names_option(rows["question"][i], gold, rows["kind"][i]):
            faults[NO_OPTION].append(i)
            useless.add(i)
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
        if 2 * len(useless) > len(golds):
            raise UserError(f"{line}; if only your functions grade: rewards.weights.correctness=0")
        ranks.say(line)


def final(gold: str) -> str:
    """The final answer in a gold answer that is a whole solution: after ####, or in its box."""
    for read in (after_hashes, boxed):
        with suppress(ValueError):
            return read({"gold": gold}, "gold")
    return gold


def names_option(question: str, gold: str, kind: str) -> bool:
    """Whether the letter of a choice stands before an option: (A), A), A. or A:. True of other
    golds."""
    letter = gold.strip("() .").upper()
    if kind != "choice" or not re.fullmatch("[A-Z]", letter):
        return True
    return bool(
        re.search(rf"(?<![A-Z]){letter}\s*[).:\]}}*-]|^\s*{letter}\s", question.upper(), re.M)
    )


def refuse_contradictions(task: str, dataset: "Dataset") -> None:
    """Say how many questions stand there with several gold answers; UserError if most rows do."""
    golds: dict[str, dict[str, str]] = defaultdict(dict)  # question -> gold answer -> id
    columns = (dataset[name] for name in ("question", "answer", "id"))
    counts: Counter[str] = Counter()
    for question, answer, name in zip(*columns, strict=True):
        golds[folded(question)].setdefault(folded(answer), name)
        counts[folded(question)] += 1
    several = {question: ids for question, ids in golds.items() if len(ids) > 1}
    if not several:
        return
    line = (
        f"task={task}: {len(several)} of {len(golds)} questions have several gold answers (the "
        f"first: ids {', '.join(map(repr, list(next(iter(several.values())).values())[:3]))}); "
        "write what tells them apart, such as a passage, into the question, or keep one of them"
    )
    if 2 * sum(counts[question] for question in several) > len(dataset):
        raise UserError(f"{line}; if only your functions grade: rewards.weights.correctness=0")
    ranks.say(line)


def say_overlap(task: str, training: "Dataset", test: "Dataset") -> None:
    """Say how many test questions are trained on; letter case and blanks do not count."""
    known = set(map(folded, training["question"]))
    count = sum(folded(question) in known for question in test["question"])
    if count:
        ranks.say(
            f"task={task}: {count} of {len(test)} test questions are training questions too; their "
            "scores are no test: remove them from one split, keep each question of a single file "
            "once, or write what tells them apart, such as a passage, into the question"
        )


def folded(question: str) -> str:
    return " ".join(question.split()).casefold()
