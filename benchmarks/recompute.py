"""Recompute the results that README.md and docs/ print from the rows in benchmarks/results.

    uv run benchmarks/recompute.py    # rows and text of each claim; exit code 1 if a page differs

The claims are in claims.yaml. Nothing of the project is imported, so that an error in its own
statistics would show.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pandas
import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
GRID = np.arange(1, 4.001, 0.01)  # of prices, for a break-even
Sample = pandas.Series  # values in percent, by the rows' key


@dataclass
class Claim:
    """A text of a page, in which {} stands for a result: of each of `samples` under each of
    `conditions`, which are queries of pandas."""

    text: str
    samples: list[list[str]]  # one sample, or two to compare
    conditions: Sequence[str] = ("index >= 0",)
    file: str = "board/report.jsonl"  # or a pattern of files
    value: str = "accuracy"  # column; the evaluations of a run are averaged
    last: int = 0  # of them only so many at the end; 0: all
    key: str = "seed"  # column that pairs two samples
    base: str = ""  # query of the rows before the first step; with it, a run is averaged over time
    price: float = 1  # c: seconds of a step of the first sample over the second's
    level: float = 0.95  # of the interval
    statistic: str = "difference"
    form: str = "{:z.1f} ({:z.1f} to {:z.1f})"
    bold: bool = False  # results whose adjusted p is below .05


def pair(a: Sample, b: Sample) -> Sample:
    """a - b by key; NaN if only one has a key."""
    return a.groupby(level=0).mean() - b.groupby(level=0).mean()


def difference(*samples: Sample, level: float = 0.95) -> tuple[float, ...]:
    """Mean of a - b, or of (a - b) - (c - d), its interval and p value (Student)."""
    paired = pair(*samples[:2])
    if samples[2:]:
        paired -= pair(*samples[2:])
    test = stats.ttest_1samp(paired, 0)
    return paired.mean(), *test.confidence_interval(level), test.pvalue


def break_even(ours: pandas.DataFrame, theirs: Sample) -> tuple[float, ...]:
    """The largest price at which the mean of ours - theirs is not below 0 (0: at none), and its
    95 % interval by a bootstrap over keys. ours: a column for each price."""
    leads, count = ours.sub(theirs, axis=0).to_numpy(), len(ours)
    weights = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=10_000)
    means = np.vstack([leads.mean(axis=0), weights @ leads / count])
    largest = np.where(means >= 0, ours.columns, 0).max(axis=1)
    return largest[0], *np.quantile(largest[1:], [0.025, 0.975])


STATISTICS = {
    "break_even": break_even,
    "mean": lambda a: (a.mean(),),
    "count": lambda a: (len(a),),
    "spearman": lambda a, b: (a.corr(b, method="spearman"),),
}


def holm(p: np.ndarray) -> np.ndarray:
    """p values adjusted for their number (Holm 1979)."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(steps, 1)[np.argsort(order)]


@cache
def read(file: str) -> pandas.DataFrame:
    files = sorted((ROOT / "benchmarks/results").glob(file))
    return pandas.concat([pandas.read_json(f, lines=True) for f in files], ignore_index=True)


def sample(claim: Claim, query: str, prices: Sequence[float]) -> Sample | pandas.DataFrame:
    """Values by key; with more than one price a column for each."""
    rows = read(claim.file).query(query).set_index(claim.key).sort_index()
    if not claim.base:
        return rows[claim.value].map(lambda v: 100 * np.mean(np.atleast_1d(v)[-claim.last :]))
    start = np.mean([*read(claim.file).query(claim.base)[claim.value]])
    runs = [*zip(rows["steps"], rows[claim.value], strict=True)]
    values = [[100 * average(*run, start, price) for price in prices] for run in runs]
    return pandas.DataFrame(values, rows.index, prices).squeeze("columns")


def average(steps: list[int], values: list[float], start: float, price: float) -> float:
    """Mean of the values over time, by the trapezoidal rule, where a step takes `price` times as
    long as GRPO's, up to the time at which GRPO has made steps[-1] steps."""
    end = steps[-1] / price
    times = [time for time in (0, *steps) if time < end] + [end]
    return np.trapezoid(np.interp(times, [0, *steps], [start, *values]), times) / end


def evaluate(claim: Claim) -> tuple[int, str]:
    """Number of rows, and the text with the results in it."""
    prices = GRID if claim.statistic == "break_even" else [claim.price]
    groups = [
        [
            sample(claim, f"({query}) and ({condition})", [1] if number % 2 else prices)
            for number, query in enumerate(queries)
        ]
        for queries in claim.samples
        for condition in claim.conditions
    ]
    if claim.statistic == "difference":
        results = np.array([difference(*group, level=claim.level) for group in groups])
        results[:, 3] = holm(results[:, 3])
    else:
        results = [STATISTICS[claim.statistic](*group) for group in groups]
    texts = []
    for result in results:
        form = f"**{claim.form}**" if claim.bold and result[3] < 0.05 else claim.form
        texts.append(form.format(*result))
    return sum(map(len, chain(*groups))), claim.text.format(*texts)


def differs(page: str, claim: Claim) -> bool:
    """Print a claim; whether the page lacks its text."""
    rows, text = evaluate(claim)
    missing = text not in " ".join((ROOT / page).read_text().split())
    print(f"{'NOT ' * missing}{page}: {rows} rows of {claim.file}: {text}")
    return missing


def read_claims() -> list[tuple[str, Claim]]:
    """Page and claim."""
    pages = yaml.safe_load((ROOT / "benchmarks/claims.yaml").read_text())
    return [(page, Claim(**claim)) for page, claims in pages.items() for claim in claims]


if __name__ == "__main__":
    sys.exit(sum(differs(page, claim) for page, claim in read_claims()) > 0)
