"""Every number that the README calls measured equals one in benchmarks/results/.

A paragraph or table row that links to benchmarks/results holds results: a number in it that no
claim below covers fails.
    uv run scripts/speedup.py figure=gsm8k_main json=true results_dir=<the published files> \\
        > benchmarks/results/published_gsm8k_main.json      # and h100s likewise
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from pods.config.command import compose
from pods.runs import results
from tests import processes
from tests.configs import compose as training
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
PUBLISHED = ("gsm8k_main", "h100s")


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def published(figure: str) -> list[float]:
    found = stored(f"published_{figure}")[figure]
    return [found["speedup"], *found["ci95"]]


def merging_ratios() -> list[float]:
    """Evaluation by merging every checkpoint over ours, with vLLM: the least and the greatest."""
    cells = stored("evaluation")["engines"]["vllm"].values()
    ways = ("merge_and_reload_ratio", "merge_and_process_ratio")
    ratios = [cell[way] for cell in cells for way in ways]
    return [min(ratios), max(ratios)]


@cache
def speedups(figure: str) -> dict[str, Any]:
    """`speedup.py figure=<ours>`: the pairs by their baseline, each against GRPO-PODS."""
    keys = [f"figure={figure}", "json=true", f"results_dir={RESULTS / figure}"]
    with tempfile.TemporaryDirectory() as folder:
        ended = processes.run(Path(folder), *keys, script="scripts/speedup.py")
    assert ended.returncode == 0, ended.stderr
    pairs = json.loads(ended.stdout)[figure]["pairs"]
    return {pair["baseline"]: pair for pair in pairs if pair["pods"] == "GRPO-PODS"}


def last_checkpoints(figure: str, arm: str) -> list[tuple[int, results.Checkpoint]]:
    patterns = compose(f"figure/{figure}", []).figure.series[arm].runs
    files = [file for pattern in patterns for file in (RESULTS / figure).glob(f"{pattern}.json")]
    runs = [results.read(file) for file in files if not file.name.endswith(".meta.json")]
    return [(max(run), run[max(run)]) for run in runs]


def percent(figure: str, arm: str) -> float:
    """Right and well formed at the end, % of questions, mean over the runs."""
    last = last_checkpoints(figure, arm)
    return 100 * mean(mean(c.datasets["arithmetic"].both_acc) for _, c in last)


def base(figure: str, model: str) -> float:
    scored = results.read_base(RESULTS / figure / f"base-{model}.json").datasets["arithmetic"]
    return 100 * mean(scored.both_acc)


def step_seconds(figure: str, *arms: str) -> list[float]:
    return [
        mean(c.meta["train_seconds"] / step for step, c in last_checkpoints(figure, arm))
        for arm in arms
    ]


def ahead(figure: str, baseline: str, of: str = "mean_accuracy") -> list[float]:
    """Of the accuracy averaged over time, PODS less the baseline, in points, with its interval;
    of=level: of the last three marks."""
    pair = speedups(figure)[baseline][of]
    return [100 * value for value in (pair["difference"], *pair["ci95"])]


def greedy() -> list[float]:
    """Accuracy of the GRPO run that was decoded greedily, in %, and the seconds of its steps."""
    run = stored("quickstart_greedy")
    (seconds,) = step_seconds("quickstart", "GRPO")
    return [100 * run["both_acc"], run["step"] * seconds]


def planner_test(number: int) -> list[float]:
    """Rank correlation, intervals that cover their prediction, all intervals: at a fixed rate."""
    page = (RESULTS / f"planner_test_{number}.md").read_text()
    found = re.findall(r"Rank correlation ([-\d.]+); (\d) of (\d)", page)
    return [float(value) for value in found[0]]


def planner_goals() -> list[float]:
    page = (RESULTS / "planner_test_2.md").read_text()
    return [float(v) for v in re.search(r"correlation (\.\d) or more; (\d) of", page).groups()]


# What README and docs say, with a group for each number -> the numbers. Numbers outside a group are
# definitions (95 % intervals, 99 % of the best point).
CLAIMS: dict[str, Callable[[], list[float]]] = {
    r"\[([\d.]+) of the seconds\]": lambda: [stored("generation")["ratio"]],
    r"\[([\d.]+) to ([\d.]+) times as fast with vLLM on the quickstart\]": merging_ratios,
    r"definition, ([\d.]+) times \(([\d.]+) to ([\d.]+)\) on \[GSM8K\]": lambda: published(
        "gsm8k_main"
    ),
    r"and ([\d.]+) times on \[8 H100s\]": lambda: published("h100s")[:1],
    r"In (\d+) s GRPO-PODS": lambda: [training("experiment=quickstart").budget.train_seconds],
    r"sampled at temperature (\d+);": lambda: [
        training("experiment=quickstart").sampling.temperature
    ],
    r"\[First\]\S+ rank correlation ([-\d.]+), (\d) of (\d) intervals": partial(planner_test, 1),
    r"fresh seeds: rank correlation ([-\d.]+), (\d) of (\d) intervals": partial(planner_test, 2),
    r"set beforehand were ([\d.]+) and (\d)\.": planner_goals,
}
QUICKSTART_CLAIMS: dict[str, Callable[[], list[float]]] = {
    r"is at \[([\d.]+) %\]\S+ after (\d+) s": greedy,
    r"marks is ([\d.]+) above GRPO's \(([-\d.]+) to ([-\d.]+)\)": lambda: ahead(
        "quickstart", "GRPO", of="level"
    ),
    r"GRPO-PODS goes from ([\d.]+) % to ([\d.]+) %": lambda: [
        base("quickstart", "tiny"),
        percent("quickstart", "GRPO-PODS"),
    ],
    r", GRPO to ([\d.]+) %\.": lambda: [percent("quickstart", "GRPO")],
    r"PODS is ([\d.]+) points above GRPO \(95 % interval ([-\d.]+) to ([-\d.]+)\)": lambda: ahead(
        "quickstart", "GRPO"
    ),
    r", ([\d.]+) above GRPO 24/24 \(([-\d.]+) to ([-\d.]+)\)": lambda: ahead(
        "quickstart", "GRPO-equal-cost"
    ),
    r"and ([\d.]+) above GRPO-GA \(([-\d.]+) to ([-\d.]+)\)": lambda: ahead(
        "quickstart", "GRPO-GA"
    ),
    r"A PODS step costs ([\d.]+) s, a GRPO step ([\d.]+) s, one of GRPO 24/24 ([\d.]+) s": lambda: (
        step_seconds("quickstart", "GRPO-PODS", "GRPO", "GRPO-equal-cost")
    ),
}
MINIATURE_CLAIMS: dict[str, Callable[[], list[float]]] = {
    r"Where the base is right on ([\d.]+) %": lambda: [base("miniature", "tiny_60")],
    r": ([-\d.]+) points against GRPO \(([-\d.]+) to ([-\d.]+)\)": lambda: ahead(
        "miniature", "GRPO"
    ),
    r"The base is right on ([\d.]+) %": lambda: [base("miniature", "tiny_60")],
}

OUR_CLAIMS = QUICKSTART_CLAIMS | MINIATURE_CLAIMS


def paragraphs() -> Iterator[str]:
    """Paragraphs and table rows of README and docs with results, each on one line."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for block in "\n\n".join(page.read_text() for page in pages).split("\n\n"):
        for part in block.split("\n") if block.startswith("|") else [block]:
            if "benchmarks/results/" in part:
                yield " ".join(part.split())


