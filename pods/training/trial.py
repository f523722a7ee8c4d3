"""`uv run train.py trial=true ...`: five steps of the training, and five of GRPO on the rollouts
that it would train on, which leave nothing on disk."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pods import ranks, registry, rewards
from pods.batch import Algorithm, Step
from pods.config.keys import TrainConfig
from pods.files import JsonObject, read_lines

STEPS = 5  # the first compiles, so the seconds leave it out


def run(config: TrainConfig, train: Callable[[TrainConfig], object]) -> None:
    """Call `train` with the config of a short run in a temporary folder, and report it."""
    from pods.runs.folder import provenance  # imports torch

    # On the run's disk, for all ranks.
    output_dir = Path(config.output_dir)
    is_new = not output_dir.exists()
    folder = output_dir / f".trial-{ranks.number_of_run()}"
    try:
        train(short(config, folder))
        if ranks.is_main():
            # Not before: the card's name starts CUDA's allocator, whose settings Unsloth changes.
            facts = provenance()
            print(" ".join(f"{name} {version}" for name, version in facts["versions"].items()))
            print(facts["gpu"] or f"{facts['cpu_count']} CPU cores, no CUDA device")
            print(report(config, read_lines(folder / "trial" / "metrics.jsonl")))
            print(count_well_formed(read_lines(folder / "trial" / "rollouts.jsonl.gz")))
    finally:
        if ranks.is_main():
            shutil.rmtree(folder, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # another run has begun in it
                    output_dir.rmdir()


def short(config: TrainConfig, folder: Path) -> TrainConfig:
    """The same training with a warm-up and few steps, without checkpoints between them."""
    steps = 2 * STEPS if has_grpo_steps(config) else STEPS
    changes = {
        "run": "trial",
        "output_dir": str(folder),
        "resume": "never",
        "max_steps": steps * config.updates_per_generation,
        "warm_up": True,  # at the longest lengths
        "logger": [],
        "ledger_texts": "all",
    }
    trial = config.model_copy(update=changes, deep=True)
    trial.budget.wall_seconds = None
    trial.checkpoint.every_seconds = None
    trial.checkpoint.every_steps = None
    trial.evaluation.every_seconds = None
    return trial


def has_grpo_steps(config: TrainConfig) -> bool:
    """False for an algorithm that trains on all that it samples: its step is GRPO's."""
    needs = registry.requirements_of_name(config.algorithm)
    return not (needs.samples_m or needs.keeps_all)


def with_grpo_steps(config: TrainConfig) -> Algorithm:
    """The config's algorithm for STEPS steps, then GRPO on m rollouts of each prompt."""
    own = registry.function_of("algorithm", config.algorithm)
    last = STEPS * config.updates_per_generation

    @functools.wraps(own)
    def algorithm(step: Step, **parameters: Any):
        if step.number < last:
            return (yield from own(step, **parameters))
        batch = yield step.prompts, step.m
        return list(range(len(batch)))

    return algorithm


def count_well_formed(records: Iterable[JsonObject]) -> str:
    """How many completions are well formed, with what the template gave."""
    texts = [rewards.opened(r["prompt"]) + text for r in records for text in r["completions"]]
    count = sum(map(rewards.is_well_formed, texts))
    line = f"well formed: {count} of {len(texts)} completions"
    if count == 0:
        line += (
            "; if the task asks for the two blocks, see the prompt above, and set task.system or "
            "sampling.max_completion_length"
        )
    return line


def report(config: TrainConfig, steps: list[JsonObject]) -> str:
    """Seconds by phase, greatest peaks (GiB) and engine gaps, steps within the budget, and c."""
    import pandas as pd

    def seconds_of(steps: list[JsonObject]) -> pd.DataFrame:
        return pd.DataFrame(steps[1:] or steps).filter(regex="^seconds/")

    table = pd.DataFrame(steps)
    own = seconds_of(steps[:STEPS])
    seconds = own.mean()
    greatest = table.filter(regex="^(peak_memory_gib|engine)/").max()
    lines = [f"{name} {value:.2f}" for name, value in seconds.items()]
    lines += [f"{name} {value:.3g}" for name, value in greatest.items()]
    if "update/packed" in table:  # 0: Unsloth stopped packing in one of the steps
        lines.append(f"update/packed {table['update/packed'].min():.0f}")

    step = seconds.sum() / config.updates_per_generation  # s of an optimiser step
    budget = config.budget.train_seconds
    if budget:
        lines.append(f"budget: about {budget / step:.0f} steps in {budget:.0f} s of training")
    count = config.max_steps
    if count:
        lines.append(f"budget: {count} steps in about {count * step:.0f} s of training")
    if steps[STEPS:]:
        grpo = seconds_of(steps[STEPS:])
        parts = ", ".join(f"{name} {value:.2f}" for name, value in grpo.mean().items())
        m, c = config.kept_per_prompt, seconds.sum() / grpo.mean().sum()
        single = own.sum(axis=1) / grpo.sum(axis=1)
        lines.append(f"GRPO with n = m = {m}: {parts}")
        lines.append(
            f"c: a step of {config.algorithm} takes {c:.2f} times a GRPO step on as many trained "
            f"rollouts here, {single.min():.2f} to {single.max():.2f} in single steps "
            "(docs/algorithms.md, which one)"
        )
        if config.algorithm == "pods":
            lines.append(
                "in our experiment (n = 4 m) PODS broke even at c = 1.14 (1.02 to 1.27) with one "
                "prompt a step, at 1.27 (1.17 to 1.37) with four (embedded policy, 24 seeds); with "
                "SmolLM2-135M, one prompt, 16 seeds, at 1.39 (1.04 to 1.83)"
            )
    return "\n".join(lines)
