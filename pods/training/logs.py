"""The loggers of a run: metrics.jsonl always; console, wandb, trackio, tensorboard if chosen.

A tracker gets the same names as metrics.jsonl. It is not given to TRL as `report_to`: TRL's own
metrics describe only the rollouts that were kept, which says little about the policy.
"""

import json
import re
import secrets
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from sys import stderr
from typing import Any

from pods import ranks
from pods.clock import STEP_PHASES
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.files import write_atomic

Metrics = dict[str, Any]  # name -> number
Logger = Callable[[int, Metrics], None]  # (step, metrics)
EVERY = 10.0  # s of training between two lines on the console


def open_loggers(config: TrainConfig, folder: Path, stack: ExitStack) -> list[Logger]:
    """The loggers of config.logger, closed by `stack`."""
    loggers: list[Logger] = [jsonl(folder / "metrics.jsonl", stack)]
    for opened in (console, wandb, trackio, tensorboard):
        if getattr(config.logger, opened.__name__) is not None:
            loggers.append(opened(config, folder, stack))
    return loggers


def jsonl(path: Path, stack: ExitStack) -> Logger:
    file = stack.enter_context(path.open("a", buffering=1))  # a line at a time
    return lambda step, metrics: print(json.dumps({"step": step, **metrics}), file=file)


def console(config: TrainConfig, _: Path, stack: ExitStack) -> Logger:
    """On stderr: a line every ten seconds of training, and one for each evaluation."""
    printed_at = -EVERY

    def log(step: int, metrics: Metrics) -> None:
        nonlocal printed_at
        seconds, (done, left) = metrics["train_seconds"], share_done(config, step, metrics)
        if "eval/accuracy" in metrics:
            at = f"{config.evaluation.split} split, {seconds:.0f} s of training"
            ranks.say(f"step {step}  accuracy {metrics['eval/accuracy']:.3f}  ({at})")
        if seconds - printed_at >= EVERY or done >= 1:
            printed_at = seconds
            phases = " ".join(
                f"{name} {metrics.get(f'seconds/{name}', 0.0):.2f}s" for name in STEP_PHASES
            )
            ranks.say(
                f"step {step}  reward {metrics.get('all/reward_mean', 0):.3f}"
                f"  kept variance {metrics.get('kept/reward_variance', 0):.3f}  {phases}  {left}"
            )

    return log


def share_done(config: TrainConfig, step: int, metrics: Metrics) -> tuple[float, str]:
    """Used share (0..1) of the limit that ends the run first, and the rest of it as text."""
    limits = [(0.0, "")]
    if config.max_steps:
        left = config.max_steps - step
        seconds = left * metrics["train_seconds"] / step
        limits.append((step / config.max_steps, f"{left} steps, about {seconds:.0f} s left"))
    for key, name in (("train_seconds", "training"), ("wall_seconds", "wall-clock")):
        if limit := getattr(config.budget, key):
            left = max(0.0, limit - metrics[key])
            limits.append((metrics[key] / limit, f"{left:.0f} s of {name} time left"))
    return max(limits)


def wandb(config: TrainConfig, folder: Path, stack: ExitStack) -> Logger:
    """A wandb run, the same one after a resume; wandb's own variables set the rest (WANDB_MODE)."""
    import wandb as library

    identity = folder / "wandb_id"
    if not identity.is_file():  # not the name alone: another folder may hold a run of that name
        write_atomic(identity, f"{config.run[:100]}-{secrets.token_hex(4)}")
    try:
        run = library.init(
            **described(config),
            project=config.logger.wandb.project,
            id=identity.read_text(),
            resume="allow",
            dir=str(folder),
        )
    except library.Error as error:
        reason = " ".join(str(error).split())
        remedy = "set WANDB_MODE=offline, or run wandb login"
        raise UserError(f"logger=wandb: {reason}; {remedy}") from error
    stack.callback(run.finish)
    return lambda step, metrics: run.log(metrics, step=step)


def trackio(config: TrainConfig, folder: Path, stack: ExitStack) -> Logger:
    """A trackio run on this machine, or in a Space of the hub; a resumed one goes on."""
    import trackio as library

    chosen, resumed = config.logger.trackio, (folder / "metrics.jsonl").stat().st_size > 0
    place = {"project": chosen.project, "space_id": chosen.space_id, "embed": False}
    with redirect_stdout(stderr):  # stdout is for results
        run = library.init(**described(config), **place, resume="allow" if resumed else "never")

    def finish() -> None:
        with redirect_stdout(stderr):
            library.finish()

    stack.callback(finish)
    return lambda step, metrics: run.log(metrics, step=step)


def tensorboard(_: TrainConfig, folder: Path, stack: ExitStack) -> Logger:
    from torch.utils.tensorboard import SummaryWriter

    writer = stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

    def log(step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return log


def described(config: TrainConfig) -> dict[str, Any]:
    """Name, group (one setting's seeds together) and whole config of a tracker's run."""
    group = re.sub(r"-seed\d+", "", config.run)
    values = config.model_dump()
    return {"name": config.run, "group": group, "config": values}
