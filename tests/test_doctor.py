"""The doctor: what it counts against known facts, what it calls a failure, and the real command."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pods import doctor, memory
from pods.cli import UserError
from tests.configs import compose
from tests.conftest import ROOT

EIGHT_BIT = "optimizer.name=adamw_8bit"


def terms(backend: str, *overrides: str) -> dict[str, float]:
    """The estimate's terms in GiB, from the shapes in benchmarks/shapes (no hub in tests)."""
    config = compose("experiment=gsm8k_qwen", EIGHT_BIT, *overrides)
    shape = memory.shape_of(memory.model_config(config), config)
    return {t.name: t.bytes / memory.GIB for t in memory.estimate(config, shape, backend)}


@pytest.mark.parametrize(
    ("experiment", "billions", "adapter"),
    [  # the models' cards
        ("gsm8k_qwen", 3.09, 119_734_272),
        ("gsm8k_llama", 3.21, 97_255_424),
        ("gsm8k_a100", 7.62, 0),
    ],
)
def test_shapes_have_the_published_sizes(experiment, billions, adapter):
    config = compose(f"experiment={experiment}")
    shape = memory.shape_of(memory.model_config(config), config)
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.005)
    assert shape.adapter == adapter  # rank 64 on the seven projections; 0: every parameter


def test_known_facts():
    four = terms("unsloth")
    assert 2.0 < four["base weights"] < 2.4  # a 3B model in 4 bits
    assert terms("unsloth", "model.load_in_4bit=false")["base weights"] == pytest.approx(
        5.75, abs=0.01
    )
    # 36,864 bytes a token: 36 layers x 2 x 2 heads x 128 x 2 bytes; a shared prompt, 64 completions
    assert four["KV cache of n rollouts"] * memory.GIB == 36_864 * (512 + 64 * 512)
    assert four["optimiser"] * memory.GIB == 2 * 119_734_272


@pytest.mark.parametrize(
    ("override", "term", "factor"),
    [
        ("rollouts_per_prompt=128", "KV cache of n rollouts", 2),
        ("micro_batch_size=8", "activations of a micro-batch", 0.5),
        ("micro_batch_size=8", "logits", 0.5),
        ("lora.rank=32", "optimiser", 0.5),
    ],
)
def test_a_term_follows_the_key_that_is_said_to_lower_it(override, term, factor):
    before, after = terms("transformers"), terms("transformers", override)
    assert after[term] / before[term] == pytest.approx(factor, rel=0.02)


def test_update_memory_depends_on_m_and_not_on_n():
    few, many = terms("unsloth"), terms("unsloth", "rollouts_per_prompt=256")
    differ = {name for name in few if few[name] != many[name]}
    assert differ == {"KV cache of n rollouts"}


@pytest.mark.parametrize(
    ("gib", "backend", "overrides", "expected"),
    [
        (44.5, "unsloth", [], None),
        (7, "unsloth", [], "backend.gpu_memory_utilization"),  # half of 7 GiB is no engine's share
        (12, "unsloth", ["backend.gpu_memory_utilization=0.8"], "micro_batch_size"),
        (16, "transformers", [], "micro_batch_size"),  # whole micro-batches of logits
        (16, "transformers", ["micro_batch_size=2"], None),
        (4, "transformers", ["micro_batch_size=1"], "rollouts_per_prompt"),
    ],
)
def test_advice_names_the_key_to_change(gib, backend, overrides, expected):
    config = compose("experiment=gsm8k_qwen", EIGHT_BIT, *overrides)
    shape = memory.shape_of(memory.model_config(config), config)
    found = memory.advice(
        config, memory.estimate(config, shape, backend), gib * memory.GIB, backend
    )
    assert found is None if expected is None else expected in found


@pytest.mark.parametrize(
    ("experiment", "zero", "ranks", "expected"),
    [
        ("gsm8k_h100", 2, 8, None),  # setting (e), as config/accelerate/zero2.yaml runs it
        ("gsm8k_a100", 3, 8, None),  # setting (f)
        ("gsm8k_h100", 2, 1, "training needs"),
        ("gsm8k_a100", 0, 8, "training needs"),  # a whole optimiser on every card
    ],
)
def test_what_the_ranks_divide_fits_their_cards(experiment, zero, ranks, expected):
    config = compose(f"experiment={experiment}", "backend.engine=vllm")
    shape = memory.shape_of(memory.model_config(config), config)
    terms = memory.estimate(config, shape, "transformers", ranks, zero)
    card = memory.CARDS["A100-80GB"] * memory.GIB
    found = memory.advice(config, terms, card, "transformers")
    assert found is None if expected is None else expected in found


def test_a_vllm_server_takes_nothing_of_the_trainers_cards():
    config = compose("experiment=gsm8k_a100", "backend.engine=vllm_server")
    shape = memory.shape_of(memory.model_config(config), config)
    terms = memory.estimate(config, shape, "transformers", ranks=4, zero=3)
    assert {term.phase for term in terms} == {"always", "update"}
    card = memory.CARDS["A100-80GB"] * memory.GIB
    assert memory.advice(config, terms, card, "transformers") is None
    found = memory.advice(config, terms, card / 2, "transformers")
    assert "lower it with more processes (config/accelerate/zero2.yaml)" in found


