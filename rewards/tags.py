"""The four tags of a completion, found by linear scans.

The published code finds them with regular expressions that are quadratic to cubic on hostile text
(32 KB of repeated tags: 8 s). These scans return the same; tests compare both on fuzzed strings.
"""

import re

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
JOIN = re.compile(r"</think>[ \n]?<answer>")  # no repetition inside: linear
ENDS = tuple("</answer>" + space for space in ("", " ", "\n", " \n", "\n\n"))
NUMBER_SEARCH_V1 = re.compile(r"\d+")
NUMBER_SEARCH_V2 = re.compile(r"[\d.,]+")
EMPTY_BLOCK = re.compile(r"<(think|answer)>\s*</\1>")
ANSWER_TAG = re.compile(r"</?answer>")


def extra_characters(completion: str) -> int | None:
    """Characters outside `<think>.*</think>[ \\n]?<answer>.*</answer>`; None without a match."""
    start = completion.find("<think>")
    join = JOIN.search(completion, start + len("<think>")) if start >= 0 else None
    end = completion.rfind("</answer>")
    if join is None or end < join.end():
        return None
    return len(completion) - (end + len("</answer>") - start)


def is_well_formed(completion: str) -> bool:
    """Evaluation's format flag: the two blocks alone, except for a space or a newline."""
    start = 1 if completion[:1] in (" ", "\n") else 0
    if not completion.startswith("<think>", start):
        return False
    join = JOIN.search(completion, start + len("<think>"))
    end = completion.rfind("</answer>")
    return join is not None and end >= join.end() and completion[end:] in ENDS


def tags_once(completion: str) -> int:
    """How many of the four tags occur exactly once."""
    return sum(completion.count(tag) == 1 for tag in TAGS)


def published_answer(completion: str) -> str:
    """From the last <answer> to the next </answer> or the end; the whole text without a tag."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def last_number(completion: str, pattern: re.Pattern) -> str:
    """The last match of a run of characters, "-1" without one (as published).

    Searched from the end, because the last run forwards is the first run backwards.
    """
    match = pattern.search(completion[::-1])
    return match.group()[::-1] if match else "-1"


def last_closed_answer(completion: str) -> str | None:
    """The content of the last <answer>...</answer> that is closed and not blank."""
    opened, answer = None, None
    for tag in ANSWER_TAG.finditer(completion):
        if tag[0] == "</answer>" and opened is not None:
            answer = completion[opened : tag.start()].strip() or answer
        opened = tag.end() if tag[0] == "<answer>" else None
    return answer


def earn_bonus(completion: str, correct: bool, version: str) -> bool:
    """Whether format and tags count at all.

    The release gives them to wrong answers only, in its MATH runs ("NF") never; under strict a
    completion with an empty block earns none.
    """
    if version == "strict":
        return EMPTY_BLOCK.search(completion) is None
    return version == "v2" or (version == "v1" and not correct)
