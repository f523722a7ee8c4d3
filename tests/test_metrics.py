"""Estimators against enumeration, intervals against coverage, votes against cases by hand."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

import rewards
from pods.evaluation import metrics, scores


def stupid_pass_at_k(row: list[int], k: int) -> float:
    return float(
        np.mean([any(row[i] for i in subset) for subset in combinations(range(len(row)), k)])
    )


@pytest.mark.parametrize("repeats", [1, 2, 5, 7])
def test_pass_at_k_equals_the_mean_over_all_subsets(repeats: int) -> None:
    correct = np.random.default_rng(repeats).integers(0, 2, size=(40, repeats))
    for k in range(1, repeats + 1):
        expected = [stupid_pass_at_k(row, k) for row in correct.tolist()]
        np.testing.assert_allclose(metrics.pass_at_k(correct, k), expected)


@pytest.mark.parametrize(
    ("votes", "correct", "k", "expected", "why"),
    [
        (["4", "4", "5"], [1, 1, 0], 3, 1.0, "two of three"),
        (["4", "5", "5"], [1, 0, 0], 3, 0.0, "outvoted"),
        (["4", "5"], [1, 0], 2, 0.5, "a tie is a coin"),
        (["4", "5", "6"], [1, 0, 0], 3, 1 / 3, "a tie of three"),
        (["4", "4", "5"], [1, 1, 0], 1, 2 / 3, "one vote is plain accuracy"),
        (["4", "4", "5"], [1, 1, 0], 2, 2 / 3, "44 right, 45 and 45 a coin each"),
        ([None, None, "4"], [0, 0, 1], 3, 1.0, "no answer, no vote"),
        ([None, None], [0, 0], 2, 0.0, "nobody votes"),
        (["4", "4", "4"], [1, 0, 1], 3, 2 / 3, "one answer, graded both ways: its share"),
    ],
)
def test_majority(votes: list, correct: list[int], k: int, expected: float, why: str) -> None:
    assert metrics.majority_at_k([votes], np.array([correct]), k)[0] == pytest.approx(expected), why


def records(answers: list[str | None], gold: str, version: str, kind: str) -> list[dict]:
    texts = ["no number" if answer is None else f"<answer>{answer}</answer>" for answer in answers]
    return [
        {"completion": t, "correct": {version: rewards.grade(t, gold, version, kind)}}
        for t in texts
    ]


@pytest.mark.parametrize(
    ("answers", "gold", "version", "kind", "classes"),
    [
        (["B", "(B)", "B.", "C", "C"], "B", "v2", "choice", "rrrCC"),
        (["B: text", "(D)", "D.", "A or B", None], "B", "v2", "choice", "rDD--"),
        (["1/2", "\\frac{1}{2}", "0.5", "7", None], "0.5", "v2", "math", "rrr0-"),
        (["3", "1/7", "\\frac17", "7/1", "1/7"], "3", "v2", "math", "r0010"),
        (["2", "1,000", "1000", "x=5", "5"], "2", "v1", "math", "r0011"),
        (["2", "0.25", "1/4", "(B)", "b"], "2", "strict", "math", "r0011"),
        (["5", "5 cm", "5", None, None], "4", "v2", "math", "000--"),
    ],
)
def test_votes_go_to_classes_of_equal_answers(
    answers: list, gold: str, version: str, kind: str, classes: str
) -> None:
    votes = scores.ballots(records(answers, gold, version, kind), version, kind)
    letters = {scores.RIGHT: "r", None: "-"}
    assert "".join(letters.get(vote, str(vote)) for vote in votes) == classes


@pytest.mark.parametrize("kind", rewards.KINDS)
def test_right_answers_win_in_any_spelling(kind: str) -> None:
    row = [
        {"completion": f"<answer>{a}</answer>", "correct": {"v2": right}}
        for a, right in (("B", 1), ("(B)", 1), ("B.", 1), ("C", 0), ("C", 0))
    ]
    repeats = [[{**record, "well_formed": 1, "tokens": 5, "truncated": 0}] for record in row]
    details = scores.details(repeats, ["v2"], [1, 5], kind)
    assert details["rewards"]["v2"]["majority@5"]["mean"] == 1
    assert details["rewards"]["v2"]["majority@1"]["mean"] == pytest.approx(0.6)


def test_answers_beyond_the_compared_classes_are_classes_by_their_text() -> None:
    answers = [str(10 + i) for i in range(scores.MOST_CLASSES)] + ["1/7", "\\frac17", "1/7", "10"]
    votes = scores.ballots(records(answers, "3", "v2", "math"), "v2", "math")
    assert votes[-4] == votes[-2] != votes[-3]
    assert votes[-1] == votes[0]


def test_majority_over_too_many_subsets_is_a_fixed_sample_near_the_truth() -> None:
    rng = np.random.default_rng(0)
    correct = (rng.random((300, 20)) < 0.6).astype(float)
    votes = [[str(int(flag)) for flag in row] for row in correct]  # C(20, 5) = 15504 subsets
    first = metrics.majority_at_k(votes, correct, 5)
    np.testing.assert_array_equal(first, metrics.majority_at_k(votes, correct, 5))
    right = correct.sum(axis=1)[:, None]
    hits = np.arange(3, 6)  # hypergeometric: at least 3 of 5
    from math import comb

    exact = [
        sum(comb(int(c), h) * comb(20 - int(c), 5 - h) for h in hits) / comb(20, 5)
        for (c,) in right
    ]
    assert np.mean(first) == pytest.approx(np.mean(exact), abs=0.01)


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_outside_the_repeats_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        metrics.pass_at_k(np.ones((2, 3)), k)
    with pytest.raises(ValueError, match="must lie in"):
        metrics.majority_at_k([["a"] * 3] * 2, np.ones((2, 3)), k)


def test_interval_of_a_constant_has_no_width() -> None:
    (interval,) = metrics.intervals(np.full((1, 50), 0.25))
    assert interval["mean"] == 0.25
    assert interval["low"] == pytest.approx(0.25)
    assert interval["high"] == pytest.approx(0.25)


@pytest.mark.parametrize(("share", "questions"), [(0.7, 200), (0.05, 30), (0.97, 40)])
def test_intervals_cover_the_truth_about_95_times_in_100(share: float, questions: int) -> None:
    samples = np.random.default_rng(1).random((400, questions)) < share  # 400 experiments
    covered = [i["low"] <= share <= i["high"] for i in metrics.intervals(samples)]
    assert 0.91 <= np.mean(covered) <= 0.98


def test_nothing_right_or_everything_has_wilsons_interval() -> None:
    nothing, everything, tokens = metrics.intervals(np.array([[0.0] * 30, [1.0] * 30, [9.0] * 30]))
    wilson = binomtest(0, 30).proportion_ci(method="wilson")
    assert [nothing["low"], nothing["high"]] == pytest.approx([wilson.low, wilson.high], abs=1e-5)
    assert everything["low"] == pytest.approx(1 - nothing["high"])
    assert (tokens["low"], tokens["high"]) == pytest.approx((9, 9)), "no share"
    often, once = metrics.intervals(np.array([[0.1] * 10 + [0.0] * 10, [1.0] + [0.0] * 19]))
    assert often["mean"] == once["mean"] == 0.05
    assert often["high"] < once["high"], "ten repeats of a question tell more than one"


def test_equal_rows_get_equal_intervals() -> None:
    row = np.random.default_rng(2).random(64)
    first, second = metrics.intervals(np.stack([row, row]))
    assert first == second
    assert metrics.intervals(row[None]) == [first]
