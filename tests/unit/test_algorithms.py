"""Every claim of every algorithm, driven by hand and compared with brute force or with numbers."""

import ast
import inspect
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from pods.advantages import over_all
from pods.algorithms import ALGORITHMS, all_advantages, inclusion
from pods.batch import Batch, Prompt, Selection, Step, Visit
from pods.history import exploration
from pods.registry import bind
from pods.rules import RULES
from tests.steps import Fresh

NAN = float("nan")


def step_of(P, n, m, history=None, seed=0):
    """A step of the prompts p0, p1, ...; the fresh ones are f0, f1, ..."""
    prompts = [Prompt(f"p{i}", {}) for i in range(P)]
    return Step(0, P, n, m, prompts, Fresh(), history or {}, np.random.default_rng(seed))


def drive(name, step, *batches, **params):
    """What the algorithm asked for, and what it returned after these batches."""
    run = ALGORITHMS.get(name, name)(step, **params)
    asked = [next(run)]
    for batch in batches:
        try:
            asked.append(run.send(batch))
        except StopIteration as end:
            assert batch is batches[-1]
            return asked, end.value
    raise AssertionError(f"{name} asks for more: {asked[-1]}")


def kept_of(value):
    return sorted(int(i) for i in (value.kept if isinstance(value, Selection) else value))


def groups(*rewards, correct=False, **columns):
    """One list for each prompt, of any lengths; correct: a reward above 0 is."""
    flat = np.concatenate([np.array(group, dtype=float) for group in rewards])
    prompt = np.repeat(np.arange(len(rewards)), [len(group) for group in rewards])
    return Batch(prompt=prompt, rewards=flat, correct=flat > 0 if correct else None, **columns)


BATCHES = {
    "four prompts": groups(*np.random.default_rng(1).normal(size=(4, 5)).tolist()),
    "uneven": groups([0.0, 1.0, 0.2, 0.9], [0.4], [1.0, 1.0, 0.0, 3.0, 2.0], [0.1, 0.2]),
    "ties": groups([1.0, 0.0, 1.0, 0.0, 1.0], [0.5, 0.5, 2.0, 2.0, 0.5]),
    "no signal": groups([1.0] * 5, [0.0] * 5),
    "no number": groups([NAN, 1.0, 0.0, NAN, 0.5], [NAN] * 5, [0.2, NAN, 0.4, 0.4, 0.1]),
}
cases = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


@cases
@pytest.mark.parametrize("m", [1, 3])
def test_pods_keeps_the_best_of_all_subsets_of_each_prompt(batch, m):
    step = step_of(len(batch.groups), 5, m)
    asked, value = drive("pods", step, batch)
    assert asked == [(step.prompts, 5)]
    for group in batch.groups:
        scored = batch.rewards[group][np.isfinite(batch.rewards[group])]
        kept = batch.rewards[np.intersect1d(value, group)]
        assert len(kept) == min(m, len(scored))
        if len(kept):
            best = max(map(np.var, combinations(scored, len(kept))))
            assert np.var(kept) == pytest.approx(best)


def test_pods_takes_the_rule_which_samples_from_the_generator_of_the_step():
    algorithm = bind("algorithm", "pods", {}, RULES["random"])
    batch = groups(range(20))
    kept = [kept_of(drive(algorithm, step_of(1, 20, 5, seed=s), batch)[1]) for s in (3, 3, 4)]
    assert kept[0] == kept[1] != kept[2]


@cases
@pytest.mark.parametrize("each", [1, 2])
def test_cppo_keeps_the_largest_of_each_prompt_with_advantages_over_all(batch, each):
    _, value = drive("cppo", step_of(len(batch.groups), 5, each), batch)
    advantages = over_all(batch, np.arange(len(batch)))
    np.testing.assert_allclose(value.advantages, advantages[value.kept], atol=1e-12)
    sizes = np.abs(advantages)
    for group in batch.groups:
        kept = np.intersect1d(value.kept, group)
        assert sorted(sizes[kept]) == pytest.approx(sorted(sizes[group])[-each:])


