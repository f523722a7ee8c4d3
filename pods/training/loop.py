"""Work between optimiser steps: clock, metrics, ledger, checkpoint, budget, signals.

TRL calls on_step_begin, on_step_end and on_log once per optimiser step. The clock, the metrics and
all that is written take the updates of one generation (updates_per_generation) for one step: after
the last of them no generated batch is pending, so that a checkpoint can be resumed exactly.
"""

import json
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback

from pods import curriculum, ranks, seam
from pods.clock import Clock
from pods.config.errors import OutOfMemory, RunFailed
from pods.config.keys import TrainConfig
from pods.engines import Live
from pods.evaluation.midrun import MidRun
from pods.rollouts import Rollouts, RuleError
from pods.runs import checkpoints, ledger
from pods.runs.files import write_atomic
from pods.runs.folder import RunFolder, config_hash, provenance
from pods.runs.ledger import Ledger
from pods.scoring import RewardError
from pods.training.autoplan import AutoPlan
from pods.training.logs import Logger, open_loggers
from pods.training.metrics import Meter
from pods.training.rehearsal import rehearsal


class NonFinite(RuntimeError):
    """The loss or the gradient is NaN or infinite; nothing was saved after it."""


class RunCallback(TrainerCallback):
    """TRL's callback for one run; files and loggers that it opens are closed by `stack`."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        clock: Clock,
        rollouts: Rollouts,
        stack: ExitStack,
    ) -> None:
        self.config, self.folder, self.clock = config, folder, clock
        self.rollouts, self.stack = rollouts, stack
        self.meter = Meter()
        self.provenance = {"config_hash": config_hash(config), **provenance()}
        self.trainer: Any = None  # set by `train`
        self.midrun: MidRun | None = None
        self.loggers: list[Logger] = []
        self.ledger: Ledger | None = None
        self.saved_step = 0
        self.plan = AutoPlan(config)
        self.best: dict[str, Any] | None = None  # checkpoint and accuracy, by validation alone
        self.received: int | None = None  # a signal this rank got, at any moment
        self.stop_signal: int | None = None  # of any rank: all ranks stop

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        self.clock.restore(checkpoint.meta["train_seconds"], checkpoint.meta["outside_seconds"])
        self.meter.restore(checkpoint.meta)
        self.plan.restore(checkpoint.meta)
        self.saved_step, self.best = checkpoint.step, checkpoint.meta.get("checkpoint_best")
        state = checkpoint.path / checkpoints.RULE_STATE
        if state.is_file():  # absent in runs of the first design
            self.rollouts.load(json.loads(state.read_text()))
        self.rollouts.prompts.restore(ranks.from_main(self.visits))

    def visits(self) -> list[dict[str, Any]]:
        """The ledger records that the choice of prompts needs; UserError where they are lost."""
        if self.config.prompts.name == "uniform":
            return []
        records = ledger.read(ledger.find(self.config.output_dir, self.config.run))
        return [{key: record[key] for key in curriculum.RECORDED} for record in records]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if ranks.is_main():
            self.ledger = Ledger(self.folder.ledger, self.config.ledger.texts)
            self.loggers = open_loggers(self.config, self.folder.path, self.stack)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_after_step)
        # DeepSpeed's backward also steps the optimiser, so there a warm-up would leave a trace.
        if self.config.backend.warmup and not self.trainer.is_deepspeed_enabled:
            with self.clock.phase("warmup"), rehearsal(self.trainer):
                seam.warm_up(self.trainer)
            self.meter.warmup_peak = dict(self.clock.step_peak)

    def _stop_after_step(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if not self.between_generations(state):
            return
        ranks.wait()  # for rank 0, which alone logs and writes between steps
        if self.config.optimizer.schedule_by == "seconds" and self.clock.train_seconds:
            given["lr_scheduler"].step()  # the trainer's own call came before the step's end
        self.clock.start_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self.between_generations(state):
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # kernels still queued belong to this step, not to its logging
        self.clock.end_step()

    def between_generations(self, state: Any) -> bool:
        return state.global_step % self.config.updates_per_generation == 0

    def on_log(self, args: Any, state: Any, control: Any, logs: dict, **_: Any) -> None:
        state.log_history.clear()  # metrics.jsonl has it; trainer_state.json would grow forever
        if "loss" not in logs:  # TRL's closing summary
            return
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name, 0.0)):
                raise NonFinite(f"{name} is {logs[name]} at step {state.global_step}")
        self.meter.updates.append(logs)
        if not self.between_generations(state):
            return
        metrics = self.meter.line(self.trainer, self.rollouts, self.clock) | self.plan.metrics()
        if self.midrun and self.clock.passed_mark(self.config.evaluation.every_seconds):
            with self.clock.phase("evaluate"):
                live = Live(self.trainer.model, state.global_step)
                metrics |= self.midrun(live, state.global_step, self.clock.train_seconds)
        with self.clock.phase("log"):
            for logger in self.loggers:
                logger(state.global_step, metrics)
            newest = self.rollouts.newest
            self.rollouts.prompts.note(newest.batch)
            if self.ledger is not None:
                self.ledger.append(newest.batch.step + 1, newest)
        better = self.improved(state.global_step, metrics)
        over = self.over_budget(state.global_step)
        if self.plan.due(state.global_step) and not over:
            with self.clock.phase("plan"):
                self.ledger.flush()  # the planner reads it
                self.plan(state.global_step)
        if over or better or self.plan.changed or self.save_due(state.global_step):
            self.save()
        control.should_training_stop = control.should_training_stop or over or self.plan.changed

    def improved(self, step: int, metrics: dict[str, Any]) -> bool:
        """Whether the policy was scored on validation questions, and never better."""
        accuracy = metrics.get("eval/accuracy")
        if accuracy is None or self.config.evaluation.split != "validation":
            return False
        if self.best and accuracy <= self.best["accuracy"]:
            return False
        self.best = {"checkpoint": f"checkpoint-{step}", "accuracy": accuracy, "on": "validation"}
        return True

    def finished(self, step: int) -> bool:
        """Whether the run has had all its steps or training time, or is as good as was asked."""
        reached = self.best["accuracy"] if self.best else 0.0
        return (
            step >= (self.config.max_steps or math.inf)
            or self.clock.train_seconds >= (self.config.budget.train_seconds or math.inf)
            or reached >= (self.config.evaluation.stop_at or math.inf)
        )

    def over_budget(self, step: int) -> bool:
        """Whether to end after this step: finished, out of wall time, or told to by a signal.

        One rank's time or signal is every rank's: all must leave after the same step.
        """
        out_of_time = self.clock.wall_seconds >= (self.config.budget.wall_seconds or math.inf)
        answers = ranks.gather([(out_of_time, self.received)])
        self.stop_signal = next((number for _, number in answers if number), None)
        return self.finished(step) or any(out or number for out, number in answers)

    def save_due(self, step: int) -> bool:
        every_steps = self.config.checkpoint.every_steps
        return self.clock.passed_mark(self.config.checkpoint.every_seconds) or (
            every_steps is not None and step % every_steps == 0
        )

    def save(self) -> None:
        with self.clock.phase("checkpoint"):
            if self.ledger is not None:
                self.ledger.flush()  # a checkpoint never refers to groups that are not on disk
            step = self.trainer.state.global_step
            checkpoints.write(self.trainer, self.folder.path, self.checkpoint_meta())
            self.saved_step = step
            if ranks.is_main():
                checkpoints.prune(self.folder.path, self.config.checkpoint.keep)
                self.folder.note_best(self.best)

    def rescue(self) -> None:
        """Save the steps that are done, after an error between two steps. Several ranks cannot:
        saving needs every rank, and one has failed."""
        if ranks.world_size() == 1 and self.trainer.state.global_step > self.saved_step:
            self.save()

    def checkpoint_meta(self) -> dict[str, Any]:
        return {
            "train_seconds": self.clock.train_seconds,
            **{name.replace("/", "_"): count for name, count in self.meter.counters.items()},
            "outside_seconds": dict(self.clock.outside),
            "checkpoint_best": self.best,
            **self.plan.meta(),
            "seed": self.config.seed,
            "ranks": ranks.world_size(),
            **self.provenance,
        }


@contextmanager
def signals_restored() -> Iterator[None]:
    """A run's signal handlers end with this block, so that a sweep goes on. It is the outermost
    block: a launcher's SIGTERM must not end a process that closes its engine, before its error is
    printed."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(trainer: Any, loop: RunCallback, start: checkpoints.Checkpoint | None) -> bool:
    """Run the trainer from `start` to the end of the budget, and say where it ended; or to a change
    of n and m, after which it is True, and the training is to be built again.

    Raises RunFailed or OutOfMemory with one line that names the last checkpoint.
    """
    loop.trainer = trainer
    folder, config = loop.folder, loop.config
    if config.evaluation.every_seconds is not None:
        tokenizer = trainer.processing_class
        loop.midrun = MidRun(config, loop.rollouts.engine, tokenizer, folder.evaluations)
    if ranks.is_main():
        folder.begin(start)
    if start is not None:
        loop.restore(start)
    if not loop.finished(loop.saved_step):
        try:
            trainer.train(resume_from_checkpoint=start and str(start.path))
        except torch.OutOfMemoryError as error:
            phase = "update" if "select" in loop.clock.step else "generation"
            raise OutOfMemory(
                f"out of GPU memory in {phase} ({error}); lower micro_batch_size="
                f"{config.micro_batch_size} (update) or rollouts_per_prompt="
                f"{config.rollouts_per_prompt} (generate); {last_checkpoint(loop)}"
            ) from error
        except RewardError as error:
            loop.rescue()
            report = folder.path / "failed_reward.json"
            content = {"error": str(error), "completion": error.completion, "answer": error.answer}
            write_atomic(report, json.dumps(content, indent=2) + "\n")
            raise RunFailed(f"{error}; completion in {report}; {last_checkpoint(loop)}") from error
        except RuleError as error:
            loop.rescue()
            raise RunFailed(f"{error}; {last_checkpoint(loop)}") from error
        except (NonFinite, OSError, checkpoints.WriteError) as error:
            raise RunFailed(f"{error}; {last_checkpoint(loop)}") from error
        except RuntimeError as error:
            if not ranks.lost_a_rank(error):
                raise
            raise RunFailed(f"another process of the run ended; {last_checkpoint(loop)}") from error
    if loop.plan.changed:
        return True
    if ranks.is_main() and not config.trial:
        best = loop.best and f"; best on validation: {loop.best['checkpoint']}"
        print(
            f"{config.run}: {loop.saved_step} steps in {loop.clock.train_seconds:.1f} s of "
            f"training{best or ''}; next: uv run evaluate_run.py run={config.run}"
        )
    if loop.stop_signal is not None:
        ranks.say(f"stopped by signal {loop.stop_signal}; run again to resume")
        sys.exit(128 + loop.stop_signal)
    return False


def last_checkpoint(loop: RunCallback) -> str:
    if not loop.saved_step:
        return "no checkpoint was written yet"
    return f"last checkpoint: {loop.folder.path / f'checkpoint-{loop.saved_step}'}"
