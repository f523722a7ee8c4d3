"""The driver with made rollouts, and the order of the prompts against TRL's sampler."""

import operator
import sys
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import GRPOConfig
from trl.trainer.utils import RepeatSampler

from pods import advantages, history
from pods.algorithms import ALGORITHMS
from pods.batch import AlgorithmError, Prompt, Rollout, Selection, Step, Visit
from pods.engines import Completion
from pods.metrics import summary, within_prompts
from pods.order import DataOrder, Stream
from pods.registry import bind
from pods.requirements import requirements_of
from pods.rollouts import Driver
from tests.steps import Fresh

NAN = float("nan")


def step_of(P=2, n=4, m=2, number=7):
    """Prompts a, b, ...; the fresh ones are f0, f1, ..."""
    prompts = [Prompt(name, {}) for name in "abcdef"[:P]]
    return Step(number, P, n, m, prompts, Fresh(), {}, np.random.default_rng(0))


def driver(algorithm, scores=None, **changes):
    """`scores`: (rollouts, functions) of the step; else 0, 1, 2, ... And what was sampled."""
    sampled = []

    def sample(prompts, indices):
        sampled.extend(zip(map(str, prompts), indices, strict=True))
        lengths = [1 + i % 3 for i in indices]
        return [Rollout([5], Completion([9] * n, n == 3, [-1.0 * n] * n), "") for n in lengths]

    def score(prompts, rollouts):
        start = len(sampled) - len(prompts)
        table = np.arange(99.0)[:, None] if scores is None else np.array(scores, dtype=float)
        return table[start : len(sampled)].astype(np.float32)

    settings = {"weights": {"reward": 1.0}, "correct": None, "advantage": advantages.over_kept}
    settings |= {
        "max_rounds": 3,
        "phase": lambda name: nullcontext(),
        "algorithm": algorithm,
    } | changes
    return Driver(sample=sample, score=score, **settings), sampled


def returning(value):
    def returns(step):
        batch = yield step.prompts, step.n
        return value(batch) if callable(value) else value

    return returns


def yielding(*values):
    def yields(step):
        for value in values:
            batch = yield value(step) if callable(value) else value
        return np.arange(len(batch))[:1]

    return yields


def nothing(step):
    return np.arange(2)
    yield


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (returning(range(5)), "more than budget = P m = 4"),
        (returning([1, 1]), "distinct whole numbers"),
        (returning([0.0, 1.0]), "distinct whole numbers"),
        (returning([True, False]), "distinct whole numbers"),
        (returning(None), "returned None: one list"),
        (returning(([0, 1], [1.0, -1.0])), "one list of distinct"),
        (returning([8]), "8 to 8; 0 to 7 are required"),
        (returning([-1, 2]), "-1 to 2; 0 to 7"),
        (returning(Selection([0, 1], np.ones(3))), r"returned .* \(3,\); \(2,\) are required"),
        (returning(Selection([0, 1], np.array([0, NAN]))), "finite numbers are required"),
        (yielding(None), r"yielded None; \(prompts, count\) is required"),
        (yielding(lambda step: (step.prompts, 1.5)), "yielded .* is required"),
        (yielding(lambda step: (step.prompts, [1])), "yielded .* is required"),
        (yielding((["a"], 2)), "prompts of step.prompts or step.fresh"),
        (yielding(([Prompt("x", {})], -1)), "yielded .* is required"),
        (yielding(lambda step: (step.prompts, 0)), "not all 0"),
        (yielding(*[lambda step: (step.prompts, 1)] * 4), "more than 3 rounds of generation"),
        (returning(lambda batch: {}["lost"]), r"KeyError\('lost'\)"),
        (returning(lambda batch: sys.exit(5)), r"SystemExit\(5\)"),
        (nothing, "returned before it asked for rollouts"),
    ],
)
def test_a_wrong_algorithm_is_named_with_its_step_in_one_line(algorithm, message):
    with pytest.raises(AlgorithmError, match=message) as raised:
        driver(algorithm)[0](step_of())
    assert str(raised.value).startswith(f"algorithm {algorithm.__name__} failed at step 7")
    assert "\n" not in str(raised.value)


