"""Ask a checkpoint and its base model the same questions, side by side.

    uv run scripts/chat.py run=<run> checkpoint=best
    echo "Tom has 3 pens and buys 4. How many has he? => 7" | uv run scripts/chat.py run=<run>

Each line is one question, put into the prompt of the run's task; earlier lines are not seen, as in
training. After ` => ` stands the right answer: the run's grader then judges both completions.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

import rewards
from pods import tasks
from pods.config.command import CONFIG_DIR, command
from pods.config.keys import TrainConfig
from pods.config.schema import at_least
from pods.engines import Completion, Limits, Request, Work, seed_of, texts
from pods.engines import evaluation as engines
from pods.engines.training import sampling
from pods.evaluation.config import OneCheckpoint, check_one, own_keys
from pods.tasks.prompts import rendered

PIPED_WIDTH = 120  # columns of the table where no terminal shows it


@dataclass
class ChatConfig(OneCheckpoint):
    temperature: float | None = at_least(0)
    max_tokens: int | None = at_least(1)


@command("chat", ChatConfig, CONFIG_DIR / "checkpoint")
def main(config: ChatConfig) -> None:
    with own_keys(config):
        check_one(config)
        chat(config, *engines.choose(config.engine))


def chat(config: ChatConfig, name: str, reason: str) -> None:
    """Answer every line with the engine `name`."""
    # They import transformers, which Unsloth must precede.
    from pods.evaluation import candidates
    from pods.models.policy import load_tokenizer

    training, trained = candidates.one(config)
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    drawn = sampling(training, config)
    limits = Limits(gpu_memory_utilization=config.gpu_memory_utilization)
    out = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
    print(f"engine: {name} ({reason}); {trained.weights}", file=sys.stderr)
    with engines.build(name, training, tokenizer, drawn, limits, trained.lora_rank) as engine:
        for number, line in enumerate(lines()):
            question, given, gold = line.rpartition(" => ")
            question, gold = (question, gold) if given else (line, "")
            prompt = tasks.encode_prompt(rendered(question, tokenizer, training.task), tokenizer)
            if len(prompt) > (limit := drawn.max_prompt_length):
                print(
                    f"skipped: {len(prompt)} tokens, over {limit} as in training", file=sys.stderr
                )
                continue
            requests = [Request(prompt, [seed_of(config.seed, number, question)])]
            works = [Work(requests, None, "base"), Work(requests, trained.weights, trained.name)]
            done = {work.label: groups[0][0] for work, groups in engine.generate(works)}
            said = texts(tokenizer, list(done.values()), drawn.stop)
            judged = map(partial(verdict, gold, training), said, done.values())
            out.print(
                side_by_side(question, dict(zip(done, zip(said, judged, strict=True), strict=True)))
            )


def lines() -> Iterator[str]:
    """The questions of a terminal, until Ctrl-D, or of a pipe."""
    while True:
        try:
            line = input("question [=> answer]: ") if sys.stdin.isatty() else input()
        except (EOFError, KeyboardInterrupt):
            return
        if line.strip():
            yield line.strip()


def verdict(gold: str, training: TrainConfig, text: str, completion: Completion) -> str:
    """What the run's grader says of a completion, and its length; gold "": no right answer."""
    task, parts = training.task, [f"{len(completion.token_ids)} tokens"]
    parts += ["cut at the limit"] * completion.clipped
    if gold:
        kind = str(task.kind) if task.name == "own" else tasks.TASKS[task.name].kind
        right = rewards.grade(text, gold, training.rewards.version, kind)
        parts.insert(0, "right" if right else f"wrong, not {gold}")
    return ", ".join([*parts, "well formed" if rewards.is_well_formed(text) else "not well formed"])


def side_by_side(question: str, said: dict[str, tuple[str, str]]) -> Table:
    """A column for each policy: its completion, and below it the verdict."""
    title = Text(printable(question))
    table = Table(title=title, title_justify="left", expand=True, show_footer=True)
    for name, (_, judged) in said.items():
        table.add_column(name, footer=Text(printable(judged)), ratio=1, overflow="fold")
    table.add_row(*(Text(printable(text)) for text, _ in said.values()))
    return table


def printable(text: str) -> str:
    """The text without control characters, with which a completion could steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


if __name__ == "__main__":
    main()
