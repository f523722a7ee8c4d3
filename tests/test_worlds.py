"""The worlds of the board: their bases, and the table of what is finished of the plan."""

import hashlib
import json
import re
from itertools import permutations, product

import numpy as np
import pandas
import pytest

from benchmarks import parts, worlds
from pods.advantages import over_all
from pods.figures import ranking
from tests import processes
from tests.configs import compose
from tests.conftest import ROOT
from tests.test_algorithms import BATCHES, drive, groups, kept_of, step_of

BASES = {"tags": "tiny_policy_tags", "hard": "tiny_policy_hard"}
WEIGHTED = {"alive": True, "rows": "kinds", "advantages": "weighted"}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_parts_is_pods_with_its_default_parameters(batch):
    """`no number`: parts takes only finite rewards, which the worlds have."""
    if np.isnan(batch.rewards).any() or len({len(group) for group in batch.groups}) > 1:
        pytest.skip("groups of one size, with rewards")
    asked, theirs = drive("pods", step_of(len(batch.groups), 5, 4), batch)
    own, ours = drive(parts.parts, step_of(len(batch.groups), 5, 4), batch)
    assert own == asked
    assert kept_of(ours) == kept_of(theirs)


def test_weighted_parts_give_the_gradient_of_all_rollouts_in_expectation():
    rewards, scores = np.array([1.0, 0, 0, 0, 0, 1, 0]), np.random.default_rng(0).normal(size=7)
    ends, sizes = [], {}
    for first in permutations(range(4)):  # of the first prompt; each of the others has one pair
        order = np.array([*first, 4, 5, 6])
        batch = groups(rewards[order[:4]], rewards[order[4:6]], rewards[order[6:]], correct=True)
        _, value = drive(parts.parts, step_of(3, 4, 2), batch, **WEIGHTED)
        sizes[first] = len(value.kept)
        ends.append(np.mean(value.advantages * scores[order][value.kept]))
    assert sizes == dict.fromkeys(permutations(range(4)), 4)
    whole = groups(rewards[:4], rewards[4:6], rewards[6:], correct=True)
    assert np.mean(ends) == pytest.approx(np.mean(over_all(whole, np.arange(7)) * scores))


@pytest.mark.parametrize("world", ["sums", "noisy", "steps", "tags", "hard", "large"])
def test_a_world_is_a_training_of_1200_seconds_at_a_price(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # its rewards are found from every folder
    config = compose(f"experiment={world}")
    assert (config.clock.name, config.budget.train_seconds) == ("l40s", 1200)
    assert config.rewards.grader == {"noisy": "noisy"}.get(world, "correctness")
    own_bases = BASES | {"large": "tiny_policy_large"}
    assert config.model.path.endswith(own_bases.get(world, "tiny_policy"))


@pytest.mark.parametrize("world", BASES)
def test_the_bases_are_those_that_were_measured(world):
    stored = json.loads((ROOT / "benchmarks" / "results" / "worlds.json").read_text())
    weights = ROOT / "pods" / BASES[world] / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == stored[world]["sha256"]
    assert weights.stat().st_size < 4e6


@pytest.mark.parametrize(
    ("counts", "n", "share"),
    [([16, 8, 0], 16, 1 / 3), ([16, 15, 0], 8, (1 + 1 / 2) / 3), ([7, 7], 8, 0.0)],
)
def test_dead_groups_follow_from_the_correct_ones_of_sixteen(counts, n, share):
    assert worlds.alike(np.array(counts), n) == pytest.approx(share)


def test_the_order_of_the_arms_over_worlds_has_a_w_of_one_if_it_is_the_same():
    means = {"pods": [0.5] * 3, "grpo": [0.4] * 3 + [0.9], "thin": [0.6] * 3}
    rows = []
    for world, (arm, values) in product("abcd", means.items()):
        rows += [(world, arm, 100 + i, value) for i, value in enumerate(values)]
    rows += [("not yet", arm, seed, 0.1) for arm, seed in product(means, (100, 101))]
    runs = pandas.DataFrame(rows, columns=["world", "arm", "seed", "mean"])
    text = ranking.worlds_table(ranking.differences(runs, "mean"), "abc")
    assert "Kendall's W of thin, pods, grpo over 3 worlds: 1.00" in text
    rows = [re.split(r" *\| *", line)[1:4] for line in text.splitlines()[2:5]]
    assert rows == [
        ["thin", *["+10.0 [+10.0, +10.0] (3)"] * 2],
        ["pods", *["+0.0 [+0.0, +0.0] (3)"] * 2],
        ["grpo", *["-10.0 [-10.0, -10.0] (3)"] * 2],
    ]


def test_what_is_finished_of_a_plan_is_shown(tmp_path):
    line = {"budget": 1200.0, "clock": "l40s", "accuracy": [0.5] * 12, "greedy": [0.5] * 12}
    runs = [*(("pods", seed) for seed in (100, 101, 102)), *(("grpo", seed) for seed in (100, 101))]
    for stage in ("tune", "report"):
        lines = [line | {"arm": a, "seed": s, "cell": [2, 2, 2, 1e-3]} for a, s in runs]
        (tmp_path / f"{stage}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    settings = [f"results_dir={tmp_path}", f"out_dir={tmp_path}", f"output_dir={tmp_path / 'runs'}"]
    plan = "plan=[{worlds: [sums], arms: [grpo, pods]}]"
    elsewhere = "worlds=[noisy]"  # a block may name a world that is not among them, such as large
    shown = processes.run(
        tmp_path, *settings, plan, elsewhere, "seeds=3", script="benchmarks/worlds.py"
    ).stdout
    assert "5 of 6 trainings are finished" in shown
    assert "+0.0 [+0.0, +0.0] (3)" in shown
    assert "| grpo" not in shown, "two seeds are no difference"
    assert (tmp_path / "worlds.png").is_file()
