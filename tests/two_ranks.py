"""train.py as two processes of one run, joined by gloo; tests/processes.py forks each of them."""

import math
import os
from functools import partial

import numpy as np
from accelerate.utils.other import get_free_port

from pods.engines import Completion, choose
from pods.training import engine_sampler
from tests import processes

TEXTS = (  # rewards that differ: tags right, doubled, missing, an answer
    "<think>1</think><answer>{}</answer>",
    "{}",
    "<think>1</think>",
    "<think><think>{}",
    "</answer>{}",
    "<answer>{}</answer>",
    "<think></think></answer>",
)

# AdamW divides by the gradient's size, which makes rounding noise as large as a learning rate; with
# epsilon 1 it divides by 1. Plain gradient steps divide by nothing.
ADAM = ["loss.beta=0.04", "optimizer.learning_rate=0.1", "trl={adam_epsilon: 1.0}"]
SGD = ["optimizer.name=sgd", "optimizer.learning_rate=1"]


def start(folder, *arguments, ranks=2, fault=None, **settings):
    """The processes of one run, by rank; `fault` is called in each before it starts."""
    port = get_free_port()
    faults = [partial(become, rank, ranks, port, fault) for rank in range(ranks)]
    return [
        processes.Process(folder / f"rank{rank}", *arguments, fault=faults[rank], **settings)
        for rank in range(ranks)
    ]


def run(folder, *arguments, codes=(0, 0), ranks=2, **settings):
    """The processes of one run when they have ended, with these exit codes."""
    started = start(folder, *arguments, ranks=ranks, **settings)
    try:
        ended = [process.end() for process in started]
        assert ended == [*codes[:ranks]], [process.stderr for process in started]
        return started
    finally:
        for process in started:
            process.kill()


def become(rank, ranks, port, fault):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if ranks > 1:  # a run of one has no launcher
        os.environ.update({name: str(value) for name, value in names.items()})
    if fault:
        fault()


def differences(ours, theirs):
    """Name of a tensor -> the largest difference, if more than rounding; nan for another form."""
    gaps = {}
    for name, value in ours.items():
        other = theirs[name]
        alike = (other.dtype, other.shape) == (value.dtype, value.shape)
        gaps[name] = (other - value).abs().max().item() if alike else math.nan
    return {name: gap for name, gap in gaps.items() if not gap <= 1e-5}


class Fixed:
    """An engine whose completions are a function of their seeds, whatever the weights say."""

    def __init__(self, config, policy):
        self.tokenizer = policy.tokenizer

    def generate(self, works, **_):
        for work in works:
            yield work, [[self.completion(s) for s in r.seeds] for r in work.requests]

    def completion(self, seed):
        rng = np.random.default_rng(seed)
        text = TEXTS[rng.integers(len(TEXTS))].format("".join(map(str, rng.integers(0, 9, 4))))
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return Completion([*ids, self.tokenizer.eos_token_id], clipped=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def fixed_rollouts():
    """The same completions however many ranks sample them; log-probabilities are not compared."""
    choose.build_for_training = Fixed
    engine_sampler.Guard = lambda **_: None
