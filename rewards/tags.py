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
    if (span := _blocks(completion)) is None:
        return False
    before, after = completion[: span[0]], completion[span[1] :]
    return before in ("", " ", "\n") and after in ("", " ", "\n", " \n", "\n\n")


def extra_characters(completion: str) -> int | None:
    """How many characters are outside the two blocks; None without them."""
    span = _blocks(completion)
    return None if span is None else len(completion) - (span[1] - span[0])


def _blocks(completion: str) -> tuple[int, int] | None:
    """Where `<think>.*</think>[ \\n]?<answer>.*</answer>` begins and ends."""
    start = completion.find("<think>")
    join = JOIN.search(completion, start + len("<think>")) if start >= 0 else None
    end = completion.rfind("</answer>")
    return None if join is None or end < join.end() else (start, end + len("</answer>"))


def published_answer(completion: str) -> str:
    """From the last <answer> to the next </answer> or the end; the whole text without a tag."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def last_number(completion: str, pattern: str) -> str:
    """The last match of a run of characters, "-1" without one (as published)."""
    match = re.search(pattern, completion[::-1])  # the last run is the first one from the end
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
    """Whether format and tags count at all: in the release for wrong answers only, in its MATH runs
    ("NF") never; under strict not with an empty block."""
    if version == "strict":
        return re.search(r"<(think|answer)>\s*</\1>", completion) is None
    return version == "v2" or (version == "v1" and not correct)
