"""Work between optimiser steps: clock, metrics, ledger, evaluation, checkpoints, budget, signals.

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

from pods import ranks
from pods.config.errors import OutOfMemory, RunFailed, UserError
from pods.config.keys import TrainConfig
from pods.engines import Live
from pods.evaluation.midrun import MidRun
from pods.files import write_atomic
from pods.models import initial
from pods.rollouts import AlgorithmError
from pods.runs import checkpoints, ledger
from pods.runs.folder import RunFolder, config_hash, provenance
from pods.scoring import RewardError, Rewards
from pods.trainer import PodsTrainer
from pods.training.logs import Logger, open_loggers
from pods.training.metrics import Meter
from pods.training.warm_up import warm_up


class NonFinite(RuntimeError):
    """The loss or the gradient is NaN or infinite; nothing was saved after it."""


class RunCallback(TrainerCallback):
    """TRL's callback for one run; files and loggers that it opens are closed by `stack`."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, trainer: PodsTrainer, rewards: Rewards,
        stack: ExitStack,
    ) -> None:  # fmt: skip
        self.config, self.folder, self.stack = config, folder, stack
        self.trainer, self.clock = trainer, trainer.clock
        self.meter = Meter(rewards.scorer)
        self.provenance = {"config_hash": config_hash(config), **provenance()}
        self.evaluate: MidRun | None = None
        if config.evaluation.every_seconds is not None:
            engine, tokenizer = trainer.sampler.engine, trainer.processing_class
            self.evaluate = MidRun(config, engine, tokenizer, folder.evaluations)
        self.loggers: list[Logger] = []
        self.saved_step = 0
        self.best: dict[str, Any] | None = None  # checkpoint and accuracy, by validation alone
        self.received: int | None = None  # a signal this rank got, at any moment
        self.stop_signal: int | None = None  # of any rank: all ranks stop

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        meta = checkpoint.meta
        self.clock.restore(meta["train_seconds"], meta["outside_seconds"])
        self.meter.restore(meta)
        self.saved_step, self.best = checkpoint.step, meta.get("checkpoint_best")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if ranks.is_main():
            self.loggers = open_loggers(self.config, self.folder.path, self.stack)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_after_step)
        # DeepSpeed's backward also steps the optimiser, so there a warm-up would leave a trace.
        if self.config.backend.warmup and not self.trainer.is_deepspeed_enabled:
            sampling = self.config.sampling
            with self.clock.phase("warmup"):
                warm_up(self.trainer, sampling.max_prompt_length, sampling.max_completion_length)
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
        metrics = self.meter.line(self.trainer)
        if self.evaluate and self.clock.passed_mark(self.config.evaluation.every_seconds):
            with self.clock.phase("evaluate"):
                live = Live(self.trainer.model, state.global_step)
                metrics |= self.evaluate(live, state.global_step, metrics)
        self.write(state.global_step, metrics)
        better = self.improved(state.global_step, metrics)
        over = self.over_budget(state.global_step)
        if over or better or self.save_due(state.global_step):
            self.save()
        control.should_training_stop = control.should_training_stop or over

    def write(self, step: int, metrics: dict[str, Any]) -> None:
        """Log the metrics and record the step's rollouts."""
        with self.clock.phase("log"):
            for logger in self.loggers:
                logger(step, metrics)
            if ranks.is_main():
                ledger.append(self.folder.ledger, self.trainer.newest, self.config.ledger.texts)

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
        """Whether steps or training time are used up, or the accuracy asked for is reached."""
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
            checkpoints.write(self.trainer, self.folder.path, self.checkpoint_meta())
            self.saved_step = self.trainer.state.global_step
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
            "seed": self.config.seed,
            "ranks": ranks.world_size(),
            **self.provenance,
        }

    def last_checkpoint(self) -> str:
        if not self.saved_step:
            return "no checkpoint was written yet"
        return f"last checkpoint: {self.folder.path / f'checkpoint-{self.saved_step}'}"


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


def run(loop: RunCallback, start: checkpoints.Checkpoint | None) -> None:
    """Train from `start` to the end of the budget, and say where it ended.

    Raises RunFailed or OutOfMemory with one line that names the last checkpoint.
    """
    config, trainer = loop.config, loop.trainer
    if ranks.is_main():
        loop.folder.begin(start, initial.facts(config))
    if start is not None:
        loop.restore(start)
    if not loop.finished(loop.saved_step):
        with one_line_errors(loop):
            trainer.train(resume_from_checkpoint=start and str(start.path))
    if ranks.is_main() and not config.trial:
        best = loop.best and f"; best on validation: {loop.best['checkpoint']}"
        print(
            f"{config.run}: {loop.saved_step} steps in {loop.clock.train_seconds:.1f} s of "
            f"training{best or ''}; next: uv run evaluate_run.py run={config.run}"
        )
    if loop.stop_signal is not None:
        ranks.say(f"stopped by signal {loop.stop_signal}; run again to resume")
        sys.exit(128 + loop.stop_signal)


@contextmanager
def one_line_errors(loop: RunCallback) -> Iterator[None]:
    """What ends a run early becomes one line; finished steps are saved where they can be."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{out_of_memory(loop, error)}; {loop.last_checkpoint()}") from error
    except RewardError as error:
        loop.rescue()
        report = loop.folder.path / "failed_reward.json"
        content = {"error": str(error), "completion": error.completion, "answer": error.answer}
        write_atomic(report, json.dumps(content, indent=2) + "\n")
        line = f"{error}; completion in {report}; {loop.last_checkpoint()}"
        raise RunFailed(line) from error
    except AlgorithmError as error:
        loop.rescue()
        raise RunFailed(f"{error}; {loop.last_checkpoint()}") from error
    except (NonFinite, OSError) as error:
        raise RunFailed(f"{error}; {loop.last_checkpoint()}") from error
    except UserError:
        raise
    except RuntimeError as error:
        if not ranks.lost_a_rank(error):
            raise
        line = f"another process of the run ended; {loop.last_checkpoint()}"
        raise RunFailed(line) from error


def out_of_memory(loop: RunCallback, error: Exception) -> str:
    """What ran out, and the keys to lower."""
    config, phase = loop.config, "update" if "select" in loop.clock.step else "generation"
    return (
        f"out of GPU memory in {phase} ({error}); lower micro_batch_size="
        f"{config.micro_batch_size} (update) or rollouts_per_prompt="
        f"{config.rollouts_per_prompt} (generate)"
    )
