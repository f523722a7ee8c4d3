"""Every number that the README calls measured equals one in benchmarks/results/.

A paragraph or table row that links to benchmarks/results holds results: a number in it that no
claim below covers fails. tests/test_speedup.py computes the stored published ones again.
"""

import json
import re
from functools import cache
from statistics import mean

import pytest

from pods.config.command import compose, typed
from pods.figures import curves, speedup
from pods.figures.figure import Comparison, Figure
from pods.runs import results
from tests.configs import compose as training
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?\b")
QUICK, MINI = "quickstart", "miniature"


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


@cache
def keys(figure):
    return typed(Figure, compose(f"figure/{figure}", []).figure)


@cache
def pairs(figure):
    """The pairs of a figure's arms by their baseline, each against GRPO-PODS."""
    series = curves.read(keys(figure), RESULTS / figure, [])
    how = Comparison(fraction_of_best=0.99, target=None, resamples=1, seed=0)
    compared = speedup.pairs(keys(figure), series, how)
    return {pair.baseline: pair for pair in compared if pair.pods == "GRPO-PODS"}


def last_checkpoints(arm):
    """Of the quickstart: (step, scores) of each run."""
    files = results.find(RESULTS / QUICK, keys(QUICK).series[arm].runs)
    return [(max(run), run[max(run)]) for run in map(results.read, files)]


def percent(*policies):
    """Correct and well formed, % of questions, mean over the policies."""
    return 100 * mean(mean(scores.datasets["arithmetic"].both_acc) for scores in policies)


def trained(arm):
    return percent(*(scores for _, scores in last_checkpoints(arm)))


def base(figure, model):
    return percent(results.read_base(RESULTS / figure / f"base-{model}.json"))


def step_seconds(arm):
    return mean(scores.meta["train_seconds"] / step for step, scores in last_checkpoints(arm))


def ahead(figure, baseline, of="mean_accuracy"):
    """Of the accuracy averaged over time, PODS less the baseline, in points, with its interval;
    of=level: of the last three marks."""
    pair = getattr(pairs(figure)[baseline], of)
    return [100 * value for value in (pair.difference, *pair.ci95)]


def greedy():
    """Accuracy of the GRPO run that was decoded greedily, in %, and the seconds of its steps."""
    run = stored("quickstart_greedy")
    return [100 * run["both_acc"], run["step"] * step_seconds("GRPO")]


def in_page(number, pattern):
    """Numbers of a registered test of the planner."""
    page = (RESULTS / f"planner_test_{number}.md").read_text()
    return [float(value) for value in re.search(pattern, page).groups()]


TEST = r"Rank correlation ([-\d.]+); (\d) of (\d)"  # intervals that cover their prediction, all
GOALS = r"correlation (\.\d) or more; (\d) of"
N = r"([-\d.]+)"
CI = rf"\({N} to {N}\)"

# What README and docs say, with a group for each number -> the numbers. Numbers outside a group are
# definitions (95 % intervals, 99 % of the best point).
CLAIMS = {
    rf"\[{N} of the seconds\]": lambda: [stored("generation")["ratio"]],
    rf"\[{N} to {N} times as fast with vLLM on the quickstart\]": merging_ratios,
    rf"definition, {N} times {CI} on \[GSM8K\]": lambda: published("gsm8k_main"),
    rf"and {N} times on \[8 H100s\]": lambda: published("h100s")[:1],
    rf"In {N} s GRPO-PODS": lambda: [training("experiment=quickstart").budget.train_seconds],
    r"sampled at temperature (\d+);": lambda: [training().sampling.temperature],
    rf"\[First\]\S+ rank correlation {N}, (\d) of (\d) intervals": lambda: in_page(1, TEST),
    rf"fresh seeds: rank correlation {N}, (\d) of (\d) intervals": lambda: in_page(2, TEST),
    r"set beforehand were ([\d.]+) and (\d)\.": lambda: in_page(2, GOALS),
    rf"is at \[{N} %\]\S+ after (\d+) s": greedy,
    rf"marks is {N} above GRPO's {CI}": lambda: ahead(QUICK, "GRPO", of="level"),
    rf"GRPO-PODS goes from {N} % to {N} %": lambda: [base(QUICK, "tiny"), trained("GRPO-PODS")],
    rf", GRPO to {N} %\.": lambda: [trained("GRPO")],
    rf"(\d[\d.]*) points above GRPO \(95 % interval {N} to {N}\)": lambda: ahead(QUICK, "GRPO"),
    rf", (\d[\d.]*) above GRPO 24/24 {CI}": lambda: ahead(QUICK, "GRPO-equal-cost"),
    rf"and (\d[\d.]*) above GRPO-GA \((\d[\d.]*) to {N}\)": lambda: ahead(QUICK, "GRPO-GA"),
    rf"A PODS step costs {N} s, a GRPO step {N} s, one of GRPO 24/24 {N} s": lambda: [
        step_seconds(arm) for arm in ("GRPO-PODS", "GRPO", "GRPO-equal-cost")
    ],
    rf": {N} points against GRPO {CI}": lambda: ahead(MINI, "GRPO"),
    rf"(?:Where the|The) base is correct on {N} %": lambda: [base(MINI, "tiny_60")],
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
    for match in matches:
        digits = [len(text.partition(".")[2]) for text in match.groups()]
        measured = [f"{value:.{n}f}" for value, n in zip(CLAIMS[pattern](), digits, strict=True)]
        assert list(match.groups()) == measured


def test_every_number_among_the_results_is_claimed():
    for text in paragraphs():
        spans = [match.span() for pattern in CLAIMS for match in re.finditer(pattern, text)]
        for number in NUMBER.finditer(text):
            start, end = number.span()
            assert any(a <= start and end <= b for a, b in spans), text[max(0, start - 30) : end]
