"""Our trainer inside Unsloth's rewritten one agrees with plain TRL: fails when a pin moves too far.

    UV_PROJECT_ENVIRONMENT=.venv-gpu uv sync --locked --extra gpu     # once; several GB
    uv run pytest tests/nightly/test_unsloth_drift.py                         # no GPU needed

Each side has its process, because Unsloth rewrites TRL for a whole process. One of them also checks
the rest of the GPU path (tests/nightly/gpu_path.py)."""

import ast
import inspect
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from pods.models import unsloth
from tests import filled_steps
from tests.configs import compose
from tests.conftest import ROOT
from tests.nightly.unsloth_drift import CASES

# Keys of GRPOConfig whose value may differ between the sides, each with why that is harmless.
# Every other difference means that Unsloth changed a default which the trainer must then pass.
MAY_DIFFER = {
    "output_dir": "each side has its own",
    "eval_accumulation_steps": "no evaluation inside the trainer",
    "per_device_eval_batch_size": "no evaluation inside the trainer",
    "bf16_full_eval": "no evaluation inside the trainer",
    "router_aux_loss_coef": "mixture-of-experts models only",
    "generation_kwargs": "None here, an empty dict there",
}


pytestmark = pytest.mark.timeout(2400)  # the first test waits for both sides


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """What tests/nightly/unsloth_drift.py reports for both sides, run side by side."""
    python = os.environ.get("PODS_GPU_PYTHON", ROOT / ".venv-gpu" / "bin" / "python")
    if not Path(python).is_file():
        pytest.skip(f"no gpu environment at {python}; see the top of this file, or PODS_GPU_PYTHON")
    folder, started = tmp_path_factory.mktemp("drift"), {}
    for side, interpreter in {"plain": sys.executable, "unsloth": python}.items():
        with open(folder / f"{side}.out", "w") as out, open(folder / f"{side}.err", "w") as err:
            command = [interpreter, "-m", "tests.nightly.unsloth_drift", side, str(folder)]
            started[side] = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)
    results = {}
    try:
        for side, process in started.items():
            assert process.wait(timeout=2000) == 0, (folder / f"{side}.err").read_text()[-3000:]
            results[side] = json.loads((folder / f"{side}.out").read_text().splitlines()[-1])
    finally:
        for process in started.values():
            process.kill()
    return results


