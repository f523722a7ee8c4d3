"""Every number that the README calls measured equals one in benchmarks/results/.

A paragraph or table row that links to benchmarks/results holds results: a number in it that no
claim below covers fails. tests/test_speedup.py computes the stored published ones again, from
    uv run scripts/speedup.py figure=gsm8k_main json=true results_dir=<the published files>
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from statistics import mean
from typing import Any

import pytest

from pods.config.command import compose, typed
from pods.figures import curves, speedup
from pods.figures.figure import Comparison, Figure
from pods.runs import results
from tests.configs import compose as training
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
QUICK, MINI = "quickstart", "miniature"


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def published(figure: str) -> list[float]:
    pair = stored(f"published_{figure}")[figure]
    return [pair["speedup"], *pair["ci95"]]


def merging_ratios() -> list[float]:
    """Evaluation by merging every checkpoint over ours, with vLLM: the least and the greatest."""
    cells = stored("evaluation")["engines"]["vllm"].values()
    ways = ("merge_and_reload_ratio", "merge_and_process_ratio")
    ratios = [cell[way] for cell in cells for way in ways]
    return [min(ratios), max(ratios)]


@cache
def keys(figure: str) -> Figure:
    return typed(Figure, compose(f"figure/{figure}", []).figure)


@cache
def pairs(figure: str) -> dict[str, speedup.Speedup]:
    """The pairs of a figure's arms by their baseline, each against GRPO-PODS."""
    series = curves.read(keys(figure), RESULTS / figure, [])
    how = Comparison(fraction_of_best=0.99, target=None, resamples=1, seed=0)
    compared = speedup.pairs(keys(figure), series, how)
    return {pair.baseline: pair for pair in compared if pair.pods == "GRPO-PODS"}


def last_checkpoints(figure: str, arm: str) -> list[tuple[int, results.Scores]]:
    files = results.find(RESULTS / figure, keys(figure).series[arm].runs)
    return [(max(run), run[max(run)]) for run in map(results.read, files)]


def percent(figure: str, arm: str) -> float:
    """Correct and well formed at the end, % of questions, mean over the runs."""
    last = last_checkpoints(figure, arm)
    return 100 * mean(mean(c.datasets["arithmetic"].both_acc) for _, c in last)


def base(figure: str, model: str) -> float:
    scored = results.read_base(RESULTS / figure / f"base-{model}.json").datasets["arithmetic"]
    return 100 * mean(scored.both_acc)


def step_seconds(figure: str, *arms: str) -> list[float]:
    last = (last_checkpoints(figure, arm) for arm in arms)
    return [mean(c.meta["train_seconds"] / step for step, c in runs) for runs in last]


def ahead(figure: str, baseline: str, of: str = "mean_accuracy") -> list[float]:
    """Of the accuracy averaged over time, PODS less the baseline, in points, with its interval;
    of=level: of the last three marks."""
    pair = getattr(pairs(figure)[baseline], of)
    return [100 * value for value in (pair.difference, *pair.ci95)]


def greedy() -> list[float]:
    """Accuracy of the GRPO run that was decoded greedily, in %, and the seconds of its steps."""
    run = stored("quickstart_greedy")
    return [100 * run["both_acc"], run["step"] * step_seconds(QUICK, "GRPO")[0]]


def in_page(number: int, pattern: str) -> list[float]:
    """Numbers of a registered test of the planner."""
    page = (RESULTS / f"planner_test_{number}.md").read_text()
    return [float(value) for value in re.search(pattern, page).groups()]


TEST = r"Rank correlation ([-\d.]+); (\d) of (\d)"  # intervals that cover their prediction, all
ARMS = ("GRPO-PODS", "GRPO", "GRPO-equal-cost", "GRPO-GA")
N = r"([-\d.]+)"
CI = rf"\({N} to {N}\)"

# What README and docs say, with a group for each number -> the numbers. Numbers outside a group are
# definitions (95 % intervals, 99 % of the best point).
CLAIMS: dict[str, Callable[[], list[float]]] = {
    rf"\[{N} of the seconds\]": lambda: [stored("generation")["ratio"]],
    rf"\[{N} to {N} times as fast with vLLM on the quickstart\]": merging_ratios,
    rf"definition, {N} times {CI} on \[GSM8K\]": lambda: published("gsm8k_main"),
    rf"and {N} times on \[8 H100s\]": lambda: published("h100s")[:1],
    rf"In {N} s GRPO-PODS": lambda: [training("experiment=quickstart").budget.train_seconds],
    r"sampled at temperature (\d+);": lambda: [training().sampling.temperature],
    rf"\[First\]\S+ rank correlation {N}, (\d) of (\d) intervals": lambda: in_page(1, TEST),
    rf"fresh seeds: rank correlation {N}, (\d) of (\d) intervals": lambda: in_page(2, TEST),
    r"set beforehand were ([\d.]+) and (\d)\.": lambda: in_page(
        2, r"correlation (\.\d) or more; (\d) of"
    ),
    rf"is at \[{N} %\]\S+ after (\d+) s": greedy,
    rf"marks is {N} above GRPO's {CI}": lambda: ahead(QUICK, "GRPO", of="level"),
    rf"GRPO-PODS goes from {N} % to {N} %": lambda: [base(QUICK, "tiny"), percent(QUICK, ARMS[0])],
    rf", GRPO to {N} %\.": lambda: [percent(QUICK, "GRPO")],
    rf"PODS is (\d[\d.]*) points above GRPO \(95 % interval {N} to {N}\)": lambda: ahead(
        QUICK, "GRPO"
    ),
    rf", (\d[\d.]*) above GRPO 24/24 {CI}": lambda: ahead(QUICK, "GRPO-equal-cost"),
    rf"and (\d[\d.]*) above GRPO-GA \((\d[\d.]*) to {N}\)": lambda: ahead(QUICK, "GRPO-GA"),
    rf"A PODS step costs {N} s, a GRPO step {N} s, one of GRPO 24/24 {N} s": lambda: step_seconds(
        QUICK, *ARMS[:3]
    ),
    rf"Where the base is right on {N} %": lambda: [base(MINI, "tiny_60")],
    rf": {N} points against GRPO {CI}": lambda: ahead(MINI, "GRPO"),
    rf"The base is right on {N} %": lambda: [base(MINI, "tiny_60")],
}


def paragraphs() -> Iterator[str]:
    """Paragraphs and table rows of README and docs with results, each on one line."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for block in "\n\n".join(page.read_text() for page in pages).split("\n\n"):
        for part in block.split("\n") if block.startswith("|") else [block]:
            if "benchmarks/results/" in part:
                yield " ".join(part.split())


@pytest.mark.parametrize("pattern", CLAIMS)
def test_a_number_of_the_readme_is_a_stored_result(pattern):
    match = re.search(pattern, "\n".join(paragraphs()))
    assert match, f"the README no longer says {pattern!r}: change the claim with it"
    digits = [len(text.partition(".")[2]) for text in match.groups()]
    measured = [f"{value:.{n}f}" for value, n in zip(CLAIMS[pattern](), digits, strict=True)]
    assert list(match.groups()) == measured


def test_every_number_among_the_results_is_claimed():
    for text in paragraphs():
        spans = [match.span() for pattern in CLAIMS for match in re.finditer(pattern, text)]
        loose = [
            text[max(0, number.start() - 30) : number.end() + 10]
            for number in NUMBER.finditer(text)
            if not any(start <= number.start() and number.end() <= end for start, end in spans)
        ]
        assert not loose, f"numbers in the README that no claim in this file covers: {loose}"
