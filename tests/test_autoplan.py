"""plan=auto: n and m change in the middle of a run, and the run goes on exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pods.config import command
from pods.config.errors import UserError
from pods.figures import plan, planner
from pods.runs import ledger
from pods.runs.folder import read_metrics
from pods.training import autoplan
from tests import processes
from tests.configs import compose
from tests.fake_run import make_run
from tests.steps import step_of

SETTINGS = [
    "prompts_per_step=2",
    "run=r", "plan=auto", "planner.first=10", "planner.every=10", "rollouts_per_prompt=16",
    "kept_per_prompt=4", "micro_batch_size=2", "budget.train_seconds=null", "max_steps=24",
    "checkpoint.every_seconds=null", "sampling.max_completion_length=16", "ledger.texts=all",
]  # fmt: skip


def change_twice() -> None:
    """Other sizes at step 10 and at step 20, whatever was measured."""
    chosen = {10: ([8, 2], [1.1, 1.5]), 20: ([16, 8], [1.2, 1.3])}
    autoplan.propose = lambda config, step: chosen[step]


def records(folder) -> list[dict]:
    return list(ledger.read(folder / "checkpoints" / "r" / "rollouts.jsonl.gz"))


def sizes(found: list[dict]) -> list[tuple[int, int]]:
    return [(len(r["total"]), len(r["kept"])) for r in found if r["group"] == 0]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    done = processes.run(folder, *SETTINGS, "resume=never", fault=change_twice)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_sizes_of_the_steps_are_those_of_the_plans(planned):
    folder, done = planned
    assert sizes(records(folder)) == [(16, 4)] * 10 + [(8, 2)] * 10 + [(16, 8)] * 4
    assert "step 10: plan 1: n 16 -> 8, m 4 -> 2; predicted speed 1.10 to 1.50" in done.stderr
    assert "step 20: plan 2: n 8 -> 16, m 2 -> 8" in done.stderr
    lines = read_metrics(folder / "checkpoints" / "r" / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 25))
    assert [line["plan/changes"] for line in lines] == [0] * 10 + [1] * 10 + [2] * 4
    assert [line["plan/n"] for line in lines] == [16] * 10 + [8] * 10 + [16] * 4
    trained = np.diff([0, *(line["rollouts/trained"] for line in lines)])
    assert trained.tolist() == [8] * 10 + [4] * 10 + [16] * 4
    seconds = [line["train_seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert done.stdout.count("24 steps in") == 1


def test_a_run_that_is_killed_after_a_plan_goes_on_with_its_sizes(planned, tmp_path):
    whole, _ = planned
    first = processes.run(
        tmp_path, *SETTINGS[:-4], "max_steps=13", *SETTINGS[-3:], fault=change_twice
    )
    assert first.returncode == 0, first.stderr
    second = processes.run(tmp_path, *SETTINGS, fault=change_twice)
    assert second.returncode == 0, second.stderr
    assert records(tmp_path) == records(whole)
    meta = tmp_path / "checkpoints" / "r" / "checkpoint-13" / "meta.json"
    assert json.loads(meta.read_text())["sizes"] == [8, 2]


def recorded(folder, generate: float, update: float) -> None:
    """40 steps of 16/4 and 40 of 8/2: nine of ten are right, and the given seconds a rollout."""
    made = {"rollouts_per_prompt": 16, "kept_per_prompt": 4, "micro_batch_size": 2}
    path = make_run(folder / "checkpoints", "r", steps=(), **made)
    book, rng, lines = (
        ledger.Ledger(path / "rollouts.jsonl.gz", "none"),
        np.random.default_rng(0),
        [],
    )
    for number in range(1, 81):
        n, m = (16, 4) if number <= 40 else (8, 2)
        rewards = [(rng.random(n) < 0.9).astype(float) for _ in range(2)]
        kept = [p * n + int(i) for p, r in enumerate(rewards) for i in np.sort(np.argsort(r)[:m])]
        step = step_of(dict(zip("ab", rewards, strict=True)), kept)
        batch = replace(step.batch, lengths=np.full((2, n), 10))
        book.append(number, replace(step, batch=batch))
        spent = {
            "generate": 2 * generate * n,
            "score": 0,
            "select": 0,
            "update": 0.1 + 2 * update * m,
        }
        noise = 1 + 0.05 * rng.random()
        line = {f"seconds/{name}": value * noise for name, value in spent.items()}
        lines.append(json.dumps({"step": number, **line}))
    book.flush()
    (path / "metrics.jsonl").write_text("\n".join(lines))


def test_cheap_generation_raises_n_and_a_dear_one_does_not(tmp_path):
    for name, generate in (("cheap", 0.0001), ("dear", 1.0)):
        recorded(tmp_path / name, generate, 0.01)
    keys = [
        "run=r",
        "plan=auto",
        "prompts_per_step=2",
        "rollouts_per_prompt=16",
        "kept_per_prompt=4",
        "micro_batch_size=2",
    ]
    found = {}
    for name in ("cheap", "dear"):
        config = compose(*keys, f"output_dir={tmp_path / name / 'checkpoints'}")
        found[name] = autoplan.propose(config, 80)
    (n, m), (low, high) = found["cheap"]
    assert n == 16  # the most
    assert 2 <= m < n
    assert 1 < low < high
    assert found["dear"] is None or found["dear"][0][0] <= 8


def test_no_step_counts_twice_in_the_costs(tmp_path, monkeypatch):
    recorded(tmp_path, 0.01, 0.02)
    fit, seen = planner.fit_costs, []

    def spy(runs, weights):
        seen.extend((tuple(run.cell[1:]), len(run.rewards)) for run in runs)
        return fit(runs, weights)

    monkeypatch.setattr(planner, "fit_costs", spy)
    keys = ["run=r", f"output_dir={tmp_path / 'checkpoints'}", "window=[41,80]", "timed_with=[r]"]
    composed = command.compose("plan", plan.PlanConfig, keys, plan.FOLDER)
    plan.from_run(command.typed(plan.PlanConfig, composed))
    assert seen == [((8, 2), 40), ((16, 4), 40)]


def test_the_sizes_that_may_be_taken():
    assert autoplan.sizes(24, 8) == [(8, 8), (16, 8), (16, 16), (24, 8), (24, 16)]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            ["algorithm=grpo"],
            "plan=auto algorithm=grpo: the planner cannot predict it; set algorithm=pods",
        ),
        (["rule=gfpo"], "plan=auto rule=gfpo: .*set rule=max_variance or rule=max_reward"),
        (["resample=dapo"], "plan=auto resample=dapo"),
        (["updates_per_generation=2"], "updates_per_generation=2: .*updates_per_generation=1"),
        (["planner.first=5"], "planner.first=5: must be 10 or more"),
    ],
)
def test_what_cannot_be_planned_is_refused(keys, said):
    with pytest.raises(UserError, match=said):
        compose("plan=auto", *keys)


def test_several_processes_cannot_be_planned(monkeypatch):
    config = compose("plan=auto")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    (said,) = autoplan.problems(config)
    assert said == "plan=auto: builds the training of one process again; set plan=none"


def test_a_plan_is_due_at_the_first_step_and_every_so_many_after_it():
    plan = autoplan.AutoPlan(compose("plan=auto", "planner.first=12", "planner.every=10"))
    assert [step for step in range(1, 40) if plan.due(step)] == [12, 22, 32]
    assert plan.meta() == {"sizes": [32, 16], "plan_changes": 0}
    none = autoplan.AutoPlan(compose())
    assert not any(none.due(step) for step in range(500))
    assert none.meta() == none.metrics() == {}


def test_plan_auto_is_part_of_the_runs_name():
    assert compose("plan=auto").run == "quickstart-pods-max_variance-n32-m16-auto-seed0"
    assert compose().run == "quickstart-pods-max_variance-n32-m16-seed0"
