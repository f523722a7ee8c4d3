"""export.py and chat.py on random adapters of the tiny policy."""

import io
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.config import command
from pods.config.errors import UserError
from pods.engines import Completion, choose
from pods.evaluation.config import renamed_keys
from pods.models.policy import load_tokenizer
from pods.runs import results
from scripts import chat, export
from tests.fake_run import TINY, add_checkpoint, make_run

ACCURACY = {"mean": 0.75, "low": 0.625, "high": 0.875}
QUESTION = "12+5-3=?"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), steps=(2, 4), scale=0.05)


def configured(name: str, schema: type, *overrides: str) -> Any:
    folder = command.CONFIG_DIR / "checkpoint"
    return command.typed(schema, command.compose(name, ["run=fake", *overrides], folder))


def exported(*overrides: str) -> Path:
    config = configured("export", export.ExportConfig, "out=exported", *overrides)
    with renamed_keys({"model.path": "model_path", "checkpoints": "checkpoint"}):
        export.check(config)
        export.export(config)
    return Path(config.out)


def merged(checkpoint: Path) -> dict[str, torch.Tensor]:
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    return PeftModel.from_pretrained(base, checkpoint).merge_and_unload().state_dict()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_merged_model_is_rounded_once_to_the_type_of_the_base(dtype: str) -> None:
    run = make_run(Path("checkpoints"), "typed", (2,), 0.05, **{"model.dtype": dtype})
    model = AutoModelForCausalLM.from_pretrained(out := exported("run=typed"))
    for name, values in merged(run / "checkpoint-2").items():
        assert torch.equal(model.state_dict()[name], values.to(getattr(torch, dtype)))
    assert AutoTokenizer.from_pretrained(out)("1+2=")["input_ids"]


def test_an_adapter_is_loaded_by_peft_on_its_base(run: Path) -> None:
    out = exported("merge=false", "checkpoint=checkpoint-2")
    ids = torch.tensor([[5, 6, 7]])
    ours = AutoPeftModelForCausalLM.from_pretrained(run / "checkpoint-2")(ids).logits
    assert torch.equal(AutoPeftModelForCausalLM.from_pretrained(out)(ids).logits, ours)
    base = AutoModelForCausalLM.from_pretrained(TINY)(ids).logits
    assert not torch.allclose(base, ours)


def scores(questions: int, repeats: int) -> dict[str, Any]:
    counts = {"questions": questions, "repeats": repeats}
    return {"gsm8k": counts | {"rewards": {"v2": {"correct": ACCURACY}}}}


@pytest.mark.parametrize(
    ("checkpoint", "chosen"),
    [
        ("best", "by accuracy on validation questions, not on test questions"),
        ("last", "as the last one of the run"),
        ("4", "by hand: if the scores below had a part in it, they are overstated"),
    ],
)
def test_the_card_says_how_the_checkpoint_was_chosen_trained_and_scored(
    run: Path, checkpoint: str, chosen: str
) -> None:
    best = {"checkpoint_best": {"checkpoint": "checkpoint-4"}, "git_commit": "abc"}
    (run / "meta.json").write_text(json.dumps(best))
    scored = results.Checkpoint({"gsm8k": results.Entry([0.75])}, {"scores": scores(8, 5)})
    results.write("results/fake.json", {4: scored})
    facts = {"tasks": {"gsm8k": {"seed": 7}}, "weights": {}}
    Path("results/fake.meta.json").write_text(json.dumps(facts))
    base = {"tasks": {}, "details": {"scores": scores(8, 1)}}
    Path("results/base-tiny.meta.json").write_text(json.dumps(base))
    card = ModelCard.load(exported(f"checkpoint={checkpoint}") / "README.md")
    assert f"chosen {chosen}" in " ".join(card.text.split())
    row = "| gsm8k | v2 | 75.0 [62.5, 87.5] | 8 x"
    assert f"| base {row} 1 |\n| **checkpoint-4** {row} 5 |" in card.text
    assert "rollouts_per_prompt: 32" in card.text
    assert "commit abc" in card.text
    assert card.data.base_model is None  # a folder of this machine
    assert "output_dir" not in card.text


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["out=checkpoints"], "out=checkpoints: exists; remove it, or set out=<a new folder>"),
        (["checkpoint=best"], "checkpoint=best: no checkpoint of checkpoints/fake has validation"),
        (["checkpoint=3"], "checkpoint=3: no such checkpoint in checkpoints/fake; it has 2, 4"),
        (["checkpoint=good"], "checkpoint=good: must be best, last or checkpoint-<step>"),
        (["run=f*"], "run=f*: matches fake, full; name one"),
        (["run=full", "merge=false"], "has no adapter, but all weights; drop it"),
        (["run=full", "model_path=nowhere/at/all"], "model_path=nowhere/at/all: no such folder"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    overrides: list[str], line: str
) -> None:
    add_checkpoint(make_run(Path("checkpoints"), "full", ()), 6, full=True)
    before = {*Path().iterdir()}
    with pytest.raises(UserError) as error:
        exported(*overrides)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    assert {*Path().iterdir()} == before


def answered(monkeypatch: pytest.MonkeyPatch, typed: str, *texts: str, **keys: Any) -> list[list]:
    """The works of each line that chat.py is given; `texts`: of base and checkpoint."""
    tokenizer, asked = load_tokenizer(str(TINY)), []
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]

    def generate(works: list) -> Any:
        asked.append(works)
        return [(w, [[Completion(i, clipped=False)]]) for w, i in zip(works, ids, strict=True)]

    engine = nullcontext(SimpleNamespace(generate=generate))
    monkeypatch.setattr(choose, "build", lambda *_: engine)
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    chat.chat(configured("chat", chat.ChatConfig, *(f"{k}={v}" for k, v in keys.items())))
    return asked


def test_base_and_checkpoint_get_the_same_prompt_and_seed_and_a_verdict(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    typed = f"\n{QUESTION} => 14\n{QUESTION} => 14\n{'1+' * 300}1=?\n"
    texts = "<answer>15</answer>", "<think>12+5=17</think><answer>14</answer>"
    (first, second) = answered(monkeypatch, typed, *texts, checkpoint=2)
    assert [work.weights for work in first] == [None, run / "checkpoint-2"]
    assert first[0].requests == first[1].requests != second[0].requests  # asked again: other seed
    prompt = load_tokenizer(str(TINY)).decode(first[0].requests[0].prompt)
    assert prompt == f"<user>{QUESTION}<assistant>"
    shown = capsys.readouterr()
    assert "wrong, not 14, 4 tokens, not well formed" in shown.out
    assert "correct, 13 tokens, well formed" in shown.out
    assert "tokens, more than in training" in shown.err  # the third line, which is skipped


def test_text_is_never_markup_nor_control_characters() -> None:
    assert chat.printable("[bold]a\x1b[2J\n").plain == "[bold]a�[2J\n"
    assert not chat.printable("[bold]a").spans
