"""The four tags of a completion by linear scans, with the results of the published regular
expressions, which take 8 s for 32 KB of repeated tags."""

import re

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CLOSED = re.compile(  # not blank; the + behind a repetition keeps it linear
    r"<answer>\s*+(?!</answer>)([^<]*+(?:<(?!/?answer>)[^<]*+)*+)</answer>"
)
JOIN = re.compile(r"</think>[ \n]?<answer>")  # no repetition inside: linear


def opened(prompt: str) -> str:
    """The `<think>` with which a chat template ends a prompt, so that completions lack it."""
    return "<think>" if prompt.rstrip().endswith("<think>") else ""


def is_well_formed(completion: str) -> bool:
    """Evaluation's format flag: only the two blocks, except for a space or a newline."""
    before, after = _outside(completion) or ("no blocks", "")
    return {before, after.removesuffix("\n")} <= {"", " ", "\n"}


def extra_characters(completion: str) -> int | None:
    """How many characters are outside the two blocks; None without them."""
    outside = _outside(completion)
    return None if outside is None else len("".join(outside))


def _outside(completion: str) -> tuple[str, str] | None:
    """The text before and after `<think>.*</think>[ \\n]?<answer>.*</answer>`; None without it."""
    before, _, rest = completion.partition("<think>")
    blocks, _, after = rest.rpartition("</answer>")
    return (before, after) if JOIN.search(blocks) else None


def published_answer(completion: str) -> str:
    """From the last <answer> to the next </answer> or the end; the whole text without a tag."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def last_number(completion: str, pattern: str) -> str:
    """The last match of a run of characters, "-1" without one (as published)."""
    return (re.findall(pattern, completion) or ["-1"])[-1]


def last_closed_answer(completion: str) -> str | None:
    """The content of the last <answer>...</answer> that is closed and not blank."""
    answers = CLOSED.findall(completion)
    return answers[-1].strip() if answers else None
