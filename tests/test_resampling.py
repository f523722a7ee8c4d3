"""Further rounds of generation: which prompts they draw, what a step keeps, what they refuse."""

import numpy as np
import pytest

from pods import rollouts
from pods.config.errors import UserError
from pods.engines import Completion
from pods.resampling import Drawn, Resampling, ada, dapo
from pods.rollouts import Rollouts, Step
from pods.rules import Batch, Selection
from pods.runs import ledger
from pods.training.metrics import summarize
from tests import two_ranks
from tests.configs import compose
from tests.test_curriculum import LIKELY
from tests.test_distributed import SETTINGS


def batch_of(*groups: tuple[str, list[float]]) -> Batch:
    """(question, n rewards) of each group; the length of a rollout is its flat index."""
    rewards = np.array([rewards for _, rewards in groups], dtype=np.float32)
    return Batch(
        rewards=rewards,
        by_function={"correctness": rewards},
        lengths=np.arange(rewards.size).reshape(rewards.shape),
        clipped=rewards > 5,
        question_ids=np.array([name for name, _ in groups]),
        step=7,
    )


@pytest.mark.parametrize(
    ("signal", "wanted", "rows", "why"),
    [
        ([1, 1, 1], 0, [0, 1, 2], "nothing is missing"),
        ([1, 0, 1], 1, [0, 2, 1], "one prompt is missing, and would fill the step"),
        ([0, 1, 1, 1], 0, [1, 2, 3], "the second round replaced the first prompt"),
        ([0, 0, 0, 0, 1, 0], 2, [4, 0, 1], "two are missing"),
        ([0, 1, 1, 1, 1], 0, [1, 2, 3], "one more than needed"),
    ],
)
def test_dapo_replaces_prompts_whose_rewards_are_equal(signal, wanted, rows, why):
    groups = [(str(i), [0.1, 1.0 * s + 0.1]) for i, s in enumerate(signal)]
    asked, places = dapo(batch_of(*groups), 3, 2)
    assert asked == [None] * wanted, why
    assert places.tolist() == [[2 * r, 2 * r + 1] for r in rows], why


@pytest.mark.parametrize(
    ("rounds", "wanted", "kept", "why"),
    [
        ([[1, 0, 0, 1]], False, [0, 1, 2, 3], "two of each at once"),
        ([[1, 0, 0, 1, 1]], False, [0, 1, 2, 3, 4], "m = 5: two of each are enough"),
        ([[1, 0, 0, 0]], True, [0, 1, 2, 3], "one right of two"),
        ([[0, 0, 0, 0]], True, [0, 1, 2, 3], "no signal"),
        ([[0, 0, 0, 0], [0, 1, 0, 1]], False, [0, 1, 5, 7], "half right, half wrong, the first"),
        ([[1, 1, 1, 1], [1, 1, 1, 0]], True, [0, 1, 2, 7], "one wrong: it is kept"),
    ],
)
def test_ada_draws_until_half_are_right_and_half_are_wrong(rounds, wanted, kept, why):
    batch = batch_of(*[("a", [0.2 + r for r in row]) for row in rounds])
    asked, places = ada(batch, 1, len(rounds[0]))
    assert asked == ["a"] * wanted, why
    assert places.tolist() == [kept], why


def drawn_of(*groups: tuple[str, list[float]]) -> Drawn:
    batch = batch_of(*groups)
    n = batch.shape[1]
    return Drawn(
        rows=[{"id": name} for name, _ in groups],
        requests=[name.upper() for name, _ in groups],
        completions=[[Completion([i], False) for i in range(n)] for _ in groups],
        texts=[[f"{name}{i}" for i in range(n)] for name, _ in groups],
        batch=batch,
    )


class Source:
    """Stands in for the data set and for the policy: rewards of every group by question."""

    def __init__(self, **rewards: list[list[float]]) -> None:
        self.rewards = {name: iter(groups) for name, groups in rewards.items()}
        self.asked: list[list[str]] = []

    def others(self, used: dict, count: int, rng: np.random.Generator) -> list[dict]:
        return [{"id": name} for name in self.rewards if name not in used][:count]

    def sample(self, rows: list[dict], before: list[dict]) -> Drawn:
        self.asked.append([row["id"] for row in rows])
        return drawn_of(*[(row["id"], next(self.rewards[row["id"]])) for row in rows])


def test_rounds_go_on_until_all_prompts_have_signal_or_the_limit():
    source = Source(a=[[0, 0]], b=[[0, 1]], c=[[1, 1]], d=[[1, 1]], e=[[1, 0]])
    first = source.sample([{"id": "a"}, {"id": "b"}], [])
    for limit, ids, asked in ((9, "be", ["c", "d", "e"]), (2, "ba", ["c"])):
        source = Source(a=[], b=[], c=[[1, 1]], d=[[1, 1]], e=[[1, 0]])
        config = compose("resample=dapo", f"resample.rounds={limit}")
        found, everything, count = Resampling(config, source)(first, source.sample)
        assert [row["id"] for row in found.rows] == list(ids)
        assert found.requests == [name.upper() for name in ids]
        assert found.texts == [[f"{name}0", f"{name}1"] for name in ids]
        assert found.batch.question_ids.tolist() == list(ids)
        assert source.asked == [[name] for name in asked]
        assert everything.rewards.shape == (2 + len(asked), 2)
        assert count == 1 + len(asked)
    source = Source(a=[], b=[])  # the data set has no other question
    _, everything, count = Resampling(config, source)(first, source.sample)
    assert (everything.shape, count) == ((2, 2), 1)


