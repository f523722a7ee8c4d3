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
Sample = pandas.Series  # values in percent, by the rows' key


@dataclass
class Claim:
    """A text of a page, in which {} stands for a result: of each of `samples` under each of
    `conditions`, which are queries of pandas."""

    text: str
    samples: list[list[str]]  # one sample, or two to compare
    conditions: Sequence[str] = ("index >= 0",)
    file: str = "board/report.jsonl"
    value: str = "accuracy"  # column; the evaluations of a run are averaged
    last: int = 0  # of them only so many at the end; 0: all
    key: str = "seed"  # column that pairs two samples
    statistic: str = "difference"
    form: str = "{:z.1f} ({:z.1f} to {:z.1f})"
    bold: bool = False  # results whose adjusted p is below .05


def difference(a: Sample, b: Sample) -> tuple[float, ...]:
    """Mean of a - b, its 95 % interval and p value (Student); NaN if only one sample has a key."""
    paired = a.groupby(level=0).mean() - b.groupby(level=0).mean()
    test = stats.ttest_1samp(paired, 0)
    return paired.mean(), *test.confidence_interval(), test.pvalue


STATISTICS = {
    "difference": difference,
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
    return pandas.read_json(ROOT / "benchmarks/results" / file, lines=True)


def sample(claim: Claim, query: str) -> Sample:
    rows = read(claim.file).query(query).set_index(claim.key).sort_index()
    return rows[claim.value].map(lambda value: 100 * np.mean(np.atleast_1d(value)[-claim.last :]))


def evaluate(claim: Claim) -> tuple[int, str]:
    """Number of rows, and the text with the results in it."""
    groups = [
        [sample(claim, f"({query}) and ({condition})") for query in queries]
        for queries in claim.samples
        for condition in claim.conditions
    ]
    results = np.array([STATISTICS[claim.statistic](*group) for group in groups])
    if claim.statistic == "difference":
        results[:, 3] = holm(results[:, 3])
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
