"""The results that README and docs print are those of the stored rows, all with an interval."""

import re
from functools import cache

import numpy as np
import pandas
import pytest

from benchmarks import recompute
from benchmarks.recompute import Claim
from tests.conftest import ROOT

CLAIMS = recompute.read_claims()
INTERVAL = re.compile(r"[+-]?\d+\.\d+ ?[(\[][+-]?\d+\.\d+(?: to|,) [+-]?\d+\.\d+")


@cache
def texts(page):
    return [recompute.evaluate(claim)[1] for name, claim in CLAIMS if name == page]


@pytest.mark.parametrize("page", dict(CLAIMS))
def test_a_page_says_what_the_stored_rows_give(page):
    content = " ".join((ROOT / page).read_text().split())
    assert [text for text in texts(page) if text not in content] == []


@pytest.mark.parametrize("page", dict(CLAIMS))
def test_every_interval_of_a_page_is_recomputed_or_of_the_published_runs(page):
    blocks = re.split(r"\n\n|\n(?=[-|#] )", (ROOT / page).read_text())
    text = " ".join(" ".join(b.split()) for b in blocks if "published runs" not in b)
    for claim in texts(page):
        text = text.replace(claim, "")
    assert INTERVAL.findall(text) == []


@pytest.fixture
def rows(monkeypatch):
    """Two arms of three seeds, two evaluations each: b - a is 10, 20 and 30 points."""
    lines = [
        {"arm": arm, "seed": seed, "accuracy": [0.1, 0.3 + gain * (seed + 1)]}
        for arm, gain in (("a", 0.0), ("b", 0.2))
        for seed in (2, 0, 1)
    ]
    monkeypatch.setattr(recompute, "read", lambda file: pandas.DataFrame(lines))


def test_results_of_made_up_rows_are_those_computed_by_hand(rows):
    compared = [["arm == 'b'", "arm == 'a'"]]
    half = 4.302653 * 10 / np.sqrt(3)  # Student's t with two degrees of freedom
    interval = f"20.0 ({20 - half:.1f} to {20 + half:.1f})"
    assert recompute.evaluate(Claim("by {}", compared)) == (6, f"by {interval}")
    ends = Claim("{}", [["arm == 'b'"]], statistic="mean", last=1, form="{:.1f}")
    assert recompute.evaluate(ends) == (3, "70.0")
    rank = Claim("{}", [["arm == 'b'", "arm == 'b'"]], statistic="spearman", form="{}")
    assert recompute.evaluate(rank)[1] == "1.0"
    count = Claim("{} {}", [["seed > 0"], ["arm == 'a'"]], statistic="count", form="{}")
    assert recompute.evaluate(count) == (7, "4 3")


def test_the_family_of_holm_is_the_comparisons_of_a_claim(rows):
    compared = [["arm == 'b'", "arm == 'a'"]] * 2
    alone = recompute.evaluate(Claim("{}", compared[:1], form="{3:.4f}"))[1]
    both = recompute.evaluate(Claim("{} {}", compared, form="{3:.4f}"))[1].split()
    assert [float(p) for p in both] == pytest.approx([2 * float(alone)] * 2, abs=2e-4)
    bold = recompute.evaluate(Claim("{}", compared[:1], form="{:.0f}", bold=True))[1]
    assert (float(alone) < 0.05, bold) == (False, "20")


def test_a_seed_without_a_partner_is_no_number(rows):
    lone = Claim("{}", [["arm == 'b'", "arm == 'a' and seed > 0"]], form="{1:.1f}")
    assert recompute.evaluate(lone)[1] == "nan"


def test_a_page_that_differs_is_named(rows, capsys):
    assert recompute.differs(
        "README.md", Claim("never printed: {}", [["arm == 'b'"]], statistic="count", form="{}")
    )
    assert capsys.readouterr().out.startswith(
        "NOT README.md: 3 rows of board/report.jsonl: never printed: 3"
    )


@pytest.fixture
def trained(monkeypatch):
    """Eight steps raise the accuracy by 8, 16 and 24 points with GRPO, 2.005 times with PODS."""
    lines = [
        {
            "arm": arm,
            "seed": seed,
            "steps": [4, 8],
            "accuracy": [0.5 + x * gain, 0.5 + 2 * x * gain],
        }
        for arm, gain in (("grpo", 1), ("pods", 2.005))
        for seed, x in enumerate((0.04, 0.08, 0.12))
    ]
    lines += [{"arm": "base", "seed": 0, "steps": [1], "accuracy": [0.5]}]
    monkeypatch.setattr(recompute, "read", lambda file: pandas.DataFrame(lines))


def test_the_average_over_priced_time_and_the_break_even_are_those_by_hand(trained):
    """On a straight line from the base the average over a part of the time falls with the part."""
    priced = {"base": "arm == 'base'", "statistic": "mean", "form": "{:.1f}"}
    for price, value in ((1, 58), (2, 54)):
        claim = Claim("{}", [["arm == 'grpo'"]], price=price, **priced)
        assert recompute.evaluate(claim) == (3, f"{value:.1f}")
    compared = ["arm == 'pods'", "arm == 'grpo'"]
    twice = Claim("{}", [compared * 2], base="arm == 'base'", form="{:z.1f}")
    assert recompute.evaluate(twice) == (12, "0.0"), "the difference of equal differences"
    even = Claim(
        "{}", [compared], base="arm == 'base'", statistic="break_even", form="{:.2f} {:.2f} {:.2f}"
    )
    assert recompute.evaluate(even) == (6, "2.00 2.00 2.00"), "2.005, on the grid of prices"