CHANGES = {  # metrics, rollout log, history and the rows of the update are made of these afterwards
    "rewards": lambda batch, kept: operator.isub(batch.rewards, 1),
    "prompt": lambda batch, kept: batch.prompt.fill(0),
    "groups": lambda batch, kept: batch.groups[1].sort(),
    "values": lambda batch, kept: batch.by_function["reward"].fill(0),
    "functions": lambda batch, kept: operator.setitem(batch.by_function, "mine", kept),
    "kept": lambda batch, kept: kept.fill(0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_function_that_changes_what_it_is_given_is_refused(change):
    def advantage(batch, kept):
        change(batch, kept)
        return np.zeros(len(kept))

    run, _ = driver(ALGORITHMS["pods"], advantage=advantage, correct="reward")
    with pytest.raises(AlgorithmError, match=r"test_driver.py:\d+: .*(read-only|item)"):
        run(step_of())


def likely(step):
    batch = yield step.prompts, step.n
    return batch.logprobs.argsort()[:4]


likely.reads_logprobs = True


def test_log_probabilities_that_the_generation_lacks_are_missed():
    run, _ = driver(likely)
    rollout = Rollout([5], Completion([9], False), "")
    run.sample = lambda prompts, indices: [rollout for _ in indices]
    with pytest.raises(AlgorithmError, match="likely reads log-probabilities, and the gener"):
        run(step_of())


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 4), st.integers(0, 9999), st.booleans())
def test_no_algorithm_of_ours_is_wrong(name, P, m, more, seed, graded):
    scores = np.random.default_rng(seed).choice([0.0, 0.0, 0.5, 1.0, 1.5, NAN], (400, 1))
    correct = "reward" if graded else None
    run, _ = driver(ALGORITHMS[name], scores, correct=correct, max_rounds=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NaN is an ordinary case
        run(step_of(P, m if name == "grpo_ga" else max(2, m + more), m))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_algorithm_says_of_itself_is_true(name):
    """Each second prompt is all wrong; grpo_ga is told n = m, as the config tells it."""
    returned = []

    def noted(step):
        returned.append((yield from ALGORITHMS[name](step)))
        return returned[0]

    n, m = (2, 2) if name == "grpo_ga" else (6, 2)
    scores = [[float(i % 2 and i % 4 < 2)] for i in range(99)]
    record = driver(noted, scores, correct="reward", max_rounds=9)[0](step_of(2, n, m))
    says = requirements_of(ALGORITHMS[name])
    assert says.own_advantages == (getattr(returned[0], "advantages", None) is not None)
    assert says.keeps_all == (len(record.selection.kept) == len(record.batch))
    assert n == m or says.samples_m == (set(np.bincount(record.batch.prompt)) == {m})
    assert says.takes_rule == (name == "pods")
    assert not says.reads_logprobs


def test_the_attributes_stay_where_an_algorithm_gets_parameters():
    assert requirements_of(bind("algorithm", "cppo", {"each": 1})).own_advantages


def test_a_wrong_advantage_function_is_named_with_its_step():
    def flat(batch, kept):
        return np.ones(3)

    with pytest.raises(AlgorithmError, match=r"^advantage flat failed at step 7: .*shape \(3,\)"):
        driver(returning([0, 1, 2, 7]), advantage=flat)[0](step_of())


def test_prompts_are_numbered_as_they_appear_and_their_seeds_go_on():
    batches = []

    def rounds(step):
        a, b = step.prompts
        (c,) = step.fresh(1)
        batches.append((yield [b, a], [2, 1]))
        batches.append((yield (c, a, b), np.array([1, 0, 2])))
        return [4, 1]

    run, sampled = driver(rounds)
    record = run(step_of())
    assert " ".join(f"{name}{i}" for name, i in sampled) == "b0 b1 a0 f00 b2 b3"
    assert [len(batch) for batch in batches] == [3, 6]  # every rollout so far
    batch = batches[1]
    assert batch.prompt.tolist() == [0, 0, 1, 2, 0, 0]
    assert batch.rewards.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.lengths.tolist() == [1, 2, 1, 1, 3, 1]
    assert batch.clipped.tolist() == [False, False, False, False, True, False]
    assert batch.logprobs.tolist() == [-1, -2, -1, -1, -3, -1]
    assert list(map(str, record.prompts)) == ["b", "a", "f0"]
    assert record.rounds == 2
    assert record.selection.kept.tolist() == [1, 4]  # ascending, of one prompt
    np.testing.assert_allclose(record.selection.advantages, [-(0.5**0.5), 0.5**0.5], rtol=1e-4)


def test_two_prompts_of_one_question_stay_two_with_different_seeds():
    (run, sampled), step = driver(ALGORITHMS["grpo"]), step_of(2, 2, 2)
    step.prompts[:] = [Prompt("a", {"row": 0}), Prompt("a", {"row": 1})]
    record = run(step)
    assert sampled == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert record.batch.prompt.tolist() == [0, 0, 1, 1]


def test_tokens_without_a_logprob_leave_the_mean_of_the_others():
    completion = Completion([9] * 3, True, [-1.0, None, -3.0])  # vLLM gave no number for one
    batch = driver(returning([0]))[0].batch([0], [Rollout([5], completion, "")], np.zeros((1, 1)))
    assert batch.logprobs.tolist() == [-2.0]


def test_advantages_stay_beside_their_rollouts_and_only_plain_grpo_leaves_them_to_trl():
    def selection(algorithm, advantage=advantages.over_kept):
        return driver(algorithm, advantage=advantage)[0](step_of()).selection

    own = selection(returning(Selection(np.array([6, 1, 3]), np.array([0.6, 0.1, 0.3]))))
    assert (own.kept.tolist(), own.advantages.tolist()) == ([1, 3, 6], [0.1, 0.3, 0.6])
    assert selection(ALGORITHMS["grpo"]).advantages is None
    assert selection(ALGORITHMS["pods"]).advantages is not None
    assert selection(ALGORITHMS["grpo"], advantages.dr_grpo).advantages is not None
    assert selection(returning([])).advantages.tolist() == []


def test_the_history_does_not_grow_with_the_run(monkeypatch):
    monkeypatch.setattr(history, "VISITS", 3)
    monkeypatch.setattr(history, "QUESTIONS", 2)
    held = {}

    def steps_of(name):
        return [visit.step for visit in held[name]]

    def visit(step, name):
        history.remember(held, [(Prompt(name, {}), Visit(step, 0.5, None, True))])

    for step, name in enumerate("aaaabb"):
        visit(step, name)
    assert (steps_of("a"), steps_of("b")) == ([1, 2, 3], [4, 5])
    visit(6, "c")
    assert list(held) == ["b", "c"]  # the question that came first is forgotten


SCORES = [[1, 0.1, NAN], [0, NAN, NAN], [NAN, NAN, NAN], [0.5, 0.2, 3]]


def record_of(scores, correct=None):
    weights = {"correctness": 0.7, "format": -2.0, "tags": 0.3}
    run = driver(ALGORITHMS["pods"], scores, weights=weights, correct=correct)[0]
    return run(step_of(1, len(scores), 2))


def test_rewards_add_up_as_in_trl():
    """In float32, None counting as 0; the third has no number at all."""
    table, weights = torch.tensor(SCORES), torch.tensor([0.7, -2.0, 0.3])
    expected = (table * weights).nansum(dim=1).numpy()
    expected[2] = NAN
    batch = record_of(SCORES).batch
    np.testing.assert_allclose(batch.rewards, expected, rtol=1e-7)
    assert batch.rewards.dtype == np.float32
    assert batch.correct is None
    assert record_of(SCORES, "correctness").batch.correct.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("scores", "correct", "reward", "share", "has_signal"),
    [
        (SCORES, None, (0.5 + 0 + 0.85) / 3, None, True),
        (SCORES, "correctness", (0.5 + 0 + 0.85) / 3, 0.5, True),
        ([[1, i, 0] for i in range(4)], "correctness", 0.7 - 3, 1.0, False),
        ([[1, 0, 0]] * 4, None, 0.7, None, False),
        ([[NAN] * 3] * 4, None, NAN, None, False),
    ],
)
def test_the_history_keeps_mean_reward_and_share_correct(
    scores, correct, reward, share, has_signal
):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = record_of(scores, correct)
        summary(record)  # a reward without a number is an ordinary case
    mean = pytest.approx(reward, rel=1e-5, nan_ok=True)
    assert list(record.visits()) == [("a", Visit(7, mean, share, has_signal))]


