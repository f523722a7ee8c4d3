"""pods/signal and scripts/plan.py: sketches, updates as the trainer's, ratios of the signal."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from pods import PodsConfig, PodsTrainer, registry
from pods.advantages import over_kept
from pods.batch import Selection
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.signal import pool as pool_file
from pods.signal import record
from pods.signal.compare import CellRanking, signal
from pods.signal.pool import Pool
from pods.signal.simulate import Candidate, Simulator, Updates
from pods.signal.sketch import Sketch
from scripts import plan
from tests import processes
from tests.fake_run import make_run, quickstart_config
from tests.figures import refused
from tests.filled_steps import Scripted, model_with_adapter
from tests.filled_steps import load_tokenizer as tokenizer_at
from tests.test_pods_trainer import MODEL

PRICES = Prices(name="made up", fixed=1.0, generate=0.1, update=0.2)
PLAN = "scripts/plan.py"
OWN = """
def mine(step):
    batch = yield [*step.prompts, *step.fresh(1)], step.n
    return list(range(step.budget))
"""


def constant(step):
    """Every rollout with advantage 1."""
    batch = yield step.prompts, step.m
    return Selection(np.arange(len(batch)), np.ones(len(batch)))


def graded(completion_ids, **_):
    return [float(sum(ids) % 2) for ids in completion_ids]


def made_up(questions: int, rollouts: int, mean: np.ndarray, seed: int = 0) -> Pool:
    """Gradients that are normal around `mean` with unit variances; half of the rollouts correct."""
    rng = np.random.default_rng(seed)
    shape = questions, rollouts
    arrays = {
        "scores": (np.arange(questions * rollouts) % 2).reshape(*shape, 1).astype(np.float32),
        "lengths": np.full(shape, 10),
        "clipped": np.zeros(shape, bool),
        "logprobs": np.full(shape, np.nan),
        "sketches": rng.normal(mean, 1, (*shape, len(mean))).astype(np.float32),
    }
    return Pool(
        facts={"name": "made up", "weights": {"graded": 1.0}, "correct": "graded"},
        rows=[{"id": str(number)} for number in range(questions)],
        arrays={name: list(values) for name, values in arrays.items()},
    )


def trainer_of(folder, loss: str = "grpo", rows: int = 4, prompts: int = 3) -> PodsTrainer:
    """A trainer on a small model whose rollouts are a function of prompt and index, which takes
    `rows` rollouts of a prompt."""
    arguments = PodsConfig(
        output_dir=str(folder),
        algorithm="grpo",
        num_generations=rows,
        rollouts_per_prompt=rows,
        per_device_train_batch_size=rows * prompts,
        correct="graded",
        loss_type=loss,
        max_completion_length=8,
        max_steps=1,
        max_grad_norm=0,
        use_cpu=True,
        bf16=False,
        report_to="none",
        gradient_checkpointing=False,
        mask_truncated_completions=False,
    )
    data = Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(8)]})
    model = model_with_adapter()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # else the gradient of lora_A is 0
            torch.nn.init.normal_(parameter, std=0.2)
    return PodsTrainer(
        model,
        graded,
        arguments,
        data,
        processing_class=tokenizer_at(MODEL),
        sampler=Scripted,
    )


def parameters_of(trainer: PodsTrainer) -> list[torch.Tensor]:
    return [p for p in trainer.model.parameters() if p.requires_grad]


def empty(trainer: PodsTrainer, rows: int = 4, size: int = 64) -> Pool:
    """The pool before the first question."""
    facts = {"weights": trainer.driver.weights, "correct": "graded", "name": "small"}
    return pool_file.stored(Path("none"), facts | {"rollouts": rows, "sketch": size})


def test_sketches_keep_the_inner_products_of_gradients_of_a_model(tmp_path):
    trainer = trainer_of(tmp_path)
    prompts = record.prompts_of(trainer.train_dataset, 4, seed=0)
    rollouts = trainer.sample([prompts[0]] * 4, [0, 1, 2, 3])
    scores = trainer.score([prompts[0]] * 4, rollouts)
    gradients = []
    for gradient in record.row_gradients(trainer, prompts[0], rollouts, scores):
        gradients.append([part.clone() for part in gradient])
    whole = torch.stack([torch.cat([p.flatten() for p in parts]) for parts in gradients])
    sketch = Sketch(whole.shape[1], 1024, whole.device)
    sketches = torch.stack([sketch(parts) for parts in gradients])
    exact = whole @ whole.T
    lengths = whole.norm(dim=1)
    error = (sketches @ sketches.T - exact) / torch.outer(lengths, lengths)
    assert error.abs().max() < 5 / np.sqrt(1024)
    assert error.abs().max() > 0
    torch.testing.assert_close(sketch(gradients[0]) * 2, sketch([2 * g for g in gradients[0]]))


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "bnpo"])
def test_the_simulated_update_of_all_rollouts_is_the_gradient_of_the_trainer(tmp_path, loss):
    one = trainer_of(tmp_path, loss, prompts=1)
    prompts = record.prompts_of(one.train_dataset, 3, seed=0)
    pool = record.record(one, prompts, empty(one), tmp_path / "pool.npz", at_once=2)
    simulator = Simulator(pool, loss, 12)
    grpo = registry.bind("algorithm", "grpo", {})
    rng = np.random.default_rng(0)
    (step,) = simulator.records(grpo, over_kept, Candidate("grpo", 3, 4, 4), 1, rng)
    places = np.array([rollout.position for rollout in step.rollouts])
    weights = simulator.loss_weights(simulator.tokens[places], 12, rng)
    update = (over_kept(step.batch, np.arange(12)) * weights) @ simulator.sketches[places]

    trainer = trainer_of(tmp_path, loss)
    wanted = [prompt for prompt in step.prompts for _ in range(4)]
    pairs = zip(wanted, places, strict=True)
    rollouts = [trainer.sampler.sample([(prompt, place % 4)])[0] for prompt, place in pairs]
    scores = torch.as_tensor(trainer.score(wanted, rollouts))
    batch = trainer.tensors([prompt.row["prompt"] for prompt in wanted], rollouts, scores)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer.compute_loss(trainer.model, batch).backward()
    parts = [p.grad for p in parameters_of(trainer)]
    sketch = Sketch(sum(part.numel() for part in parts), 64, parts[0].device)
    np.testing.assert_allclose(update, -sketch(parts), rtol=1e-4, atol=1e-6)


def test_a_recording_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    file = tmp_path / "pool.npz"
    trainer = trainer_of(tmp_path, prompts=1)
    prompts = record.prompts_of(trainer.train_dataset, 3, seed=0)
    undisturbed = record.record(trainer, prompts, empty(trainer), file, at_once=1)
    sampled = []

    def sample(wanted):
        if len(sampled) == 2:
            raise KeyboardInterrupt
        sampled.append(wanted[0][0])
        return Scripted(trainer).sample(wanted)

    file.unlink()
    monkeypatch.setattr(trainer.sampler, "sample", sample)
    with pytest.raises(KeyboardInterrupt):
        record.record(trainer, prompts, empty(trainer), file, at_once=1)
    monkeypatch.undo()
    pool = pool_file.load(file)
    assert [row["id"] for row in pool.rows] == sampled == prompts[:2]
    pool = record.record(trainer, prompts, pool, file, at_once=1)
    np.testing.assert_array_equal(pool.arrays["sketches"], undisturbed.arrays["sketches"])
    assert [row["id"] for row in pool_file.load(file).rows] == prompts
    changed = r"another correct \(graded -> other\); remove it to record again"
    with pytest.raises(UserError, match=changed):
        pool_file.stored(file, pool.facts | {"correct": "other"})
    file.write_bytes(file.read_bytes()[:-100])  # a copy that was cut off
    with pytest.raises(UserError, match=r"no recorded rollouts .*; remove it"):
        pool_file.load(file)


def test_a_question_that_comes_twice_in_a_step_is_two_prompts():
    """As in training, where a small data set is dealt again within a step."""
    simulator = Simulator(made_up(3, 8, np.ones(4)), "grpo", 8)
    sizes = []

    def twice(step):
        batch = yield [*step.prompts, *step.fresh(3)], step.n
        sizes.append([len(group) for group in batch.groups])
        return np.arange(step.budget)

    simulator.updates(twice, over_kept, Candidate("twice", 3, 4, 4), PRICES, steps=2)
    assert sizes == [[4] * 6] * 2


def test_the_signal_of_made_up_gaussians_and_its_lower_end():
    """|E r|^2 = 0.1 of 50 equal numbers; the 2.5 % end lies above it in few of 40 pools."""
    mean = np.full(50, 0.002**0.5)
    values = []
    above = 0
    for seed in range(40):
        value, low = signal(whole_of(Simulator(made_up(40, 8, mean, seed), "grpo", 8)))
        values.append(value)
        above += low > 0.1
    assert np.mean(values) == pytest.approx(0.1, rel=0.1)
    assert above <= 3


def test_without_a_mean_gradient_there_is_an_order_only():
    simulator = Simulator(made_up(40, 8, np.zeros(50)), "dapo", 8)
    cell = Candidate("constant", 2, 4, 4)
    updates = simulator.updates(constant, over_kept, cell, PRICES)
    assert updates.seconds == pytest.approx(1 + 8 * (0.1 + 0.2))
    comparison = CellRanking({cell: updates}, whole_of(simulator), cell)
    assert not comparison.has_signal
    assert comparison.row(cell)["rate"] is None
    (line,) = comparison.verdict()
    assert line.startswith("order only: ")


@pytest.mark.parametrize(("alive", "resolved"), [(0, False), (6, True)])
def test_a_resample_without_signal_is_one_in_which_the_cell_has_none(alive, resolved):
    """With 6 of 30 questions that have signal 0.1 % of the resamples take none of them; without any
    the row holds numbers, which JSON can write."""
    own = updates_of(0.2, 2.0)
    own.mean[alive:] = 0
    own.squares[alive:] = 0
    cell = Candidate("grpo", 1, 4, 4)
    with warnings.catch_warnings(action="error"):
        comparison = CellRanking({cell: own}, own.mean, cell)
    assert (cell in comparison.rates) == resolved
    row = json.loads(json.dumps(comparison.row(cell), allow_nan=False))
    assert row["relative_ci95"] == ([1, 1] if resolved else None)


def whole_of(simulator: Simulator) -> np.ndarray:
    """The mean of each question's gradients, as `constant` weighs them."""
    sketches = np.array(simulator.pool.arrays["sketches"])
    return sketches.mean(axis=1) / len(sketches)


