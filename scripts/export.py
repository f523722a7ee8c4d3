"""A checkpoint as a folder that transformers, PEFT and vLLM load, with tokenizer and model card.

    uv run scripts/export.py run=<run> checkpoint=last
    uv run scripts/export.py run=<run> merge=false out=<folder>
docs/export.md says how to score the folder, how to load it and how to make a GGUF file of it.
"""

import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from safetensors import SafetensorError

from pods.config.command import CONFIG_DIR, command, load_config
from pods.config.errors import UserError
from pods.config.keys import ModelKeys, Text, TrainConfig, typed_as
from pods.evaluation.lookup import SAVED, OneCheckpoint, find_one
from pods.evaluation.targets import Target
from pods.files import remove_old
from pods.models import is_adapter, locate, smollm2
from pods.runs import results
from pods.tasks import render_for

CHOSEN = {
    "best": "by accuracy on validation questions, not on test questions: its validation accuracy "
    "is overstated, its test accuracy is not",
    "last": "as the last one of the run; no score had a part in the choice",
}
BY_NAME = "by hand: if the scores below had a part in it, they are overstated"
PRIVATE = {"data_dir", "output_dir", "resume", "logger", "backend"}  # of the machine


class ExportConfig(OneCheckpoint):
    """The keys of config/checkpoint/export.yaml."""

    out: Text | None
    merge: bool


@command("export", ExportConfig, CONFIG_DIR / "checkpoint")
def main(config: ExportConfig) -> None:
    """Write the folder under a temporary name, then rename it."""
    training, target = find_one(config)
    name = f"{config.run}-{config.checkpoint}{'' if config.merge else '-adapter'}"
    out = Path(config.out or f"exports/{name}")
    if out.exists():
        raise UserError(f"out={out}: exists; remove it, or set out=<a new folder>")
    if not config.merge and not is_adapter(target.weights):
        raise UserError(f"merge=false: {target.weights} has no adapter, but all weights; drop it")
    from pods.models.policy import load_tokenizer  # --help and mistakes wait for no torch

    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    prompt = render_for("<the question>", tokenizer, training.task, training.model)
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_old(out.parent, ".export-*")
    with TemporaryDirectory(prefix=".export-", dir=out.parent) as temporary:
        folder = Path(temporary) / out.name
        folder.mkdir()
        if config.merge:
            try:
                merged(training.model, target.weights).save_pretrained(folder)
            except SafetensorError as error:  # of a full disk
                raise OSError(f"{out}: {error}") from error
        else:
            shutil.copy(target.weights / "adapter_model.safetensors", folder)
            adapter = json.loads((target.weights / "adapter_config.json").read_text())
            adapter["base_model_name_or_path"] = base_of(config)
            (folder / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
        tokenizer.save_pretrained(folder)
        (folder / "README.md").write_text(card(config, training, target, prompt))
        folder.rename(out)
    print(f"wrote {out}: {target.weights}, {'merged' if config.merge else 'adapter'}")
    if not config.merge:
        print(f"its base: {base_of(config)} (base_model_name_or_path in adapter_config.json)")


def base_of(config: ExportConfig) -> str:
    """What a reader of the adapter finds: the run's model.path; where that is a folder anywhere on
    this machine, the hub id that config/model has for the name."""
    model = load_config(config.output_dir / config.run / SAVED).model
    file = CONFIG_DIR / "model" / f"{model.name}.yaml"
    if Path(model.path).expanduser().is_absolute() and file.is_file():
        model.path = yaml.safe_load(file.read_text())["path"]
    if model.path == smollm2.PATH:  # a name of ours
        return locate(model.path)
    return model.path


def merged(model: ModelKeys, checkpoint: Path) -> Any:
    """Base and adapter (or all weights) added up in float32 and rounded once to model.dtype."""
    import torch
    from peft import PeftModel

    from pods.models.policy import load_model

    adapted = is_adapter(checkpoint)
    whole = load_model(model.path if adapted else str(checkpoint), "float32")
    if adapted:
        whole = PeftModel.from_pretrained(whole, checkpoint).merge_and_unload()
    return whole.to(getattr(torch, model.dtype))


def card(config: ExportConfig, training: TrainConfig, target: Target, prompt: str) -> str:
    """The model card, in the format of the Hugging Face hub."""
    head = {"library_name": "transformers" if config.merge else "peft", "tags": ["grpo", "pods"]}
    base = base_of(config)
    if not Path(locate(base)).is_dir():
        head["base_model"] = base
    template = Path(__file__).with_name("export_card.md").read_text()
    settings = yaml.safe_dump(training.model_dump(exclude=PRIVATE), sort_keys=False)
    ticks = re.findall("`+", prompt + settings)  # a prompt may hold the end of its own block
    return template.format(
        fence="`" * max(3, 1 + max(map(len, ticks), default=0)),
        head=yaml.safe_dump({**head, "pipeline_tag": "text-generation"}),
        model=training.model.name,
        minutes=target.meta.get("train_seconds", 0) / 60,
        commit=results.facts_of(target.weights.parent / "meta.json").get("git_commit"),
        form="the whole model" if config.merge else f"a LoRA adapter of {base}",
        name=target.name,
        run=config.run,
        chosen=CHOSEN.get(config.checkpoint, BY_NAME),
        prompt=prompt,
        scores=scores(config.results_dir, config.run, training.model.name),
        config=settings,
    )


def scores(folder: Path, run: str, base: str) -> str:
    """A Markdown table of every scored checkpoint and the base model, a row for each task."""
    import pandas  # a wrong run= waits for nothing

    from pods.evaluation import scoreboard
    from pods.figures import reading, tables

    lines = []
    path = folder / f"{run}.json"
    for step, policy in results.read(path).items() if path.is_file() else ():
        by_task = policy.meta.get("scores", {})
        seconds = policy.meta.get("train_seconds")
        lines += scoreboard.lines(run, f"checkpoint-{step}", seconds, by_task)
    if not lines:
        return f"Not scored: `uv run evaluate_run.py {typed_as('run', run)}`"
    base_path = folder / f"base-{base}.json"
    facts = results.facts_of(base_path.with_suffix(".meta.json"))
    alike = {
        task: details
        for task, details in facts.get("details", {}).get("scores", {}).items()
        if reading.how_scored(base_path, task, ()) == reading.how_scored(path, task, ())
    }
    lines += scoreboard.lines("", "base", None, alike)
    return tables.markdown(pandas.DataFrame(lines).drop(columns="run").fillna(""))


if __name__ == "__main__":
    main()