def test_the_gpu_extra_has_the_versions_of_the_lock():
    """Also outside of a clone, where unsloth alone would take the newest zoo."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = [need.partition(";")[0] for need in project["optional-dependencies"]["gpu"]]
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    versions = {package["name"]: package["version"] for package in locked if "version" in package}
    for name in ("unsloth", "unsloth-zoo", "vllm", "vllm-bnb-plugin"):
        assert f"{name}=={versions[name]}" in extra


def test_the_rewritten_class_has_the_methods_that_we_extend(sides):
    assert sides["plain"]["class"] == "GRPOTrainer"
    assert sides["unsloth"]["class"] == "UnslothGRPOTrainer"
    plain, rewritten = sides["plain"]["signatures"], sides["unsloth"]["signatures"]
    assert plain["_generate_and_score_completions"] == ["self", "inputs"]
    assert rewritten["_generate_and_score_completions"] == ["self", "args", "kwargs"]  # its wrapper
    assert plain["_get_train_sampler"] == rewritten["_get_train_sampler"] == ["self", "dataset"]
    first = [side["_generate_single_turn"][:4] for side in (plain, rewritten)]
    assert first == [["self", "prompt_ids", "images", "multimodal_fields"]] * 2


def test_the_loader_takes_what_we_pass(sides):
    loader = {name: set(names) for name, names in sides["unsloth"]["loader"].items()}
    passed = {name: set() for name in loader}
    for call in ast.walk(ast.parse(inspect.getsource(unsloth.load_unsloth))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            names = {keyword.arg for keyword in call.keywords} - {None}
            passed.get(call.func.attr, set()).update(names)
    assert [name for name, names in passed.items() if names - loader[name]] == []
    assert {name for name in passed if passed[name]} == {"from_pretrained", "get_peft_model"}
    config = compose()
    engine = unsloth.engine_arguments(config).keys()
    assert engine <= loader["from_pretrained"] | loader["load_vllm"]
    assert config.lora.model_dump(by_alias=True).keys() <= loader["get_peft_model"]
    assert sides["unsloth"]["default_sequences"] == unsloth.UNSLOTH_DEFAULT_SEQUENCES
    assert sides["unsloth"]["missing_names"] == []


def test_vllm_is_asked_for_what_the_guard_and_the_seeds_need(sides):
    """And for all sequences of a step at once; the newer model runner samples seeds at no cost."""
    settings = sides["unsloth"]["settings"]
    assert settings["unsloths"] == [257, 1, 64, 0, "processed_logprobs"]
    assert settings["ours"] == [True, "bitsandbytes", "raw_logprobs", 64]
    assert settings["graphs_without_adapter"] is False


def test_vllm_and_the_trainer_quantise_to_the_same_bits(sides):
    assert sides["unsloth"]["four_bit"] == [21, [], []]


@pytest.mark.parametrize("case", CASES)
def test_a_step_inside_unsloths_trainer_is_that_of_trls(sides, case):
    plain, rewritten = (sides[side]["cases"][case] for side in ("plain", "unsloth"))
    assert rewritten["generated"] == plain["generated"]
    assert rewritten["kept"] == plain["kept"]
    if case == "filled":
        rows = [len(step) for step in plain["kept"]]
        assert min(rows) < 16
        assert len(set(rows)) > 1
    elif case == "dapo":  # a second round where a group has no signal
        assert plain["generated"][0] == 2 * 4
        assert len(plain["generated"]) > 3
    else:  # one generation of n a step
        generations = {"kl": 2 + 3, "updates": 1, "grpo_ga": 3}  # the warm-up has two
        assert plain["generated"] == [2 * 16] * generations[case]
        kept = 16 if case == "grpo_ga" else 4
        assert all(len(step) == 2 * kept for step in plain["kept"])
    assert len(plain["loss"]) == len(rewritten["loss"]) == 3
    assert max(map(abs, plain["loss"])) > 1e-5  # else the comparison says nothing
    assert rewritten["loss"] == pytest.approx(plain["loss"], rel=2e-2, abs=1e-6)
    assert rewritten["grad_norm"] == pytest.approx(plain["grad_norm"], rel=5e-3)
    assert rewritten["moved"] == pytest.approx(plain["moved"], rel=5e-3)
    assert len(plain["logprobs"]) == 5  # that the guard compares
    assert rewritten["logprobs"] == pytest.approx(plain["logprobs"], rel=1e-3)
    assert rewritten["saved"] == ["adapter_config.json", "adapter_model.safetensors"]
    ours, theirs = plain["arguments"], rewritten["arguments"]
    differ = {key: (ours[key], theirs.get(key)) for key in ours.keys() - MAY_DIFFER.keys()}
    assert {key: pair for key, pair in differ.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("case", filled_steps.CASES)
def test_rows_that_fill_a_step_count_nowhere_inside_unsloths_trainer(sides, case):
    """As in TRL's trainer, in every step, as near as float32 comes. There the step is that of these
    rows alone: tests/unit/test_pods_trainer.py."""
    plain, rewritten = (np.array(sides[side]["filled"][case]) for side in ("plain", "unsloth"))
    assert np.abs(plain[0]).max() > 1e-3
    np.testing.assert_allclose(rewritten, plain, rtol=0, atol=3e-5 * np.abs(plain).max())


@pytest.mark.parametrize("correction", [False, True])
def test_an_engine_that_samples_under_the_adapter_that_unsloth_hands_over(sides, correction):
    run = sides["unsloth"]["training"][correction]
    gaps = [step["engine/logprob_gap"] for step in run["steps"]]
    assert len(gaps) == 3
    assert max(gaps) < 1e-4
    assert run["steps"][0]["engine/probe_gap_without_adapter"] > 1e-3
    ids = run["lora_ids"]
    # The warm-up's first round, the probe, its longest round and step 0, two steps.
    assert [number - ids[0] for number in ids] == [0, 1, 2, 2, 3, 4]
    assert run["lora_shape"] == [32, 32]
    seeds = [params.pop("seed") for params in run["params"]]
    assert len({*seeds}) == 4  # the longest round and step 0 have those of the first round
    asked = {"temperature": 2.0, "max_tokens": 24, "top_k": 0, "logprobs": 0, "detokenize": False}
    assert run["params"][3] == asked | {"stop_token_ids": [1], "ignore_eos": False}
    assert run["params"][2]["logprobs"] is None  # no guard is due in the longest round
    work = ["wake", "generate", "sleep"] if correction else ["generate"]  # standby with correction
    assert run["events"] == ["sleep"] * correction + work * 6  # TRL lets it sleep first
    assert all(run["losses"])
    assert run["moved"] > 1e-4
    assert "torch.uint8" in run["moment_types"]  # 8-bit AdamW
    assert run["packing"] == {"update/packed": 1.0}


def test_a_run_with_8_bit_moments_resumes_exactly(sides):
    assert sides["unsloth"]["training"][False]["resumed_differs_by"] == 0


def test_each_micro_batch_of_m_rows_is_a_group_with_one_prompt(sides):
    """Unsloth's prefix grouping computes the prompt of such a group once, on a card."""
    layouts = sides["unsloth"]["layouts"]
    assert [signature for signature, *_ in layouts] == [[1, [4]]] * 2
    assert all(tokens == expected for _, tokens, expected in layouts)


def test_rollouts_are_merged_where_our_key_says_so(sides):
    assert sides["unsloth"]["merges"] == {"0": None, "1": "all"}


def test_podstrainer_alone_trains_on_unsloths_engine_as_in_a_notebook(sides):
    """n = 8 are sampled and m = 4 trained on of each of two prompts, a new adapter every step. A
    PeftModel with beta > 0 resumes: Unsloth removes TRL's second adapter, so that a checkpoint has
    one."""
    notebook = sides["unsloth"]["notebook"]
    assert notebook["sampled"] == [16, 16, 16]
    assert notebook["trained"] == [8, 8, 8]
    assert notebook["lora_ids"] == [0, 1, 2]
    assert notebook["saved"] == ["checkpoint-2", "checkpoint-3"]
    assert notebook["moved"] > 1e-3
    assert notebook["resumed_differs_by"] == 0
