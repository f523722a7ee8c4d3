"""export.py and chat.py on random adapters of the tiny policy."""

import io
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import AutoPeftModelForCausalLM, PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.engines import Completion, choose
from pods.models.policy import load_tokenizer
from pods.runs import results
from scripts import export
from tests.fake_run import TINY, add_checkpoint, make_run
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


@pytest.mark.parametrize(
    ("changes", "base"),
    [
        ({}, "pods/tiny_policy"),
        ({"model.path": TINY}, "pods/tiny_policy"),
        ({"model.path": TINY, "model.name": "qwen3-0.6b"}, "Qwen/Qwen3-0.6B"),
        ({"model.path": TINY, "model.name": "mine"}, str(TINY)),
    ],
    ids=["embedded", "its folder", "a model file's", "nowhere else"],
)
def test_an_adapter_names_a_base_that_its_reader_finds(changes, base, capsys):
    make_run(Path("checkpoints"), "other", (2,), **changes)
    assert exported("merge=false", "run=other") == 0
    assert PeftConfig.from_pretrained("exported").base_model_name_or_path == base
    assert f"its base: {base} (base_model" in capsys.readouterr().out
    card = ModelCard.load("exported/README.md")
    assert f"a LoRA adapter of {base}." in " ".join(card.text.split())
    assert card.data.base_model == (base if base.startswith("Qwen") else None)


def scores(repeats: int) -> dict[str, Any]:
    share = {"mean": 0.75, "low": 0.625, "high": 0.875}
    details = {"questions": 8, "repeats": repeats, "rewards": {"v2": dict.fromkeys(GRADED, share)}}
    return {"scores": {"gsm8k": details | dict.fromkeys(["format", "tokens", "clipped"], share)}}


GRADED = ("correct", "both")
CHOSEN = {
    "best": "by accuracy on validation questions, not on test questions",
    "4": "by hand: if the scores below had a part in it, they are overstated",
}


@pytest.mark.parametrize(("checkpoint", "chosen"), CHOSEN.items())
def test_the_card_says_how_the_checkpoint_was_chosen_trained_and_scored(run, checkpoint, chosen):
    best = {"checkpoint_best": {"checkpoint": "checkpoint-4"}, "git_commit": "abc"}
    (run / "meta.json").write_text(json.dumps(best))
    scored = results.Scores(gsm8k=results.Entry(ans_acc=[0.75]), meta=scores(5))
    Path("results").mkdir()
    Path("results/base-tiny.meta.json").write_text(json.dumps({"details": scores(1)}))
    unscored = export.scores(Path("results"), "fake", "tiny")
    assert unscored == "Not scored: `uv run evaluate_run.py run=fake`"
    results.write(Path("results/fake.json"), {4: scored})
    Path("results/fake.meta.json").write_text('{"tasks": {"gsm8k": {"seed": 7}}, "weights": {}}')
    assert exported(f"checkpoint={checkpoint}") == 0
    card = ModelCard.load("exported/README.md")
    assert f"chosen {chosen}" in " ".join(card.text.split())
    text = re.sub(" +", " ", card.text)
    assert "| gsm8k | v2 | 8 x 1 | base | | 75.0 [62.5, 87.5] |" in text
    assert "| gsm8k | v2 | 8 x 5 | checkpoint-4 | | 75.0 [62.5, 87.5] |" in text
    assert all(text in card.text for text in ("rollouts_per_prompt: 8", "commit abc"))
    assert (card.data.base_model, "output_dir" in card.text) == (None, False)  # of this machine


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["checkpoint=best"], "checkpoints/fake: no checkpoint has validation scores"),
        (["checkpoint=3"], "checkpoints/fake: has no checkpoint-3; it has 2, 4"),
        (["out=checkpoints"], "out=checkpoints: exists; remove it, or set out=<a new folder>"),
        (["checkpoint=good"], "checkpoint=good: set best, last or checkpoint-<step>"),
        (["run=f*"], "run=f*: matches fake, full; name one"),
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
    assert "[bold]a[2J" in shown, "neither markup nor control characters"
    assert len(re.findall(r"not asked: .*sampling\.max_prompt_length=\d+ tokens", shown)) == 1


def test_a_prompt_cannot_end_its_block_of_the_card():
    hostile = "```\n<script>window.hacked = 1</script>\n````"
    make_run(Path("checkpoints"), "hostile", (2,), **{"task.system": repr(hostile)})
    assert exported("run=hostile", "merge=false") == 0
    card = Path("exported/README.md").read_text()
    assert card.count("\n`````") == 4  # two blocks, opened and closed
    block = card.split("`````text\n")[1].split("\n`````\n")[0]
    assert "<script>" in block
