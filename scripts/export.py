"""A checkpoint as a folder that transformers, PEFT and vLLM load, with tokenizer and model card.

    uv run scripts/export.py run=<run> checkpoint=best
    uv run scripts/export.py run=<run> merge=false out=<folder> push=<org>/<name>

The exported folder answers a sample of validation questions again, and the difference is printed.
docs/export.md says how to load it and how to make a GGUF file of it.
"""

import json
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

import rewards
from pods.config.command import CONFIG_DIR, command, one_line
from pods.config.errors import RunFailed, UserError
from pods.config.keys import TrainConfig
from pods.config.schema import at_least
from pods.engines import Limits, Request, Weights, Work, is_adapter, seed_of, texts
from pods.engines import evaluation as engines
from pods.engines.training import sampling
from pods.evaluation.config import OneCheckpoint, check_one, own_keys
from pods.runs.files import replaced, write_atomic

if TYPE_CHECKING:
    from pods.evaluation.questions import Questions


@dataclass
class ExportConfig(OneCheckpoint):
    out: str | None = MISSING
    merge: bool = MISSING
    questions: int = at_least(0)
    data_dir: str | None = MISSING
    push: str | None = MISSING


@command("export", ExportConfig, CONFIG_DIR / "checkpoint")
def main(config: ExportConfig) -> None:
    with own_keys(config):
        check(config)
        export(config, *engines.choose(config.engine))


def check(config: ExportConfig) -> None:
    """Every rule of the config alone. Raises UserError."""
    from huggingface_hub import get_token

    check_one(config)
    name = f"{config.run}-{config.checkpoint}{'' if config.merge else '-adapter'}"
    config.out = config.out or f"exports/{name}"
    if Path(config.out).exists():
        raise UserError(f"out={config.out}: exists; remove it, or set out=<a new folder>")
    if config.push and not re.fullmatch(r"[\w.-]+/[\w.-]+", config.push):
        raise UserError(f"push={config.push}: must be <org>/<name>")
    if config.push and not get_token():
        raise UserError(
            f"push={config.push}: no token of the hub; run `hf auth login`, or set HF_TOKEN"
        )


def export(config: ExportConfig, engine: str, reason: str) -> None:
    """Write the folder, score it again, describe it, upload it."""
    # They import transformers, which Unsloth must precede.
    from pods.evaluation import candidates, questions
    from pods.evaluation.card import card
    from pods.models import initial
    from pods.models.policy import load_tokenizer
    from pods.tasks.prompts import rendered

    training, target = candidates.one(config)
    if not config.merge and target.lora_rank is None:
        raise UserError(f"merge=false: {target.weights} has no adapter, but all weights; drop it")
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    if config.questions:  # read first: a data set that is missing leaves nothing behind
        drawn = tokenizer, config.questions, config.seed
        asked = questions.load(training.task.name, "validation", training, *drawn)
    print(f"engine: {engine} ({reason})", file=sys.stderr)
    if config.merge:
        initial.write_merged(training.model, target.weights, out := Path(config.out))
    else:
        write_adapter(training, target.weights, tokenizer, out := Path(config.out))
    print(f"wrote {out}: {target.weights}, {'merged' if config.merge else 'adapter'}")
    again = ""
    if config.questions:
        again = compared(config, engine, training, target, tokenizer, asked)
        print(again)
    prompt = rendered("<the question>", tokenizer, training.task)
    page = card(training, target, config.checkpoint, prompt, config.merge, again)
    write_atomic(out / "README.md", str(page))
    if config.push:
        push(config.push, out)


def write_adapter(training: TrainConfig, checkpoint: Path, tokenizer: Any, out: Path) -> None:
    """The adapter, which names the base model as the run's config does, and the tokenizer."""
    from pods.models.policy import locate

    with replaced(out) as folder:
        adapter = json.loads((checkpoint / "adapter_config.json").read_text())
        adapter["base_model_name_or_path"] = locate(training.model.path)
        (folder / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
        shutil.copy(checkpoint / "adapter_model.safetensors", folder)
        tokenizer.save_pretrained(folder)


def compared(
    config: ExportConfig, engine: str, training: TrainConfig, target: Any, tokenizer: Any,
    asked: "Questions",
) -> str:  # fmt: skip
    """What checkpoint and exported folder answer to the same questions with the same seeds."""
    alone = replace(training.model, path=config.out, load_in_4bit=False)
    exported = replace(training, model=alone) if config.merge else training
    policies = (training, target.weights), (exported, None if config.merge else Path(config.out))
    said, right = [], []
    for settings, weights in policies:
        said.append(answers(config, engine, settings, weights, target.lora_rank, tokenizer, asked))
        scores = rewards.score(said[-1], asked.answers, training.rewards.version, asked.kind)
        right.append(100 * sum(scores["correctness"]) / len(asked.ids))
    (before, after), count = right, len(asked.ids)
    same = sum(a == b for a, b in zip(*said, strict=True))
    return (
        f"{count} validation questions of {training.task.name}: {target.name} {before:.1f} %, "
        f"exported {after:.1f} %, difference {after - before:+.1f} points; "
        f"{same} of {count} completions are the same"
    )


def answers(
    config: ExportConfig, engine: str, training: TrainConfig, weights: Weights,
    lora_rank: int | None, tokenizer: Any, asked: "Questions",
) -> list[str]:  # fmt: skip
    """One completion of each question, drawn as in training."""
    drawn, rank = sampling(training), lora_rank if weights and is_adapter(weights) else None
    limits = Limits(gpu_memory_utilization=config.gpu_memory_utilization)
    pairs = zip(asked.prompt_ids, asked.ids, strict=True)
    requests = [Request(prompt, [seed_of(config.seed, id_)]) for prompt, id_ in pairs]
    with engines.build(engine, training, tokenizer, drawn, limits, rank) as built:
        [(_, groups)] = built.generate([Work(requests, weights)])
    return texts(tokenizer, [completion for (completion,) in groups], drawn.stop)


def push(repository: str, out: Path) -> None:
    """Upload the folder; a repository that does not exist yet is made, for its owner alone."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().create_repo(repository, private=True, exist_ok=True)
        HfApi().upload_folder(repo_id=repository, folder_path=out)
    except (HfHubHTTPError, OSError) as error:
        again = f"{out} is complete: hf upload {repository} {out}"
        raise RunFailed(f"push={repository}: {one_line(error)}; {again}") from error
    print(f"pushed to https://huggingface.co/{repository}")


if __name__ == "__main__":
    main()
