"""From graded completions to numbers: against all subsets, and intervals against simulation."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from pods.evaluation import scores


def record(v2: bool, strict: bool, formed: bool, tokens: int) -> dict[str, Any]:
    verdicts = {"v2": v2, "strict": strict}
    facts = {"tokens": tokens, "clipped": tokens == 20, "well_formed": formed}
    return {"answer": "1", "completion": f"of {tokens}", "correct": verdicts, **facts}


def test_the_published_entry_and_our_details_are_of_every_repeat():
    """Two questions, three repeats; the first grader fills the published fields."""
    repeats = [
        [record(True, True, True, 10), record(False, False, True, 11)],
        [record(True, True, False, 12), record(True, False, True, 13)],
        [record(False, True, False, 20), record(False, False, False, 14)],
    ]
    entry, details = scores.summary(repeats, ["v2", "strict"], [2, 5], ["prompt 0", "prompt 1"])
    assert (entry.ans_acc, entry.for_acc) == ([0.5, 1.0, 0.0], [1.0, 0.5, 0.0])
    assert (entry.both_acc, entry.lengths) == ([0.5, 0.5, 0.0], [10.5, 12.5, 17.0])
    example = {"prompt": "prompt 1", "answer": "1", "completion": "of 11"}
    assert entry.examples[1] == example | {"correct": "False", "format_correct": "True"}
    graded = details.pop("rewards")
    means = {grader: {key: x["mean"] for key, x in row.items()} for grader, row in graded.items()}
    of_v2 = {"correct": 0.5, "both": 1 / 3, "pass@2": (1 + 2 / 3) / 2, "unanimous": 0}
    of_strict = {"correct": 0.5, "both": 1 / 6, "pass@2": 0.5, "unanimous": 1}
    assert means == {"v2": pytest.approx(of_v2), "strict": pytest.approx(of_strict)}
    assert (details["questions"], details["repeats"]) == (2, 3)
    of_all = [details[name]["mean"] for name in ("format", "tokens", "clipped")]
    assert of_all == pytest.approx([0.5, 80 / 6, 1 / 6])


@pytest.mark.parametrize("k", [1, 3, 6])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(k):
    correct = np.random.default_rng(5).random((4, 6)) < 0.4
    stupid = [np.mean([any(subset) for subset in combinations(row, k)]) for row in correct]
    np.testing.assert_allclose(scores.pass_at_k(correct, k), stupid)


@pytest.mark.parametrize(("share", "questions"), [(0.7, 200), (0.05, 30), (0.97, 40)])
def test_intervals_cover_the_truth_about_95_times_in_100(share, questions):
    samples = np.random.default_rng(1).random((400, questions)) < share  # 400 experiments
    intervals = [scores.interval(row.astype(float)) for row in samples]
    covered = [interval["low"] <= share <= interval["high"] for interval in intervals]
    assert 0.91 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("value", [2.0, -1.0])
def test_tokens_and_penalties_are_no_shares(value):
    expected = dict.fromkeys(("mean", "low", "high"), value)
    assert scores.interval(np.full(30, value)) == pytest.approx(expected)


def test_nothing_correct_or_everything_has_wilsons_interval():
    nothing, everything = (scores.interval(np.full(30, share)) for share in (0.0, 1.0))
    wilson = binomtest(0, 30).proportion_ci(method="wilson")
    assert [nothing["low"], nothing["high"]] == pytest.approx([wilson.low, wilson.high], abs=1e-5)
    assert everything["low"] == pytest.approx(1 - nothing["high"])


def test_ten_repeats_of_a_question_tell_more_than_one():
    often, once = np.zeros((2, 20))
    often[:10], once[0] = 0.1, 1.0
    of_ten, of_one = scores.interval(often), scores.interval(once)
    assert of_ten["mean"] == of_one["mean"] == 0.05
    assert of_ten["high"] < of_one["high"]


def test_questions_that_agree_by_chance_count_at_most_as_their_completions():
    values = np.array([0.4, 0.6, 0.4])  # means over five completions: 7 of 15
    by_completions = binomtest(7, 15).proportion_ci(method="wilson")
    interval = scores.interval(values, 5)
    ends = [interval["low"], interval["high"]]
    assert ends == pytest.approx([by_completions.low, by_completions.high], abs=1e-5)
