"""export.py on random adapters of the tiny policy: the folder loads, is scored, described."""

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import ModelCard
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.config import command
from pods.config.errors import RunFailed, UserError
from pods.evaluation.config import own_keys
from pods.models import initial
from pods.runs import results
from scripts import export
from tests.fake_run import TINY, add_checkpoint, make_run

ACCURACY = {"mean": 0.75, "low": 0.625, "high": 0.875}


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), steps=(2, 4), scale=0.05)


def exported(*overrides: str) -> Path:
    fixed = ["run=fake", "out=exported", "questions=0", *overrides]
    composed = command.compose(
        "export", export.ExportConfig, fixed, command.CONFIG_DIR / "checkpoint"
    )
    config = command.typed(export.ExportConfig, composed)
    with own_keys(config):
        export.check(config)
        export.export(config, "transformers", "a test")
    return Path(config.out)


def merged(checkpoint: Path) -> dict[str, torch.Tensor]:
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    return PeftModel.from_pretrained(base, checkpoint).merge_and_unload().state_dict()


def test_the_merged_model_gives_the_completions_of_the_checkpoint(
    run: Path, capsys: pytest.CaptureFixture
) -> None:
    out = exported("questions=8")
    model = AutoModelForCausalLM.from_pretrained(out)
    for name, values in merged(run / "checkpoint-4").items():
        torch.testing.assert_close(model.state_dict()[name], values, rtol=0, atol=1e-7)
    assert AutoTokenizer.from_pretrained(out)("1+2=")["input_ids"]
    said = capsys.readouterr().out
    assert "exported: checkpoints/fake/checkpoint-4, merged" in said
    assert "8 validation questions of arithmetic: checkpoint-4 " in said
    assert "difference +0.0 points; 8 of 8 completions are the same" in said
    assert "8 of 8 completions" in (out / "README.md").read_text()


def test_it_is_the_exported_folder_that_is_scored(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def base_alone(model: object, checkpoint: Path, folder: Path) -> None:
        AutoModelForCausalLM.from_pretrained(TINY).save_pretrained(folder)

    monkeypatch.setattr(initial, "write_merged", base_alone)
    exported("questions=16")
    said = capsys.readouterr().out
    assert "of 16 completions are the same" in said
    assert "16 of 16" not in said


def test_weights_are_rounded_once_to_the_type_of_the_base() -> None:
    run = make_run(Path("checkpoints"), "half", (2,), 0.05, **{"model.dtype": "bfloat16"})
    model = AutoModelForCausalLM.from_pretrained(exported("run=half"))
    for name, values in merged(run / "checkpoint-2").items():
        assert torch.equal(model.state_dict()[name], values.to(torch.bfloat16))


def test_an_adapter_is_loaded_by_peft_on_its_base(run: Path, capsys: pytest.CaptureFixture) -> None:
    out = exported("merge=false", "checkpoint=checkpoint-2", "questions=4")
    assert "4 of 4 completions are the same" in capsys.readouterr().out
    ids = torch.tensor([[5, 6, 7]])
    ours = AutoPeftModelForCausalLM.from_pretrained(run / "checkpoint-2")(ids).logits
    assert torch.equal(AutoPeftModelForCausalLM.from_pretrained(out)(ids).logits, ours)
    base = AutoModelForCausalLM.from_pretrained(TINY)(ids).logits
    assert not torch.allclose(base, ours)


def scores(questions: int, repeats: int) -> dict[str, Any]:
    counts = {"questions": questions, "repeats": repeats}
    return {"gsm8k": counts | {"rewards": {"v2": {"answer": ACCURACY}}}}


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ("best", "chosen by accuracy on validation questions, not on test questions"),
        ("last", "the last checkpoint of the run"),
        ("4", "If the choice was made by the scores below, they are overstated"),
    ],
)
def test_the_card_says_how_the_checkpoint_was_chosen_trained_and_scored(
    run: Path, checkpoint: str, said: str
) -> None:
    best = {"checkpoint_best": {"checkpoint": "checkpoint-4"}, "git_commit": "abc"}
    (run / "meta.json").write_text(json.dumps({**best, "versions": {"trl": "1.13.0"}}))
    entry = results.Entry([0.75], [1.0], [0.75], [9.0])
    marks = {
        step: results.Checkpoint(
            {"gsm8k": entry}, {"train_seconds": 2.5 * step, "scores": scores(8, 5)}
        )
        for step in (2, 4)
    }
    results.write("results/fake.json", {4: marks.pop(4)})
    marks[2].meta["scores"] = {"gsm8k.validation": scores(8, 1)["gsm8k"]}
    results.write("results/fake/validation.json", marks)  # earlier, though read later
    facts = {"tasks": {"gsm8k": {"seed": 7}}, "weights": {}}
    Path("results/fake.meta.json").write_text(json.dumps(facts))
    base = {"tasks": {}, "details": {"scores": scores(8, 1)}}
    Path("results/base-tiny.meta.json").write_text(json.dumps(base))
    card = ModelCard.load(exported(f"checkpoint={checkpoint}") / "README.md")
    (result,) = card.data.eval_results
    assert (result.metric_value, result.metric_args) == (0.75, {"ci95": [0.625, 0.875]})
    assert (result.dataset_type, result.dataset_name) == ("openai/gsm8k", "gsm8k")
    assert said in card.text
    accuracy = "75.0 [62.5, 87.5]"
    rows = f"| base | 0 | {accuracy} |  |\n| checkpoint-2 | 5 |  | {accuracy} |\n"
    assert f"| gsm8k | gsm8k.validation |\n| --- | --- | --- | --- |\n{rows}" in card.text
    assert f"| **checkpoint-4** | 10 | {accuracy} |  |" in card.text
    assert "gsm8k: 8 questions x 5 completions, seed 7" in card.text
    assert "rollouts_per_prompt: 32" in card.text
    assert "git_commit abc, trl 1.13.0" in card.text
    assert card.data.base_model is None  # a folder of this machine
    assert "output_dir" not in card.text


class Hub:
    """The uploads instead of the hub's client."""

    calls: list[tuple] = []  # noqa: RUF012

    def create_repo(self, name: str, **options: Any) -> None:
        if name.startswith("taken/"):
            raise OSError("403 Forbidden")
        self.calls.append((name, options))

    def upload_folder(self, repo_id: str, folder_path: Path) -> None:
        self.calls.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))


def test_a_push_uploads_the_whole_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    exported("push=me/model")
    (created, options), (name, files) = Hub.calls
    assert (created, name, options["private"]) == ("me/model", "me/model", True)
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {*files}
    with pytest.raises(
        RunFailed, match=r"403 Forbidden; other is complete: hf upload taken/x other"
    ):
        exported("push=taken/x", "out=other")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["push=me/model"], "push=me/model: no token of the hub; run `hf auth login`, or set HF_"),
        (["push=model"], "push=model: must be <org>/<name>"),
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
    overrides: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    add_checkpoint(make_run(Path("checkpoints"), "full", ()), 6, full=True)
    before = {*Path().iterdir()}
    with pytest.raises(UserError) as error:
        exported(*overrides)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {*Path().iterdir()} == before