def test_the_numbers_of_a_step_by_hand():
    table = [[1.0], [0.0], [2.0], [4.0], [4.0], [NAN]]
    record = driver(returning([0, 2, 3]), table)[0](step_of(2, 3, 2))
    assert summary(record) == pytest.approx(
        {
            "all/reward_mean": 11 / 5,
            "all/reward_min": 0,
            "all/reward_max": 4,
            "all/reward_std": (2 / 3) ** 0.5 / 2,
            "all/reward_variance": 1 / 3,  # of 1, 0, 2 and 4, 4
            "all/zero_variance_groups": 0.5,
            "all/clipped_ratio": 1 / 3,
            "all/completion_length_mean": 2,
            "all/completion_length_max": 3,
            "kept/reward_mean": 7 / 3,
            "kept/reward_variance": 0.125,
            "kept/zero_variance_groups": 0.5,
            "kept/completion_length_mean": 5 / 3,
            "generate/rounds": 1,
            "generate/rollouts": 6,
            "select/filled": 1,
        }
    )


def test_the_variances_of_the_prompts_are_those_of_pandas_to_the_bit():
    random = np.random.default_rng(0)
    for P, n in ((1, 1), (3, 2), (8, 64), (5, 7)):
        prompt = random.permutation(np.repeat(np.arange(P), n))
        rewards = random.normal(size=P * n).astype(np.float32).astype(float)
        rewards[random.random(P * n) < 0.2] = NAN
        rewards[prompt == 1] = 0.1
        rewards[prompt == 2] = NAN
        groups = pd.Series(rewards).groupby(prompt)
        variances, equal = within_prompts(rewards, prompt)
        np.testing.assert_array_equal(variances, groups.var(ddof=0))
        np.testing.assert_array_equal(equal, groups.nunique() == 1)
    assert [len(part) for part in within_prompts(np.zeros(0), np.zeros(0, dtype=int))] == [0, 0]


