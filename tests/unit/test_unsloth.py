"""Guards of the Unsloth backend that need no GPU: settings, pad token, and the engine's adapter."""

import json
import os
import shutil
import sys
from subprocess import CalledProcessError
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pods.config.errors import UserError
from pods.config.paths import PACKAGE
from pods.engines.trl import generation_arguments
from pods.models import named_loading_errors, unsloth
from pods.models.policy import end_tokens, load_tokenizer
from pods.training import trial
from tests.configs import compose
from tests.unit.test_trainer import build, callback_of, rows

DEFAULTS = {
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "VLLM_CONFIGURE_LOGGING": "0",
}
TINY = PACKAGE / "tiny_policy"


@pytest.mark.parametrize(  # 256: "pick one"
    ("n", "P", "limit", "slots"),
    [(64, 2, "null", 128), (256, 1, "null", 257), (64, 2, 32, 32), (64, 2, 256, 257)],
)
def test_the_engine_runs_every_rollout_of_a_step_at_once_or_as_many_as_are_allowed(
    n, P, limit, slots
):
    sizes = f"rollouts_per_prompt={n}", f"prompts_per_step={P}", f"max_sequences={limit}"
    config = compose(*sizes)
    assert unsloth.engine_arguments(config)["max_num_seqs"] == slots


COLOCATED = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "top_k": 20,
    "generation_kwargs": {"stop_token_ids": [1, 0], "stop": ["x"]},
    "vllm_gpu_memory_utilization": 0.5,
    "vllm_enable_sleep_mode": False,
    "vllm_max_model_length": 560,
}


@pytest.mark.parametrize(
    ("mode", "overrides", "expected"),
    [
        ("none", ["engine=unsloth"], {"top_k": -1}),  # sampling.top_k=0 in vLLM's words
        ("none", ["engine=vllm"], {}),
        ("colocate", ["engine=trl", "sampling.stop=[x]", "sampling.top_k=20"], COLOCATED),
    ],
    ids=["unsloth", "vllm", "trl"],
)
def test_trl_is_told_what_its_own_generation_needs(mode, overrides, expected):
    assert generation_arguments(compose(*overrides), [1, 0], mode) == expected


def test_vllm_writes_no_texts_where_nothing_reads_them():
    arguments = generation_arguments(compose("engine=trl"), [1, 0], "colocate")
    assert arguments["generation_kwargs"]["detokenize"] is False


def test_the_second_job_of_a_sweep_in_one_process_is_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)  # by the first's vLLM
    with pytest.raises(UserError, match="start each job by a command of its own"):
        unsloth.import_unsloth(compose("engine=unsloth"))


def test_trl_that_was_not_rewritten_is_refused_and_no_usage_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "unsloth", ModuleType("unsloth"))
    set_always = "UNSLOTH_VLLM_STANDBY", "UNSLOTH_VLLM_MERGED_ROLLOUT"
    for name in (*set_always, "UNSLOTH_COMPILE_LOCATION", *DEFAULTS):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    with pytest.raises(UserError, match="did not rewrite"):
        unsloth.import_unsloth(compose())
    assert {name: os.environ[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(("key", "value"), [("false", "0"), ("true", "1")])
def test_rollouts_are_merged_only_where_the_key_says_so(monkeypatch, key, value):
    """Unset, the variable means 1 on a card, and the name of the run would not say it."""
    monkeypatch.setitem(sys.modules, "unsloth", ModuleType("unsloth"))
    monkeypatch.setenv("UNSLOTH_VLLM_MERGED_ROLLOUT", "auto")
    for name in ("UNSLOTH_VLLM_STANDBY", "UNSLOTH_COMPILE_LOCATION", *DEFAULTS):
        monkeypatch.setenv(name, "")
    with pytest.raises(UserError, match="did not rewrite"):
        unsloth.import_unsloth(compose(f"vllm.merged_rollouts={key}"))
    assert os.environ["UNSLOTH_VLLM_MERGED_ROLLOUT"] == value


# Unsloth raises vLLM's errors as RuntimeError(text), or as MemoryError with standby.
@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (MemoryError("Unsloth: Your GPU ran out of memory loading vLLM"), 4, "share=0.5: not eno"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 4, "else lower it"),
        (ValueError("No available memory for the cache blocks"), 4, "raise it if the KV cache"),
        (ValueError("Unrecognized model"), 2, "model.path=here"),
        (RuntimeError("Unsloth: this is not an out of memory error"), 1, "did not start"),
        (CalledProcessError(1, ["gcc"]), 1, "did not start"),
        (RuntimeError("Engine core initialization failed."), 1, "VLLM_USE_V2_MODEL_RUNNER=0"),
    ],
)
def test_what_goes_wrong_while_loading_is_told_apart(error, code, part):
    with pytest.raises(UserError) as line, named_loading_errors("here", "vllm_share=0.5"):
        raise error
    assert line.value.exit_code == code
    assert part in str(line.value)
    assert line.value.__cause__ is error