@pytest.mark.parametrize(
    ("P", "m", "each", "prompts", "fresh"),
    [
        pytest.param(2, 8, 1, 16, 14, id="as published"),
        pytest.param(2, 8, None, 2, 0, id="m by default"),
        pytest.param(1, 4, 99, 1, 0, id="above the budget"),
    ],
)
def test_cppo_fills_the_step_up_with_budget_over_each_prompts(P, m, each, prompts, fresh):
    step = step_of(P, 16, m)
    wanted, count = next(ALGORITHMS["cppo"](step, each=each))
    assert (len(wanted), count, len(step.fresh.handed)) == (prompts, 16, fresh)
    assert wanted[: min(P, prompts)] == step.prompts[:prompts]


@cases
@pytest.mark.parametrize("name", ["max_abs_advantage", "d3s"])
def test_the_whole_step_against_every_subset(name, batch):
    P = len(batch.groups)
    step = step_of(P, 5, 1 if P == 4 else 2)
    asked, value = drive(name, step, batch)
    assert asked == [(step.prompts, 5)]
    assert len(value.kept) == step.budget
    advantages = over_all(batch, np.arange(len(batch)))
    np.testing.assert_allclose(value.advantages, advantages[value.kept], atol=1e-12)
    measure = np.var if name == "d3s" else lambda values: np.abs(values).sum()
    best = max(map(measure, combinations(advantages, step.budget)))
    assert measure(value.advantages) == pytest.approx(best, abs=1e-12)


def test_dapo_replaces_what_is_all_correct_whatever_its_total_reward():
    solved, mixed = [1.0, 1.1, 1.2, 1.3], [0.0, 0.5, 0.6, 0.0]
    first, second = groups(solved, mixed, correct=True), groups(solved, mixed, mixed, correct=True)
    asked, value = drive("dapo", step_of(2, 4, 4), first, second)
    assert asked == [(["p0", "p1"], 4), (["f0"], 4)]
    assert kept_of(value) == list(range(4, 12))


NO_SIGNAL, MIXED = [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("rounds", "batches", "fresh", "kept"),
    [
        pytest.param(4, [[MIXED, MIXED]], 0, range(6), id="nothing is missing"),
        pytest.param(
            4,
            [
                [NO_SIGNAL, NO_SIGNAL],
                [NO_SIGNAL, NO_SIGNAL, NO_SIGNAL, MIXED],
                [NO_SIGNAL, NO_SIGNAL, NO_SIGNAL, MIXED, MIXED],
            ],
            3,
            range(9, 15),
            id="only what is missing is asked for",
        ),
        pytest.param(
            2,
            [[NO_SIGNAL, MIXED], [NO_SIGNAL, MIXED, NO_SIGNAL]],
            1,
            range(3, 6),
            id="fewer than the budget after the last round",
        ),
        pytest.param(1, [[[NAN] * 3, MIXED]], 0, range(3, 6), id="one round; no number, no signal"),
    ],
)
def test_dapos_rounds(rounds, batches, fresh, kept):
    step = step_of(2, 3, 3)
    asked, value = drive("dapo", step, *[groups(*rewards) for rewards in batches], rounds=rounds)
    assert len(asked) == len(batches) <= rounds
    assert len(step.fresh.handed) == fresh
    assert kept_of(value) == list(kept)


def test_dapo_refuses_more_rounds_than_a_step_has():
    with pytest.raises(ValueError, match="rounds is 17; set 16 or less"):
        drive("dapo", step_of(2, 3, 3), rounds=17)


SCREENED = groups([1, 1], [0, 1], [0, 0], [1, 0], [0, 1], [1, 1], correct=True)
CONTINUED = Batch(  # two more of the second, the fourth and the fifth prompt
    np.append(SCREENED.prompt, [1, 1, 3, 3, 4, 4]),
    np.append(SCREENED.rewards, [0, 0, 1, 1, 1, 0]),
)