def orders(size, P, shuffle=True):
    data = Dataset.from_dict({"prompt": [f"p{i}" for i in range(size)], "x": list(range(size))})
    sampler = RepeatSampler(data, 2, P, repeat_count=3, shuffle=shuffle, seed=5)
    return sampler, DataOrder(data, RepeatSampler(data, 2, P, 3, shuffle, 5)), data


@pytest.mark.parametrize(("size", "P", "shuffle"), [(7, 3, True), (6, 2, True), (5, 2, False)])
def test_the_order_is_that_of_trls_sampler_over_epochs(size, P, shuffle):
    sampler, order, _ = orders(size, P, shuffle)
    sampled = [index for _ in range(4) for index in sampler]
    steps = np.reshape(sampled, (-1, 3, P, 2))  # 3 times, 2 rows of each prompt
    ours = np.reshape([order.index(i) for i in range(len(steps) * P)], (-1, 1, P, 1))
    assert (steps == ours).all()


@pytest.mark.parametrize(
    ("skip", "places"),
    [
        pytest.param(False, [0, 4, 6, 10, 12, 16], id="goes on in the epoch"),
        pytest.param(True, [0, 0, 6, 6, 12, 12], id="ignore_data_skip: the epoch begins again"),
    ],
)
def test_a_resumed_run_continues_in_the_epoch_it_is_in(skip, places):
    """2 generations of 3 micro-steps: the second update of an epoch has 2 of the 6."""
    args = GRPOConfig(
        "out", gradient_accumulation_steps=4, ignore_data_skip=skip, use_cpu=True, bf16=False
    )
    _, order, _ = orders(7, 3)
    assert [order.micro_steps(step, args) for step in range(6)] == places


def stream(order, data, step, earlier):
    """The prompts of this step; TRL sends the rows at its own place."""
    return Stream([data[order.index(step * 3 + i)] for i in range(3)], step * 3 + earlier, order)


def test_fresh_prompts_go_on_in_the_order_and_never_repeat_one_of_the_step():
    _, order, data = orders(8, 3)
    in_order = [str(order.index(i)) for i in range(60)]
    first = stream(order, data, 0, 0)
    assert first.own + first.fresh(2) == in_order[:5]
    assert (first.next, first.fresh(0)) == (5, [])
    passed, earlier = 5, 2
    for step in range(1, 9):
        now = stream(order, data, step, earlier)
        prompts = now.own + now.fresh(1) + now.fresh(1)
        assert len(set(prompts)) == 5
        assert [prompt.row for prompt in prompts] == [data[int(prompt)] for prompt in prompts]
        further = iter(in_order[passed:])  # only prompts of the step are left out
        assert [prompt for prompt in prompts if prompt not in further] == []
        resumed = stream(order, data, step, earlier)
        assert resumed.own + resumed.fresh(2) == prompts
        passed, earlier = now.next, now.next - 3 * (step + 1)
    assert len(now.fresh(9)) == 9  # no other prompt is left: they repeat


def test_a_question_is_named_by_its_id_and_a_streamed_data_set_has_no_fresh_ones():
    rows = [{"prompt": "1+1", "id": "sum-7"}, {"prompt": "2+2", "id": "sum-9"}]
    streamed = Stream(rows, 4, None)
    assert streamed.own == ["sum-7", "sum-9"]
    assert Stream([{"prompt": "1+1"}], 4, None).own == ["4"]
    assert streamed.fresh(0) == []
    with pytest.raises(ValueError, match="a streamed data set has no fresh prompts"):
        streamed.fresh(1)