def updates_of(mean: float, seconds: float, direction: int = 0) -> Updates:
    """Of 30 questions that agree, with unit noise."""
    parts = np.zeros((30, 2))
    parts[:, direction] = mean / 30
    return Updates(parts, np.full(30, 1 / 30), 1.0, seconds, with_signal=0.5)


def test_rates_are_compared_with_the_same_questions():
    reference, fast, other = (Candidate(name, 8, 4, 4) for name in ("grpo", "fast", "other"))
    updates = {
        reference: updates_of(0.1, 2.0),
        fast: updates_of(0.2, 2.0),
        other: updates_of(0.1, 2.0, direction=1),
    }
    comparison = CellRanking(updates, updates[reference].mean, reference)
    row = comparison.row(fast)
    assert row["relative"] == pytest.approx(4)
    assert comparison.row(other)["relative"] is None, "it points another way"
    assert comparison.ranking == [fast, reference]
    best, counts, _ = comparison.verdict()
    assert best.startswith("best: fast P=8 n=4 m=4, 4.00 (4.00 to 4.00) times")
    assert counts == "of 3 cells 0 cannot be told from it, and 1 have no rate"


def test_the_table_has_the_best_cell_of_each_algorithm_and_ratios_only_with_signal(capsys):
    words = ["run=r", "algorithms=[grpo,pods]", "cells=[[4,8,4],[8,8,8]]"]
    config = typed(plan.PlanConfig, compose("plan", words, CONFIG_DIR / "checkpoint"))
    training = quickstart_config()
    cells = plan.cells_of(config, training)
    for mean, columns in ((1.0, True), (0.0, False)):
        pool = made_up(12, 8, np.zeros(20))
        for sketches in pool.arrays["sketches"]:
            sketches += mean * np.array([-1, 1] * 4)[:, None]  # the right rollouts agree
        plan.show(config, training, pool, cells, PRICES)
        _, head, *rows, last = capsys.readouterr().out.splitlines()
        assert ("relative_ci95" in head) == columns
        names = [row.split()[0] for row in rows[: -2 if columns else None]]
        assert sorted(names) == sorted({*names}), "one row each"
        assert last.startswith("intervals: " if columns else "order only: ")


