"""The strict grader: the answer block behind the reasoning must be a statement of the gold answer.

The type of the gold answer decides how it is read (answer.lark): a number must be stated, and no
other: "18", "\\$18.00", "9 * 2 = 18", "She makes 18 dollars a day". What is not read is text.
"""

import re

from .reading import MAX_LENGTH, Reading, gold_reading, read, spell, words
from .tags import last_closed_answer

SENTENCE = re.compile(  # its end
    r"\.\s+(?=[A-Z])|(?<!not)(?<![\s-])\s*\n+|\\\\|[,;]\s+(?=(?:so|then|hence|thus|therefore)\b)|\\Rightarrow"
)
WORK = re.compile(r"[\d)] *(?:[-+*/]|\\times|\\cdot) *[\d$(].*=")
CONCLUSION = re.compile(
    r"(?i)(?:so|thus|hence|therefore|then|total|altogether|in all)\b|.*\b(?:answer|option)\b"
)


def decide(completion: str, gold: str) -> bool:
    """Whether the final answer block gives the gold answer."""
    final = completion.partition("</think>")[2]
    if not final and completion.rstrip().endswith("</answer>"):
        final = completion  # its last block is no guess of the reasoning
    answer = last_closed_answer(final)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer, gold = spell(answer), spell(gold)
    name, value = gold_reading(gold)
    if gives(read(answer, name), value):
        return True
    if name != "number" and words(answer) == words(gold):
        return True
    *before, last = SENTENCE.split(answer)
    readings = [read(said, name) for said in before if not WORK.search(said)]
    return gives(read(last, name), value) and (
        bool(CONCLUSION.match(last))
        or all(gives(reading, value) for reading in readings if reading)
    )


def gives(answer: Reading | None, gold: Reading) -> bool:
    """Whether the answer says what the gold answer says."""
    return answer is not None and (
        gold.value in (answer.value, *answer.forms, *answer.meant) or answer.value in gold.forms
    )