def checked(pattern: str, expected: Callable[[], list[float]]) -> None:
    found = re.search(pattern, "\n".join(paragraphs()))
    assert found, f"the README no longer says {pattern!r}: change the claim with it"
    digits = [len(text.partition(".")[2]) for text in found.groups()]
    measured = [f"{value:.{n}f}" for value, n in zip(expected(), digits, strict=True)]
    assert list(found.groups()) == measured


@pytest.mark.parametrize("pattern", CLAIMS)
def test_a_number_of_the_readme_is_a_stored_result(pattern: str) -> None:
    checked(pattern, CLAIMS[pattern])


@pytest.mark.parametrize("pattern", OUR_CLAIMS)
def test_a_number_of_our_runs_is_a_stored_result(pattern: str) -> None:
    checked(pattern, OUR_CLAIMS[pattern])


def test_every_number_among_the_results_is_claimed() -> None:
    patterns = [*CLAIMS, *OUR_CLAIMS]
    for text in paragraphs():
        spans = [match.span() for pattern in patterns for match in re.finditer(pattern, text)]
        loose = [
            text[max(0, number.start() - 30) : number.end() + 10]
            for number in NUMBER.finditer(text)
            if not any(start <= number.start() and number.end() <= end for start, end in spans)
        ]
        assert not loose, f"numbers in the README that no claim in this file covers: {loose}"


@pytest.mark.parametrize("figure", PUBLISHED)
def test_the_stored_speedups_are_those_of_the_published_runs(
    figure: str, shared: Path, run_command
) -> None:
    folder = shared / "reference" / "results"
    done = run_command(
        "scripts/speedup.py", f"figure={figure}", "json=true", f"results_dir={folder}"
    )
    found = json.loads(done.stdout)[figure]
    assert [found["speedup"], *found["ci95"]] == published(figure)
