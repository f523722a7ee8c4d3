"""One step's rollouts: the generators' seeds, the total reward, and the step's numbers."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pods import ranks, rollouts
from pods.clock import Clock
from pods.engines import Completion
from pods.rollouts import Rollouts, Step, total
from pods.rules import Batch, Selection
from pods.training.metrics import COUNTERS, Meter, summarize
from tests.configs import compose
from tests.steps import step_of

WEIGHTS = {"correctness": 0.5, "format": -2.0, "tags": 3.0}
SCORES = {  # (P, n)
    "correctness": [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    "format": [[0.1, 0.2, 0.0], [0.0, 0.3, 0.05]],
    "tags": [[0.025, 0.0, 0.1], [0.05, 0.075, 0.1]],
}
TOTALS = [[0.375, -0.4, 0.8], [0.15, -0.375, 0.7]]


def made(*overrides: str) -> Rollouts:
    config = compose(
        "prompts_per_step=2",
        "rollouts_per_prompt=3",
        "kept_per_prompt=2",
        "micro_batch_size=2",
        *overrides,
    )
    return Rollouts(config, None, None, Clock())


def test_every_rank_and_step_has_its_own_seed_also_on_several_nodes(monkeypatch):
    class Seeded(Exception):
        pass

    def seeded(seed: int) -> None:
        raise Seeded(seed)

    steps = {seed: made(f"seed={seed}") for seed in (0, 1)}
    monkeypatch.setattr(rollouts, "set_seed", seeded)
    monkeypatch.setattr(ranks, "gather", lambda items: items)
    monkeypatch.setenv("WORLD_SIZE", "16")
    found: dict[tuple, int] = {}
    for seed, step, rank in product((0, 1), (0, 1), (0, 1, 8, 9)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank % 8))  # the second node has ranks 8 to 15
        trainer = SimpleNamespace(
            dataset_rows=[{"id": "a"}] * 2, num_generations=2, processing_class=None,
            state=SimpleNamespace(global_step=step),
        )  # fmt: skip
        with pytest.raises(Seeded) as raised:
            steps[seed](["prompt"] * 2, trainer)
        found[seed, step, rank] = raised.value.args[0]
    assert len(set(found.values())) == 16
    assert all(0 <= seed < 2**32 for seed in found.values())  # what numpy takes


def test_a_choice_of_prompts_that_fails_is_named_with_its_step(monkeypatch):
    class Broken:
        @staticmethod
        def choose() -> None: ...

        def __call__(self, *_: object) -> None:
            raise ZeroDivisionError("by zero")

    source = made()
    source.reseed, source.prompts = False, Broken()
    state = SimpleNamespace(global_step=7)
    trainer = SimpleNamespace(dataset_rows=[{"id": "a"}] * 2, num_generations=2, state=state)
    with pytest.raises(rollouts.RuleError, match=r"^prompts choose failed at step 7: ZeroDivision"):
        source(["prompt"] * 2, trainer)


def test_the_total_is_the_weighted_sum():
    by_function = {name: np.array(values) for name, values in SCORES.items()}
    found = total(by_function, WEIGHTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, TOTALS, rtol=1e-6)


def completions() -> list[list[Completion]]:
    """(P, n) = (2, 3), of 1 to 6 tokens; the third and the fifth are clipped."""
    drawn = [Completion([9] * length, length in (3, 5), None) for length in range(1, 7)]
    return [drawn[:3], drawn[3:]]


def test_a_batch_holds_the_scores_beside_their_completions():
    class Rewards:
        weights = WEIGHTS

        def __call__(self, rows: list, texts: list, ids: list, step: int) -> dict[str, list]:
            assert [row["id"] for row in rows] == ["a", "a", "a", "b", "b", "b"]
            assert texts == list("uvwxyz")
            assert [len(tokens) for tokens in ids] == [1, 2, 3, 4, 5, 6]
            assert step == 4
            return {name: [*values[0], *values[1]] for name, values in SCORES.items()}

    one = made()
    one.rewards = Rewards()
    rows = [{"id": "a"}, {"id": "b"}]
    batch = one.score(rows, completions(), [list("uvw"), list("xyz")], 4)
    np.testing.assert_allclose(batch.rewards, TOTALS, rtol=1e-6)
    assert {name: v.tolist() for name, v in batch.by_function.items()} == SCORES
    assert batch.weights == WEIGHTS
    assert batch.lengths.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert batch.clipped.tolist() == [[False, False, True], [False, True, False]]
    assert batch.question_ids.tolist() == ["a", "b"]
    assert batch.step == 4


def test_the_parameters_of_the_config_reach_rule_and_advantage():
    def rule(rewards, m, rng, first):
        return range(first, first + m)

    def advantage(batch, kept, scale):
        return scale * batch.rewards.reshape(-1)[kept]

    source = made()
    source.rule, source.rule_params = rule, {"first": 1}
    source.advantage, source.advantage_params = advantage, {"scale": 10}
    chosen = source.select(Batch(rewards=np.arange(6.0).reshape(2, 3)), 4)
    assert chosen.kept.tolist() == [1, 2, 4, 5]
    assert chosen.advantages.tolist() == [10, 20, 40, 50]


def step_by_hand() -> Step:
    batch = Batch(
        rewards=np.array([[1.0, 0.0, 2.0], [4.0, 4.0, 4.0]]),
        by_function={"correctness": np.array([[1.0, 0, 1], [1, 1, 1]])},
        lengths=np.array([[1, 2, 3], [4, 5, 9]]),
        clipped=np.array([[False, False, False], [False, False, True]]),
    )
    empty: list[Any] = []
    return Step(empty, empty, empty, empty, batch, Selection(np.array([0, 2, 3]), np.zeros(3)))


def test_the_numbers_of_a_step_by_hand():
    assert summarize(step_by_hand()) == pytest.approx({
        "all/reward_mean": 15 / 6,
        "all/reward_std": (2 / 3) ** 0.5 / 2,  # of the two prompts: sqrt(2/3) and 0
        "all/reward_variance": 1 / 3,
        "all/reward_min": 0,
        "all/reward_max": 4,
        "all/zero_variance_groups": 0.5,
        "all/completion_length_mean": 4,
        "all/completion_length_max": 9,
        "all/clipped_ratio": 1 / 6,
        "kept/reward_mean": 7 / 3,
        "kept/reward_variance": 0.125,  # of 1 and 2, and of 4 alone
        "kept/completion_length_mean": 8 / 3,
        "all/correctness_mean": 5 / 6,
        "step_tokens/generated": 24,
        "step_tokens/trained": 8,
    })  # fmt: skip


def test_counters_add_up_over_steps_and_go_on_from_a_checkpoint():
    step = step_of({"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 4}, [0, 1, 5])
    source = SimpleNamespace(
        newest=step,
        guard=None,
        noise={"noise/scale": 3.0},
        rewards=SimpleNamespace(scorer=SimpleNamespace(timeouts=2)),
    )
    trainer, clock, meter = SimpleNamespace(model=SimpleNamespace()), Clock(), Meter()
    given = {"tokens_generated": 100, "tokens_trained": 50, "rollouts_generated": 80}
    meter.restore(given | {"rollouts_trained": 30, "step": 9})
    for k in (1, 2):
        meter.updates = [{"loss": 1.0, "kl": None}, {"loss": 2.0 * k, "grad_norm": 4.0}]
        line = meter.line(trainer, source, clock)
        counted = [100 + k * 20, 50 + k * (1 + 2 + 2), 80 + k * 8, 30 + k * 3]
        assert [line[name] for name in COUNTERS] == counted
        assert (line["loss"], line["grad_norm"]) == (0.5 + k, 4.0)
        assert "kl" not in line
        assert (line["score_timeouts"], line["noise/scale"]) == (2, 3.0)
        assert meter.updates == []
