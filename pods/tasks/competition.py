"""Tasks `math`, `math500`, `amc23`, `aime24`: competition problems with a short exact answer.

`math` is EleutherAI/hendrycks_math (7,500 train, 5,000 test), its gold the last \\boxed{...} of the
solution; the others are test sets. One real example (math500): "How many positive whole-number
divisors does 196 have?", gold "9".

Departs from the published code: braces are balanced, so that \\boxed{\\frac{1}{2}} is \\frac{1}{2};
`legacy` ends it at the first "}", as published, which makes 15 % of the answers unreachable.
"""

import re

from pods.tasks.source import Source, text, text_or_number

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are characters, not braces
BOXED = re.compile(r"\\(?:boxed|fbox)\{")
UNBRACED = re.compile(r"\\boxed\s+([^\s${}.]+)")  # a few solutions write \boxed 5


def boxed(solution: str, legacy: bool = False) -> str:
    """The content of the last \\boxed{...}. ValueError without one or with open braces."""
    boxes = list(BOXED.finditer(solution))
    if not boxes:
        if bare := UNBRACED.findall(solution):
            return bare[-1]
        raise ValueError("column 'solution' has no \\boxed{...}")
    start = boxes[-1].end()
    if legacy:
        return solution[start:].split("}")[0].strip()
    depth = 1
    for token in BRACE.finditer(solution, start):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return solution[start : token.start()].strip()
    raise ValueError("the last \\boxed{ of column 'solution' is never closed")


def _test_set(name: str, hub: str, question: str = "problem", hub_split: str = "test") -> Source:
    return Source(
        name=name,
        hub=hub,
        splits=("test",),
        from_hub=lambda load, split: load(hub_split),
        columns=(question, "answer"),
        question=lambda row: text(row, question),
        gold=lambda row, legacy: text_or_number(row, "answer"),
    )


SOURCES = (
    Source(
        name="math",
        hub="EleutherAI/hendrycks_math",
        subsets=SUBJECTS,
        columns=("problem", "solution"),
        question=lambda row: text(row, "problem"),
        gold=lambda row, legacy: boxed(text(row, "solution"), legacy),
        shuffle_seed=42,
    ),
    _test_set("math500", "HuggingFaceH4/MATH-500"),
    _test_set("amc23", "zwhe99/amc23", question="question"),
    _test_set("aime24", "HuggingFaceH4/aime_2024", hub_split="train"),
)