def test_each_stage_of_zero_divides_one_thing_more():
    config = compose("experiment=gsm8k_a100")
    shape = memory.shape_of(memory.model_config(config), config)

    def sizes(zero: int) -> list[float]:
        terms = memory.estimate(config, shape, "transformers", 8, zero)[:3]
        return [term.bytes / shape.parameters for term in terms]

    assert sizes(0) == [2, 2, 8]  # bytes a parameter: weights, gradients, moments
    assert sizes(1) == [2, 2, 12 / 8]  # and float32 masters
    assert sizes(2) == [2, 2 / 8, 12 / 8]
    assert sizes(3) == [2 / 8, 2 / 8, 12 / 8]


def test_versions_are_compared_with_the_lock(tmp_path: Path):
    lock = tmp_path / "uv.lock"
    assert doctor.versions(lock)[0] == doctor.WARN
    lock.write_text('[[package]]\nname = "torch"\nversion = "1.0.0"\n')
    verdict, seen = doctor.versions(lock)
    assert verdict == doctor.FAIL
    assert "torch" in seen
    assert doctor.versions(doctor.ROOT / "uv.lock")[0] == doctor.OK


def test_a_disk_that_is_too_small_is_found(monkeypatch, tmp_path: Path):
    config = compose("experiment=gsm8k_qwen", f"output_dir={tmp_path / 'new' / 'folder'}")
    assert doctor.disk(config)[0] == doctor.OK
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    verdict, seen = doctor.disk(config)
    assert verdict == doctor.FAIL
    assert "13 checkpoints" in seen


OWN_TASK = ["task=own", "task.source=q.jsonl", "task.question=q", "task.answer=a"]


@pytest.mark.parametrize("version", ["v1", "v1-correctness", "v2", "strict"])
@pytest.mark.parametrize(
    ("overrides", "answer", "kind"),
    [
        (["task=gsm8k"], "18", "math"),
        (["task=chemistry"], "B", "choice"),
        (OWN_TASK, "18", "math"),
        ([*OWN_TASK, "task.kind=choice"], "B", "choice"),
    ],
)
def test_a_right_completion_earns_more_in_every_version(version, overrides, answer, kind):
    config = compose("experiment=gsm8k_qwen", f"rewards={version}", *overrides)
    assert doctor.reward(config, {"answer": answer, "kind": kind})[0] == doctor.OK


def test_rewards_that_cannot_tell_right_from_wrong_are_found():
    config = compose("experiment=gsm8k_qwen", "rewards=v2", "rewards.weights.correctness=0")
    assert doctor.reward(config, {"answer": "18", "kind": "math"})[0] == doctor.FAIL


def test_the_projection_leaves_the_first_step_out():
    config = compose("experiment=quickstart")  # 60 s of training
    step = {"seconds/generate": 1.0, "seconds/score": 0.5, "seconds/select": 0.0}
    steps = [step | {"seconds/update": seconds} for seconds in (100.0, 0.5, 0.5)]
    steps[0]["engine/logprob_gap"] = 0.0123
    seen = doctor.describe(config, steps)
    assert "about 30 steps in 60 s" in seen
    assert "logprob_gap 0.0123" in seen


def test_a_failing_trial_is_reported_with_its_last_line():
    with pytest.raises(UserError, match=r"code 2: .*kept_per_prompt=128"):
        doctor.trial(compose(), ["kept_per_prompt=128"])


def test_the_command_on_the_quickstart(run_command):
    done = run_command("scripts/doctor.py", "experiment=quickstart")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps in 60 s" in " ".join(done.stdout.split())
    assert "FAIL" not in done.stdout


def test_a_doctor_that_is_stopped_shows_its_report_and_leaves_nothing(tmp_path: Path):
    """As the launcher stops the others when one process fails."""
    command = [sys.executable, str(ROOT / "scripts" / "doctor.py"), "experiment=quickstart"]
    doctor = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("checkpoints/.doctor-*/trial")):  # the trial has begun
        assert doctor.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    doctor.terminate()
    seen = " ".join(doctor.communicate(timeout=60)[0].split())
    assert doctor.returncode == 1, seen
    assert "trial FAIL" in seen.replace("│", " ").replace("  ", " ").replace("  ", " ")
    assert "stopped by SIGTERM" in seen
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_command_says_all_that_would_fail(run_command, tmp_path: Path):
    rows = [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(10)]
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = run_command(
        "scripts/doctor.py", "experiment=gsm8k_qwen", f"data_dir={tmp_path}",
        "model.path=./no-such-folder",
    )  # fmt: skip
    seen = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no such folder" in seen
    assert "not run: something above" in seen
    assert "gsm8k: 8 training questions" in seen  # a fifth is carved for validation


def test_a_wrong_config_is_bad_input(run_command):
    done = run_command("scripts/doctor.py", "kept_per_prompt=65")
    assert done.returncode == 2
    assert done.stderr.startswith("doctor.py: kept_per_prompt=65")
