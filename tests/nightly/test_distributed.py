"""Two real processes joined by gloo, one run: the update, kept sets and files of one process."""

import atexit
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from unittest.mock import Mock

import accelerate
import pandas as pd
import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

from pods import files, ranks, trainer
from pods.clock import Clock
from pods.config.errors import UserError
from pods.models.policy import Policy
from pods.rewards import FUNCTIONS  # those of a training
from pods.runs import checkpoints
from pods.trainer import PodsConfig
from pods.training import loop
from pods.training.build import refuse_changes, trl_arguments
from tests import faults, processes, two_ranks
from tests.configs import compose
from tests.conftest import ROOT
from tests.nightly.test_faults import assert_same_run, lines, rollouts
from tests.two_ranks import ADAM, SGD, differences, fixed_rollouts

SETTINGS = [
    *processes.SMALL,
    "max_steps=3",
    "checkpoint.every_steps=1",
    "clock=l40s",
    "optimizer.schedule=constant",
]


def run(folder, *overrides, **settings):
    return two_ranks.run(folder, *SETTINGS, f"output_dir={folder}", *overrides, **settings)


def trained(folder, *overrides):
    """Train with one process and with two on the same rollouts; adapters and prices are equal."""
    for count in (1, 2):
        done = run(folder / str(count), *overrides, ranks=count, fault=fixed_rollouts)
    assert done[0].stdout.count(" steps") == 1
    assert done[1].stdout == ""
    saved = [checkpoints.find(folder / count / "r")[-1] for count in "12"]
    assert saved[0].meta["train_seconds"] == saved[1].meta["train_seconds"]
    one, two = (load_file(c.path / "adapter_model.safetensors") for c in saved)
    assert max(value.abs().max() for name, value in one.items() if "lora_B" in name) > 5e-4
    assert differences(one, two) == {}


