"""Faults at the boundary to the system, each striking at optimiser step 4 of a forked train.py."""

import gzip
import os
import resource
import signal
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from pods import rules, trainer
from pods.runs import checkpoints, ledger
from rewards import functions

STEP = 4


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, act: Any) -> None:
    """Call act(*args) before owner.name; its return value, if any, replaces the call."""
    inner = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = act(*args, **kwargs)
        return inner(*args, **kwargs) if result is None else result

    setattr(owner, name, wrapped)


def kill_in_step() -> None:
    before(trainer.PodsTrainer, "score", lambda self, *_: kill() if at_step(self) else None)


def at_step(self: Any) -> bool:
    self.calls = getattr(self, "calls", 0) + 1
    return self.calls == STEP


def kill_in_checkpoint() -> None:
    def act(path: Path) -> None:
        if path.parent.name == f".checkpoint-{STEP}.tmp" and path.name == "optimizer.pt":
            kill()

    before(checkpoints, "digest", act)


def kill_in_ledger() -> None:
    def act(path: Path, step: Any, texts: str) -> None:
        if step.step.number + 1 == STEP:
            frame = gzip.compress(b'{"step": 1}\n' * 9)
            with open(path, "ab") as file:
                file.write(frame[: len(frame) // 2])
            kill()

    before(ledger, "append", act)


def disk_full() -> None:
    def act(trainer: Any, *_: Any) -> None:
        if trainer.state.global_step == STEP:  # the kernel refuses to let a file grow further
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    before(checkpoints, "write", act)


def reward_raises() -> None:
    before(functions, "correctness", lambda text, *_: 1 / 0 if late("7") and "7" in text else None)


def reward_is_nan() -> None:
    before(functions, "tags", lambda *_: float("nan") if late("nan") else None)


def reward_is_text() -> None:
    inner, calls = functions.tags, []

    def tags(*row: Any) -> float | str:
        calls.append(row)
        return "x" if len(calls) > (STEP - 1) * 16 else inner(*row)

    functions.tags = tags


def gradient_is_nan() -> None:
    clip, calls = Accelerator.clip_grad_norm_, []

    def poisoned(self: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(parameters)
        calls.append(1)
        if len(calls) == STEP:
            next(p for p in parameters if p.grad is not None).grad.fill_(float("nan"))
        return clip(self, parameters, *args, **kwargs)

    Accelerator.clip_grad_norm_ = poisoned


def late(name: str, calls: dict[str, int] = {}) -> bool:  # noqa: B006  counts across calls
    calls[name] = calls.get(name, 0) + 1
    return calls[name] > (STEP - 1) * 16  # 2 prompts x 8 rollouts a step


def rule_returns_too_few() -> None:
    inner, calls = rules.max_variance, []

    def max_variance(rewards: Any, m: int, rng: Any) -> Any:
        calls.append(1)
        return inner(rewards, m - (len(calls) > (STEP - 1) * 2), rng)  # 2 prompts a step

    rules.RULES["max_variance"] = max_variance
