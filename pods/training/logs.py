"""The loggers of a run: metrics.jsonl always; console, wandb, trackio, tensorboard if chosen."""

import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from pods.config.keys import TrainConfig
from pods.rollouts import Record
from pods.runs.files import write_atomic
from pods.runs.ledger import Ledger

Logger = Callable[[int, dict[str, Any]], None]  # (step, metrics)
Rows = list[dict[str, Any]]  # column -> value
Show = Callable[[int, Rows], None]  # (step, the n rollouts of a prompt)
WANDB_SECONDS = 30.0  # to reach the server; then the run goes on and records offline
NON_TTY_EVERY = 10.0  # s of training between two lines where no terminal shows a progress bar


def open_loggers(
    config: TrainConfig, folder: Path, stack: ExitStack, newest: Callable[[], Record]
) -> list[Logger]:
    """The loggers of config.logger, closed by `stack`; `newest`: the last step's rollouts."""
    loggers: list[Logger] = [jsonl(folder / "metrics.jsonl", stack)]
    if config.logger.console is not None:
        loggers.append(console(config, stack))
    for name, opened in {"wandb": wandb, "trackio": trackio, "tensorboard": tensorboard}.items():
        if (chosen := getattr(config.logger, name)) is not None:
            log, show = opened(config, folder, stack)
            loggers.append(sampled(log, show, chosen.samples_every, stack, newest))
    return loggers


def jsonl(path: Path, stack: ExitStack) -> Logger:
    file = stack.enter_context(path.open("a"))

    def log(step: int, metrics: dict[str, Any]) -> None:
        file.write(json.dumps({"step": step, **metrics}) + "\n")
        file.flush()

    return log


class TextAbove(Progress):
    """A progress bar below its text: beside it 80 columns would cut both."""

    def get_renderables(self) -> Iterator[Any]:
        yield from (Text(task.description) for task in self.tasks)
        yield self.make_tasks_table(self.tasks)


def console(config: TrainConfig, stack: ExitStack) -> Logger:
    """On stderr: a progress bar on a terminal, otherwise a line every few seconds."""
    terminal = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.fields[left]}"))
    live = terminal.is_terminal and not terminal.is_dumb_terminal
    progress = TextAbove(*columns, console=terminal, disable=not live, transient=True)
    stack.enter_context(progress)
    task = progress.add_task("first step ...", total=1.0, left="")
    printed_at = -NON_TTY_EVERY

    def log(step: int, metrics: dict[str, Any]) -> None:
        nonlocal printed_at
        done, left = share_done(config, step, metrics)
        phases = " ".join(
            f"{name} {metrics.get(f'seconds/{name}', 0.0):.2f}s"
            for name in ("generate", "score", "select", "update")
        )
        line = (
            f"step {step}  reward {metrics['all/reward_mean']:.3f}"
            f"  kept variance {metrics['kept/reward_variance']:.3f}  {phases}"
        )
        if "eval/accuracy" in metrics:
            at = f"{config.evaluation.split} split, {metrics['train_seconds']:.0f} s of training"
            accuracy = f"step {step}  accuracy {metrics['eval/accuracy']:.3f}  ({at})"
            terminal.print(accuracy, highlight=False, soft_wrap=True)
        if live:
            progress.update(task, description=line, completed=done, left=left)
        elif metrics["train_seconds"] - printed_at >= NON_TTY_EVERY or done >= 1:
            printed_at = metrics["train_seconds"]
            terminal.print(f"{line}  {left}", highlight=False, soft_wrap=True)

    return log


def share_done(config: TrainConfig, step: int, metrics: dict[str, Any]) -> tuple[float, str]:
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


def wandb(config: TrainConfig, folder: Path, stack: ExitStack) -> tuple[Logger, Show]:
    from wandb import Table

    run = _wandb_run(config, folder)
    stack.callback(run.finish)
    first = run.step  # of a resumed run: the server has the steps before it

    def log(step: int, metrics: dict[str, Any]) -> None:
        if step >= first:
            run.log(metrics, step=step)

    def show(step: int, rows: Rows) -> None:
        data = [list(row.values()) for row in rows]
        log(step, {"samples": Table(columns=list(rows[0]), data=data)})

    return log, show


