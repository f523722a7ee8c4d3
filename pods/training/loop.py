"""Work between optimiser steps: clock, metrics, rollout log, evaluation, checkpoints, signals.

A step is all updates on one generation: after it nothing is pending, so a resume is exact.
"""

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    get_scheduler,
)

from pods import files, ranks
from pods.batch import AlgorithmError
from pods.clock import ByPhase, Clock, priced
from pods.config import sweeps
from pods.config.errors import EngineError, OutOfMemory, RunFailed, UserError
from pods.config.keys import TrainConfig
from pods.config.paths import as_typed
from pods.engines import LivePolicy, seed_of
from pods.metrics import Metrics
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint
from pods.runs.folder import RunFolder
from pods.scoring import RewardError
from pods.trainer import PodsTrainer
from pods.training.logs import Logger, Meter, open_loggers
from pods.training.rewards import Rewards
from pods.training.warm_up import warm_up
from pods.training.watch import Watch

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the run is saved after the step and ends
WARNING = (signal.SIGUSR1, signal.SIGUSR2)  # of a scheduler: saved after the step, and it goes on
# `timeout` signals the whole process group, and `uv run` then passes the signal on again.
DUPLICATE_SECONDS = 1.0


@dataclass
class Stop:
    """When a run ends: at its last step, when its time is used up, or at a signal."""

    config: TrainConfig
    clock: Clock
    received: int = 0  # a signal of ENDING that came to this rank, at any moment; 0: none
    signal: int = 0  # one that all ranks know of, after a step
    warned: int = 0  # the same two for a signal of WARNING
    warning: int = 0
    former: dict[int, Any] = field(default_factory=dict)  # signal -> its handler before the run
    arrived: dict[int, float] = field(default_factory=dict)  # signal -> when it first came, in s

    def handle_signals(self) -> None:
        """Handle the signals until `restore_signals` ends; an ignored one stays ignored (SIGHUP
        under nohup)."""
        handlers = dict.fromkeys(ENDING, self.receive) | dict.fromkeys(WARNING, self.warn)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.former[number] = signal.signal(number, handler)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals that end a run: the step is finished. The same signal again,
        DUPLICATE_SECONDS later, ends the process; not SIGHUP, which a shell may pass on late."""
        self.received = number
        now = time.monotonic()
        first = self.arrived.setdefault(number, now)
        if now - first >= DUPLICATE_SECONDS and number != signal.SIGHUP:
            end_at_once(number)

    def warn(self, number: int, frame: FrameType | None) -> None:
        self.warned = number

    def finished(self, step: int) -> bool:
        """True if the budget of steps or of training time is used up."""
        if step >= (self.config.max_steps or math.inf):
            return True
        return self.clock.train_seconds >= (self.config.budget.train_seconds or math.inf)

    def after(self, step: int) -> bool:
        """True if the run ends after this step: on every rank, by the time or the signal of any."""
        out_of_time = self.clock.wall_seconds >= (self.config.budget.wall_seconds or math.inf)
        answers = ranks.gather([(out_of_time, self.received, self.warned)])
        out_of_time, self.signal, self.warning = map(max, zip(*answers, strict=True))
        if self.warning:
            self.warned = 0
        return self.finished(step) or out_of_time or self.signal > 0

    def answer_warning(self, step: int) -> None:
        """Say that the run was saved; then a launcher's handler decides: submitit's may queue the
        job again, and ends it with SystemExit."""
        name = signal.Signals(self.warning).name
        ranks.say(f"step {step}: saved, because of {name}")
        former = self.former.get(self.warning)
        if callable(former):
            try:
                former(self.warning, None)
            except Exception as error:  # it does not, which is no reason to end the run now
                ranks.say(f"{name}: {error}")


@dataclass
class Save:
    """The checkpoints of a run, new or continued from one."""

    config: TrainConfig
    folder: RunFolder
    trainer: PodsTrainer
    clock: Clock
    step: int  # of the newest checkpoint
    best: dict[str, Any] | None  # by validation

    def improved(self, step: int, metrics: Metrics) -> bool:
        """True if this is the best score on validation questions so far."""
        highest = self.best["accuracy"] if self.best else -1.0
        accuracy = metrics.get("eval/accuracy", highest)
        if self.config.evaluation.split != "validation" or accuracy <= highest:
            return False
        self.best = {"checkpoint": f"checkpoint-{step}", "accuracy": accuracy, "on": "validation"}
        return True

    def due(self, step: int) -> bool:
        keys = self.config.checkpoint
        if keys.every_steps and step % keys.every_steps == 0:
            return True
        return self.clock.is_due(keys.every_seconds)

    def save(self, counters: dict[str, int]) -> None:
        """Write a checkpoint, outside of the training's seconds; counters: those of Meter."""
        clock = self.clock
        with clock.phase("checkpoint"):
            ranks.from_main(self.folder.keep_lock)
            meta = {
                "train_seconds": clock.train_seconds,
                "seconds_before_step": clock.before_step,
                **{name.replace("/", "_"): count for name, count in counters.items()},
                "outside_seconds": dict(clock.outside),
                "checkpoint_best": self.best,
                "seed": self.config.seed,
                "ranks": ranks.world_size(),
                "digests": self.folder.digests,
                **self.folder.origin,
            }
            checkpoints.write(self.trainer, self.folder.path, meta)
            self.step = self.trainer.state.global_step
            if ranks.is_main():
                checkpoints.prune(self.folder.path, self.config.checkpoint.keep)
                self.folder.note(checkpoint_best=self.best)

    def last(self) -> str:
        if self.step == 0:
            return "no checkpoint was written yet"
        return f"last checkpoint: {self.folder.path / f'checkpoint-{self.step}'}"


