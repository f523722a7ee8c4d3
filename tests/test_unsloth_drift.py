"""Our trainer inside Unsloth's rewritten one agrees with plain TRL: fails when a pin moves too far.

    UV_PROJECT_ENVIRONMENT=.venv-gpu uv sync --locked --extra gpu     # once; several GB
    uv run pytest tests/test_unsloth_drift.py                         # no GPU needed

Each side runs in a process of its own, because Unsloth rewrites TRL for the whole process. One
of them also checks the rest of the GPU path (tests/gpu_path.py).
"""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pods.engines import loading
from pods.models import unsloth
from tests.conftest import ROOT
from tests.unsloth_drift import CASES

# Keys of GRPOConfig whose value may differ between the sides, each with why that is harmless.
# Every other difference means that Unsloth changed a default which pods/trainer.py must then pass.
MAY_DIFFER = {
    "eval_accumulation_steps": "no evaluation inside the trainer",
    "per_device_eval_batch_size": "no evaluation inside the trainer",
    "bf16_full_eval": "no evaluation inside the trainer",
    "router_aux_loss_coef": "mixture-of-experts models only",
    "generation_kwargs": "None here, an empty dict there",
}


def gpu_python() -> Path:
    path = os.environ.get("PODS_GPU_PYTHON", ROOT / ".venv-gpu" / "bin" / "python")
    if not Path(path).is_file():
        pytest.skip(f"no gpu environment at {path}; see the top of this file, or PODS_GPU_PYTHON")
    return Path(path)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What tests/unsloth_drift.py reports for both sides, run side by side."""
    folder = tmp_path_factory.mktemp("drift")
    pythons = {"plain": Path(sys.executable), "unsloth": gpu_python()}
    processes = {}
    for side, python in pythons.items():
        with open(folder / f"{side}.out", "w") as out, open(folder / f"{side}.err", "w") as err:
            processes[side] = subprocess.Popen(
                [python, "-m", "tests.unsloth_drift", side, str(folder)],
                cwd=ROOT, stdout=out, stderr=err,
            )  # fmt: skip
    results = {}
    for side, process in processes.items():
        code = process.wait(timeout=500)
        assert code == 0, (folder / f"{side}.err").read_text()[-3000:]
        results[side] = json.loads((folder / f"{side}.out").read_text().splitlines()[-1])
    return results


def test_the_class_is_the_rewritten_one(sides):
    assert sides["plain"]["class"] == "GRPOTrainer"
    assert sides["unsloth"]["class"] == "UnslothGRPOTrainer"


def test_signatures_are_those_we_extend(sides):
    plain, unsloth = sides["plain"]["signatures"], sides["unsloth"]["signatures"]
    assert plain["_generate_and_score_completions"] == ["self", "inputs"]
    assert unsloth["_generate_and_score_completions"] == ["self", "args", "kwargs"]  # its wrapper
    for side in (plain, unsloth):
        expected = ["self", "prompt_ids", "images", "multimodal_fields"]
        assert side["_generate_single_turn"][:4] == expected
        assert side["_get_train_sampler"] == ["self", "dataset"]


def test_the_adapter_is_injected_into_the_engine(sides):
    assert not sides["plain"]["adapter_injected"]
    assert sides["unsloth"]["adapter_injected"]


def test_the_loader_takes_what_we_pass(sides):
    loader = sides["unsloth"]["loader"]
    given = inspect.getsource(unsloth.load_unsloth)
    assert {
        "model_name", "max_seq_length", "dtype", "load_in_4bit", "load_in_16bit", "fast_inference",
        "use_exact_model_name", "random_state", "gpu_memory_utilization", "max_lora_rank",
    } <= set(loader["from_pretrained"])  # fmt: skip
    assert {"max_num_seqs", "unsloth_vllm_standby"} <= set(loader["load_vllm"])
    assert loader["default_sequences"] == unsloth.UNSLOTH_DEFAULT_SEQUENCES
    assert {
        "r", "lora_alpha", "lora_dropout", "target_modules", "use_gradient_checkpointing",
        "random_state",
    } <= set(loader["get_peft_model"])  # fmt: skip
    assert all(name in given for name in ("use_exact_model_name", "max_num_seqs", "random_state"))


def test_the_engines_arguments_pass_through_both_configs(sides):
    assert sides["plain"]["engine_arguments_survive"]
    assert sides["unsloth"]["engine_arguments_survive"]


@pytest.mark.parametrize("case", CASES)
class TestCase:
    def test_one_generation_of_n_a_step_and_the_same_rows_kept(self, sides, case):
        plain, unsloth = (sides[side]["cases"][case] for side in ("plain", "unsloth"))
        assert unsloth["generated"] == plain["generated"]
        assert unsloth["kept"] == plain["kept"]
        if case == "dapo":  # a second round where a group has no signal
            assert plain["generated"][:3] == [2 * 4] * 3  # the warm-up's two, and the first step's
        else:
            generations = 2 + (1 if case == "updates" else 3)
            assert plain["generated"] == [2 * 16] * generations
            kept = 16 if case == "grpo_ga" else 4
            assert all(len(step) == 2 * kept for step in plain["kept"])

    def test_losses_and_gradients_agree(self, sides, case):
        plain, unsloth = (sides[side]["cases"][case] for side in ("plain", "unsloth"))
        assert len(plain["loss"]) == len(unsloth["loss"]) == 3
        assert max(map(abs, plain["loss"])) > 1e-5  # else the comparison says nothing
        assert unsloth["loss"] == pytest.approx(plain["loss"], rel=2e-2, abs=1e-6)
        assert unsloth["grad_norm"] == pytest.approx(plain["grad_norm"], rel=5e-3)
        assert unsloth["moved"] == pytest.approx(plain["moved"], rel=5e-3)

    def test_the_guard_reads_the_log_probabilities_of_the_loss(self, sides, case):
        plain, unsloth = (sides[side]["cases"][case]["logprobs"] for side in ("plain", "unsloth"))
        assert len(plain) == 5
        assert unsloth == pytest.approx(plain, rel=1e-3)

    def test_a_checkpoint_holds_one_adapter_at_its_root(self, sides, case):
        assert sides["unsloth"]["cases"][case]["saved"] == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]

    def test_no_argument_is_replaced(self, sides, case):
        plain, unsloth = (sides[side]["cases"][case]["arguments"] for side in ("plain", "unsloth"))
        differ = {
            key: (value, unsloth.get(key))
            for key, value in plain.items()
            if unsloth.get(key) != value and key not in MAY_DIFFER
        }
        assert differ == {}


@pytest.fixture(scope="module")
def path(sides) -> dict[str, Any]:
    """What tests/gpu_path.py found in the gpu environment."""
    return sides["unsloth"]["gpu_path"]


def test_unsloth_builds_vllm_as_it_is_asked_to(path):
    expected = {"max_lora_rank": 64, "enable_lora": True, "max_model_len": 1024}
    for slots, given in path["slots"].items():
        assert given == {
            **expected, "max_num_seqs": int(slots), "quantization": "bitsandbytes"
        }  # fmt: skip
    assert path["sixteen_bit"]["quantization"] is None


@pytest.mark.parametrize(
    ("said", "code", "key"),
    [
        ("no_room", 4, "raise it"),
        ("too_long", 4, "raise it"),
        ("full", 4, "lower share=0.5"),
        ("not_free", 4, "lower share=0.5"),
        ("race", 1, "another process"),
        ("unknown", 1, "VLLM_USE_V2_MODEL_RUNNER=0"),
    ],
)
def test_what_unsloth_makes_of_vllms_errors_is_told_apart(path, said, code, key):
    kind, text = path["errors"][said]
    assert kind == "RuntimeError"  # of vLLM's ValueError
    found = loading.loading_error("here", "share=0.5", RuntimeError(text))
    assert found.exit_code == code
    assert key in str(found)


@pytest.mark.parametrize("correction", ["uncorrected", "corrected"])
class TestTraining:
    """Three steps on an engine that samples under exactly the adapter that Unsloth hands over."""

    @pytest.fixture
    def run(self, path, correction) -> dict[str, Any]:
        return path["training"][correction]

    def test_every_rollout_gets_the_adapter_of_now(self, run):
        gaps = [metrics["engine/logprob_gap"] for metrics in run["guard"]]
        assert len(gaps) == 3
        assert max(gaps) < 1e-4
        assert run["guard"][0]["engine/probe_gap_without_adapter"] > 1e-3
        ids = run["lora_ids"]
        assert ids == list(range(ids[0], ids[0] + 6))  # two of the warm-up, the probe, three steps
        assert run["lora_shape"] == [32, 32]

    def test_the_engine_samples_as_configured(self, run):
        assert run["params"] == {
            "n": 1, "temperature": 0.9, "max_tokens": 16, "top_k": -1, "logprobs": 0,
            "stop_token_ids": [1],
        }  # fmt: skip
        # The warm-up's rollouts, the guard's probe, the longest prompts; then three steps.
        assert run["full_length_calls"] == [False] * 6

    def test_vllm_reads_the_live_and_the_saved_adapter(self, run):
        assert run["read_by_vllm"] == {
            "live": [32, 21], "saved": [32, 21], "same_modules": True
        }  # fmt: skip

    def test_nothing_is_left_in_the_working_folder(self, run):
        assert not [name for name in run["left_in_the_working_folder"] if "lora" in name]

    def test_it_learns_and_resumes_exactly_with_8_bit_moments(self, run):
        assert run["finite"]
        assert all(run["losses"])
        assert run["moved"] > 1e-4
        assert run["resumed_differs_by"] == 0
        assert "torch.uint8" in run["moment_types"]

    def test_the_packing_of_the_update_is_seen(self, run):
        assert run["packing"] == {"update/packed": 1.0}
