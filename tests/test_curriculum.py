"""Choosers of prompts against plain re-computations, and their history after a kill."""

import itertools
import json
import math
import signal
from dataclasses import replace

import numpy as np
import pytest

from pods.curriculum import Prompts, Visit, easy_to_hard, greso, knapsack, mopps
from pods.runs import ledger
from pods.runs.folder import read_metrics
from tests import faults
from tests.configs import compose
from tests.steps import step_of
from tests.test_faults import assert_same_run, folder, run  # noqa: F401  a fixture


def history_of(**visits: list[tuple[int, float]]) -> dict[str, list[Visit]]:
    """question -> (step, share right of 8) of its visits."""
    return {
        name: [Visit(step, right, np.arange(8) < 8 * right) for step, right in of_one]
        for name, of_one in visits.items()
    }


HISTORY = history_of(
    a=[(0, 1.0), (2, 1.0), (4, 1.0)],
    b=[(0, 0.0), (1, 0.5), (3, 0.0), (4, 0.0)],
    c=[(1, 0.25), (3, 0.875)],
    d=[(2, 1.0), (5, 0.0)],
    e=[],
)


def test_greso_skips_by_the_latest_visits_that_were_all_right_or_all_wrong():
    shares = {0: [1, 0], 1: [0.5, 0.25], 2: [1, 1], 3: [0, 0.875], 4: [1, 0], 5: [0]}
    right = wrong = 0.5
    for step in range(6):
        right += 0.1 if shares[step].count(1) / len(shares[step]) < 1 / 12 else -0.1
        wrong += 0.1 if shares[step].count(0) / len(shares[step]) < 1 / 6 else -0.1
    keep = {"a": right**3, "b": wrong**2, "c": 1, "d": wrong, "e": 1}
    for seed in range(50):
        rng = np.random.default_rng(seed)
        kept, skipped = [], []
        for name in [list(HISTORY)[i] for i in rng.permutation(5)]:
            (kept if rng.random() < keep[name] else skipped).append(name)
        chosen = greso(HISTORY, 3, np.random.default_rng(seed), change=0.1)
        assert chosen == (kept + skipped)[:3]
    rare = greso(history_of(a=[(i, 1.0) for i in range(40)], b=[]), 1, np.random.default_rng(0))
    assert rare == ["b"]


def test_greso_tries_a_hopeless_question_with_the_lowest_probability():
    history = history_of(a=[(i, 0.0) for i in range(40)], b=[(0, 0.5)])
    firsts = [greso(history, 1, np.random.default_rng(i), lowest=0.2)[0] for i in range(1000)]
    assert firsts.count("a") / 1000 == pytest.approx(0.1, abs=0.04)  # first in half, kept in 0.2


def test_mopps_takes_the_draws_nearest_to_the_target():
    a, b = [], []
    for visits in HISTORY.values():
        right = wrong = 2.0
        for visit in visits:
            right = 0.7 * right + 0.3 * 2 + 8 * visit.right
            wrong = 0.7 * wrong + 0.3 * 2 + 8 * (1 - visit.right)
        a.append(right)
        b.append(wrong)
    for seed in range(20):
        draws = np.random.default_rng(seed).beta(a, b)
        nearest = sorted("abcde", key=lambda name: abs(draws["abcde".index(name)] - 0.4))
        params = {"target": 0.4, "decay": 0.7, "prior": 2.0}
        assert mopps(HISTORY, 3, np.random.default_rng(seed), **params) == nearest[:3]


def test_easy_to_hard_draws_by_the_distance_to_a_moving_target():
    mean = (1 + 0 + 0.875 + 0) / 4
    shares = [(8 + mean) / 9, mean / 9, (7 + mean) / 9, mean / 9, mean]
    target = 0.9 + (0.1 - 0.9) * 6 / 10  # the latest visit was at step 5 of 10
    weights = [math.exp(-(((p - target) / 0.2) ** 2) / 2) for p in shares]
    p = np.array(weights) / sum(weights)
    params = {"start": 0.9, "end": 0.1, "steps": 10, "width": 0.2}
    for seed in range(20):
        drawn = np.random.default_rng(seed).choice(5, size=2, replace=False, p=p)
        expected = ["abcde"[i] for i in drawn]
        assert easy_to_hard(HISTORY, 2, np.random.default_rng(seed), **params) == expected
    for steps, easiest in ((1000, "c"), (6, "d")):
        last = history_of(c=[(5, 0.9)], d=[(5, 0.1)])
        params = {"start": 0.9, "end": 0.1, "steps": steps, "width": 0.05}
        assert easy_to_hard(last, 1, np.random.default_rng(0), **params) == [easiest]


def test_knapsack_shares_the_groups_out_as_the_best_of_all_ways():
    mean = (1 + 0 + 0.875 + 0) / 4
    shares = [(8 + mean) / 9, mean / 9, (7 + mean) / 9, mean / 9, mean]
    share = dict(zip("abcde", shares, strict=True))

    def value(name: str, groups: int) -> float:
        p, size = share[name], 8 * groups
        return (1 - p**size - (1 - p) ** size) * p * (1 - p) ** 2 if groups else 0

    several = set()
    for seed in range(10):
        pool = ["abcde"[i] for i in np.random.default_rng(seed).choice(5, size=4, replace=False)]
        ways = [w for w in itertools.product(range(5), repeat=4) if sum(w) == 4]
        best = max(sum(map(value, pool, way)) for way in ways)
        chosen = knapsack(HISTORY, 4, np.random.default_rng(seed))
        assert len(chosen) == 4
        assert set(chosen) <= set(pool)
        found = sum(value(name, chosen.count(name)) for name in pool)
        assert found == pytest.approx(best, rel=1e-12)
        several |= {name for name in chosen if chosen.count(name) > 1}
    assert several
    empty = history_of(a=[], b=[], c=[])
    assert sorted(knapsack(empty, 3, np.random.default_rng(0))) == ["a", "b", "c"]


