"""train.py as two processes of one run, forked as tests/processes.py forks one.

Rank and world size come from the environment, as a launcher sets them; the group is gloo's.
"""

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pods import distributed, trainer
from tests import processes

TEXTS = (  # rewards that differ: tags right, doubled, missing, an answer
    "<think>1</think><answer>{}</answer>", "{}", "<think>1</think>", "<think><think>{}",
    "</answer>{}", "<answer>{}</answer>", "<think></think></answer>",
)  # fmt: skip


def start(
    folder: Path, *arguments: str, ranks: int = 2, fault: Callable[[], None] | None = None
) -> list[processes.Process]:
    """The processes of one run, by rank; `fault` is called in each before it starts."""
    port = free_port()
    return [
        processes.start(
            folder / f"rank{rank}", *arguments, fault=partial(become, rank, ranks, port, fault)
        )
        for rank in range(ranks)
    ]


def run(folder: Path, *arguments: str, **settings: Any) -> list[processes.Process]:
    started = start(folder, *arguments, **settings)
    try:
        return [process.wait() for process in started]
    finally:
        for process in started:
            if not process.poll():
                os.kill(process.pid, signal.SIGKILL)


def become(rank: int, ranks: int, port: int, fault: Callable[[], None] | None) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    os.environ.update(LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if fault:
        fault()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fixed_rollouts() -> None:
    """Completions as a function of step and place among all n * P, however many ranks draw them."""
    build = trainer.build_trainer

    def build_with_stub(*arguments: Any) -> Any:
        built = build(*arguments)

        def generate(prompt_ids: list[list[int]], *_: Any) -> tuple[list[list[int]], None]:
            first = distributed.rank() * len(prompt_ids)
            step = built.state.global_step
            return [completion(built.processing_class, step, first + i)
                    for i in range(len(prompt_ids))], None  # fmt: skip

        built._generate_single_turn = generate
        return built

    trainer.build_trainer = build_with_stub


def completion(tokenizer: Any, step: int, place: int) -> list[int]:
    rng = np.random.default_rng([step, place])
    text = TEXTS[rng.integers(len(TEXTS))].format("".join(map(str, rng.integers(0, 9, 4))))
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
