"""export.py and chat.py on random adapters of the tiny policy."""

import io
import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.engines import Completion, choose
from pods.evaluation.targets import Target
from pods.models.policy import load_tokenizer
from pods.runs import checkpoints
from scripts import export
from tests.fake_run import TINY, add_checkpoint, edit_json, make_run, quickstart_config
from tests.figures import in_process, refused

QUESTION = "12+5-3=?"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), steps=(2, 4), scale=0.05)


def exported(*overrides: str) -> int:
    """The exit code of export.py into the folder `exported`."""
    return in_process("scripts/export.py", "run=fake", "out=exported", *overrides)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_merged_model_is_rounded_once_to_the_type_of_the_base(dtype):
    run = make_run(Path("checkpoints"), "typed", (2,), 0.05, **{"model.dtype": dtype})
    assert exported("run=typed") == 0
    written = AutoModelForCausalLM.from_pretrained("exported").state_dict()
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, run / "checkpoint-2").merge_and_unload()
    rounded = {name: v.to(getattr(torch, dtype)) for name, v in merged.state_dict().items()}
    torch.testing.assert_close({**written}, rounded, rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained("exported")("1+2=")["input_ids"]


def test_an_adapter_is_loaded_by_peft_on_its_base(run):
    assert exported("merge=false", "checkpoint=checkpoint-2") == 0
    ids = torch.tensor([[5, 6, 7]])
    ours = AutoPeftModelForCausalLM.from_pretrained(run / "checkpoint-2")(ids).logits
    base = AutoModelForCausalLM.from_pretrained(TINY)
    assert not torch.allclose(base(ids).logits, ours)
    assert torch.equal(PeftModel.from_pretrained(base, "exported")(ids).logits, ours)


def test_an_adapter_names_the_base_that_it_was_trained_on(capsys):
    """Its folder, which is found from any other one; no hub id that was not loaded."""
    keys = {"model.path": "pods/tiny_policy", "model.name": "qwen3-0.6b"}  # of another base
    make_run(Path("checkpoints"), "other", (2,), **keys)
    assert exported("merge=false", "run=other") == 0
    assert_base(str(TINY), capsys)


def test_an_adapter_names_the_place_where_its_base_is_now(tmp_path, capsys):
    shutil.copytree(TINY, tmp_path / "moved")
    assert exported("merge=false", "run=fake", "model_path=moved") == 0
    assert_base(str(tmp_path / "moved"), capsys)


def assert_base(base: str, capsys: Any) -> None:
    assert PeftConfig.from_pretrained("exported").base_model_name_or_path == base
    assert base in capsys.readouterr().out
    card = ModelCard.load("exported/README.md")
    assert f"a LoRA adapter of {base}," in " ".join(card.text.split())
    assert card.data.base_model is None  # only of the hub


def test_the_card_names_a_base_of_the_hub_and_the_price_list_of_its_minutes():
    config = export.ExportConfig.model_construct(run="r", merge=False, checkpoint="last")
    target = Target(weights=Path("checkpoints/fake/checkpoint-2"))
    training = quickstart_config("model.path=Qwen/Qwen3-0.6B", "clock=l40s", "algorithm=thin")
    card = ModelCard(export.card(config, training, target, "Qwen/Qwen3-0.6B", "prompt"))
    assert card.data.base_model == "Qwen/Qwen3-0.6B"
    assert "minutes (priced: l40s) with `algorithm=thin`" in card.text


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings", "ignore:Setting `save_emb")
@pytest.mark.parametrize("layer", ["lm_head", "embed_tokens"])
def test_an_adapter_of_tied_embeddings_is_merged_into_its_own_matrix(run, layer):
    """The head and the embedding are one matrix in the base, but not in the policy."""
    path, ids = run / "checkpoint-2", torch.arange(5, 60)[None]
    shutil.rmtree(path)
    lora = LoraConfig(r=4, target_modules=[layer], task_type="CAUSAL_LM")
    policy = get_peft_model(AutoModelForCausalLM.from_pretrained(TINY), lora)
    for name, parameter in policy.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter.data, std=0.1)
    policy.save_pretrained(path)
    checkpoints.seal(path, {"step": 2})
    assert exported("checkpoint=2") == 0
    merged = AutoModelForCausalLM.from_pretrained("exported")
    torch.testing.assert_close(merged(ids).logits, policy(ids).logits, rtol=1e-4, atol=1e-3)


def test_a_base_that_cannot_be_saved_is_refused_in_a_line(tmp_path, capsys):
    base = Path(shutil.copytree(TINY, tmp_path / "base"))
    edit_json(base / "config.json", output_attentions=True)
    assert exported("merge=false", f"model_path={base}") == 0
    shutil.rmtree("exported")
    arguments = ("run=fake", "out=exported", f"model_path={base}")
    assert "output_attentions" in refused(capsys, "scripts/export.py", *arguments)


CHOSEN = {
    "best": "by accuracy on validation questions, not on test questions",
    "4": "by hand: if scores had a part in it, they are overstated",
}


@pytest.mark.parametrize(("checkpoint", "chosen"), CHOSEN.items())
def test_the_card_says_how_the_checkpoint_was_chosen_and_trained(run, checkpoint, chosen):
    best = {"checkpoint_best": {"checkpoint": "checkpoint-4"}, "git_commit": "abc"}
    (run / "meta.json").write_text(json.dumps(best))
    assert exported(f"checkpoint={checkpoint}") == 0
    card = ModelCard.load("exported/README.md")
    assert f"chosen {chosen}" in " ".join(card.text.split())
    assert all(text in card.text for text in ("rollouts_per_prompt: 8", "commit abc"))
    assert (card.data.base_model, "output_dir" in card.text) == (None, False)  # of this machine


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["checkpoint=best"], "checkpoints/fake: no checkpoint has validation scores"),
        (["checkpoint=3"], "checkpoints/fake: has no checkpoint-3; it has 2, 4"),
        (["out=checkpoints"], "out=checkpoints: exists; remove it, or set out=<a new folder>"),
        (["checkpoint=good"], "checkpoint=good: must match"),
        (["run=full", "merge=false"], "has no adapter, but all weights; drop it"),
        (["run=full", "model_path=nowhere/at/all"], "model.path=nowhere/at/all: no such folder"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(overrides, line, capsys):
    add_checkpoint(make_run(Path("checkpoints"), "full", ()), 6, full=True)
    assert line in refused(capsys, "scripts/export.py", "run=fake", "out=exported", *overrides)


def test_base_and_checkpoint_get_the_same_prompt_and_seed_and_a_verdict(run, monkeypatch, capsys):
    tokenizer, asked = load_tokenizer(str(TINY)), []
    answers = "<answer>15</answer>", "<think>[bold]a\x1b[2J</think><answer>14</answer>"
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in answers]

    def generate(works: list) -> Any:
        asked.append(works)
        return [(w, [[Completion(i, clipped=False)]]) for w, i in zip(works, ids, strict=True)]

    engine = nullcontext(SimpleNamespace(generate=generate))
    monkeypatch.setattr(choose, "build", lambda *_: engine)
    lines = "", f"{QUESTION} => 14", "1+" * 400, f"{QUESTION}\udce9", ""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert in_process("scripts/chat.py", "run=fake", "checkpoint=2") == 0
    (first, second) = asked  # and not the long one, at which vLLM would end the command
    assert [work.weights for work in first] == [None, run / "checkpoint-2"]
    assert first[0].requests == first[1].requests != second[0].requests  # asked again: other seed
    assert tokenizer.decode(first[0].requests[0].prompt) == f"<user>{QUESTION}<assistant>"
    shown = capsys.readouterr().out
    assert (shown.count("wrong"), shown.count("correct")) == (1, 1), "the second has no gold answer"
    assert "[bold]a[2J" in shown, "no control characters"
    assert len(re.findall(r"not asked: .*sampling\.max_prompt_length=\d+ tokens", shown)) == 1


def test_a_prompt_cannot_end_its_block_of_the_card():
    hostile = "```\n<script>window.hacked = 1</script>\n````"
    make_run(Path("checkpoints"), "hostile", (2,), **{"task.system": repr(hostile)})
    assert exported("run=hostile", "merge=false") == 0
    card = Path("exported/README.md").read_text()
    assert card.count("\n`````") == 4  # two blocks, opened and closed
    block = card.split("`````text\n")[1].split("\n`````\n")[0]
    assert "<script>" in block