@pytest.mark.slow
def test_the_command_records_once_and_simulates_an_algorithm_of_the_users(tmp_path):
    make_run(tmp_path / "checkpoints", "r", steps=(4,))
    (tmp_path / "my.py").write_text(OWN)
    sizes = ["questions=4", "rollouts=4", "sketch=64", "cells=[[2,4,2]]"]
    words = ["run=r", "clock=l40s", "algorithms=[pods,my.py:mine]", *sizes]
    answer = json.loads(processes.run(tmp_path, *words, "json=true", script=PLAN).stdout)
    assert answer["best"] is None or answer["best"] in answer["cells"]
    cells = {cell["algorithm"]: cell for cell in answer["cells"] if cell["prompts"] == 2}
    assert cells.keys() == {"pods", "my.py:mine"}
    assert cells["my.py:mine"]["seconds_per_step"] == pytest.approx(4.8 + 12 * 0.06 + 4 * 0.105)
    reference = ("grpo", 8, 4, 4)
    names = ("algorithm", "prompts", "n", "m")
    assert reference in [tuple(cell[name] for name in names) for cell in answer["cells"]]
    file = tmp_path / "checkpoints" / "r" / "signal-checkpoint-4.npz"
    pool = pool_file.load(file)
    sketches = np.array(pool.arrays["sketches"])
    assert sketches.shape == (4, 4, 64)
    assert np.abs(sketches).max(axis=2).min() > 0
    before = file.stat().st_mtime_ns
    shown = processes.run(tmp_path, *words, script=PLAN).stdout
    assert shown.startswith("r-checkpoint-4: 4 questions x 4 rollouts\n")
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(["algorithm=grpo", "rule=null"], id="without a rule"),
        pytest.param(["rule=all", "rollouts_per_prompt=4"], id="with all of them"),
        pytest.param(["rule=percentile"], id="with a rule of its own"),
    ],
)
def test_pods_is_simulated_at_runs_of_every_rule(own):
    words = ["run=r", "algorithms=[pods]", "cells=[[8,4,2]]"]
    config = typed(plan.PlanConfig, compose("plan", words, CONFIG_DIR / "checkpoint"))
    (algorithm, _) = plan.cells_of(config, quickstart_config(*own))[Candidate("pods", 8, 4, 2)]
    rule = "percentile" if "rule=percentile" in own else "max_variance"
    assert algorithm.keywords["rule"].__name__ == rule