def _wandb_run(config: TrainConfig, folder: Path) -> Any:
    """The wandb run of this run folder, the same one after a resume. Without an API key or a
    server it is recorded offline, and a line says how to send it later."""
    import wandb as library

    chosen, known = config.logger.wandb, folder / "wandb_id"
    if not known.is_file():  # not the name alone: another folder may hold a run of that name
        write_atomic(known, f"{config.run[:100]}-{secrets.token_hex(4)}")
    arguments = {
        "project": chosen.project,
        "entity": chosen.entity,
        "name": config.run,
        "id": known.read_text(),
        "group": chosen.group or _group(config),
        "tags": chosen.tags,
        "job_type": config.algorithm.name,
        "dir": str(folder),
        "config": OmegaConf.to_container(OmegaConf.structured(config)),
    }
    mode, problem = chosen.mode or os.environ.get("WANDB_MODE", "online"), None
    if mode == "online":
        if os.environ.get("WANDB_API_KEY") or Path("~/.netrc").expanduser().is_file():
            try:
                limit = library.Settings(init_timeout=WANDB_SECONDS)
                return library.init(mode=mode, resume="allow", settings=limit, **arguments)
            except library.Error as error:
                problem = " ".join(str(error).split())
                library.teardown()  # its service still holds the id
        else:
            problem = "no API key (wandb login)"
        send = f"wandb sync {folder}/wandb/offline-run-*"
        print(f"logger=wandb: {problem}; recorded offline, to send it: {send}", file=sys.stderr)
    return library.init(mode="offline" if problem else mode, **arguments)


def _group(config: TrainConfig) -> str:
    """One setting's seeds together."""
    return re.sub(r"-seed\d+", "", config.run)


def trackio(config: TrainConfig, folder: Path, stack: ExitStack) -> tuple[Logger, Show]:
    """A trackio run on this machine, or in a Space of the hub; a resumed one goes on."""
    import trackio as library

    chosen, resumed = config.logger.trackio, (folder / "metrics.jsonl").stat().st_size > 0
    with redirect_stdout(sys.stderr):
        run = library.init(
            project=chosen.project,
            name=config.run,
            group=_group(config),
            space_id=chosen.space_id,
            config=OmegaConf.to_container(OmegaConf.structured(config)),
            resume="allow" if resumed else "never",
            embed=False,
        )

    def finish() -> None:
        with redirect_stdout(sys.stderr):
            library.finish()

    def show(step: int, rows: Rows) -> None:
        run.log({"samples": library.Table(data=[shown(row) for row in rows])}, step=step)

    stack.callback(finish)
    return lambda step, metrics: run.log(metrics, step=step), show


def tensorboard(config: TrainConfig, folder: Path, stack: ExitStack) -> tuple[Logger, Show]:
    from torch.utils.tensorboard import SummaryWriter

    writer = stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

    def log(step: int, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    def show(step: int, rows: Rows) -> None:
        lines = [list(rows[0]), ["---"] * len(rows[0]), *(shown(row).values() for row in rows)]
        table = "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
        writer.add_text("samples", table, step)

    return log, show


def sampled(
    log: Logger, show: Show, every: int | None, stack: ExitStack, newest: Callable[[], Record]
) -> Logger:
    """`log` with tables of one prompt's rollouts: at the first step, once in every `every` steps
    and at the end; None: without tables."""
    last = last_shown = -1

    def logger(step: int, metrics: dict[str, Any]) -> None:
        nonlocal last, last_shown
        last = step
        if every and step // every > last_shown // every:
            last_shown = step
            show(step, samples(newest()))
        log(step, metrics)

    def end() -> None:
        if every and last > last_shown:
            show(last, samples(newest()))

    stack.callback(end)
    return logger


def samples(step: Record) -> Rows:
    """The n rollouts of a step's first prompt as rows of a table, best first."""
    record = Ledger.record(step, 0, texts=True)
    order = sorted(range(len(record["total"])), key=lambda i: -record["total"][i])
    return [
        {
            "kept": i in record["kept"],
            "reward": record["total"][i],
            **{name: values[i] for name, values in record["rewards"].items()},
            "tokens": record["lengths"][i],
            "answer": record["answer"],
            "completion": record["completions"][i],
            "prompt": record["prompt"],
        }
        for i in order
    ]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose texts stay as they are where a logger shows cells as Markdown or HTML."""

    def quoted(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        escaped = re.sub(r"[^\w\s]", lambda match: f"&#{ord(match[0])};", value)
        return "<br>".join(escaped.splitlines())

    return {name: quoted(value) for name, value in row.items()}
