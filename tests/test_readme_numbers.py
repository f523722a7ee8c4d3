"""Every number that the README calls measured equals one in benchmarks/results/.

A paragraph or table row that links to benchmarks/results holds results: a number in it that no
claim below covers fails.
    uv run scripts/speedup.py figure=gsm8k_main json=true results_dir=<the published files> \\
        > benchmarks/results/published_gsm8k_main.json      # and h100s likewise
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from pods import results
from pods.cli import compose
from tests.configs import compose as training
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
QUICKSTART = RESULTS / "quickstart"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
PUBLISHED = ("gsm8k_main", "h100s")


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def published(figure: str) -> list[float]:
    found = stored(f"published_{figure}")[figure]
    return [found["speedup"], *found["ci95"]]


def merging_ratios() -> list[float]:
    """Evaluation by merging every checkpoint over ours, with vLLM: the least and the greatest."""
    cells = stored("evaluation")["backends"]["vllm"].values()
    ways = ("merge_and_reload_ratio", "merge_and_process_ratio")
    ratios = [cell[way] for cell in cells for way in ways]
    return [min(ratios), max(ratios)]


@cache
def speedups() -> dict[str, Any]:
    """`speedup.py figure=quickstart`: the pairs by their baseline, each against GRPO-PODS."""
    command = [sys.executable, str(ROOT / "scripts" / "speedup.py"), "figure=quickstart"]
    command += ["json=true", f"results_dir={QUICKSTART}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pairs = json.loads(done.stdout)["quickstart"]["pairs"]
    return {pair["baseline"]: pair for pair in pairs if pair["pods"] == "GRPO-PODS"}


def last_checkpoints(arm: str) -> list[tuple[int, results.Checkpoint]]:
    patterns = compose("figure/quickstart", None, []).figure.series[arm].runs
    files = [file for pattern in patterns for file in QUICKSTART.glob(f"{pattern}.json")]
    runs = [results.read(file) for file in files if not file.name.endswith(".meta.json")]
    return [(max(run), run[max(run)]) for run in runs]


def percent(arm: str) -> float:
    """Right and well formed at the end, % of questions, mean over the runs."""
    return 100 * mean(mean(c.datasets["arithmetic"].both_acc) for _, c in last_checkpoints(arm))


def base() -> float:
    scored = results.read_base(QUICKSTART / "base-tiny.json").datasets["arithmetic"]
    return 100 * mean(scored.both_acc)


def step_seconds(arm: str) -> float:
    return mean(c.meta["train_seconds"] / step for step, c in last_checkpoints(arm))


def difference(baseline: str) -> list[float]:
    """Of the accuracy averaged over time, PODS less the baseline, in points, with its interval."""
    found = speedups()[baseline]["mean_accuracy"]
    return [100 * value for value in (found["difference"], *found["ci95"])]


# What the README says, with a group for each number -> the numbers. Numbers outside a group are
# definitions (95 % intervals, 99 % of the best point).
CLAIMS: dict[str, Callable[[], list[float]]] = {
    r"\[([\d.]+) of the seconds\]": lambda: [stored("generation")["ratio"]],
    r"\[([\d.]+) to ([\d.]+) times as fast with vLLM on the quickstart\]": merging_ratios,
    r"definition, ([\d.]+) times \(([\d.]+) to ([\d.]+)\) on \[GSM8K\]": lambda: published(
        "gsm8k_main"
    ),
    r"and ([\d.]+) \(([\d.]+) to ([\d.]+)\) on \[8 H100s\]": lambda: published("h100s"),
    r"In (\d+) s GRPO-PODS": lambda: [training("experiment=quickstart").budget.train_seconds],
}
QUICKSTART_CLAIMS: dict[str, Callable[[], list[float]]] = {
    r"GRPO-PODS goes from ([\d.]+) % to ([\d.]+) %": lambda: [base(), percent("GRPO-PODS")],
    r", GRPO to ([\d.]+) %\.": lambda: [percent("GRPO")],
    r"PODS is ([\d.]+) points above GRPO \(95 % interval ([-\d.]+) to ([-\d.]+)\)": lambda: (
        difference("GRPO")
    ),
    r", ([\d.]+) above GRPO 24/24 \(([-\d.]+) to ([-\d.]+)\)": lambda: difference(
        "GRPO-equal-cost"
    ),
    r"and ([\d.]+) above GRPO-GA \(([-\d.]+) to ([-\d.]+)\)": lambda: difference("GRPO-GA"),
    r"A PODS step costs ([\d.]+) s, a GRPO step ([\d.]+) s, one of GRPO 24/24 ([\d.]+) s": lambda: [
        step_seconds(arm) for arm in ("GRPO-PODS", "GRPO", "GRPO-equal-cost")
    ],
}


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


@pytest.mark.parametrize("pattern", QUICKSTART_CLAIMS)
def test_a_number_of_the_quickstart_is_a_stored_result(pattern: str) -> None:
    checked(pattern, QUICKSTART_CLAIMS[pattern])


def test_every_number_among_the_results_is_claimed() -> None:
    patterns = [*CLAIMS, *QUICKSTART_CLAIMS]
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
