"""Every number that the README calls measured equals one in benchmarks/results/.

A paragraph or table row that links to benchmarks/results holds results: a number in it that no
claim below covers fails. tests/test_speedup.py computes the stored published ones again.
"""

import json
import re

import pytest

from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?\b")


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def published(figure):
    pair = stored(f"published_{figure}")[figure]
    return [pair["speedup"], *pair["ci95"]]


def merging_ratios():
    """Evaluation by merging every checkpoint over ours, with vLLM: the least and the greatest."""
    cells = stored("evaluation")["engines"]["vllm"].values()
    ratios = [cell[f"merge_and_{way}_ratio"] for cell in cells for way in ("reload", "process")]
    return [min(ratios), max(ratios)]


def trained():
    """Sizes and steps, least and greatest greedy accuracy at the end in %."""
    facts = stored("environment")["training"]
    ends = [100 * share for share in facts["greedy"]]
    return facts["prompts"], facts["group"], min(ends), max(ends), facts["steps"]


N = r"([-\d.]+)"
CI = rf"\({N} to {N}\)"

# What README and docs say, with a group for each number -> the numbers. Numbers outside a group are
# definitions (95 % intervals, 99 % of the best point).
CLAIMS = {
    rf"\[{N} of the seconds\]": lambda: [stored("generation")["ratio"]],
    rf"\[{N} to {N} times as fast with vLLM on the quickstart\]": merging_ratios,
    rf"definition, {N} times {CI} on \[GSM8K\]": lambda: published("gsm8k_main"),
    rf"and {N} times on \[8 H100s\]": lambda: published("h100s")[:1],
    rf"\((\d) prompts a step, groups of (\d)\) ends at {N} to {N} % greedily "
    r"after (\d+) steps": trained,
}


def paragraphs():
    """Paragraphs and table rows of README and docs with results, each on one line."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for block in "\n\n".join(page.read_text() for page in pages).split("\n\n"):
        for part in block.split("\n") if block.startswith("|") else [block]:
            if "benchmarks/results/" in part:
                yield " ".join(part.split())


@pytest.mark.parametrize("pattern", CLAIMS)
def test_a_number_of_the_readme_is_a_stored_result(pattern):
    matches = [*re.finditer(pattern, "\n".join(paragraphs()))]
    assert matches, f"the README no longer says {pattern!r}: change the claim with it"
    numbers = [list(match.groups()) for match in matches]
    assert numbers == [rounded(CLAIMS[pattern](), texts) for texts in numbers]


def rounded(values, texts):
    """The values as texts with as many decimals as these have."""
    decimals = [len(text.partition(".")[2]) for text in texts]
    return [f"{value:.{n}f}" for value, n in zip(values, decimals, strict=True)]


@pytest.mark.parametrize("text", [*paragraphs()], ids=lambda text: text[:40])
def test_every_number_among_the_results_is_claimed(text):
    spans = [match.span() for pattern in CLAIMS for match in re.finditer(pattern, text)]
    unclaimed = [
        text[max(0, number.start() - 30) : number.end()]
        for number in NUMBER.finditer(text)
        if not any(start <= number.start() and number.end() <= end for start, end in spans)
    ]
    assert unclaimed == []
