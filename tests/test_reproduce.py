"""Reproducing a figure: which runs it needs, what is left after a stop, once for real."""

import json
from fnmatch import fnmatch
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
import yaml

from pods.config.command import CONFIG_DIR, compose
from pods.config.errors import UserError
from pods.recipes import Recipe, ReproduceConfig, estimate, plan, recipe_of
from tests.conftest import ROOT
from tests.figures import in_process

FOLDER = CONFIG_DIR / "reproduce"
RECIPES = yaml.safe_load((FOLDER / "reproduce.yaml").read_text())["recipes"]


def config(figure: str, tmp_path: Path, **settings: object) -> ReproduceConfig:
    values = {
        "seeds": 1, "first_seed": 0, "dry_run": True, "launcher": None, "train": [],
        "evaluate": [], "plot": [], "output_dir": str(tmp_path), "results_dir": "results",
        "out_dir": "figures",
        "recipes": {name: Recipe(**recipe) for name, recipe in RECIPES.items()},
    }  # fmt: skip
    return ReproduceConfig(figure=figure, **values | settings)


def write_checkpoint(folder: Path, step: int, seconds: float) -> None:
    folder = folder / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"step": step, "train_seconds": seconds}))


@pytest.mark.parametrize("figure", RECIPES)
def test_the_figure_draws_every_run_of_its_recipe(figure, tmp_path):
    runs = plan(config(figure, tmp_path, seeds=2))
    series = compose(f"figure/{figure}", None, []).figure.series
    assert {run.arm for run in runs} == series.keys()
    assert len({run.config.run for run in runs}) == len(runs) == 2 * len(series)
    for run in runs:
        found = {
            label
            for label, arm in series.items()
            if any(fnmatch(run.config.run, pattern) for pattern in arm["runs"])
        }
        assert found == {run.arm}  # by its own arm and by no other


def test_ten_seeds_interleave_the_arms(tmp_path):
    runs = plan(config("gsm8k_main", tmp_path, seeds=10))
    assert [run.seed for run in runs[:6]] == [0, 0, 0, 1, 1, 1]
    assert len(runs) == 30


def test_the_benchmark_treats_the_arms_alike_and_reports_on_seeds_that_no_sweep_saw():
    path = ROOT / "benchmarks" / "quickstart.py"
    benchmark = SourceFileLoader("benchmark", str(path)).load_module()
    parts = {part: benchmark.cells(part, "miniature") for part in ("sweep", "report")}
    seeds, splits, rates = {}, {}, {}
    for part, runs in parts.items():
        seeds[part] = {run.seed for run in runs}
        splits[part] = {run.config.evaluation.split for run in runs}
        arms = {run.arm for run in runs}
        assert {run.arm for run in runs[: len(arms)]} == arms  # in turns
        assert len({run.config.run for run in runs}) == len(runs)
    for run in parts["sweep"]:
        cell = (run.config.optimizer.learning_rate, run.config.prompts_per_step, run.seed)
        rates.setdefault(run.arm, set()).add(cell)
    assert not seeds["sweep"] & seeds["report"]
    assert splits == {"sweep": {"validation"}, "report": {"test"}}
    assert len(set(map(frozenset, rates.values()))) == 1
    assert rates.keys() == RECIPES["miniature"]["arms"].keys()


def test_a_figure_without_a_recipe_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"figure=mine: has no recipe; .* quickstart, .*, h100s"):
        recipe_of(config("mine", tmp_path))
    with pytest.raises(UserError, match="seeds=0"):
        recipe_of(config("quickstart", tmp_path, seeds=0))
    with pytest.raises(UserError, match="launcher=slurm: must be null or one of submitit_slurm, "):
        recipe_of(config("quickstart", tmp_path, launcher="slurm"))


@pytest.mark.parametrize(
    ("train", "step", "seconds", "left"),
    [
        ([], 0, 0.0, 21600),
        ([], 900, 9000.0, 12600),
        ([], 2100, 21603.0, 0),
        (["max_steps=100"], 0, 0.0, 21600),  # before the first checkpoint the time budget counts
        (["max_steps=100"], 40, 400.0, 600),  # 60 steps of 10 s
        (["max_steps=100"], 100, 1000.0, 0),
        (["max_steps=100000"], 40, 400.0, 21200),
        (["max_steps=100", "budget.train_seconds=null"], 0, 0.0, float("inf")),
    ],
)
def test_what_is_left_of_a_run(tmp_path, train, step, seconds, left):
    settings = config("gsm8k_main", tmp_path, train=train)
    if step:
        write_checkpoint(tmp_path / "gsm8k_qwen-pods-max_variance-n64-m16-seed0", step, seconds)
    run = next(run for run in plan(settings) if run.arm == "GRPO-PODS")
    assert run.seconds_left == pytest.approx(left)
    assert run.finished == (left == 0)


