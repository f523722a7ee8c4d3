"""The four tags of a completion by linear scans, with the results of the published regular
expressions, which take 8 s for 32 KB of repeated tags."""

import re

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
JOIN = re.compile(r"</think>[ \n]?<answer>")  # no repetition inside: linear
ANSWER_TAG = re.compile(r"</?answer>")


def opened(prompt: str) -> str:
    """The `<think>` with which a chat template ends a prompt, so that completions lack it."""
    return "<think>" if prompt.rstrip().endswith("<think>") else ""


def is_well_formed(completion: str) -> bool:
    """Evaluation's format flag: only the two blocks, except for a space or a newline."""
    span = _blocks(completion)
    if span is None:
        return False
    start, end = span
    if completion[:start] not in ("", " ", "\n"):
        return False
    return completion[end:] in ("", " ", "\n", " \n", "\n\n")


def extra_characters(completion: str) -> int | None:
    """How many characters are outside the two blocks; None without them."""
    span = _blocks(completion)
    if span is None:
        return None
    start, end = span
    return len(completion) - (end - start)


def _blocks(completion: str) -> tuple[int, int] | None:
    """Where `<think>.*</think>[ \\n]?<answer>.*</answer>` begins and ends; None if nowhere."""
    start = completion.find("<think>")
    if start < 0:
        return None
    join = JOIN.search(completion, start)
    end = completion.rfind("</answer>")
    if join is None or end < join.end():
        return None
    return start, end + len("</answer>")


def published_answer(completion: str) -> str:
    """From the last <answer> to the next </answer> or the end; the whole text without a tag."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def last_number(completion: str, pattern: str) -> str:
    """The last match of a run of characters, "-1" without one (as published)."""
    match = re.search(pattern, completion[::-1])  # the last run is the first one from the end
    return match.group()[::-1] if match else "-1"


def last_closed_answer(completion: str) -> str | None:
    """The content of the last <answer>...</answer> that is closed and not blank."""
    answer = None
    start = None  # of the block that is open
    for tag in ANSWER_TAG.finditer(completion):
        if tag[0] == "<answer>":
            start = tag.end()
        elif start is not None:
            answer = completion[start : tag.start()].strip() or answer
            start = None
    return answer
