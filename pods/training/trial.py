"""`uv run train.py trial=true ...`: three steps of the training, which leave nothing on disk."""

import contextlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from pods import ranks, rewards
from pods.config.keys import TrainConfig
from pods.files import JsonObject, read_lines

STEPS = 3  # the first compiles, so the seconds leave it out


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
            print(formed(read_lines(folder / "trial" / "rollouts.jsonl.gz")))
    finally:
        if ranks.is_main():
            shutil.rmtree(folder, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # another run has begun in it
                    output_dir.rmdir()


def short(config: TrainConfig, folder: Path) -> TrainConfig:
    """The same training with a warm-up and three steps, without checkpoints between them."""
    changes = {
        "run": "trial",
        "output_dir": str(folder),
        "resume": "never",
        "max_steps": STEPS * config.updates_per_generation,
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


def formed(records: Iterable[JsonObject]) -> str:
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
    """Seconds by phase, greatest peaks (GiB) and engine gaps, and steps within the budget."""
    import pandas as pd

    table = pd.DataFrame(steps)
    timed = table[1:] if len(table) > 1 else table
    seconds = timed.filter(regex="^seconds/").mean()
    greatest = table.filter(regex="^(peak_memory_gib|engine)/").max()
    lines = [f"{name} {value:.2f}" for name, value in seconds.items()]
    lines += [f"{name} {value:.3g}" for name, value in greatest.items()]

    step = seconds.sum() / config.updates_per_generation  # s of an optimiser step
    budget = config.budget.train_seconds
    if budget:
        lines.append(f"budget: about {budget / step:.0f} steps in {budget:.0f} s of training")
    count = config.max_steps
    if count:
        lines.append(f"budget: {count} steps in about {count * step:.0f} s of training")
    return "\n".join(lines)