@pytest.mark.parametrize("overrides", [ADAM, [*SGD, "loss.type=grpo", "rule=random"]])
def test_two_processes_make_the_update_of_one(tmp_path, overrides):
    prompts = 2 if overrides is ADAM else 1  # a prompt a rank, or one on both
    trained(tmp_path, f"prompts_per_step={prompts}", *overrides)
    runs = [tmp_path / count / "r" for count in "12"]
    one, two = map(rollouts, runs)  # with rewards and kept sets, written once
    assert one == two
    assert len(two) == 3 * prompts
    one, two = (pd.DataFrame(lines(run)) for run in runs)
    averages = list({"entropy", "kl"} & {*one})  # TRL's over micro-batches, of unequal lengths
    assert_frame_equal(two[averages], one[averages], rtol=0, atol=0.1)
    one, two = (metrics.drop(columns=averages) for metrics in (one, two))
    assert_frame_equal(two, one, check_like=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", ["bnpo", "dapo"])
def test_rows_that_fill_the_last_rank_count_on_no_rank(tmp_path, loss):
    """With rows as micro-batches bnpo is a mean over rows, however they are shared out."""
    (tmp_path / "mine.py").write_text(
        "def first_three(step):\n    batch = yield step.prompts, step.n\n    return [0, 1, 2]\n"
    )
    algorithm = f"algorithm={tmp_path / 'mine.py'}:first_three"
    trained(tmp_path, algorithm, "micro_batch_size=1", "max_steps=1", f"loss.type={loss}", *SGD)


def rank_one(fault):
    return lambda: fault() if ranks.rank() == 1 else None


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    run(folder, "max_steps=6")
    return folder / "r"


def test_one_writer_and_its_files(reference):
    metrics = files.read_lines(reference / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    assert metrics[-1]["rollouts/generated"] == 6 * 2 * 8
    saved = checkpoints.find(reference)
    assert [c.step for c in saved] == [1, 2, 3, 4, 5, 6]
    assert [checkpoints.damage(c) for c in saved] == [None] * 6
    assert [(c.path / "optimizer.pt").is_file() for c in saved] == [False] * 4 + [True] * 2
    assert saved[-1].meta["ranks"] == 2


def test_a_killed_rank_ends_the_run_which_resumes_to_the_same_bits(tmp_path, reference):
    """In a step, then while the next checkpoint is saved."""
    path = tmp_path / "r"
    for fault in (faults.kill_in_step, faults.kill_in_save):
        codes = (1, -signal.SIGKILL)
        killed, _ = run(tmp_path, "max_steps=6", fault=rank_one(fault), codes=codes)
        said = killed.stderr.splitlines()
        assert f"last checkpoint: {path / 'checkpoint-3'}" in said
        assert said[-1].endswith("rank 1 on machine 0 ended; run again to resume")
        assert checkpoints.newest_intact(path)[0].step == 3
        assert [*path.glob(".checkpoint-*")] == []
    run(tmp_path, "max_steps=6")
    assert_same_run(path, reference)


def test_a_rank_that_waits_without_an_error_ends_when_another_was_killed(tmp_path):
    """As gloo does when the other ends in the middle of a message: no error, no end of the wait."""

    def fault():
        ranks.PATIENCE = 1.0
        if ranks.rank() == 1:
            faults.kill_in_step()
        else:
            faults.before(trainer.PodsTrainer, "score", wait_in_step)

    def wait_in_step(self, *_):
        if self.state.global_step == faults.STEP - 1:
            threading.Event().wait()

    waits, _ = run(tmp_path, "max_steps=6", fault=fault, codes=(1, -signal.SIGKILL))
    last = waits.stderr.splitlines()[-1]
    assert last == "rank 1 on machine 0 ended; run again to resume"


@pytest.mark.parametrize("joins_group", [False, True])
def test_a_rank_that_does_not_join_ends_the_others(tmp_path, joins_group):
    """It ends before it joins the group, or before it connects to rank 0."""

    def fault():
        ranks.TIMEOUT = timedelta(seconds=4 if joins_group else 2)  # instead of half an hour
        if ranks.rank() == 1 and joins_group:
            faults.before(socket, "create_connection", lambda *_: faults.kill())
        elif ranks.rank() == 1:
            faults.kill()

    waits, _ = run(tmp_path, fault=fault, codes=(1, -signal.SIGKILL))
    last = waits.stderr.splitlines()[-1]
    assert "the 2 processes did not all join (" in last
    assert last.endswith("; run again")


def test_the_jobs_of_a_sweep_follow_each_other_in_all_ranks(tmp_path):
    settings = [*processes.SMALL[1:], "max_steps=1", f"output_dir={tmp_path}"]
    main, _ = two_ranks.run(tmp_path, "-m", "seed=1,2", *settings)
    assert "sweep: 2 of 2 jobs done" in main.stderr + main.stdout
    (sweep,) = tmp_path.glob("sweep-*")
    for name in (sweep / "runs.txt").read_text().split():
        assert [line["step"] for line in lines(tmp_path / name)] == [1]


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """One, two, and one again: prompts, kept sets and weights of a run that always had one."""
    settings = ["micro_batch_size=8", *ADAM]  # of two processes each has 4 rows
    run(tmp_path / "1", "max_steps=6", *settings, ranks=1, fault=fixed_rollouts)
    for count, steps in ((1, 2), (2, 4), (1, 6)):
        (main, *_) = run(
            tmp_path / "2", f"max_steps={steps}", *settings, ranks=count, fault=fixed_rollouts
        )
    assert "2 -> 1 processes: the same prompts in the same order" in main.stderr
    one, two = tmp_path / "1" / "r", tmp_path / "2" / "r"
    assert rollouts(one) == rollouts(two)
    one, two = (load_file(p / "checkpoint-6" / "adapter_model.safetensors") for p in (one, two))
    assert differences(one, two) == {}


def test_sigterm_on_one_rank_saves_and_ends_both(tmp_path):
    endless = [f"output_dir={tmp_path}", "max_steps=2000", "checkpoint.every_steps=null"]
    started = two_ranks.start(tmp_path, *SETTINGS, *endless)
    processes.wait_for(lambda: faults.trained(tmp_path / "r"), started)
    os.kill(started[1].pid, signal.SIGTERM)
    assert [process.end() for process in started] == [143, 143], started[0].stderr
    assert "run again to resume" in started[0].stderr
    saved = checkpoints.find(tmp_path / "r")[-1]
    assert saved.step == lines(tmp_path / "r")[-1]["step"]


def test_a_signal_while_the_ranks_answer_each_other_ends_the_next_step(monkeypatch):
    stop = loop.Stop(compose(), Clock())

    def gather(mine):
        stop.receive(signal.SIGTERM, None)  # a slower rank has not answered yet
        return mine

    with loop.restore_signals():
        monkeypatch.setattr(ranks, "gather", gather)
        assert not stop.after(1)
        assert stop.after(2)
    assert stop.signal == signal.SIGTERM


def test_a_reward_that_raises_on_one_rank_ends_both(tmp_path):
    fault = rank_one(lambda: FUNCTIONS.update(tags=lambda graded: 1 / 0))
    done = run(tmp_path, "max_steps=40", fault=fault, codes=(1, 1))
    assert "ZeroDivisionError" in done[1].stderr.splitlines()[-1]
    assert "rank 1 on machine 0 ended; " in done[0].stderr.splitlines()[-1]


def test_what_cannot_be_shared_is_refused(monkeypatch):
    sizes = ["rollouts_per_prompt=8", "kept_per_prompt=4"]
    become(monkeypatch, 3)
    with pytest.raises(UserError, match="must be shared equally by 3 processes"):
        compose(*sizes, "prompts_per_step=1")
    become(monkeypatch, 2)
    with pytest.raises(UserError, match=r"must divide .* = 6 rows"):
        compose(*sizes, "prompts_per_step=3", "micro_batch_size=4")


def become(monkeypatch, count):
    """Rank 1 of `count`."""
    for name, value in (("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", count)):
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize(("name", "mode"), [("gsm8k_h100", "colocate"), ("gsm8k_a100", "server")])
def test_trl_takes_the_values_of_settings_e_and_f(monkeypatch, name, mode):
    become(monkeypatch, 8)
    config = compose(f"experiment={name}", "engine=trl", f"trl.vllm_mode={mode}")
    wanted = trl_arguments(config, Policy(None, None, None, [1]))
    assert wanted["per_device_train_batch_size"] * wanted["gradient_accumulation_steps"] == 128
    monkeypatch.undo()  # or the arguments would wait for the other ranks
    arguments = PodsConfig(**wanted)
    refuse_changes(arguments, wanted)
    assert (arguments.use_vllm, arguments.vllm_mode) == (True, mode)


def test_one_process_has_everything():
    assert (ranks.world_size(), ranks.rank(), ranks.is_main()) == (1, 0, True)
    assert ranks.split(lambda items: [2 * i for i in items], [3, 4]) == [6, 8]


def nobody_joins(monkeypatch, cuda):
    """What accelerate is asked for in place of a group; what is left for the exit is done now."""
    joined = Mock()
    monkeypatch.setattr(accelerate, "PartialState", joined)
    monkeypatch.setattr(ranks, "RankWatch", Mock())
    monkeypatch.setattr(ranks, "watches", [])
    ranks.read_numbered_cpus.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(atexit, "register", lambda function: function())
    packages = [*torch.serialization._package_registry]
    monkeypatch.setattr(torch.serialization, "_package_registry", packages)
    return joined


@pytest.mark.parametrize(
    ("cuda", "deepspeed", "arguments"),
    [
        pytest.param(False, "false", {"cpu": True, "backend": "gloo"}, id="processors"),
        pytest.param(
            False, "true", {"cpu": False, "backend": "gloo"}, id="processors with DeepSpeed"
        ),
        pytest.param(True, "true", {"cpu": False, "backend": None}, id="GPUs"),
    ],
)
def test_a_process_joins_the_others_by_the_backend_of_its_device(
    monkeypatch, cuda, deepspeed, arguments
):
    joined = nobody_joins(monkeypatch, cuda)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", deepspeed)
    with ranks.joined():
        joined.assert_not_called()  # one process has none to join
    become(monkeypatch, 2)
    with ranks.joined():
        pass
    joined.assert_called_once_with(**arguments, timeout=timedelta(minutes=30))
    joined().destroy_process_group.assert_called_once()


def test_weights_are_read_on_the_device_that_accelerate_names_by_its_rank(monkeypatch):
    nobody_joins(monkeypatch, cuda=False)
    become(monkeypatch, 2)
    with ranks.joined():
        pass
    file = io.BytesIO()
    torch.save(torch.arange(3), file)
    file.seek(0)
    assert torch.load(file, map_location="cpu:1").tolist() == [0, 1, 2]
    file.seek(0)
    with pytest.raises(RuntimeError, match="don't know how to restore"):
        torch.load(file, map_location="disk:1")


def test_a_text_keeps_its_lines_and_steers_no_terminal():
    assert ranks.printable("a\x1b[2J\nb é\t") == "a\ufffd[2J\nb é\ufffd"


def test_a_clusters_own_variables_start_nothing(monkeypatch):
    become(monkeypatch, 4)
    monkeypatch.delenv("LOCAL_RANK")
    assert ranks.world_size() == 1


@pytest.mark.parametrize(
    ("rank", "local_rank", "items", "share"),
    [
        pytest.param(1, 1, 8, [2, 3], id="equal parts"),
        pytest.param(1, 1, 6, [2, 3], id="the first parts are full"),
        pytest.param(3, 0, 6, [5, 5], id="the last one fills its part up"),  # of a second node
    ],
)
def test_shares_are_equal_and_in_rank_order(monkeypatch, rank, local_rank, items, share):
    become(monkeypatch, 4)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert (ranks.world_size(), ranks.rank(), ranks.is_main()) == (4, rank, False)
    assert ranks.share(range(items)) == share


@pytest.mark.parametrize(
    ("variables", "stage"),
    [
        pytest.param({}, 0, id="no DeepSpeed"),
        pytest.param({"USE_DEEPSPEED": "true"}, 2, id="--use_deepspeed, or DeepSpeed's own file"),
        pytest.param({"USE_DEEPSPEED": "true", "DEEPSPEED_ZERO_STAGE": "3"}, 3, id="a stage"),
    ],
)
def test_zeros_stage_is_the_launchers(monkeypatch, variables, stage):
    for name, value in variables.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    assert ranks.zero_stage() == stage


def test_the_launcher_starts_two_processes_of_one_run(tmp_path):
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--config_file",
        str(ROOT / "config" / "accelerate" / "cpu.yaml"),
        "--num_processes",
        "2",
        str(ROOT / "train.py"),
        f"output_dir={tmp_path}",
        *processes.SMALL,
        "max_steps=2",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=500)
    checkpoint, skipped = checkpoints.newest_intact(tmp_path / "r")
    assert (checkpoint.step, checkpoint.meta["ranks"], skipped) == (2, 2, [])


@pytest.mark.parametrize(
    "path", [*(ROOT / "config" / "accelerate").glob("*.yaml")], ids=lambda path: path.stem
)
def test_the_launcher_reads_every_config(path):
    arguments = ["--config_file", str(path), "--num_processes", "2", "train.py", "seed=1"]
    read, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    assert (read.num_processes, read.main_process_port) == (2, 0)
    assert read.use_cpu is (path.stem == "cpu")
    stage = path.stem.removeprefix("zero") if path.stem.startswith("zero") else None
    assert read.use_deepspeed is (stage is not None)
    assert read.multi_gpu is (stage is None)  # else accelerate starts one process
    assert stage in (None, str(read.zero_stage))
    # train.py sets it: a float32 model may come
    assert load_config_from_file(str(path)).mixed_precision == "no"
