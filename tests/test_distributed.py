"""Two processes, one run: the update, the kept sets and the files of one process.

Rank 0 and rank 1 are real processes joined by gloo; tests/test_distributed_launch.py starts them
with the real launcher.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pods import ranks
from pods.config.errors import UserError
from pods.models.policy import Policy
from pods.runs import checkpoints, ledger
from pods.runs.folder import read_metrics
from pods.trainer import PodsConfig
from pods.training.build import refuse_changes, trl_arguments
from rewards import functions
from tests import faults, processes, two_ranks
from tests.configs import compose
from tests.two_ranks import fixed_rollouts

SETTINGS = [
    "prompts_per_step=2",
    "run=r", "rollouts_per_prompt=8", "kept_per_prompt=4", "micro_batch_size=2", "max_steps=3",
    "sampling.max_completion_length=8", "budget.train_seconds=null", "ledger.texts=all",
    "checkpoint.every_seconds=null", "checkpoint.every_steps=1",
]  # fmt: skip


def run(folder: Path, *overrides: str, **settings: object) -> list:
    return two_ranks.run(folder, *SETTINGS, f"output_dir={folder}", *overrides, **settings)


def lines(path: Path) -> list[dict]:
    """The metric lines but for seconds."""
    steady = read_metrics(path / "metrics.jsonl")
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in steady]


def trained(folder: Path, *overrides: str) -> None:
    """Train with one process and with two on the same rollouts: equal adapters and prices."""
    for count in (1, 2):
        done = run(folder / str(count), "clock=l40s", *overrides, ranks=count, fault=fixed_rollouts)
        assert [p.returncode for p in done] == [0] * count, [p.stderr for p in done]
    assert (done[0].folder / "stdout").read_text().count(" steps") == 1
    assert (done[1].folder / "stdout").read_text() == ""
    paths = [checkpoints.find(folder / count / "r")[-1].path for count in "12"]
    seconds = {checkpoints.find(folder / count / "r")[-1].meta["train_seconds"] for count in "12"}
    assert len(seconds) == 1
    one, two = (load_file(path / "adapter_model.safetensors") for path in paths)
    assert max(value.abs().max() for name, value in one.items() if "lora_B" in name) > 5e-4
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=0)


# AdamW divides by the gradient's size, which makes rounding noise as large as a learning rate; with
# epsilon 1 it divides by 1. Plain gradient steps divide by nothing.
ADAM = ["loss.beta=0.04", "optimizer.learning_rate=0.1", "trl={adam_epsilon: 1.0}"]
SGD = ["optimizer.name=sgd", "optimizer.learning_rate=1"]


@pytest.mark.parametrize(
    ("prompts", "overrides"),
    [(2, ADAM), (1, [*SGD, "loss.type=grpo", "rule=random"])],  # a prompt a rank, or one on both
)
def test_two_processes_make_the_update_of_one(tmp_path, prompts, overrides):
    trained(tmp_path, f"prompts_per_step={prompts}", *overrides)
    one, two = tmp_path / "1" / "r", tmp_path / "2" / "r"
    records = [list(ledger.read(p / "rollouts.jsonl.gz")) for p in (one, two)]
    assert records[0] == records[1]  # the same rollouts, rewards and kept sets, written once
    assert len(records[1]) == 3 * prompts
    for mine, theirs in zip(lines(two), lines(one), strict=True):
        for name in ("entropy", "kl"):  # TRL's mean over micro-batches, of unequal lengths
            assert mine.pop(name, 0) == pytest.approx(theirs.pop(name, 0), abs=0.1)
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["bnpo", "dapo"])
def test_rows_that_fill_the_last_rank_count_on_no_rank(tmp_path, loss):
    """With rows as micro-batches bnpo is a mean over rows, however they are shared out."""
    (tmp_path / "mine.py").write_text(
        "def first_three(step):\n    batch = yield step.prompts, step.n\n    return [0, 1, 2]\n"
    )
    algorithm = f"algorithm.name={tmp_path / 'mine.py'}:first_three"
    trained(tmp_path, algorithm, "micro_batch_size=1", "max_steps=1", f"loss.type={loss}", *SGD)


def rank_one(fault: Callable[[], None]) -> Callable[[], None]:
    """The fault, on rank 1 alone."""
    return lambda: fault() if ranks.rank() == 1 else None


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    done = run(folder, "max_steps=6")
    assert [p.returncode for p in done] == [0, 0], done[0].stderr
    return folder / "r"


def test_one_writer_and_the_slowest_ranks_seconds(reference):
    metrics = read_metrics(reference / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    phases = ("generate", "score", "select", "update")
    seconds = [line[f"seconds/{phase}"] for line in metrics for phase in phases]
    assert min(seconds) >= 0
    assert metrics[-1]["train_seconds"] == pytest.approx(sum(seconds))
    assert metrics[-1]["rollouts/generated"] == 6 * 2 * 8
    saved = checkpoints.find(reference)
    assert [c.step for c in saved] == [1, 2, 3, 4, 5, 6]
    assert [checkpoints.damage(c) for c in saved] == [None] * 6
    assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt"} <= saved[-1].meta["files"].keys()
    assert [c.resumable for c in saved] == [False] * 4 + [True] * 2  # checkpoint.keep is 2
    assert not list(saved[0].path.glob("rng_state*"))
    assert saved[-1].meta["ranks"] == 2


def test_a_killed_rank_ends_the_run_which_resumes_to_the_same_bits(tmp_path, reference):
    killed = run(tmp_path, "max_steps=6", fault=rank_one(faults.kill_in_step))
    assert killed[1].returncode == -signal.SIGKILL
    assert killed[0].returncode == 1, killed[0].stderr
    assert "another process of the run ended" in killed[0].stderr.splitlines()[-1]
    assert killed[0].stderr.splitlines()[-1].endswith("checkpoint-3")
    assert checkpoints.newest_intact(tmp_path / "r")[0].step == 3
    (alone,) = run(tmp_path, "max_steps=6", ranks=1)
    assert alone.returncode == 2
    assert "was written by 2 processes, and this run has 1" in alone.stderr.splitlines()[-1]
    resumed = run(tmp_path, "max_steps=6")
    assert [p.returncode for p in resumed] == [0, 0], resumed[0].stderr
    name = "adapter_model.safetensors"
    final = [(p / "checkpoint-6" / name).read_bytes() for p in (tmp_path / "r", reference)]
    assert final[0] == final[1]
    assert lines(tmp_path / "r") == lines(reference)
    records = [list(ledger.read(p / "rollouts.jsonl.gz")) for p in (tmp_path / "r", reference)]
    assert records[0] == records[1]


@pytest.mark.slow
def test_a_rank_killed_while_saving_leaves_the_checkpoint_before(tmp_path):
    killed = run(tmp_path, "max_steps=6", fault=rank_one(kill_in_second_save))
    assert [p.returncode for p in killed] == [1, -signal.SIGKILL], killed[0].stderr
    last = killed[0].stderr.splitlines()[-1]
    assert "another process of the run ended; last checkpoint: " in last
    assert last.endswith("checkpoint-1")
    assert checkpoints.newest_intact(tmp_path / "r")[0].step == 1
    assert not list((tmp_path / "r").glob(".checkpoint-*"))


def kill_in_second_save() -> None:
    def act(trainer: Any, *_: Any) -> None:
        if trainer.state.global_step == 2:
            faults.kill()

    faults.before(checkpoints, "write", act)


def test_sigterm_on_one_rank_saves_and_ends_both(tmp_path):
    started = two_ranks.start(tmp_path, *SETTINGS, f"output_dir={tmp_path}", "max_steps=100000",
                          "checkpoint.every_steps=null")  # fmt: skip
    path = tmp_path / "r" / "metrics.jsonl"
    processes.wait_for(lambda: path.is_file() and read_metrics(path), started)
    os.kill(started[1].pid, signal.SIGTERM)
    assert [p.wait().returncode for p in started] == [143, 143], started[0].stderr
    assert "run again to resume" in started[0].stderr
    saved = checkpoints.find(tmp_path / "r")[-1]
    assert saved.step == read_metrics(path)[-1]["step"]


def test_a_reward_that_raises_on_one_rank_ends_both(tmp_path):
    done = run(tmp_path, "max_steps=40", fault=rank_one(broken_reward))
    assert [p.returncode for p in done] == [1, 1]
    assert "raised ZeroDivisionError" in done[1].stderr.splitlines()[-1]
    assert "another process of the run ended" in done[0].stderr.splitlines()[-1]
    assert (tmp_path / "r" / "failed_reward.json").is_file()


def broken_reward() -> None:
    faults.before(functions, "tags", lambda *_: 1 / 0)


@pytest.mark.parametrize(
    ("count", "overrides", "message"),
    [
        (3, ["prompts_per_step=1"], "must be shared equally by 3 processes"),
        (2, ["prompts_per_step=3", "micro_batch_size=4"], "must divide .* = 6 rows"),
    ],
)
def test_what_cannot_be_shared_is_refused(monkeypatch, count, overrides, message):
    become(monkeypatch, count)
    with pytest.raises(UserError, match=message):
        compose("rollouts_per_prompt=8", "kept_per_prompt=4", *overrides)


def become(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Rank 1 of `count`."""
    for name, value in (("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", count)):
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("experiment", ["gsm8k_h100", "gsm8k_a100"])
def test_the_papers_values_of_settings_e_and_f(experiment):
    for algorithm, n, m in (("pods", 4 * 128, 4 * 32), ("grpo_ga", 16 * 32, 16 * 32)):
        config = compose(f"experiment={experiment}", f"algorithm={algorithm}")
        assert (config.rollouts_per_prompt, config.kept_per_prompt) == (n, m)
        assert (config.lora.rank, config.model.load_in_4bit) == (None, False)  # every parameter
        optimizer = config.optimizer
        assert (optimizer.learning_rate, optimizer.schedule) == (2e-5, "cosine")
        assert (optimizer.schedule_by, config.max_steps) == ("seconds", None)
        assert (optimizer.warmup_steps, config.sampling.max_completion_length) == (0.1, 1024)
        assert (config.evaluation.every_seconds, config.prompts_per_step) == (120, 8)


