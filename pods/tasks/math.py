"""Task `math`: competition problems (EleutherAI/hendrycks_math), 7,500 train and 5,000 test.

The gold answer is the last \\boxed{...} of the solution. Departs from the published code: braces
are balanced, so that \\boxed{\\frac{1}{2}} gives \\frac{1}{2}. `legacy` ends it at the first "}",
as published; then no answer to 15 % of the questions is right.
"""

import re

from pods.tasks.task import Row, Task, completion, text

SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory",
    "prealgebra", "precalculus",
)  # fmt: skip
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are characters, not braces
BOXED = re.compile(r"\\(?:boxed|fbox)\{")
UNBRACED = re.compile(r"\\boxed\s+([^\s${}.]+)")  # a few solutions write \boxed 5


def boxed(row: Row, column: str, legacy: bool = False) -> str:
    """The content of the last \\boxed{...}. ValueError without one or with open braces."""
    solution = text(row, column)
    ends, bare = [box.end() for box in BOXED.finditer(solution)], UNBRACED.findall(solution)
    if not ends and bare:
        return bare[-1]
    if not ends:
        raise ValueError(f"column {column!r} has no \\boxed{{...}}")
    start = ends[-1]
    if legacy:
        return solution[start:].split("}")[0].strip()
    depth = 1
    for token in BRACE.finditer(solution, start):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return solution[start : token.start()].strip()
    raise ValueError(f"the last \\boxed{{ of column {column!r} is never closed")


TASK = Task(
    name="math",
    hub="EleutherAI/hendrycks_math",
    subsets=SUBJECTS,
    question=lambda row: text(row, "problem"),
    gold=lambda row, legacy: boxed(row, "solution", legacy),
    shuffle_seed=42,
    example={
        "problem": r"If $\det \mathbf{A} = 2$ and $\det \mathbf{B} = 12,$ then find"
        r" $\det (\mathbf{A} \mathbf{B}).$",
        "solution": r"We have that $\det (\mathbf{A} \mathbf{B}) = (\det \mathbf{A})(\det"
        r" \mathbf{B}) = (2)(12) = \boxed{24}.$",
    },
    right=completion("The determinant of a product is the product: 2 * 12.", "24"),
    wrong=completion("The determinants add up: 2 + 12.", "14"),
)
