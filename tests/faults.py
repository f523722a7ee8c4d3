"""Faults at the boundary to the system, each striking at optimiser step 4 of a forked train.py."""

import os
import pty
import resource
import signal
import sys

from accelerate import Accelerator

from pods import files, trainer
from pods.config.errors import EngineError
from pods.evaluation import midrun
from pods.rewards import FUNCTIONS  # those of a training
from pods.runs import checkpoints, rollout_log

STEP = 4


def trained(run):
    """Whether the run has finished a step."""
    file = run / "metrics.jsonl"
    return file.is_file() and bool(files.read_lines(file))


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner, name, act):
    """Call act(*args) before owner.name."""
    inner = getattr(owner, name)

    def wrapped(*args, **kwargs):
        act(*args, **kwargs)
        return inner(*args, **kwargs)

    setattr(owner, name, wrapped)


def kill_in_step():
    def act(self, *_):
        if self.state.global_step == STEP - 1:
            kill()

    before(trainer.PodsTrainer, "score", act)


def kill_in_checkpoint():
    def act(path):
        if path.parent.name == f".checkpoint-{STEP}.tmp" and path.name == "optimizer.pt":
            kill()

    before(checkpoints, "digest", act)


def kill_in_rollout_log():
    """In the member of the step after, of which half is written."""
    append = rollout_log.append

    def torn(path, number, step, texts):
        before = path.stat().st_size if path.exists() else 0
        append(path, number, step, texts)
        if number == STEP + 1:
            os.truncate(path, (before + path.stat().st_size) // 2)
            kill()

    rollout_log.append = torn


def while_saving(act):
    before(checkpoints, "write", lambda trainer, *_: trainer.state.global_step == STEP and act())


def kill_in_save():
    while_saving(kill)


def disk_full():
    """The kernel refuses to let a file grow further."""
    while_saving(lambda: limit_files(100_000))


def disk_full_at_once():
    limit_files(2048)


def limit_files(size):
    """Else the bytecode of a later import is cut, too, and every later process fails on it."""
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def reward_raises():
    calls = []

    def correctness(graded):
        calls.append(graded)
        if len(calls) > (STEP - 1) * 16 and "7" in graded.text:  # 2 prompts x 8 rollouts a step
            raise ZeroDivisionError
        return float(graded.correct)

    FUNCTIONS["correctness"] = correctness


def evaluation_fails():
    """Before the step has its line of metrics."""

    def act(self, policy, step, metrics):
        if step == STEP:
            raise EngineError("the engine is gone")

    before(midrun.MidRun, "__call__", act)


def reader_is_gone():
    """Of the pipe that stdout and stderr lead into, as `2>&1 | head -1` after its line."""
    reader, writer = os.pipe()
    os.close(reader)
    print_to(writer)


def terminal_is_gone():
    """A closed one, whose process ignores SIGHUP."""
    master, terminal = pty.openpty()
    os.close(master)
    print_to(terminal)


def stdout_is_full():
    print_to(os.open("/dev/full", os.O_WRONLY), 1)


def print_to(descriptor, *numbers):
    for number in numbers or (1, 2):
        os.dup2(descriptor, number)


def gradient_is_nan():
    clip, calls = Accelerator.clip_grad_norm_, []

    def poisoned(self, parameters, *args, **kwargs):
        parameters = list(parameters)
        calls.append(1)
        if len(calls) == STEP:
            next(p for p in parameters if p.grad is not None).grad.fill_(float("nan"))
        return clip(self, parameters, *args, **kwargs)

    Accelerator.clip_grad_norm_ = poisoned
