"""Guards of the Unsloth backend that need no GPU: settings, pad token, and the engine's adapter."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pods.config.errors import UserError
from pods.engines.trl import generation_arguments
from pods.models import ROOT, named_loading_errors, unsloth
from pods.models.policy import end_tokens, load_tokenizer
from tests import processes
from tests.configs import compose

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
    def arguments(*overrides: str) -> dict:
        return generation_arguments(compose("engine=unsloth", *overrides), [1, 0])

    assert arguments("engine.gpu_memory_utilization=0.4")["vllm_gpu_memory_utilization"] == 0.4
    assert arguments()["top_k"] == -1  # sampling.top_k=0 in vLLM's words
    assert arguments("sampling.top_k=20")["top_k"] == 20
    assert arguments()["generation_kwargs"] == {"stop_token_ids": [1, 0]}
    assert arguments("sampling.stop=[x]")["generation_kwargs"]["stop"] == ["x"]


def test_a_missing_plugin_for_4_bit_weights_is_named_before_anything_loads(monkeypatch):
    monkeypatch.setattr(unsloth, "BNB_PLUGIN", "no_such_package")
    with pytest.raises(UserError, match="vllm-bnb-plugin"):
        unsloth.import_unsloth(compose("model.load_in_4bit=true", "engine=unsloth"))


def test_the_second_job_of_a_sweep_in_one_process_is_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)  # by the first's vLLM
    with pytest.raises(UserError, match="give each job of a sweep a process"):
        unsloth.import_unsloth(compose("engine=unsloth", "model.load_in_4bit=false"))


def test_trl_that_was_not_rewritten_is_refused():
    with pytest.raises(UserError, match="did not rewrite"):
        unsloth.require_rewrite()


def test_nothing_that_unsloth_rewrites_is_imported_before_it():
    code = (
        "import sys, train, pods.models.policy, pods.models.unsloth;"
        "print(*sorted({'trl', 'transformers', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


KV_CACHE = (
    "To serve at least one request with the model's max seq len (1024), (0.14 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (0.02 GiB)."
)
START = (
    "Free memory on device cuda:0 (10.2/44.5 GiB) on startup is less than desired GPU memory "
    "utilization (0.5, 22.3 GiB)."
)


@pytest.mark.parametrize(
    ("error", "code", "key"),
    [  # Unsloth raises vLLM's errors as RuntimeError(text), or as MemoryError with standby
        (torch.OutOfMemoryError("CUDA out of memory"), 4, "lower vllm_share=0.5"),
        (MemoryError("Unsloth: Your GPU ran out of memory loading vLLM"), 4, "lower vllm_share"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 4, "lower vllm_share"),
        (RuntimeError(START), 4, "lower vllm_share"),
        (RuntimeError("No available memory for the cache blocks."), 4, "raise it"),
        (MemoryError(f"Unsloth: ran out of memory.\nOriginal error: {KV_CACHE}"), 4, "raise it"),
        (ValueError("No available memory for the cache blocks"), 4, "raise it"),
        (RuntimeError("Unsloth: Failed to load model. Both AutoConfig"), 2, "model.path=here"),
        (ValueError("Unrecognized model"), 2, "model.path=here"),
        (OSError("no file named model.safetensors"), 2, "model.path=here"),
        (RuntimeError("Engine core initialization failed."), 1, "VLLM_USE_V2_MODEL_RUNNER=0"),
    ],
)
def test_what_goes_wrong_while_loading_is_told_apart(error, code, key):
    with pytest.raises(UserError) as found, named_loading_errors("here", "vllm_share=0.5"):
        raise error
    assert found.value.exit_code == code
    assert key in str(found.value)
    assert found.value.__cause__ is error


def test_every_model_that_unsloth_loads_is_the_one_that_is_named():
    """Unsloth would put a 4-bit repository of its own in the place of a hub id."""
    calls = [
        {keyword.arg for keyword in node.keywords}
        for path in [*ROOT.glob("*.py"), *ROOT.glob("pods/**/*.py"), *ROOT.glob("scripts/*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Model.from_pretrained")
        and "Fast" in ast.unparse(node.func)
    ]  # fmt: skip
    assert len(calls) == 1
    assert all("use_exact_model_name" in keywords for keywords in calls)


def test_no_usage_is_reported_to_the_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "unsloth", ModuleType("unsloth"))
    monkeypatch.setattr(unsloth, "require_rewrite", lambda: None)
    for name in ("UNSLOTH_DISABLE_STATISTICS", "UNSLOTH_VLLM_STANDBY", "UNSLOTH_COMPILE_LOCATION"):
        monkeypatch.setenv(name, "")  # restored afterwards
    monkeypatch.delenv("UNSLOTH_DISABLE_STATISTICS")
    unsloth.import_unsloth(compose("model.load_in_4bit=false"))
    assert os.environ["UNSLOTH_DISABLE_STATISTICS"] == "1"


def test_the_adapters_folder_of_a_run_is_its_own_and_goes_with_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []

    def load_lora(name: str, load_tensors: bool) -> None:
        Path(name).mkdir(exist_ok=True)
        seen.append(Path(name))

    models = [SimpleNamespace(load_lora=load_lora) for _ in range(2)]
    for model in models:
        unsloth.use_temporary_folder(model)
        model.load_lora("vllm_gen_lora", load_tensors=True)
        model.load_lora("vllm_gen_lora", load_tensors=True)
    assert len(set(seen)) == 2
    assert all(folder.is_dir() for folder in seen)
    assert list(tmp_path.iterdir()) == []
    model = None
    models.clear()
    assert not any(folder.exists() for folder in seen)


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
    ("eos", "expected"), [(None, [1]), (1, [1]), ([1, 5], [1, 5]), ([5, 6], [1, 5, 6])]
)
def test_every_end_token_counts(model_folder, eos, expected):
    path = model_folder(eos)
    assert end_tokens(path, load_tokenizer(path)) == expected


def test_a_pad_that_ends_completions_is_refused(model_folder):
    path = model_folder([1, 0])  # as Qwen2.5: its pad <|endoftext|> is a second end token
    with pytest.raises(UserError, match=r"model\.pad_token"):
        unsloth.check_pad(path, load_tokenizer(path))
    unsloth.check_pad(path, load_tokenizer(path, "<unk>"))


def test_a_pad_token_must_be_known(model_folder):
    with pytest.raises(UserError, match="not a token of"):
        load_tokenizer(model_folder(1), "<|vision_pad|>")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: engines on a GPU")
@pytest.mark.parametrize(
    "overrides",
    [
        ["backend=unsloth"],  # its vLLM shares the base weights
        ["backend=unsloth", "engine=vllm"],  # without fast_inference, a vLLM beside it
        ["backend=unsloth", "engine=trl"],
        ["backend=transformers", "engine=vllm"],
        ["backend=transformers", "engine=vllm", "model.load_in_4bit=true"],
        ["backend=transformers", "engine=transformers", "model.load_in_4bit=true"],
    ],
)
def test_on_a_gpu_a_short_run_trains_through_the_engine(tmp_path: Path, overrides):
    done = processes.fresh(  # imports Unsloth first
        tmp_path, "train.py", "model.dtype=bfloat16",
        "max_steps=3", "rollouts_per_prompt=16", "kept_per_prompt=4", "micro_batch_size=4",
        "engine.gpu_memory_utilization=0.3", *overrides,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
