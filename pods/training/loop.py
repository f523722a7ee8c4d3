"""Work between optimiser steps: clock, metrics, ledger, evaluation, checkpoints, budget, signals.

A step is all updates on one generation: after it nothing is pending, so a resume is exact.
"""

import math
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from pods import ranks
from pods.batch import AlgorithmError
from pods.clock import Clock, priced
from pods.config.errors import EngineError, OutOfMemory, RunFailed
from pods.config.keys import TrainConfig
from pods.config.place import as_typed
from pods.engines import LivePolicy
from pods.runs import checkpoints, ledger
from pods.runs.checkpoints import Checkpoint
from pods.runs.folder import RunFolder, config_hash, provenance
from pods.scoring import RewardError, Rewards
from pods.trainer import PodsTrainer
from pods.training.logs import Logger, Meter, Metrics, open_loggers
from pods.training.warm_up import warm_up
from pods.training.watch import Watch

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Stop:
    """When a run ends: its steps or its time are reached, or a signal came."""

    config: TrainConfig
    clock: Clock
    received: int | None = None  # a signal that came to this rank, at any moment
    signal: int | None = None  # one that all ranks know of, after a step

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, end_at_once)

    def finished(self, step: int) -> bool:
        """Whether nothing is left to do, also for a later process."""
        steps, seconds = self.config.max_steps, self.config.budget.train_seconds
        return step >= (steps or math.inf) or self.clock.train_seconds >= (seconds or math.inf)

    def after(self, step: int) -> bool:
        """Whether every rank ends here: one rank's time or signal is every rank's."""
        out_of_time = self.clock.wall_seconds >= (self.config.budget.wall_seconds or math.inf)
        answers = ranks.gather([(out_of_time, self.received)])
        self.signal = next((number for _, number in answers if number), None)
        return self.finished(step) or self.signal or any(out for out, _ in answers)


class Save:
    """The checkpoints of a run, new or continued from `start`, and the best by validation."""

    def __init__(self, folder: RunFolder, trainer: PodsTrainer, start: Checkpoint | None) -> None:
        self.config, self.folder, self.trainer = folder.config, folder, trainer
        self.step = start.step if start else 0  # of the newest checkpoint
        self.best: dict[str, str | float] | None = start and start.meta.get("checkpoint_best")
        self.provenance = {"config_hash": config_hash(self.config), **provenance()}

    def improved(self, step: int, metrics: Metrics) -> bool:
        """Whether the policy was scored on validation questions, and never better."""
        accuracy, best = metrics.get("eval/accuracy"), self.best
        if self.config.evaluation.split != "validation" or accuracy is None:
            return False
        if better := best is None or accuracy > best["accuracy"]:
            checkpoint = f"checkpoint-{step}"
            self.best = {"checkpoint": checkpoint, "accuracy": accuracy, "on": "validation"}
        return better

    def due(self, step: int) -> bool:
        seconds, steps = self.config.checkpoint.every_seconds, self.config.checkpoint.every_steps
        return self.trainer.clock.passed_mark(seconds) or (steps is not None and step % steps == 0)

    def save(self, counters: dict[str, int]) -> None:
        clock = self.trainer.clock
        with clock.phase("checkpoint"):
            meta = {
                "train_seconds": clock.train_seconds,
                **{name.replace("/", "_"): count for name, count in counters.items()},
                "outside_seconds": dict(clock.outside),
                "checkpoint_best": self.best,
                "seed": self.config.seed,
                "ranks": ranks.world_size(),
                **self.provenance,
            }
            checkpoints.write(self.trainer, self.folder.path, meta)
            self.step = self.trainer.state.global_step
            if ranks.is_main():
                checkpoints.prune(self.folder.path, self.config.checkpoint.keep)
                self.folder.note(checkpoint_best=self.best)

    def last(self) -> str:
        path = self.folder.path / f"checkpoint-{self.step}"
        return f"last checkpoint: {path}" if self.step else "no checkpoint was written yet"


