"""docs/paper.md trains every arm of every figure; the same sweep again trains nothing."""

import itertools
import re
from fnmatch import fnmatch

import pytest

from pods.config import command, sweeps
from pods.config.keys import TrainConfig
from pods.training.check import settle
from tests import processes
from tests.conftest import ROOT

ROWS = re.findall(r"train\.py (?:-m )?(experiment=[^#\n]*)", (ROOT / "docs/paper.md").read_text())
ROWS.append("experiment=gsm8k_h100 algorithm=grpo_ga")  # the line says it in words
OURS = ("all", "a100s")  # drawn from others' runs; ours alone; a comment of h100s
FILES = [*(command.CONFIG_DIR / "figure").glob("[!_]*.yaml")]
FIGURES = [p.stem for p in FILES if p.stem not in OURS and "experiment" not in p.read_text()]


def names():
    """The runs that the lines of docs/paper.md train, with the first seed."""
    runs = set()
    for row in ROWS:
        pairs = (word.split("=") for word in re.sub(r"(seed=\d+),\S*", r"\1", row).split())
        choices = [[f"{key}={value}" for value in values.split(",")] for key, values in pairs]
        for overrides in itertools.product(*choices):
            composed = command.compose("train", list(overrides))
            composed.run = sweeps.name(
                composed, overrides, lambda rest: command.compose("train", rest)
            )
            config = command.typed(TrainConfig, composed)
            settle(config)
            runs.add(config.run)
    return runs


def test_every_arm_of_every_figure_is_trained_by_a_line():
    trained = names()
    assert len(FIGURES) == 9
    for figure in FIGURES:
        series = command.compose(f"figure/{figure}", []).figure.series
        for arm, settings in series.items():
            assert any(fnmatch(run, p) for run in trained for p in settings.runs), (figure, arm)


@pytest.mark.slow
def test_a_sweep_again_skips_finished_runs_and_resumes_others(tmp_path):
    keys = ["-m", "seed=1,2", "max_steps=2", "checkpoint.every_steps=1", "kept_per_prompt=2"]
    keys += ["rollouts_per_prompt=4", "micro_batch_size=2", "sampling.max_completion_length=4"]
    first = processes.run(tmp_path, *keys, "budget.train_seconds=null")
    assert first.returncode == 0, first.stderr
    runs = sorted((tmp_path / "checkpoints").glob("quickstart-*"))
    (runs[1] / "checkpoint-2" / "meta.json").unlink()  # as after a kill
    again = processes.run(tmp_path, *keys, "budget.train_seconds=null")
    assert again.returncode == 0, again.stderr
    for run, step in zip(runs, (2, 1), strict=True):
        assert f"{run.name}: 2 steps" in again.stdout
        assert f"resuming checkpoints/{run.name}/checkpoint-{step}" in again.stderr
    assert [again.stderr.count(f"step {step} ") for step in (1, 2)] == [0, 1]