@pytest.mark.parametrize(
    ("eos", "ends"),
    [
        pytest.param(None, [1], id="no generation config"),
        pytest.param(1, [1], id="the tokenizer's"),
        pytest.param([5, 6], [1, 5, 6], id="others"),
        pytest.param([1, 0], [1, 0], id="the tokenizer's among them"),
    ],
)
def test_every_end_token_counts(tmp_path, eos, ends):
    path = str(shutil.copytree(TINY, tmp_path / "model"))
    file = tmp_path / "model" / "generation_config.json"
    file.unlink()
    if eos is not None:
        file.write_text(json.dumps({"eos_token_id": eos}))
    assert end_tokens(path, load_tokenizer(path)) == ends


def test_a_pad_that_ends_completions_is_refused(tmp_path):
    path = str(shutil.copytree(TINY, tmp_path / "model"))
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    with pytest.raises(UserError, match=r"model\.pad_token"):  # 0, as Qwen2.5's <|endoftext|>
        unsloth.check_pad(path, load_tokenizer(path))
    unsloth.check_pad(path, load_tokenizer(path, "<unk>"))
    with pytest.raises(UserError, match="not a token of"):
        load_tokenizer(path, "<|vision_pad|>")


@pytest.mark.parametrize("pad", ["<|new|>", None])  # Qwen2's class adds one past the embedding
def test_a_pad_that_the_model_lacks_is_refused(tmp_path, pad):
    path = str(shutil.copytree(TINY, tmp_path / "model"))
    tokenizer = load_tokenizer(path)
    tokenizer.add_special_tokens({"pad_token": pad or tokenizer.eos_token})
    tokenizer.save_pretrained(path)
    line = r"model\.path=.*must be one of the model's \d+ tokens, .*set model\.pad_token="
    with pytest.raises(UserError, match=line):
        load_tokenizer(path)


def test_a_model_of_an_unknown_type_is_named_as_such(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no_such"}')
    with pytest.raises(UserError, match=r"model\.path=.*model type `no_such`"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(("loaded", "said"), [(48, True), (64, False)])
def test_fewer_sequences_than_asked_for_are_said(capsys, loaded, said):
    config = compose("rollouts_per_prompt=64", "prompts_per_step=1", "max_sequences=64")
    unsloth.say_if_fewer(config, SimpleNamespace(approx_max_num_seqs=loaded))
    assert ("48 sequences at once, not 64" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("packed", "line"), [([1.0, 0.0], "update/packed 0"), ([1.0], "update/packed 1")]
)
def test_a_trial_says_whether_updates_are_packed(packed, line):
    steps = [{"seconds/update": 1.0, "update/packed": value} for value in packed]
    assert line in trial.report(compose(), steps).splitlines()


def test_a_run_that_packs_no_longer_says_so_once(monkeypatch, capsys):
    callback = callback_of(build([], dataset=rows()))
    line = {"all/zero_variance_groups": 0.0, "all/reward_mean": 1.0}
    packed = iter([1.0, 0.0, 0.0])
    monkeypatch.setattr(callback.trainer, "packing", lambda: {"update/packed": next(packed)})
    monkeypatch.setattr(callback.meter, "line", lambda newest, clock, others: line | others)
    for step in (1, 2, 3):
        callback.step_metrics(step)
    said = [
        text for text in "".join(capsys.readouterr()).splitlines() if "micro_batch_size" in text
    ]
    assert [text.partition(":")[0] for text in said] == ["step 2"]