def test_gpu_hours_count_every_gpu_of_the_figure(tmp_path):
    settings = config("h100s", tmp_path, seeds=2)
    write_checkpoint(tmp_path / "gsm8k_h100-pods-max_variance-n512-m128-seed0", 40, 1800.0)
    assert estimate(settings, plan(settings)) == [  # half an hour of 8 GPUs a run
        "GRPO-GA: 0 of 2 runs done, 8.00 GPU hours left (1.00 hours on 8 GPUs)",
        "GRPO-PODS: 1 of 2 runs done, 4.00 GPU hours left (0.50 hours on 8 GPUs)",
        "total, without evaluation: 1 of 4 runs done, 12.00 GPU hours left (1.50 hours on 8 GPUs)",
    ]


def test_dry_run_prints_commands_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert in_process("scripts/reproduce.py", "figure=gsm8k_main", "seeds=2", "dry_run=true") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert sum("train.py experiment=gsm8k_qwen" in line for line in lines) == 6
    assert sum("evaluate_run.py run=gsm8k_qwen-" in line for line in lines) == 6
    assert "plot.py figure=gsm8k_main" in lines[-1]
    assert "total, without evaluation: 0 of 6 runs done, 36.00 GPU hours left" in said.err
    assert list(tmp_path.iterdir()) == []


def test_where_the_first_training_cannot_begin_no_other_is_tried(run_command, tmp_path):
    keys = ["figure=quickstart", "seeds=2", "train=['model.path=absent']"]
    done = run_command("scripts/reproduce.py", *keys)
    assert done.returncode == 1
    assert done.stderr.count("$ ") == 1
    assert "run the same command again to continue" in done.stderr.splitlines()[-1]