def test_speed_goes_on_only_with_the_prompts_that_have_signal():
    asked, value = drive("speed", step_of(3, 4, 4), SCREENED, CONTINUED, screen=2)
    assert asked == [(["p0", "p1", "p2", "f0", "f1", "f2"], 2), (["p1", "f0", "f1"], 2)]
    assert kept_of(value) == [2, 3, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17]  # n = m: all of them


def test_speed_takes_the_first_p_that_have_signal_and_m_of_each():
    continued = Batch(CONTINUED.prompt[:16], CONTINUED.rewards[:16])
    asked, value = drive("speed", step_of(2, 4, 2), SCREENED, continued, screen=2, pool=3)
    assert asked[1] == (["p1", "f1"], 2)
    kept = kept_of(value)
    assert [continued.prompt[i] for i in kept] == [1, 1, 3, 3]
    rewards = continued.rewards[kept]
    assert np.ptp(rewards[:2]) == np.ptp(rewards[2:]) == 1  # of largest variance


@pytest.mark.parametrize(
    ("P", "n", "rewards", "kept"),
    [
        pytest.param(1, 4, [[1, 1], [0, 0]], [], id="nothing has signal"),
        pytest.param(1, 2, [[1, 1], [0, 1]], [2, 3], id="n = 2: all are sampled"),
    ],
)
def test_speed_ends_with_the_screening_where_nothing_is_left_to_draw(P, n, rewards, kept):
    asked, value = drive("speed", step_of(P, n, 2), groups(*rewards), screen=2)
    assert (asked, kept_of(value)) == ([(["p0", "f0"], 2)], kept)


@pytest.mark.parametrize(
    ("n", "screen", "count"),
    [
        pytest.param(2, 4, 2, id="n is two"),
        pytest.param(5, 8, 4, id="below n"),
        pytest.param(8, 1, 2, id="one never has signal"),
    ],
)
def test_speed_screens_with_at_least_two_and_fewer_than_n(n, screen, count):
    assert next(ALGORITHMS["speed"](step_of(1, n, 2), screen=screen))[1] == count


def visit(step, kind):
    """all correct (c), all wrong (w) or mixed (m)"""
    share = {"c": 1.0, "w": 0.0, "m": 0.5}[kind]
    return Visit(step, share, share, kind == "m")


@pytest.mark.parametrize(
    ("steps", "easy", "hard"),
    [
        ([], 0.5, 0.5),
        (["m" * 12], 0.6, 0.6),  # neither kind: both rise
        (["c" + "m" * 11], 0.4, 0.6),  # 1/12 easy is the target: it falls
        (["c" + "m" * 12], 0.6, 0.6),  # 1/13 is below it
        (["ww" + "m" * 10, "w" + "m" * 11], 0.7, 0.5),  # 1/6 is the target: falls, then rises
        (["cw"] * 9, 0.01, 0.01),  # never below the lowest
        (["m"] * 9, 1.0, 1.0),  # never above 1
    ],
)
def test_gresos_p_moves_by_the_share_of_every_step(steps, easy, hard):
    places = [(k, i) for k, kinds in enumerate(steps) for i in range(len(kinds))]
    history = {f"{k}-{i}": [visit(k, steps[k][i])] for k, i in places}
    p = exploration(history, 0.5, 0.1, 0.01, {True: 1 / 12, False: 1 / 6})
    assert (p[True], p[False]) == (pytest.approx(easy), pytest.approx(hard))


def test_gresos_p_goes_by_the_newest_thousand_steps():
    kinds = "c" * 500 + "wc" * 500
    visits = [visit(step, kind) for step, kind in enumerate(kinds)]
    keys = 0.5, 0.01, 0.01, {True: 0.5, False: 0.5}
    newest = exploration({"a": visits[500:]}, *keys)
    assert exploration({"a": visits}, *keys) == newest
    assert exploration({"a": visits[::2], "b": visits[1::2]}, *keys) == newest  # by any questions
    assert exploration({"a": visits[501:]}, *keys) != newest
    sparse = [entry._replace(step=3 * entry.step) for entry in visits]  # three updates a generation
    assert exploration({"a": sparse}, *keys) == newest


