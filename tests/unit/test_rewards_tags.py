"""The linear tag scans against the published regular expressions, which they replace."""

import random
import re

import pytest

from rewards import tags

FORMAT = re.compile(r"<think>.*</think>[ \n]?<answer>.*</answer>", re.DOTALL)
WELL_FORMED = re.compile(r"^[ \n]?<think>.*</think>[ \n]?<answer>.*</answer>[ \n]?$", re.DOTALL)
COMMON = (*tags.TAGS, "<think>a</think><answer>", "</think>\n<answer>")  # else few strings match
RARE = (" ", "\n", "\n\n", " \n", "x", "5", "1,000.", "<", ">", "</", "\r", "\u2028", "é")
WEIGHTS = (6,) * len(COMMON) + (1,) * len(RARE)


def fuzzed(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(COMMON + RARE, WEIGHTS, k=rng.randrange(20))) for _ in range(count)]


def by_regex(text: str) -> tuple[int | None, bool]:
    match = FORMAT.search(text)
    return match and len(text) - len(match[0]), WELL_FORMED.match(text) is not None


def test_fuzzed_strings():
    texts = fuzzed(30_000, seed=0)
    expected = [by_regex(text) for text in texts]
    assert [(tags.extra_characters(text), tags.is_well_formed(text)) for text in texts] == expected
    assert sum(extra is not None for extra, _ in expected) > 300  # the generator reaches both
    assert sum(well_formed for _, well_formed in expected) > 15


@pytest.mark.parametrize("pattern", [r"\d+", r"[\d.,]+"])
def test_the_last_number(pattern):
    for text in fuzzed(20_000, seed=1):
        character = re.compile(pattern.removesuffix("+"))
        ends = [i for i, c in enumerate(text, 1) if character.match(c)]
        starts = [i for i in ends if i - 1 not in ends]  # of runs
        expected = text[starts[-1] - 1 : ends[-1]] if ends else "-1"
        assert tags.last_number(text, pattern) == expected


def test_the_published_block():
    texts = fuzzed(20_000, seed=1)
    expected = [text.split("<answer>")[-1].split("</answer>")[0].strip() for text in texts]
    assert [tags.published_answer(text) for text in texts] == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("5", None),
        ("</answer>5<answer>", None),
        ("<answer>5</answer>", "5"),
        ("<answer>5</answer></answer>", "5"),
        ("<answer>5</answer><answer>6</answer>", "6"),
        ("<answer>5</answer> <answer>6", "5"),  # cut off: the last closed one counts
        ("<answer>5</answer><answer> \n</answer>", "5"),  # blank says nothing
        ("<answer>5<answer>6</answer>", "6"),  # the inner one is the one that closes
    ],
)
def test_the_last_closed_answer(text, answer):
    assert tags.last_closed_answer(text) == answer
