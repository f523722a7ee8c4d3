"""Ask a checkpoint and its base model the same questions, side by side: one line, one question.

    uv run scripts/chat.py run=<run> checkpoint=best
    echo "Tom has 3 pens and buys 4. How many has he? => 7" | uv run scripts/chat.py run=<run>

After ` => ` stands the correct answer: the run's grader then judges both completions.
"""

import sys
from typing import Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

import rewards
from pods import tasks
from pods.config.command import CONFIG_DIR, command
from pods.config.keys import TrainConfig
from pods.engines import Completion, Limits, Request, Work, choose, seed_of, texts
from pods.evaluation.config import OneCheckpoint, find_one, renamed_keys


class ChatConfig(OneCheckpoint):
    seed: int = Field(ge=0)
    engine: Literal["auto", "vllm", "transformers"]
    gpu_memory_utilization: float | None = Field(gt=0, le=1)
    temperature: float | None = Field(ge=0)
    max_tokens: int | None = Field(ge=1)


@command("chat", ChatConfig, CONFIG_DIR / "checkpoint")
def main(config: ChatConfig) -> None:
    config.check()
    with renamed_keys({"model.path": "model_path", "checkpoints": "checkpoint"}):
        chat(config)


def chat(config: ChatConfig) -> None:
    from pods.models.policy import load_tokenizer

    training, trained = find_one(config)
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    (engine, reason), sampling = (
        choose.for_evaluation(config.engine),
        choose.sampling(training, config),
    )
    limits = Limits(gpu_memory_utilization=config.gpu_memory_utilization)
    print(f"engine: {engine} ({reason}); {trained.weights}", file=sys.stderr)
    with choose.build(engine, training, tokenizer, sampling, limits, trained.lora_rank) as built:
        for number, line in enumerate(filter(str.strip, sys.stdin)):
            question, _, gold = line.strip().partition(" => ")
            prompt = tasks.encode_prompt(
                tasks.rendered(question, tokenizer, training.task), tokenizer
            )
            if len(prompt) > sampling.max_prompt_length:
                print(f"skipped: {len(prompt)} tokens, more than in training", file=sys.stderr)
                continue
            requests = [Request(prompt, [seed_of(config.seed, number, question)])]
            works = [Work(requests, None, "base"), Work(requests, trained.weights, trained.name)]
            table = Table(title=printable(question), title_justify="left", show_footer=True)
            cells = []
            for work, [[completion]] in built.generate(works):
                (text,) = texts(tokenizer, [completion], sampling.stop)
                cells.append(printable(text))
                footer = printable(verdict(text, completion, gold, training))
                table.add_column(work.label, footer=footer, ratio=1, overflow="fold")
            table.add_row(*cells)
            Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(table)


def verdict(text: str, completion: Completion, gold: str, training: TrainConfig) -> str:
    """The judgement of the run's grader, the length and the format; gold "": no correct answer."""
    task, words = training.task, [f"{len(completion.token_ids)} tokens"]
    kind = task.kind or tasks.TASKS[task.name].kind
    if gold:
        correct = rewards.grade(text, gold, training.rewards.version, kind)
        words.insert(0, "correct" if correct else f"wrong, not {gold}")
    formed = "" if rewards.is_well_formed(text) else "not "
    return ", ".join([*words, *["clipped"] * completion.clipped, f"{formed}well formed"])


def printable(text: str) -> Text:
    """No markup, and no control characters, with which a completion could steer the terminal."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in text))


if __name__ == "__main__":
    main()