def test_rollouts_of_several_rounds_stay_with_their_texts_and_scores():
    source = Source(a=[[0, 0, 0, 0], [0, 1, 0, 1]], b=[[1, 1, 0, 0]])
    first = source.sample([{"id": "a"}, {"id": "b"}], [])
    config = compose(
        "resample=ada", "kept_per_prompt=4", "prompts_per_step=2", "rollouts_per_prompt=4"
    )
    found, everything, _ = Resampling(config, source)(first, source.sample)
    assert source.asked == [["a", "b"], ["a"]]
    assert found.batch.rewards.tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]
    assert found.texts == [["a0", "a1", "a1", "a3"], ["b0", "b1", "b2", "b3"]]
    assert [c.token_ids for c in found.completions[0]] == [[0], [1], [1], [3]]
    assert found.batch.lengths[0].tolist() == [0, 1, 1, 3]
    assert everything.shape == (3, 4)


def test_prompts_without_signal_have_advantage_0_and_are_counted():
    batch = batch_of(("a", [1, 1, 1]), ("b", [0, 1, 1]))
    selection = Selection(np.array([0, 1, 3, 5]), np.array([0.5, 0.5, -1.0, 1.0]))
    padded = Resampling(compose("resample=dapo"), None).padded(batch, selection)
    assert padded.advantages.tolist() == [0, 0, -1, 1]
    assert Resampling(compose(), None).padded(batch, selection) is selection
    everything = batch_of(("a", [1, 1, 1]), ("b", [0, 1, 1]), ("c", [2, 2, 2]))
    line = summarize(Step([], [], [], [], batch, padded, everything, 2))
    assert (line["generate/rounds"], line["select/padded"]) == (2, 2)
    assert line["step_tokens/generated"] == sum(range(9))
    assert line["step_tokens/trained"] == 0 + 1 + 3 + 5
    assert line["all/reward_mean"] == pytest.approx(11 / 9)
    assert line["all/zero_variance_groups"] == pytest.approx(2 / 3)
    assert line["kept/reward_mean"] == pytest.approx(3 / 4)


def test_the_index_of_a_question_goes_on_within_a_step(monkeypatch):
    monkeypatch.setattr(rollouts, "encode_prompt", lambda *_: [1])
    sizes = ["kept_per_prompt=2", "micro_batch_size=2"]
    rows = [{"id": name, "prompt": "1+1"} for name in "aba"]
    three, one = (
        Rollouts(
            compose("prompts_per_step=2", f"rollouts_per_prompt={n}", *sizes), None, None, None
        )
        for n in (4, 12)
    )
    first, other, second = three.requests(rows, 3, None)
    (third,) = three.requests(rows[:1], 3, None, before=rows)
    (whole,) = one.requests(rows[:1], 3, None)
    assert [*first.seeds, *second.seeds, *third.seeds] == whole.seeds
    assert not set(other.seeds) & set(whole.seeds)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("resample.rounds=0", ["resample.rounds=0", "greater than 0"]),
        ("resample.rounds=1", ["resample.rounds=1", "2 or more"]),
        ("prompts=mopps", ["resample=dapo prompts=mopps", "history", "resample=none"]),
        ("engine=trl engine.vllm_mode=server", ["resample=dapo engine.vllm_mode=server"]),
    ],
)
def test_what_further_rounds_cannot_go_with(overrides, said):
    with pytest.raises(UserError) as error:
        compose("resample=dapo", *overrides.split())
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in said), error.value


def test_further_rounds_go_with_trl_where_no_server_generates():
    assert compose("resample=dapo", "engine=trl").engine.vllm_mode == "auto"


def test_processes_share_any_number_of_prompts(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sizes = ["rollouts_per_prompt=16", "prompts_per_step=3"]
    with pytest.raises(UserError, match=r"resample=ada rollouts_per_prompt=16: .* multiple of 3"):
        compose("resample=ada", *sizes)


@pytest.mark.parametrize("chosen", ["prompts=mopps", "resample=dapo"])
def test_two_processes_choose_as_one(tmp_path, chosen):
    """The first step, before rounding of the updates makes the policies differ."""
    found = []
    for count in (1, 2):
        out = tmp_path / str(count)
        settings = [*SETTINGS, *LIKELY, "max_steps=2", "optimizer.learning_rate=1e-9",
                    "prompts_per_step=2", chosen, f"output_dir={out}"]  # fmt: skip
        done = two_ranks.run(out, *settings, ranks=count)
        assert [p.returncode for p in done] == [0] * count, [p.stderr for p in done]
        found.append(list(ledger.read(out / "r" / "rollouts.jsonl.gz")))
    keys = ("step", "question_id", "completions", "rewards", "kept")
    assert len(found[0]) == 4
    for mine, theirs in zip(*found, strict=True):
        assert {k: mine[k] for k in keys} == {k: theirs[k] for k in keys}
