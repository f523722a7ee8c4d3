"""Ask a checkpoint and its base model questions, one a line; after ` => ` stands the gold answer.

echo "3 pens and 4 pens are? => 7" | uv run scripts/chat.py run=<run> checkpoint=best
"""

import sys
from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt

from pods import rewards, tasks
from pods.config.command import CONFIG_DIR, command
from pods.engines import Limits, Request, Work, seed_of, texts
from pods.evaluation.lookup import OneCheckpoint, find_one
from pods.ranks import printable


class ChatConfig(OneCheckpoint):
    """The keys of config/checkpoint/chat.yaml."""

    engine: Literal["auto", "vllm", "transformers"]
    temperature: NonNegativeFloat | None
    max_tokens: PositiveInt | None


@command("chat", ChatConfig, CONFIG_DIR / "checkpoint")
def main(config: ChatConfig) -> None:
    """Answer each line of stdin by the base and by the checkpoint."""
    from pods.engines import choose  # --help waits for no torch
    from pods.models.policy import load_tokenizer

    training, trained = find_one(config)
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    sampling = choose.sampling(training, config)
    task = training.task
    keys = training.rewards
    name, _ = choose.for_evaluation(config.engine, training)
    with choose.build(name, training, tokenizer, sampling, Limits(), training.lora.rank) as engine:
        for number, line in enumerate(filter(str.strip, sys.stdin)):
            line = line.strip().encode(errors="replace")  # bytes of another encoding: ?
            question, _, gold = line.decode().partition(" => ")
            (prompt,) = tasks.encode_prompts(
                [tasks.render_for(question, tokenizer, task, training.model)], tokenizer
            )
            if len(prompt) > sampling.max_prompt_length:  # vLLM has no room for it
                print(
                    "not asked: longer than sampling.max_prompt_length="
                    f"{sampling.max_prompt_length} tokens"
                )
                continue
            requests = [Request(prompt, [seed_of(0, number, question)])]
            works = [Work(requests, None), Work(requests, trained.weights)]
            print(f"\n{printable(question)}")
            answers = zip(("base", trained.name), engine.generate(works), strict=True)
            for name, (_, [[completion]]) in answers:
                (text,) = texts(tokenizer, [completion], sampling.stop)
                verdict = ""
                if gold:
                    correct = rewards.grade(text, gold, keys.version, tasks.kind_of(task))
                    verdict = " (correct)" if correct else " (wrong)"
                print(f"{name}{verdict}: {printable(text)}", flush=True)


if __name__ == "__main__":
    main()