@pytest.mark.parametrize(
    ("words", "line"),
    [
        pytest.param(["run=no"], "run=no: no such run in output_dir=checkpoints", id="no run"),
        pytest.param(["run=r*"], "run=r*: matches r, r2; name one", id="several runs"),
        pytest.param(["run=r"], "run=r: has 1 steps, and costs need 10 or more;", id="few steps"),
        pytest.param(["run=r", "cells=[[1,2,4]]"], "cells: [1, 2, 4] must be [P,n,m]", id="cells"),
        pytest.param(["run=r", "clock=h"], "clock=h: no such file", id="no such price list"),
        pytest.param(
            ["run=r", "algorithms=[best]"],
            "algorithms: algorithm=best: unknown",
            id="no such algorithm",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, line):
    monkeypatch.chdir(tmp_path)
    for name in ("r", "r2"):
        run = make_run(Path("checkpoints"), name, steps=(4,))
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
    assert refused(capsys, PLAN, *words).startswith(f"plan.py: {line}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algorithm", "theirs.py:mine"),
        ("rule", "theirs.py:mine"),
        ("engine", "theirs.py:Mine"),
        ("rewards.functions.own", "theirs.py:mine"),
    ],
)
def test_code_of_a_saved_config_runs_only_if_the_user_says_so(
    tmp_path, monkeypatch, capsys, key, value
):
    monkeypatch.chdir(tmp_path)
    make_run(Path("checkpoints"), "r", steps=(4,), **{key: value})
    line = refused(capsys, PLAN, "run=r")
    assert line.startswith(f"plan.py: run=r: its config names code of this machine, {key}={value};")