def test_a_launcher_sweeps_the_seeds_of_an_arm(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    keys = ["figure=gsm8k_main", "seeds=3", "dry_run=true", "launcher=submitit_slurm"]
    keys.append('train=["hydra.launcher.partition=gpu"]')
    assert in_process("scripts/reproduce.py", *keys) == 0
    said = capsys.readouterr().out
    assert f"{ROOT}/" not in said  # paths below the working folder are relative
    trainings = [line for line in said.splitlines() if "train.py" in line]
    assert len(trainings) == 3
    assert all("-m hydra/launcher=submitit_slurm" in line for line in trainings)
    assert all("hydra.launcher.partition=gpu" in line for line in trainings)
    assert all("seed=0,1,2" in line for line in trainings)


def test_the_runs_of_a_launcher_have_a_sweeps_names(tmp_path):
    train = ["optimizer.learning_rate=1e-3", "hydra.launcher.partition=gpu"]
    runs = plan(config("quickstart", tmp_path, train=train, launcher="submitit_slurm"))
    names = [run.config.run.partition("-seed0-")[2] for run in runs]
    assert set(names) == {
        "optimizer.learning_rate-0.001", "micro_batch_size-24-optimizer.learning_rate-0.001"
    }  # fmt: skip


def test_a_figure_of_several_gpus_names_its_processes(tmp_path):
    settings = config("h100s", tmp_path, launcher="submitit_slurm")
    with pytest.raises(UserError, match=r"launcher=submitit_slurm: .* inside a job"):
        recipe_of(settings)
    settings = config("h100s", tmp_path)
    settings.recipes["h100s"].launch = "zero9"
    known = "cpu, ddp, zero2, zero3"
    with pytest.raises(UserError, match=f"recipes.h100s.launch=zero9: .* one of {known}"):
        recipe_of(settings)


def test_dry_run_of_setting_f_is_two_launches(capsys):
    assert in_process("scripts/reproduce.py", "figure=a100s", "seeds=1", "dry_run=true") == 0
    *trainings, one, other, plot = capsys.readouterr().out.splitlines()
    for line, algorithm in zip(trainings, ("grpo_ga", "pods"), strict=True):
        assert "launch --config_file=" in line
        assert "config/accelerate/zero3.yaml train.py" in line.replace(f"{ROOT}/", "")
        assert f"train.py experiment=gsm8k_a100 algorithm={algorithm}" in line
    assert "run=gsm8k_a100-grpo_ga-all-n512-m512-seed0" in one
    assert "run=gsm8k_a100-pods-max_variance-n512-m128-seed0" in other
    assert one.endswith("from_training=true")
    assert "plot.py figure=a100s" in plot


@pytest.mark.slow
def test_setting_e_from_nothing_to_the_figure(run_command, tmp_path):
    """Two processes on the CPU, full-parameter training of the tiny policy, scored as it trains."""
    (tmp_path / "gsm8k").mkdir()
    rows = [{"question": f"{i}+{i}=?", "answer": f"... #### {2 * i}"} for i in range(20)]
    for split in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "gsm8k" / f"{split}.jsonl").write_text(text)
    small = [
        "model=tiny", "data_dir=.", "task.validation_size=4", "max_steps=2",
        "rollouts_per_prompt=8", "kept_per_prompt=4", "prompts_per_step=2", "micro_batch_size=4",
        "sampling.max_completion_length=8", "evaluation.every_seconds=0.001", "rewards.workers=1",
    ]  # fmt: skip
    done = run_command(
        "scripts/reproduce.py", "figure=h100s", "seeds=1", "recipes.h100s.launch=cpu",
        "~recipes.h100s.arms.GRPO-GA", f"train={json.dumps(small)}",
        'plot=["figure.grid_seconds=0.1","figure.budget_seconds=60"]',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    name = "gsm8k_h100-pods-max_variance-n8-m4-seed0"
    meta = json.loads((tmp_path / "checkpoints" / name / "checkpoint-2" / "meta.json").read_text())
    assert meta["ranks"] == 2
    lines = (tmp_path / "checkpoints" / name / "evaluations.jsonl").read_text().splitlines()
    results = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert list(results) == ["checkpoint-1", "checkpoint-2"]
    for line, checkpoint in zip(map(json.loads, lines), results.values(), strict=True):
        assert checkpoint["gsm8k"]["for_acc"] == [line["eval/well_formed"]]
        assert checkpoint["gsm8k"]["lengths"] == [line["eval/completion_length_mean"]]
    assert checkpoint["meta"]["train_seconds"] == meta["train_seconds"]
    assert checkpoint["meta"]["tokens_generated"] == meta["tokens_generated"]
    curves = json.loads((tmp_path / "figures" / "h100s" / "curves.json").read_text())["series"]
    assert list(curves) == ["GRPO-PODS"]
    assert curves["GRPO-PODS"]["mean"][-1] == checkpoint["gsm8k"]["ans_acc"][0]
    assert (tmp_path / "figures" / "h100s" / "main.png").is_file()


def test_the_quickstart_from_nothing_to_the_figure(run_command, tmp_path, monkeypatch, capsys):
    command = [
        "scripts/reproduce.py", "figure=quickstart", "seeds=1", "~recipes.quickstart.arms.GRPO",
        "~recipes.quickstart.arms.GRPO-equal-cost", "~recipes.quickstart.arms.GRPO-GA",
        'train=["max_steps=2","checkpoint.every_steps=2","checkpoint.every_seconds=null"]',
        'evaluate=["repeats=1","pass_at=[1]","max_tokens=4"]',
        'plot=["figure.grid_seconds=0.1"]',  # two steps take about a second
    ]  # fmt: skip
    done = run_command(*command)
    assert done.returncode == 0, done.stderr[-3000:]
    name = "quickstart-pods-max_variance-n32-m16-seed0"
    assert (tmp_path / "checkpoints" / name / "checkpoint-2" / "meta.json").is_file()
    assert "checkpoint-2" in json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert (tmp_path / "results" / "base-tiny.json").is_file()
    assert (tmp_path / "figures" / "quickstart" / "main.png").is_file()
    monkeypatch.chdir(tmp_path)
    assert in_process(*command, "dry_run=true") == 0
    again = capsys.readouterr()
    assert "train.py" not in again.out  # the run has reached its end
    assert "GRPO-PODS: 1 of 1 runs done, 0.00 GPU hours left" in again.err