class Questions(list):
    """A data set of rows, as Prompts reads it."""

    def __getitem__(self, key: object) -> object:
        return [row["id"] for row in self] if key == "id" else super().__getitem__(key)


def prompts(*overrides: str) -> Prompts:
    made = Prompts(compose(*overrides))
    made.open(Questions({"id": name} for name in "abc"))
    return made


def test_the_history_read_from_the_ledger_is_the_one_of_the_run():
    step = step_of({"a": [1.2, 0.1, 0.0], "c": [0.1, 0.1, 1 / 3]}, [0, 3])
    whole, resumed = prompts("prompts=mopps"), prompts("prompts=mopps")
    whole.note(replace(step.batch, question_ids=np.array(["a", "c"])))
    lines = [json.dumps({"step": 1, **ledger.Ledger.record(step, p, False)}) for p in (0, 1)]
    resumed.restore(map(json.loads, lines))
    for name, right in (("a", 2 / 3), ("c", 1.0)):
        ((mine,), (theirs,)) = whole.history[name], resumed.history[name]
        assert (mine.step, mine.right) == (theirs.step, theirs.right) == (0, right)
        assert mine.rewards.dtype == np.float32
        assert mine.rewards.tobytes() == theirs.rewards.tobytes()
    assert whole.history["b"] == resumed.history["b"] == []


def test_right_is_a_total_above_0_where_correctness_has_no_weight():
    made = prompts("prompts=mopps", "rewards.weights.correctness=0")
    record = {
        "step": 1,
        "question_id": "a",
        "total": [0.1, 0.0],
        "rewards": {"correctness": [0, 0]},
    }
    made.restore([record])
    assert made.history["a"][0].right == 0.5


def test_a_chooser_of_the_users_names_rows_or_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(
        "def own(history, count, rng, answer=None): return answer and answer.split()\n"
    )

    def given(answer: str) -> list[dict]:
        made = prompts(f"prompts.name={tmp_path / 'own.py'}:own", f"prompts.params.answer={answer}")
        return made([{"id": "a"}, {"id": "b"}], 0)

    assert given("'c c'") == [{"id": "c"}, {"id": "c"}]
    assert given("null") == [{"id": "a"}, {"id": "b"}]
    with pytest.raises(ValueError, match="returned 1 question ids, of which 0 are unknown; 2 ids"):
        given("c")
    with pytest.raises(ValueError, match="returned 2 question ids, of which 1 are unknown"):
        given("'c z'")


def test_other_prompts_are_distinct_and_unused():
    made = prompts()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert {row["id"] for row in made.others(["a"], 2, rng)} == {"b", "c"}
        assert {row["id"] for row in made.others(["b"], 9, rng)} == {"a", "c"}
        assert made.others("abc", 1, rng) == []


def kill_at_step_four() -> None:
    from pods.rollouts import Rollouts

    def act(*given: object) -> None:
        if given[-1] == 4:
            faults.kill()

    faults.before(Rollouts, "score", act)


# A policy that is right on 60 %: few rollouts, so that many groups are all right or all wrong.
LIKELY = [
    "model=tiny_60", "prompts_per_step=2", "rollouts_per_prompt=4", "kept_per_prompt=2",
    "sampling.max_completion_length=48", "rewards.weights.format=0", "rewards.weights.tags=0",
]  # fmt: skip


@pytest.mark.parametrize("chosen", ["prompts=mopps", "resample=dapo"])
def test_a_killed_run_chooses_the_same_prompts_and_rounds(folder, chosen):  # noqa: F811
    """Every draw of mopps depends on the whole history; the warm-up of one run adds nothing."""
    paths = []
    for name, faulty in (("whole", False), ("killed", True)):
        warmup = f"backend.warmup={faulty}".lower()
        arguments = [*LIKELY, chosen, warmup, f"output_dir={folder / name}"]
        first = run(folder, *arguments, fault=kill_at_step_four if faulty else None)
        assert first.returncode == (-signal.SIGKILL if faulty else 0), first.stderr
        if faulty:
            resumed = run(folder, *arguments)
            assert resumed.returncode == 0, resumed.stderr
            assert "checkpoint-4" in resumed.stderr
        paths.append(folder / name / "r")
    assert_same_run(*reversed(paths))
    lines = read_metrics(paths[0] / "metrics.jsonl")
    assert lines[-1]["rollouts/trained"] == 6 * 2 * 2
    if chosen == "resample=dapo":
        assert max(line["generate/rounds"] for line in lines) > 1
        assert lines[-1]["rollouts/generated"] > 6 * 2 * 4
    else:
        assert lines[-1]["rollouts/generated"] == 6 * 2 * 4
