"""The metric lines of a run, and where they go: metrics.jsonl, the console and trackers.

TRL gets no `report_to`: its metrics describe only the rollouts that were kept.
"""

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from accelerate.tracking import GeneralTracker, TensorBoardTracker, WandBTracker

from pods import ranks
from pods.clock import STEP_PHASES, ByPhase, Clock
from pods.config.errors import UserError, one_line
from pods.config.keys import TrainConfig
from pods.files import write_atomic
from pods.metrics import Metrics
from pods.rollouts import Record
from pods.runs import rollout_log

Logger = Callable[[int, Metrics, Record], None]  # (step, its metrics, its rollouts)
EVERY = 10.0  # s between two lines on the console
OF_UPDATE = (  # TRL's metrics that are logged, averaged over the updates of a generation
    "loss",
    "grad_norm",
    "learning_rate",
    "kl",
    "entropy",
    "clip_ratio/region_mean",
    "sampling/importance_sampling_ratio/mean",
    "sampling/importance_sampling_ratio/max",
)
COUNTERS = (
    "tokens/generated",
    "tokens/trained",
    "rollouts/generated",
    "rollouts/trained",
)


class Meter:
    """The metric lines of a run, and their counters over the run, which go on from a checkpoint's
    `meta`."""

    def __init__(self, meta: dict[str, Any]) -> None:
        # A file's keys have no slash.
        self.counters = {name: meta.get(name.replace("/", "_"), 0) for name in COUNTERS}
        self.updates: list[Metrics] = []  # TRL's metrics of each on the newest generation
        self.warmup_peak: ByPhase = {}  # GiB, for the first line

    def line(self, record: Record, clock: Clock, others: Metrics) -> Metrics:
        """The metrics of a finished step: its seconds and peaks by phase, its rollouts, the
        counters of the run, and its updates. others: metrics of the trainer and the engine."""
        lengths = record.batch.lengths
        kept = record.selection.kept
        self.counters["tokens/generated"] += int(lengths.sum())
        self.counters["tokens/trained"] += int(lengths[kept].sum())
        self.counters["rollouts/generated"] += len(lengths)
        self.counters["rollouts/trained"] += len(kept)

        line = {"train_seconds": clock.train_seconds, "wall_seconds": clock.wall_seconds}
        by_phase = {
            "seconds/": clock.step,
            "peak_memory_gib/": clock.step_peak,
            "peak_memory_gib/warmup_": self.warmup_peak,
        }
        for prefix, values in by_phase.items():
            line |= {prefix + phase: value for phase, value in values.items()}
        line |= self.counters
        line |= others
        for name in OF_UPDATE:
            values = [update[name] for update in self.updates if update.get(name) is not None]
            if values:
                line[name] = mean(values)
        self.updates = []
        self.warmup_peak = {}
        return line


@contextmanager
def open_loggers(config: TrainConfig, folder: Path) -> Iterator[list[Logger]]:
    """metrics.jsonl, the loggers of config.logger and the rollout log; on other ranks than the main
    one, none.

    Raises UserError if a tracker does not start.
    """
    if not ranks.is_main():
        yield []
        return
    with ExitStack() as stack:
        file = stack.enter_context((folder / "metrics.jsonl").open("a", buffering=1))  # by line

        def write(step: int, metrics: Metrics, record: Record) -> None:
            print(json.dumps({"step": step, **metrics}), file=file)

        def log_rollouts(step: int, metrics: Metrics, record: Record) -> None:
            rollout_log.append(folder / "rollouts.jsonl.gz", step, record, config.ledger_texts)

        loggers: list[Logger] = [write]
        if "console" in config.logger:
            loggers.append(Console(config))
        for tracker in trackers(config, folder):
            try:
                tracker.start()
            except Exception as error:  # of the tracker's own types
                raise UserError(
                    f"logger={tracker.name}: {one_line(error).rstrip('.')}; correct that, or leave "
                    f"{tracker.name} out"
                ) from error
            stack.callback(tracker.finish)
            if tracker.name == "wandb":
                tracker.tracker.define_metric("train_seconds")
                tracker.tracker.define_metric("*", step_metric="train_seconds")
            loggers.append(partial(log_to, tracker))
        loggers.append(log_rollouts)
        yield loggers


def trackers(config: TrainConfig, folder: Path) -> Iterator[GeneralTracker]:
    """The chosen trackers. A resumed run goes on in the same one; in wandb the seeds of a setting
    are a group."""
    keys, variables = config.wandb, os.environ
    if "wandb" in config.logger:
        identity = folder / "wandb_id"
        if not identity.is_file():  # not only the name: another folder may hold a run of that name
            write_atomic(identity, f"{config.run[:100]}-{secrets.token_hex(4)}")
        without_seed = re.sub(r"-seed\d+", "", config.run)
        yield WandBTracker(
            keys.project or variables.get("WANDB_PROJECT", "pods"),
            name=config.run,
            entity=keys.entity,
            group=keys.group or variables.get("WANDB_RUN_GROUP", without_seed),
            tags=keys.tags or None,
            config=config.model_dump(),
            id=identity.read_text(),
            resume="allow",
            dir=str(folder),
            settings={"silent": True},  # its lines would come between the console's
        )
    if "tensorboard" in config.logger:
        yield TensorBoardTracker("tensorboard", folder)


def log_to(tracker: GeneralTracker, step: int, metrics: Metrics, _: Record) -> None:
    tracker.log(metrics, step=step)  # scripts/report.py shows completions


class Console:
    """On stderr: a line every ten seconds, and one for each evaluation."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.printed_at = -EVERY  # s of wall time

    def __call__(self, step: int, metrics: Metrics, record: Record) -> None:
        seconds = metrics["train_seconds"]
        wall_seconds = metrics["wall_seconds"]
        if "eval/accuracy" in metrics:
            ranks.say(
                f"step {step}  accuracy {metrics['eval/accuracy']:.3f}, "
                f"greedy {metrics['eval/greedy_accuracy']:.3f}  "
                f"({self.config.evaluation.split} split, {seconds:.0f} s of training)"
            )
        share = self.share(step, metrics)
        if wall_seconds - self.printed_at >= EVERY or share >= 1:
            self.printed_at = wall_seconds
            phases = [f"{name} {metrics.get(f'seconds/{name}', 0):.2f}s" for name in STEP_PHASES]
            ranks.say(
                f"step {step}  reward {metrics.get('all/reward_mean', 0):.3f}  "
                f"kept reward variance {metrics.get('kept/reward_variance', 0):.3f}  "
                f"{' '.join(phases)}  "
                f"{share:.0%} done, about {seconds / share - seconds:.0f} s left"
                f"{self.config.price_note}"
            )

    def share(self, step: int, metrics: Metrics) -> float:
        """How much of the run is done, by the limit that ends it first; at most 1."""
        budget = self.config.budget
        limits = [
            (step, self.config.max_steps),
            (metrics["train_seconds"], budget.train_seconds),
            (metrics["wall_seconds"], budget.wall_seconds),
        ]
        return min(1.0, max(done / limit for done, limit in limits if limit))
