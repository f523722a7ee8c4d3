"""Guards of the Unsloth backend that need no GPU: settings, pad token, and the engine's adapter."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pods import unsloth
from pods.cli import RunFailed, UserError
from pods.engine_guard import EngineGuard, random_adapter, trainer_logprobs, without_pads
from pods.policy import ROOT, check_device, load_tokenizer
from tests.configs import compose
from tests.test_trainer import build, rows

TINY = ROOT / "pods" / "tiny_policy"


@pytest.mark.parametrize(
    ("n", "prompts", "expected"),
    [
        (64, 1, 64),  # n x P, where TRL would take m x P
        (64, 2, 128),
        (256, 1, 257),  # 256 is Unsloth's word for "pick one from the free memory"
        (128, 2, 257),
    ],
)
def test_the_engine_runs_every_rollout_of_a_step_at_once(n, prompts, expected):
    config = compose(f"rollouts_per_prompt={n}", f"prompts_per_step={prompts}")
    assert unsloth.max_sequences(config) == expected


def test_settings_are_passed_by_value():
    arguments = unsloth.engine_arguments(compose("backend.gpu_memory_utilization=0.4"))
    assert arguments["vllm_gpu_memory_utilization"] == 0.4
    assert arguments["top_k"] == -1  # sampling.top_k=0 in vLLM's words
    assert unsloth.engine_arguments(compose("sampling.top_k=20"))["top_k"] == 20


def test_a_missing_plugin_for_4_bit_weights_is_named_before_anything_loads(monkeypatch):
    monkeypatch.setattr(unsloth, "BNB_PLUGIN", "no_such_package")
    with pytest.raises(UserError, match="vllm-bnb-plugin"):
        unsloth.import_unsloth(compose("model.load_in_4bit=true"))


def test_trl_that_was_not_rewritten_is_refused():
    with pytest.raises(UserError, match="did not rewrite"):
        unsloth.require_rewrite()


def test_nothing_that_unsloth_rewrites_is_imported_before_it():
    code = (
        "import sys, train, pods.policy, pods.unsloth;"
        "print(*sorted({'trl', 'transformers', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_vllm_without_unsloth_is_refused_with_the_reason():
    with pytest.raises(UserError, match="merges the adapter"):
        check_device(compose("backend.engine=vllm"))


@pytest.mark.parametrize(
    ("error", "code", "key"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), 4, "lower backend.gpu_memory_utilization"),
        (ValueError("No available memory for the cache blocks"), 4, "raise it"),
        (ValueError("Unrecognized model"), 2, "model.path="),
        (OSError("no file named model.safetensors"), 2, "model.path="),
    ],
)
def test_what_goes_wrong_while_loading_is_told_apart(error, code, key):
    found = unsloth.loading_error(compose(), error)
    assert found.exit_code == code
    assert key in str(found)


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[..., str]:
    """The tiny policy's tokenizer with another generation_config.json."""

    def make(eos: int | list[int] | None) -> str:
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            shutil.copy(TINY / name, tmp_path)
        if eos is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    ("eos", "expected"), [(None, {1}), (1, {1}), ([1, 5], {1, 5}), ([5, 6], {1, 5, 6})]
)
def test_every_end_token_counts(model_folder, eos, expected):
    path = model_folder(eos)
    assert unsloth.end_tokens(path, load_tokenizer(path)) == expected


def test_a_pad_that_ends_completions_is_refused(model_folder):
    path = model_folder([1, 0])  # as Qwen2.5: its pad <|endoftext|> is a second end token
    with pytest.raises(UserError, match=r"model\.pad_token"):
        unsloth.check_pad(path, load_tokenizer(path))
    unsloth.check_pad(path, load_tokenizer(path, "<unk>"))


def test_a_pad_token_must_be_known(model_folder):
    with pytest.raises(UserError, match="not a token of"):
        load_tokenizer(model_folder(1), "<|vision_pad|>")


def test_completions_are_cut_before_a_pad():
    ids, logprobs = (
        [[5, 6, 1], [5, 0, 7, 1], [0, 5]],
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0]],
    )
    assert without_pads(ids, logprobs, 0) == ([[5, 6, 1], [5], []], [[1.0, 2.0, 3.0], [1.0], []], 2)
    assert without_pads(ids, None, 0) == ([[5, 6, 1], [5], []], None, 2)
    assert without_pads(ids, logprobs, 99) == (ids, logprobs, 0)