@dataclass(eq=False)
class RunCallback(TrainerCallback):
    """TRL's callback for one run: evaluates, logs, saves and stops.

    transformers calls on_step_begin, on_step_end and on_log of every optimiser step in this order.
    after_step is called from on_log, which is the first to know the loss of the step.
    """

    config: TrainConfig
    folder: RunFolder
    trainer: PodsTrainer
    clock: Clock
    rewards: Rewards
    evaluate: Callable[[LivePolicy, int, Metrics], Metrics] | None  # of the step -> eval/*
    start: Checkpoint | None  # where the run goes on

    def __post_init__(self) -> None:
        meta = self.start.meta if self.start else {}
        self.meter = Meter(meta)
        self.stop = Stop(self.config, self.clock)
        self.watch = Watch(self.config)
        self.is_packed = True  # whether Unsloth packed the rows of the latest update
        self.logged = self.start.step if self.start else 0  # the newest step with a line of metrics
        best = meta.get("checkpoint_best")
        self.saves = Save(
            self.config, self.folder, self.trainer, self.clock, step=self.logged, best=best
        )
        self.loggers: list[Logger] = []  # those of `run`
        if self.start is not None:
            self.clock.restore(meta["train_seconds"], meta.get("outside_seconds", {}))

    def on_train_begin(self, *args: Any, **objects: Any) -> None:
        self.watch = ranks.from_main(self.watch_earlier_steps)
        self.stop.handle_signals()
        self.clock.watch_stops()
        if self.config.optimizer.schedule_by == "seconds":
            budget = self.config.budget.train_seconds
            schedule_by_clock(
                self.trainer.args, unwrap_deepspeed(objects["lr_scheduler"]), self.clock, budget
            )
        # DeepSpeed's backward also steps the optimiser, so there a warm-up would leave a trace.
        if self.config.warm_up and not self.trainer.is_deepspeed_enabled:
            with self.clock.phase("warmup"):
                warm_up(self.trainer, self.config, self.clock.phase)
            self.meter.warmup_peak = dict(self.clock.step_peak)

    def watch_earlier_steps(self) -> Watch:
        """The watch after the steps of earlier processes; called on the main rank."""
        for line in files.stream_lines(self.folder.metrics):
            self.watch(line)
        return self.watch

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **objects: Any) -> None:
        """Start the clock when all ranks are here, with the learning rate and random states of this
        step."""
        if self.between_generations(state):
            ranks.wait()  # for rank 0: only it logs and writes between steps
            seed_step(self.config, state.global_step)
            if self.clock.train_seconds:
                scheduler = unwrap_deepspeed(objects["lr_scheduler"])
                scheduler.last_epoch -= 1  # anew: by the clock, and by a longer schedule's end
                scheduler.step()
            self.clock.start_step()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **objects: Any) -> None:
        """Stop the clock when the device has finished."""
        if self.between_generations(state):
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # kernels still queued belong to this step
            self.clock.end_step(self.priced_phases())

    def priced_phases(self) -> ByPhase | None:
        """Seconds of the newest step at the prices of config.clock; None if they are measured."""
        if self.config.clock == "measured":
            return None
        record = self.trainer.newest
        sampled = record.batch.lengths
        trained = np.tile(sampled[record.selection.kept], self.config.updates_per_generation)
        return priced(self.config.clock, record.rounds, sampled, trained)

    def between_generations(self, state: TrainerState) -> bool:
        """Whether the newest generation has had all of its updates."""
        return state.global_step % self.config.updates_per_generation == 0

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: dict, **objects: Any
    ) -> None:
        state.log_history.clear()  # metrics.jsonl has it; trainer_state.json would grow forever
        if "loss" not in logs:  # TRL's closing summary
            return
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name, 0.0)):  # nothing is saved after it
                raise RunFailed(
                    f"{name} is {logs[name]} at step {state.global_step}; {self.saves.last()}"
                )
        self.meter.updates.append(logs)
        if self.between_generations(state) and self.after_step(state.global_step):
            control.should_training_stop = True

    def after_step(self, step: int) -> bool:
        """Evaluate, log and save; returns whether the run ends."""
        metrics = self.step_metrics(step)
        if self.evaluate and self.clock.is_due(self.config.evaluation.every_seconds):
            with self.clock.phase("evaluate"):
                metrics |= self.evaluate(LivePolicy(self.trainer.model, step), step, metrics)
        with self.clock.phase("log"):
            for logger in self.loggers:
                logger(step, metrics, self.trainer.newest)
        self.logged = step
        better = self.saves.improved(step, metrics)
        collapsed = self.config.stop_on_collapse and bool(self.watch.problem)
        ends = self.stop.after(step) or collapsed
        warning = self.stop.warning
        if ends or better or warning or self.saves.due(step):
            self.saves.save(self.meter.counters)
        if warning and not self.stop.finished(step):
            self.stop.answer_warning(step)
        return ends

    def step_metrics(self, step: int) -> Metrics:
        """The metric line of the step; says it when the run begins not to learn, or not to pack."""
        others = self.trainer.packing()
        if self.trainer.sampler.guard:
            others |= self.trainer.sampler.guard.metrics
        others |= self.trainer.metrics | self.trainer.logged
        metrics = self.meter.line(self.trainer.newest, self.clock, others)
        was_packed, self.is_packed = self.is_packed, metrics.get("update/packed") != 0
        if was_packed and not self.is_packed:
            size = self.config.micro_batch_size
            ranks.say(
                f"step {step}: Unsloth stopped packing a micro-batch into one sequence; updates "
                f"take longer. If memory was short, lower micro_batch_size={size}"
            )
        known = self.watch.problem
        metrics |= self.watch(metrics)
        if self.watch.problem != known:
            ranks.say(f"step {step}: this run does not learn: {self.watch.problem}")
        return metrics