@dataclass(eq=False)
class RunCallback(TrainerCallback):
    """TRL's callback for one run: evaluates, logs, saves and stops."""

    config: TrainConfig
    folder: RunFolder
    trainer: PodsTrainer
    rewards: Rewards
    evaluate: Callable[[LivePolicy, int, Metrics], Metrics] | None  # of the step -> eval/*
    start: Checkpoint | None  # where the run goes on
    stack: ExitStack  # closes the loggers

    def __post_init__(self) -> None:
        meta = self.start.meta if self.start else {}
        self.clock, self.meter = self.trainer.clock, Meter(self.rewards.scorer, meta)
        self.stop, self.watch = Stop(self.config, self.clock), Watch(self.config)
        self.saves = Save(self.folder, self.trainer, self.start)
        self.loggers: list[Logger] = []
        if self.start is not None:
            self.clock.restore(meta["train_seconds"], meta["outside_seconds"])

    def on_train_begin(self, *args: Any, **objects: Any) -> None:
        if self.start is not None:
            for line in ranks.from_main(lambda: ledger.read(self.folder.metrics)):
                self.watch(line)
        if ranks.is_main():
            self.loggers = open_loggers(self.config, self.folder.path, self.stack)
        for number in SIGNALS:
            signal.signal(number, self.stop.receive)
        # DeepSpeed's backward also steps the optimiser, so there a warm-up would leave a trace.
        if self.config.backend.warmup and not self.trainer.is_deepspeed_enabled:
            limits = self.config.sampling
            with self.clock.phase("warmup"):
                warm_up(self.trainer, limits.max_prompt_length, limits.max_completion_length)
            self.meter.warmup_peak = dict(self.clock.step_peak)

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **objects: Any) -> None:
        if self.between_generations(state):
            ranks.wait()  # for rank 0: only it logs and writes between steps
            if self.config.optimizer.schedule_by == "seconds" and self.clock.train_seconds:
                objects["lr_scheduler"].step()  # the trainer's own came before the step's end
            self.clock.start_step()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **objects: Any) -> None:
        if self.between_generations(state):
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # kernels still queued belong to this step
            measured = self.config.clock.name == "measured"
            self.clock.end_step(None if measured else self.priced_phases())

    def priced_phases(self) -> dict[str, float]:
        """Seconds by phase of the newest step under config.clock."""
        record, updates = self.trainer.newest, self.config.updates_per_generation
        lengths = record.batch.lengths
        trained = np.tile(lengths[record.selection.kept], updates)
        return priced(self.config.clock, record.rounds, lengths, trained)

    def between_generations(self, state: TrainerState) -> bool:
        return state.global_step % self.config.updates_per_generation == 0

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: dict, **objects: Any
    ) -> None:
        state.log_history.clear()  # metrics.jsonl has it; trainer_state.json would grow forever
        if "loss" not in logs:  # TRL's closing summary
            return
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name, 0.0)):  # nothing is saved after it
                line = f"{name} is {logs[name]} at step {state.global_step}"
                raise RunFailed(f"{line}; {self.saves.last()}")
        self.meter.updates.append(logs)
        if self.between_generations(state) and self.after_step(state.global_step):
            control.should_training_stop = True

    def after_step(self, step: int) -> bool:
        """Evaluate, log and save; returns whether the run ends."""
        trainer, record, guard = self.trainer, self.trainer.newest, self.trainer.sampler.guard
        others = trainer.packing() | (guard.metrics if guard else {})
        metrics, known = self.meter.line(record, self.clock, others), self.watch.problem
        metrics |= self.watch(metrics)
        if (problem := self.watch.problem) != known:
            ranks.say(f"step {step}: this run does not learn: {problem}")
        if self.evaluate and self.clock.passed_mark(self.config.evaluation.every_seconds):
            with self.clock.phase("evaluate"):
                metrics |= self.evaluate(LivePolicy(trainer.model, step), step, metrics)
        with self.clock.phase("log"):
            for logger in self.loggers:
                logger(step, metrics)
            if ranks.is_main():
                ledger.append(self.folder.ledger, record, self.config.ledger.texts)
        better = self.saves.improved(step, metrics)
        over = self.stop.after(step) or bool(problem and self.config.stop_on_collapse)
        if over or better or self.saves.due(step):
            self.saves.save(self.meter.counters)
        return over


def end_at_once(number: int, frame: FrameType | None) -> None:
    """A second signal ends the process and its engine, which takes no signal but SIGKILL."""
    for process in multiprocessing.active_children():
        process.kill()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def restore_signals(stack: ExitStack) -> None:
    """A run's signal handlers end with this stack, which is still empty: a launcher's SIGTERM must
    not end a process that closes its engine, before its error is printed."""
    for number in SIGNALS:
        stack.callback(signal.signal, number, signal.getsignal(number))


def run(loop: RunCallback) -> None:
    """Train to the end of the budget. RunFailed, OutOfMemory: one line with the last checkpoint."""
    config, start, saves, stop = loop.config, loop.start, loop.saves, loop.stop
    if ranks.is_main():
        loop.folder.begin(start)
    if not stop.finished(saves.step):
        with one_line_errors(loop):
            loop.trainer.train(resume_from_checkpoint=start and str(start.path))
    if ranks.is_main() and not config.trial:
        best = f"; best on validation: {saves.best['checkpoint']}" if saves.best else ""
        print(
            f"{config.run}: {saves.step} steps in {loop.clock.train_seconds:.1f} s of training"
            f"{best}; next: {as_typed('uv run evaluate_run.py')} run={config.run}"
        )
    if stop.signal is not None:
        ranks.say(f"stopped by signal {stop.signal}; run again to resume")
        sys.exit(128 + stop.signal)


@contextmanager
def one_line_errors(loop: RunCallback) -> Iterator[None]:
    """What ends a run early becomes one line; finished steps are saved if they can be."""
    saves, config = loop.saves, loop.config
    try:
        yield
    except torch.OutOfMemoryError as error:
        key = "micro_batch_size" if "select" in loop.clock.step else "rollouts_per_prompt"
        remedy = f"lower {key}={getattr(config, key)}"  # after the selection comes the update
        raise OutOfMemory(f"out of GPU memory ({error}); {remedy}; {saves.last()}") from error
    except (RewardError, AlgorithmError, EngineError, OSError) as error:
        own = not isinstance(error, OSError)  # raised between two steps; another rank cannot save
        if own and ranks.world_size() == 1 and loop.trainer.state.global_step > saves.step:
            saves.save(loop.meter.counters)
        raise RunFailed(f"{error}; {saves.last()}") from error
    except RuntimeError as error:
        if not ranks.lost_a_rank(error):
            raise
        raise RunFailed(f"another process of the run ended; {saves.last()}") from error