@pytest.mark.parametrize(
    ("visits", "probability"),
    [("", 1), ("cm", 1), ("c", 0.7), ("mcc", 0.49), ("cww", 0.49), ("wwc", 0.7), ("w" * 9, 0.2)],
)
def test_greso_skips_a_prompt_with_the_formulas_probability(visits, probability):
    history = {"p0": [visit(k, kind) for k, kind in enumerate(visits)]}
    passed, tries = 0, 2000
    params = {"start": 0.7, "change": 0.0, "lowest": 0.2, "tries": 2}
    for seed in range(tries):  # p0 is asked for where it passes, else the fresh prompt
        (asked,), _ = next(ALGORITHMS["greso"](step_of(1, 4, 4, history, seed), **params))
        passed += asked == "p0"
    low, high = binom.interval(1 - 1e-6, tries, probability)
    assert low <= passed <= high


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_greso_looks_at_no_more_than_its_tries(tries):
    history = {name: [visit(0, "w")] for name in ("p0", "p1", *(f"f{i}" for i in range(20)))}
    step = step_of(2, 4, 4, history)
    asked, count = next(ALGORITHMS["greso"](step, start=0, lowest=0, tries=tries))
    assert (asked, count) == (["p0", "p1"], 4)  # all skipped: the first ones
    assert len(step.fresh.handed) == 2 * (tries - 1)  # every prompt that is taken is looked at


def test_greso_fills_the_step_up():
    step = step_of(2, 4, 4, {"p0": [visit(0, "w")]})
    asked, _ = next(ALGORITHMS["greso"](step, start=0, lowest=0))
    assert (asked, step.fresh.handed) == (["p1", "f0"], ["f0"])


@pytest.mark.parametrize(
    ("correct", "m", "good"),
    [
        pytest.param("11001000", 4, [1, 4], id="three eighths"),
        pytest.param("10000000", 4, [0], id="at least one correct"),
        pytest.param("11111110", 4, [1, 3, 5], id="at least one wrong"),
        pytest.param("11111111", 4, [1, 3, 5, 7], id="all correct"),
        pytest.param("00000000", 4, [], id="all wrong"),
        pytest.param("10", 4, [0], id="fewer than m were sampled"),
        pytest.param("11111111", 2, [5, 7], id="the shortest of the four well-formed ones"),
    ],
)
def test_roc_keeps_both_kinds_and_the_best_correct_ones(correct, m, good):
    """Odd ones are well formed; each is shorter than the one before."""
    flags = np.array([c == "1" for c in correct])
    rewards = np.where(flags, 1 + 0.1 * (np.arange(len(flags)) % 2), 0.0)
    lengths = np.arange(len(flags), 0, -1)
    batch = Batch(np.zeros(len(flags), int), rewards, correct=flags, lengths=lengths)
    kept = kept_of(drive("roc", step_of(1, 8, m), batch)[1])
    assert len(kept) == min(m, len(flags))
    assert [i for i in kept if flags[i]] == good


def test_roc_drops_wrong_ones_evenly_and_goes_by_rewards_where_nothing_grades():
    """The best above the middle, 0.5, and two of the four below it."""
    batch, tries = groups([1.0, 0.9, 0.0, 0.2, 0.1, 0.0]), 1500
    kept = [kept_of(drive("roc", step_of(1, 6, 3, seed=s), batch)[1]) for s in range(tries)]
    counts = Counter(i for rows in kept for i in rows)
    assert counts.pop(0) == tries
    assert sum(counts.values()) == 2 * tries
    low, high = binom.interval(1 - 1e-6, tries, 2 / 4)
    assert {i: count for i, count in counts.items() if not low <= count <= high} == {}, (low, high)


def test_a_prompt_without_any_reward_is_wrong_throughout():
    batch = groups([NAN] * 4, [1.0, 0.0, 0.0, 0.0])
    kept = kept_of(drive("roc", step_of(2, 4, 2), batch)[1])
    assert [batch.prompt[i] for i in kept] == [0, 0, 1, 1]
    assert 4 in kept, "the only correct one"