def seed_step(config: TrainConfig, step: int) -> None:
    """Set the random states to a function of seed, step and rank: TRL shuffles rows, and its
    generation samples, from torch's. So a resumed run is exact."""
    set_seed(seed_of(config.seed, step, ranks.rank()) % 2**32)


def unwrap_deepspeed(scheduler: Any) -> LambdaLR:
    """The scheduler in DeepSpeed's wrapper, or itself."""
    return getattr(scheduler, "scheduler", scheduler)


def schedule_by_clock(
    args: TrainingArguments, scheduler: LambdaLR, clock: Clock, seconds: float
) -> None:
    """Let a scheduler follow its curve over the milliseconds of training by the clock."""
    milliseconds = round(1000 * seconds)
    curve = get_scheduler(
        args.lr_scheduler_type,
        torch.optim.SGD([torch.zeros(1)], lr=args.learning_rate),  # only the curve is used
        num_warmup_steps=args.get_warmup_steps(milliseconds),
        num_training_steps=milliseconds,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    ).lr_lambdas[0]
    by_clock = [lambda step: curve(1000 * clock.train_seconds)]
    scheduler.lr_lambdas = by_clock * len(scheduler.lr_lambdas)


def end_at_once(number: int) -> None:
    """A second signal ends the process and its engine, which takes no signal but SIGKILL."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, b"a second signal: ended at once; run again to resume from the checkpoint\n")
    for process in multiprocessing.active_children():
        process.kill()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@contextmanager
def restore_signals() -> Iterator[None]:
    """A run's signal handlers end with this block, which must be around all others: a launcher's
    SIGTERM must not end a process that closes its engine, before its error is printed."""
    numbers = (*ENDING, *WARNING, signal.SIGCONT)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # else it is not Python's
                signal.signal(number, handler)


def run(loop: RunCallback) -> None:
    """Train to the end of the budget. RunFailed, OutOfMemory: one line with the last checkpoint."""
    config, saves = loop.config, loop.saves
    if ranks.is_main():
        loop.folder.begin(loop.start)
    if not loop.stop.finished(saves.step):
        with one_line_errors(loop), open_loggers(config, loop.folder.path) as loop.loggers:
            loop.trainer.train(resume_from_checkpoint=loop.start and str(loop.start.path))
    if ranks.is_main() and not config.trial:
        best = f"; best on validation: {saves.best['checkpoint']}" if saves.best else ""
        end = f"{saves.step} steps in {loop.clock.train_seconds:.1f} s of training{best}"
        if not loop.stop.signal:
            next_command = f"; next: {as_typed(sweeps.evaluation_of([config]))}"
            in_sweep = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
            print(f"{config.run}: {end}{'' if in_sweep else next_command}")  # a sweep has its own
        else:
            name = signal.Signals(loop.stop.signal).name
            cause = "Ctrl-C" if name == "SIGINT" else name
            ranks.say(f"{end}; stopped by {cause}; run again to resume")
    ranks.wait()  # for rank 0, which sends its loggers' last lines
    if loop.stop.signal:
        sys.exit(128 + loop.stop.signal)


@contextmanager
def one_line_errors(loop: RunCallback) -> Iterator[None]:
    """What ends a run early becomes one line; finished steps are saved if they can be."""
    saves, config = loop.saves, loop.config
    try:
        yield
    except torch.OutOfMemoryError as error:
        key = "micro_batch_size" if loop.clock.running == "update" else "rollouts_per_prompt"
        raise OutOfMemory(
            f"out of GPU memory ({error}); lower {key}={getattr(config, key)}; {saves.last()}"
        ) from error
    except (RewardError, AlgorithmError, EngineError) as error:
        save_finished(loop)
        raise RunFailed(f"{error}; {saves.last()}") from error
    except UserError:
        raise
    except OSError as error:
        raise RunFailed(f"{error}; {saves.last()}") from error
    except BaseException:  # a bug of ours, or what code of the user's raises to end the process
        save_finished(loop)
        ranks.say(saves.last())
        raise


def save_finished(loop: RunCallback) -> None:
    """Save the finished steps at an error of a step, or of an evaluation before its metrics. Within
    an update weights are half new, and of several ranks others cannot save."""
    step = loop.trainer.state.global_step
    is_whole = loop.clock.running != "update" and step == loop.logged
    if ranks.world_size() == 1 and is_whole and loop.saves.step < step:
        loop.saves.save(loop.meter.counters)
