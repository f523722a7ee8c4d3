"""A checkpoint as a folder that transformers, PEFT and vLLM load, with tokenizer and model card.

    uv run scripts/export.py run=<run> checkpoint=last
    uv run scripts/export.py run=<run> merge=false out=<folder>
docs/export.md says how to score the folder, how to load it and how to make a GGUF file of it.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from pods.config.command import CONFIG_DIR, command
from pods.config.errors import UserError
from pods.config.keys import ModelKeys, Text, TrainConfig, keys_with
from pods.evaluation.lookup import OneCheckpoint, find_one
from pods.evaluation.targets import Target
from pods.files import new_folder
from pods.models import is_adapter, locate
from pods.runs import results
from pods.tasks import render_for

CHOSEN = {
    "best": "by accuracy on validation questions, not on test questions: its validation accuracy "
    "is overstated, its test accuracy is not",
    "last": "as the last one of the run; no score had a part in the choice",
}
BY_NAME = "by hand: if scores had a part in it, they are overstated"


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

    base = locate(training.model.path)
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    prompt = render_for("<the question>", tokenizer, training.task, training.model)
    with new_folder(out) as folder:
        if config.merge:
            save_merged(training.model, tokenizer, target.weights, folder)
        else:
            shutil.copy(target.weights / "adapter_model.safetensors", folder)
            adapter = json.loads((target.weights / "adapter_config.json").read_text())
            adapter["base_model_name_or_path"] = base
            (folder / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
        tokenizer.save_pretrained(folder)
        (folder / "README.md").write_text(card(config, training, target, base, prompt))
    print(f"wrote {out}: {target.weights}, {'merged' if config.merge else 'adapter'}")
    if not config.merge:
        print(f"its base: {base} (base_model_name_or_path in adapter_config.json)")


def save_merged(model: ModelKeys, tokenizer: Any, checkpoint: Path, folder: Path) -> None:
    """Base and adapter (or all weights) added up in float32 and rounded once to model.dtype."""
    import torch
    from peft import PeftModel

    from pods.engines.transformers import lora_layers
    from pods.models.policy import load_model, refuse_unsavable

    adapted = is_adapter(checkpoint)
    whole = load_model(model.path if adapted else str(checkpoint), "float32")
    if adapted:
        embeddings = [whole.get_input_embeddings(), whole.get_output_embeddings()]
        policy = PeftModel.from_pretrained(whole, checkpoint)
        if any(layer.get_base_layer() in embeddings for layer in lora_layers(policy)):
            # The sum of one must not reach the other, which the base may share with it.
            head = embeddings[1]
            head.weight = torch.nn.Parameter(head.weight.detach().clone())
            whole.config.tie_word_embeddings = False
        whole = policy.merge_and_unload()
    refuse_unsavable(model.path, tokenizer, whole)
    whole.to(getattr(torch, model.dtype)).save_pretrained(folder)
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    rope = dict(settings.get("rope_parameters") or {})
    if "rope_theta" in rope:  # not one for each kind of layer
        # transformers 4 looks for them here, and reads its defaults if they are only nested.
        settings["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            settings["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        settings["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        path.write_text(json.dumps(settings, indent=2) + "\n")


def card(
    config: ExportConfig, training: TrainConfig, target: Target, base: str, prompt: str
) -> str:
    """The model card, in the format of the Hugging Face hub."""
    head = {"library_name": "transformers" if config.merge else "peft", "tags": ["grpo", "pods"]}
    if not Path(base).is_dir():
        head["base_model"] = base
    template = Path(__file__).with_name("export_card.md").read_text()
    settings = yaml.safe_dump(training.model_dump(exclude=keys_with("private")), sort_keys=False)
    ticks = re.findall("`+", prompt + settings)  # a prompt may hold the end of its own block
    return template.format(
        fence="`" * max(3, 1 + max(map(len, ticks), default=0)),
        head=yaml.safe_dump({**head, "pipeline_tag": "text-generation"}),
        model=training.model.name,
        minutes=target.meta.get("train_seconds", 0) / 60,
        price_note=training.price_note,
        algorithm=training.algorithm,
        commit=results.facts_of(target.weights.parent / "meta.json").get("git_commit"),
        form="the whole model" if config.merge else f"a LoRA adapter of {base}",
        name=target.name,
        run=config.run,
        chosen=CHOSEN.get(config.checkpoint, BY_NAME),
        prompt=prompt,
        config=settings,
    )


if __name__ == "__main__":
    main()
