"""Questions that two splits of a task share: a policy would be tested on what it was trained on.

The published code does not look. Chemistry has no equal questions, but 29 templates make all of it:
its test measures new molecules, not new kinds of questions.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

# Options, quoted text, and words with a digit (numbers, SMILES): what a template leaves open.
OPEN = re.compile(r"(?m)^[A-Z]\. .*$|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\S*[0-9]\S*")


def compare(splits: Mapping[str, Sequence[str]]) -> tuple[int, str]:
    """How many questions two splits share, and that in words, with the templated ones of the test.

    splits: the questions of train, validation and test; case and spacing do not count.
    """
    sets = {
        split: {plain(question) for question in questions} for split, questions in splits.items()
    }
    shared = {f"{a}/{b}": len(sets[a] & sets[b]) for a, b in combinations(sets, 2)}
    pairs = ", ".join(f"{count} in {pair}" for pair, count in shared.items() if count)
    found = f"{pairs}: equal questions, remove them from one;" if pairs else "no equal questions;"
    templates = {plain(OPEN.sub("#", question)) for question in splits["train"]}
    near = sum(plain(OPEN.sub("#", question)) in templates for question in splits["test"])
    seen = f"{near} of {len(splits['test'])} test questions follow a template of train"
    return sum(shared.values()), f"{found} {seen}"


def plain(question: str) -> str:
    """In one case and spacing."""
    return " ".join(question.split()).casefold()