@pytest.mark.parametrize("experiment", ["gsm8k_h100", "gsm8k_a100"])
@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_trl_takes_the_engines_of_settings_e_and_f(monkeypatch, experiment, mode):
    become(monkeypatch, 8)
    config = compose(f"experiment={experiment}", "engine=trl", f"engine.vllm_mode={mode}")
    wanted = trl_arguments(config, Policy(None, None, None, "transformers", "cpu", "float32", [1]))
    assert wanted["per_device_train_batch_size"] * wanted["gradient_accumulation_steps"] == 128
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # or the arguments would wait for the others
        monkeypatch.delenv(name)
    arguments = PodsConfig(**wanted)
    refuse_changes(arguments, wanted)
    assert arguments.use_vllm
    assert arguments.vllm_mode == mode


def test_shares_are_equal_and_in_rank_order_and_zeros_stage_is_the_launchers(monkeypatch):
    assert (ranks.world_size(), ranks.rank()) == (1, 0)
    assert ranks.share(range(8)) == [*range(8)]
    assert ranks.split(lambda items: [2 * i for i in items], [3, 4]) == [6, 8]
    become(monkeypatch, 4)
    assert (ranks.world_size(), ranks.rank(), ranks.is_main()) == (4, 1, False)
    assert ranks.share(range(8)) == [2, 3]
    assert ranks.share(range(6)) == [2, 3]
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "0")  # of a second node, which counts for nothing
    assert (ranks.rank(), ranks.is_main()) == (3, False)
    assert ranks.share(range(6)) == [5, 5]  # the last one fills the parts up
    monkeypatch.delenv("LOCAL_RANK")  # a cluster's own WORLD_SIZE starts nothing
    assert ranks.world_size() == 1
    assert ranks.gather([1, 2]) == [1, 2]
    assert ranks.zero_stage() == 0
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert ranks.zero_stage() == 2  # --use_deepspeed, or a file of DeepSpeed's own
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    assert ranks.zero_stage() == 3


@pytest.mark.parametrize(
    ("text", "lost"),
    [("[gloo/transport/tcp/pair.cc]", True), ("NCCL timeout", True), ("reset by peer", True),
     ("No space left on device", False)],
)  # fmt: skip
def test_a_lost_process_is_told_from_other_failures(monkeypatch, text, lost):
    assert not ranks.lost_a_rank(RuntimeError(text))  # of one process
    become(monkeypatch, 2)
    assert ranks.lost_a_rank(RuntimeError(text)) == lost
