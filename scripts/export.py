"""A checkpoint as a folder that transformers, PEFT and vLLM load, with tokenizer and model card.

    uv run scripts/export.py run=<run> checkpoint=best
    uv run scripts/export.py run=<run> merge=false out=<folder>

docs/export.md says how to score the folder, how to load it and how to make a GGUF file of it.
"""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pods.config.command import CONFIG_DIR, command
from pods.config.errors import UserError
from pods.config.keys import Model, Text, TrainConfig
from pods.evaluation.config import OneCheckpoint, find_one, renamed_keys
from pods.files import replaced, write_atomic
from pods.models import is_adapter, locate

if TYPE_CHECKING:
    from pods.evaluation.targets import Target

CHOSEN = {
    "best": "by accuracy on validation questions, not on test questions: its validation accuracy "
    "is overstated, its test accuracy is not",
    "last": "as the last one of the run; no score had a part in the choice",
}
BY_NAME = "by hand: if the scores below had a part in it, they are overstated"
PRIVATE = ("data_dir", "output_dir", "resume", "init_from", "logger", "backend")  # of the machine
CARD = """---
{head}---

# {title}

{model}, trained for {minutes:.1f} minutes with GRPO and rollout selection (PODS, arXiv 2504.13818)
by the config below; commit {commit}. The folder holds {form}. The checkpoint, {name} of run {run},
was chosen {chosen}.

## Prompt

```text
{prompt}
```

## Accuracy in %, with 95 % intervals over questions

{scores}

## Config

```yaml
{config}```
"""


class ExportConfig(OneCheckpoint):
    out: Text | None
    merge: bool


@command("export", ExportConfig, CONFIG_DIR / "checkpoint")
def main(config: ExportConfig) -> None:
    check(config)
    with renamed_keys({"model.path": "model_path", "checkpoints": "checkpoint"}):
        export(config)


def check(config: ExportConfig) -> None:
    """Every rule of the config alone. Raises UserError."""
    config.check()
    name = f"{config.run}-{config.checkpoint}{'' if config.merge else '-adapter'}"
    config.out = config.out or f"exports/{name}"
    if Path(config.out).exists():
        raise UserError(f"out={config.out}: exists; remove it, or set out=<a new folder>")


def export(config: ExportConfig) -> None:
    """Write the folder and describe it."""
    from pods.models.policy import load_tokenizer
    from pods.tasks import rendered

    training, target = find_one(config)
    if not config.merge and target.lora_rank is None:
        raise UserError(f"merge=false: {target.weights} has no adapter, but all weights; drop it")
    tokenizer, out = load_tokenizer(training.model.path, training.model.pad_token), Path(config.out)
    prompt = rendered("<the question>", tokenizer, training.task)
    if config.merge:
        write_merged(training.model, target.weights, out)
    else:
        write_adapter(training, target.weights, tokenizer, out)
    write_atomic(out / "README.md", card(config, training, target, prompt))
    print(f"wrote {out}: {target.weights}, {'merged' if config.merge else 'adapter'}")


def write_adapter(training: TrainConfig, checkpoint: Path, tokenizer: Any, out: Path) -> None:
    """The adapter, which names the base model as the run's config does, and the tokenizer."""
    with replaced(out) as folder:
        adapter = json.loads((checkpoint / "adapter_config.json").read_text())
        adapter["base_model_name_or_path"] = locate(training.model.path)
        (folder / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
        shutil.copy(checkpoint / "adapter_model.safetensors", folder)
        tokenizer.save_pretrained(folder)


def write_merged(model: Model, checkpoint: Path, folder: Path) -> None:
    """Base model and adapter (or all weights) of a checkpoint as one model, with its tokenizer.

    Added up in float32 and rounded once to model.dtype; `folder` appears when it is complete.
    """
    import torch
    from peft import PeftModel

    from pods.models.policy import load_model, load_tokenizer

    adapted = is_adapter(checkpoint)
    whole = load_model(model.path if adapted else str(checkpoint), "float32")
    if adapted:
        whole = PeftModel.from_pretrained(whole, checkpoint).merge_and_unload()
    with replaced(folder) as temporary:
        whole.to(getattr(torch, model.dtype)).save_pretrained(temporary)
        load_tokenizer(model.path, model.pad_token).save_pretrained(temporary)


def card(config: ExportConfig, training: TrainConfig, target: "Target", prompt: str) -> str:
    """The model card, in the format of the Hugging Face hub."""
    from pods.runs import results

    base, title = locate(training.model.path), f"{config.run}-{target.name}"
    head = {"library_name": "transformers" if config.merge else "peft", "tags": ["grpo", "pods"]}
    head |= {} if Path(base).is_dir() else {"base_model": base}
    facts = results.facts_of(target.weights.parent / "meta.json")
    keys = {key: value for key, value in training.model_dump().items() if key not in PRIVATE}
    return CARD.format(
        head=yaml.safe_dump({**head, "pipeline_tag": "text-generation"}),
        title=title,
        model=training.model.name,
        minutes=target.meta.get("train_seconds", 0) / 60,
        commit=facts.get("git_commit"),
        form="the whole model" if config.merge else "a LoRA adapter",
        name=target.name,
        run=config.run,
        chosen=CHOSEN.get(config.checkpoint, BY_NAME),
        prompt=prompt,
        scores=scores(Path(config.results_dir), config.run, training.model.name, target.name),
        config=yaml.safe_dump(keys, sort_keys=False),
    )


def scores(folder: Path, run: str, base: str, chosen: str) -> str:
    """A Markdown table: the base model and every scored checkpoint, a row for each task."""
    from pods.runs import results

    details = results.facts_of(folder / f"base-{base}.meta.json").get("details", {})
    policies = {"base": details.get("scores", {})}
    # The last two are of select_on=validation.
    for path in (f"{run}.json", f"{run}/validation.json", f"{run}/selected.json"):
        for step, policy in (
            results.read(folder / path) if (folder / path).is_file() else {}
        ).items():
            by_task = policies.setdefault(f"checkpoint-{step}", {})
            by_task |= policy.meta.get("scores", {})
    rows = ["| policy | task | grader | accuracy | questions x repeats |", "|---|---|---|---|---|"]
    for name, by_task in policies.items():
        for task, numbers in by_task.items():
            grader, metrics = next(iter(numbers["rewards"].items()))
            mean, low, high = (100 * metrics["correct"][key] for key in ("mean", "low", "high"))
            policy = f"**{name}**" if name == chosen else name
            asked = f"{numbers['questions']} x {numbers['repeats']}"
            rows.append(
                f"| {policy} | {task} | {grader} | {mean:.1f} [{low:.1f}, {high:.1f}] | {asked} |"
            )
    return "\n".join(rows) if rows[2:] else f"Not scored: `uv run evaluate_run.py run={run}`"


if __name__ == "__main__":
    main()
