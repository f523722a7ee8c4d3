"""The metric lines of a run, and where they go: metrics.jsonl, the console and trackers.

TRL gets no `report_to`: its metrics describe only the rollouts that were kept.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from accelerate.tracking import GeneralTracker, TensorBoardTracker, WandBTracker

from pods import ranks
from pods.clock import STEP_PHASES, Clock
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.mistakes import one_line
from pods.files import write_atomic
from pods.metrics import summary
from pods.rollouts import Record
from rewards import Scorer

Metrics = dict[str, float]
Logger = Callable[[int, Metrics], None]  # (step, metrics)
EVERY = 10.0  # s between two lines on the console
# Of an update, as TRL names them; averaged over the updates of a generation.
OF_UPDATE = ("loss", "grad_norm", "learning_rate", "kl", "entropy", "clip_ratio/region_mean")
OF_UPDATE += tuple(f"sampling/importance_sampling_ratio/{which}" for which in ("mean", "max"))
COUNTERS = ("tokens/generated", "tokens/trained", "rollouts/generated", "rollouts/trained")


class Meter:
    """The metric lines of a run, and their counters over the run, which go on from a checkpoint's
    `meta`."""

    def __init__(self, scorer: Scorer, meta: dict[str, Any]) -> None:
        self.scorer = scorer
        self.counters = {name: meta.get(name.replace("/", "_"), 0) for name in COUNTERS}
        self.updates: list[dict[str, float]] = []  # TRL's metrics of each on the newest generation
        self.warmup_peak: dict[str, float] = {}  # GiB by phase, for the first line

    def line(self, record: Record, clock: Clock, others: dict[str, float]) -> Metrics:
        """Of the step, its phases (s, GiB) and update, and counters; others: trainer and engine."""
        peaks = clock.step_peak | {f"warmup_{name}": gib for name, gib in self.warmup_peak.items()}
        rows, self.updates, self.warmup_peak = self.updates, [], {}
        of_update = {n: [row[n] for row in rows if row.get(n) is not None] for n in OF_UPDATE}
        lengths, kept = record.batch.lengths, record.selection.kept
        sizes = lengths.sum(), lengths[kept].sum(), len(lengths), len(kept)
        for name, size in zip(COUNTERS, sizes, strict=True):
            self.counters[name] += int(size)
        return {
            "train_seconds": clock.train_seconds,
            "wall_seconds": clock.wall_seconds,
            **{f"seconds/{phase}": seconds for phase, seconds in clock.step.items()},
            **{f"peak_memory_gib/{phase}": gib for phase, gib in peaks.items()},
            **summary(record),
            **self.counters,
            "score_timeouts": sum(ranks.gather([self.scorer.timeouts])),
            **others,
            **{name: mean(values) for name, values in of_update.items() if values},
        }


@contextmanager
def open_loggers(config: TrainConfig, folder: Path) -> Iterator[list[Logger]]:
    """The loggers of config.logger; on the main rank alone."""
    if not ranks.is_main():
        yield []
        return
    with ExitStack() as stack:
        file = stack.enter_context((folder / "metrics.jsonl").open("a", buffering=1))  # by line
        loggers = [lambda step, line: print(json.dumps({"step": step, **line}), file=file)]
        if config.logger.console is not None:
            loggers.append(Console(config))
        for tracker in trackers(config, folder):
            try:
                tracker.start()
            except Exception as error:  # of the tracker's own types
                raise UserError(
                    f"logger={tracker.name}: {one_line(error)}; log in, or leave it out (wandb "
                    "login, WANDB_MODE=offline)"
                ) from error
            stack.callback(tracker.finish)
            loggers.append(lambda step, metrics, log=tracker.log: log(metrics, step=step))
        yield loggers


def trackers(config: TrainConfig, folder: Path) -> Iterator[GeneralTracker]:
    """The chosen trackers. A resumed run goes on in the same one; in wandb the seeds of a setting
    are a group, and its own variables set the rest (WANDB_ENTITY)."""
    if config.logger.wandb:
        identity = folder / "wandb_id"
        if not identity.is_file():  # not only the name: another folder may hold a run of that name
            write_atomic(identity, f"{config.run[:100]}-{secrets.token_hex(4)}")
        yield WandBTracker(
            config.logger.wandb.project,
            name=config.run,
            group=re.sub(r"-seed\d+", "", config.run),
            config=config.model_dump(),
            id=identity.read_text(),
            resume="allow",
            dir=str(folder),
            settings={"silent": True},  # its lines would come between the console's
        )
    if config.logger.tensorboard:
        yield TensorBoardTracker("tensorboard", folder)


class Console:
    """On stderr: a line every ten seconds, and one for each evaluation."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.printed_at = config, -EVERY

    def __call__(self, step: int, metrics: Metrics) -> None:
        seconds, budget = metrics["train_seconds"], self.config.budget
        used = step, seconds, metrics["wall_seconds"]
        limits = self.config.max_steps, budget.train_seconds, budget.wall_seconds
        parts = [part / limit for part, limit in zip(used, limits, strict=True) if limit]
        share = min(1, max(parts))  # of the limit that ends the run first
        if "eval/accuracy" in metrics:
            at = f"{self.config.evaluation.split} split, {seconds:.0f} s of training"
            sampled, greedy = metrics["eval/accuracy"], metrics["eval/greedy_accuracy"]
            ranks.say(f"step {step}  accuracy {sampled:.3f}, greedy {greedy:.3f}  ({at})")
        if metrics["wall_seconds"] - self.printed_at >= EVERY or share >= 1:
            self.printed_at = metrics["wall_seconds"]
            phases = (f"{name} {metrics.get(f'seconds/{name}', 0):.2f}s" for name in STEP_PHASES)
            ranks.say(
                f"step {step}  reward {metrics.get('all/reward_mean', 0):.3f}  kept variance "
                f"{metrics.get('kept/reward_variance', 0):.3f}  {' '.join(phases)}  {share:.0%} "
                f"done, about {seconds / share - seconds:.0f} s left"
            )