def test_gfpo_keeps_the_shortest_of_each_prompt():
    """Of equal ones the first."""
    prompts, lengths = [0, 0, 0, 1, 1, 1, 1, 1, 2], [3, 1, 2, 5, 4, 6, 4, 4, 9]
    _, value = drive("gfpo", step_of(3, 5, 2), Batch(prompts, np.zeros(9), lengths=lengths))
    assert kept_of(value) == [1, 2, 4, 6, 8]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_has_at_most_20_lines_without_its_docstring(name):
    (function,) = ast.parse(inspect.getsource(ALGORITHMS[name])).body
    docstring = function.body[0]
    assert function.end_lineno - (docstring.end_lineno - docstring.lineno + 1) <= 20


def test_thin_keeps_the_largest_advantages_of_twice_the_prompts_and_may_sample_solved_ones_last():
    history = {"p0": [Visit(0, 1.0, 1.0, False)], "f1": [Visit(0, 0.5, 0.5, True)]}
    batch = groups([1.0] * 4, [1.0, 0, 0, 0], [1.0, 1, 0, 0], [0.0] * 4, correct=True)
    asked, value = drive("thin", step_of(2, 4, 2, history), batch, look=2)
    assert asked == [(["p1", "f0", "f1", "f2"], 4)]
    assert kept_of(value) == [4, 8, 9, 10]
    assert value.advantages.tolist() == over_all(batch, np.arange(16))[value.kept].tolist()
    _, value = drive("thin", step_of(4, 4, 4, history), batch, look=2)
    assert kept_of(value) == [*range(4, 12)], "rows without signal are no part of the update"
    ((prompts, _),), _ = drive("thin", step_of(2, 4, 2, history), batch)
    assert prompts == ["p1", "f0", "f1", "p0"]


def test_inclusion_adds_up_to_the_count_and_is_proportional_below_1():
    sizes = np.array([4.0, 0.5, 1.0, 0.5, 2.0])
    np.testing.assert_allclose(inclusion(sizes, 2), [1, 0.125, 0.25, 0.125, 0.5])
    np.testing.assert_allclose(inclusion(sizes, 4), [1, 0.5, 1, 0.5, 1])
    for count in (5, 6):
        assert inclusion(sizes, count).tolist() == [1] * 5
    assert inclusion(np.array([]), 3).tolist() == []


def test_horvitz_thompson_is_unbiased_and_of_exact_size():
    """The mean of 3,000 updates, along the full group's, is the full group's within 3 standard
    errors; that of the largest advantages is not."""
    rng = np.random.default_rng(0)
    batch = groups(*rng.normal(size=(6, 8)) ** 3)  # few large advantages
    gradients = rng.normal(size=(48, 3)) + batch.rewards[:, None]
    full = all_advantages(batch) @ gradients / len(batch)

    def along(name, seed):
        _, value = drive(name, step_of(6, 8, 2, seed=seed), batch)
        assert len(value.kept) == len({*value.kept}) == 12
        return value.advantages @ gradients[value.kept] / len(value.kept) @ full

    updates = [along("horvitz_thompson", seed) for seed in range(3000)]
    error = np.std(updates, ddof=1) / np.sqrt(len(updates))
    assert abs(np.mean(updates) - full @ full) < 3 * error
    assert abs(along("max_abs_advantage", 0) - full @ full) > 3 * error


def test_horvitz_thompson_takes_every_row_with_signal_if_they_fit():
    batch = groups([1.0, 0.0, 0.0, 0.0], [1.0] * 4, [NAN, 1.0, 0.0, 0.0])
    _, value = drive("horvitz_thompson", step_of(3, 4, 3), batch)
    assert kept_of(value) == [0, 1, 2, 3, 9, 10, 11]
    np.testing.assert_allclose(value.advantages, all_advantages(batch)[value.kept] * 7 / 12)
    _, value = drive("horvitz_thompson", step_of(2, 4, 2), groups([1.0] * 4, [0.0] * 4))
    assert len(value.kept) == 0
