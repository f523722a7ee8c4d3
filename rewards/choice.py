"""Multiple choice, by our own rule: the last closed answer block is "B", "B.", "(B)", "B: text",
"B) text" or "B. text". "A or B" and the first word of a sentence name no letter."""

import re

from .tags import last_closed_answer

MAX_LENGTH = 2000  # characters; an option's own text may follow its letter
LETTER = re.compile(r"\(?\s*([A-Za-z])\s*(?:[.)]*:(?P<text>.*)|[.)]+(?P<more>\s.*)?)?", re.DOTALL)
ANOTHER = re.compile(r"(?:^|\s)\(?[A-J][.):]\s|^\s*(?:or|and)\b")


def is_correct(completion: str, gold: str) -> bool:
    """Whether the last answer block names the gold letter, and no other."""
    answer = last_closed_answer(completion)
    if answer is None or len(answer) > MAX_LENGTH:
        return False
    match = LETTER.fullmatch(answer)
    if match is None:
        return False
    if ANOTHER.search(match["text"] or match["more"] or ""):
        return False
    return match[1].upper() == gold.strip().upper()