class FakeEngine:
    """Samples with transformers from the policy (or from its base) and says its log-probabilities,
    as vLLM does with the adapter (or where handing it over failed)."""

    def __init__(self, trainer: Any, adapter: bool, offset: float = 0.0) -> None:
        self.trainer, self.adapter, self.offset = trainer, adapter, offset
        self.inner = trainer._generate_single_turn

    def __call__(self, prompt_ids: list[list[int]], *rest: Any) -> tuple[list, list]:
        if self.adapter:
            return self.generate(prompt_ids, *rest)
        with self.trainer.model.disable_adapter():
            return self.generate(prompt_ids, *rest)

    def generate(self, prompt_ids: list[list[int]], *rest: Any) -> tuple[list, list]:
        ids, _ = self.inner(prompt_ids, *rest)
        ids = [tokens or [1] for tokens in ids]
        logprobs = [
            (trainer_logprobs(self.trainer, prompt, tokens) + self.offset).tolist()
            for prompt, tokens in zip(prompt_ids, ids, strict=True)
        ]
        return ids, logprobs


def guarded(**engine: Any) -> tuple[Any, EngineGuard]:
    trainer, _ = build(
        ["rollouts_per_prompt=8", "kept_per_prompt=4", "sampling.temperature=0.9", "max_steps=2"],
        dataset=rows(),
    )
    trainer._generate_single_turn = FakeEngine(trainer, **engine)
    return trainer, EngineGuard(trainer, max_gap=0.1)


def test_an_engine_with_the_adapter_passes_and_training_is_left_alone():
    trainer, guard = guarded(adapter=True)
    trainer.train()
    assert guard.calls == 2
    assert guard.metrics["engine/logprob_gap"] < 1e-4
    other, _ = guarded(adapter=True)
    other._generate_single_turn = FakeEngine(other, adapter=True)  # the guard's wrapper removed
    other._generate_single_turn.inner = type(other)._generate_single_turn.__get__(other)
    other.train()
    for (name, ours), (_, theirs) in zip(
        trainer.model.named_parameters(), other.model.named_parameters(), strict=True
    ):
        if "lora_" in name:
            assert torch.equal(ours, theirs), name


def test_an_engine_that_samples_from_the_base_is_found_before_the_first_update():
    trainer, guard = guarded(adapter=False)
    with pytest.raises(RunFailed, match="ignores the adapter"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert guard.metrics["engine/logprob_gap"] < 1e-4  # a fresh adapter hides it
    assert guard.proof["engine/probe_gap"] > 0.02
    assert guard.proof["engine/probe_gap_without_adapter"] < 1e-4


@pytest.mark.parametrize("offset", [0.2, float("nan")])
def test_other_log_probabilities_than_the_trainers_stop_the_run(offset):
    trainer, _ = guarded(adapter=True, offset=offset)
    with pytest.raises(RunFailed, match="max_logprob_gap"):
        trainer.train()


def test_an_engine_without_log_probabilities_proves_nothing():
    _, guard = guarded(adapter=True)
    with pytest.raises(RunFailed, match="no log-probabilities"):
        guard.gap([[5]], [[6]], None)


def test_the_probe_restores_the_adapter():
    trainer, _ = guarded(adapter=True)
    before = {k: v.clone() for k, v in trainer.model.named_parameters()}
    state = torch.get_rng_state()
    with random_adapter(trainer.model):
        changed = [k for k, v in trainer.model.named_parameters() if not torch.equal(v, before[k])]
    assert changed
    assert all("lora_B" in name for name in changed)
    assert all(torch.equal(v, before[k]) for k, v in trainer.model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: Unsloth's own loader")
def test_on_a_gpu_a_short_run_trains_through_the_engine(run_command, tmp_path: Path):
    from benchmarks.gpu_step import write_random_model

    write_random_model(tmp_path / "model", shape="small")
    done = run_command(
        "train.py", "backend=unsloth", f"model.path={tmp_path / 'model'}", "model.dtype=bfloat16",
        "max_steps=3", "rollouts_per_prompt=16", "kept_per_prompt=4", "micro_batch_size=4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
