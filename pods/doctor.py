"""Would this training run, and how far would its budget go? One check a function, nothing is kept.

Under `accelerate launch` each process makes all checks for itself, and they never talk: when one
fails, the launcher stops the others (`stop`).

A check returns (verdict, what was seen); UserError from the code that training itself uses is a
failure with its own remedy. Called by `uv run scripts/doctor.py experiment=<name>`.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from pods import distributed, memory, tasks
from pods.cli import UserError
from pods.config import TrainConfig
from pods.policy import ROOT, choose_backend, choose_optimizer, load_tokenizer
from pods.prompts import load_prompts
from pods.runs import PACKAGES, read_metrics
from rewards import Scorer

OK, WARN, FAIL = "ok", "warn", "FAIL"
TRIAL_STEPS = 3  # the first is slower (compilation) and is left out of the projection
GPU_ONLY = ("unsloth", "vllm", "bitsandbytes", "vllm-bnb-plugin")
STOPPED = "stopped by SIGTERM: another process failed first and said why, or the machine ends"


@dataclass
class Report:
    """What the checks found: (name, verdict, what was seen), and text worth reading."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    terms: list[memory.Term] = field(default_factory=list)

    def add(self, name: str, verdict: str, seen: str) -> None:
        self.rows.append((name, verdict, seen))

    @property
    def failed(self) -> bool:
        return any(verdict == FAIL for _, verdict, _ in self.rows)


def examine(config: TrainConfig, overrides: list[str]) -> Report:
    """Every check in the order in which training would meet them; the trial run only if all pass.

    overrides: the command line of the training, which the trial repeats.
    """
    report = Report()
    attempt(report, "versions", lambda: (versions(ROOT / "uv.lock"), None))
    attempt(report, "device", lambda: (device(config), None))
    rows = attempt(report, "data", lambda: data(config))
    tokenizer = attempt(report, "model", lambda: model(config))
    if tokenizer is not None:
        attempt(report, "prompt", lambda: prompt(config, tokenizer, report))
    if rows is not None:
        attempt(report, "reward", lambda: (reward(config, rows[0]), None))
    attempt(report, "groups", lambda: (groups(config), None))
    attempt(report, "disk", lambda: (disk(config), None))
    attempt(report, "memory", lambda: (fits(config, report), None))
    if report.failed:
        report.add("trial", WARN, "not run: something above has to be mended first")
    else:
        attempt(report, "trial", lambda: trial(config, overrides))
    return report


def stop(*_: Any) -> None:
    """For SIGTERM: the running check fails, the report is shown, the trial's folder goes."""
    raise UserError(STOPPED)


def attempt(report: Report, name: str, check: Any) -> Any:
    """Run a check that returns ((verdict, seen), value); a UserError is its failure."""
    try:
        (verdict, seen), value = check()
    except UserError as error:
        report.add(name, FAIL, str(error))
        return None
    report.add(name, verdict, seen)
    return value


def versions(lock: Path) -> tuple[str, str]:
    """Installed packages against uv.lock: Unsloth rewrites TRL's source, so pins move together."""
    if not lock.is_file():
        return WARN, f"no {lock.name} beside the source; versions not compared"
    locked = {p["name"]: p.get("version") for p in tomllib.loads(lock.read_text())["package"]}
    differ, absent = [], []
    for package in dict.fromkeys((*PACKAGES, *GPU_ONLY)):
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            absent.append(package)
            continue
        # A CPU build calls itself 2.13.0+cpu.
        if locked.get(package) not in (installed, installed.partition("+")[0]):
            differ.append(f"{package} {installed} (lock: {locked.get(package)})")
    if differ:
        return FAIL, f"not the locked versions: {', '.join(differ)}; run uv sync --locked"
    missing = [package for package in absent if package not in GPU_ONLY]
    if missing:
        return FAIL, f"not installed: {', '.join(missing)}; run uv sync --locked"
    return OK, "as locked" + (f"; without the gpu extra ({', '.join(absent)})" if absent else "")


def device(config: TrainConfig) -> tuple[str, str]:
    """Driver, card and the backend that training would choose."""
    from pods.policy import check_device

    seen = f"{psutil.cpu_count()} CPU cores, no CUDA device"
    if not torch.cuda.is_available() and driver() != "unknown":
        return FAIL, (
            f"nvidia-smi shows driver {driver()}, but torch cannot use it: it was built for CUDA "
            f"{torch.version.cuda}; update the driver"
        )
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        seen = (
            f"{card.name}, {card.total_memory / memory.GIB:.1f} GiB, CUDA {torch.version.cuda}, "
            f"driver {driver()}"
        )
    try:
        config.backend.name, reason = choose_backend(config.backend.name)
        config.optimizer.name = choose_optimizer(config.optimizer.name)
        check_device(config)
    except UserError as error:
        return FAIL, f"{seen}; {error}"
    if config.backend.name == "unsloth" and torch.cuda.get_device_capability()[0] < 8:
        return WARN, f"{seen}; backend unsloth, but bfloat16 needs compute capability 8.0"
    return OK, f"{seen}; backend {config.backend.name} ({reason}), {config.optimizer.name}"


def driver() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def data(config: TrainConfig) -> tuple[tuple[str, str], Any]:
    task = config.task
    rows = tasks.load_for(task, "train", config.data_dir)
    return (OK, f"{task.name}: {len(rows)} training questions, e.g. {rows[0]['id']}"), rows


def model(config: TrainConfig) -> tuple[tuple[str, str], Any]:
    """The tokenizer, its special tokens, and what ends a completion."""
    from pods.unsloth import check_pad, end_tokens

    tokenizer = load_tokenizer(config.model.path, config.model.pad_token)
    check_pad(config.model.path, tokenizer)
    ends = tokenizer.convert_ids_to_tokens(sorted(end_tokens(config.model.path, tokenizer)))
    seen = f"{config.model.path}: ends with {' '.join(ends)}, pad {tokenizer.pad_token}"
    if config.task.style == "instruct" and not tokenizer.chat_template:
        raise UserError(f"{seen}; no chat template: set task.style=base")
    return (OK, seen), tokenizer


def prompt(config: TrainConfig, tokenizer: Any, report: Report) -> tuple[tuple[str, str], None]:
    """The first prompt as the policy sees it, and its BOS."""
    prompts = load_prompts(config, tokenizer)
    text = prompts[0]["prompt"]
    ids = tasks.encode_prompt(text, tokenizer)
    bos = tokenizer.bos_token_id
    count = 0 if bos is None else ids.count(bos)
    report.texts["first prompt"] = text
    seen = f"{len(prompts)} prompts fit, the first has {len(ids)} tokens and {count} BOS"
    return ((FAIL if count > 1 else OK), seen), None


def reward(config: TrainConfig, row: dict[str, Any]) -> tuple[str, str]:
    """The task's right and wrong completion of its example, scored as in training.

    task=own has no example: a completion with the row's gold answer and one with another answer.
    """
    task, answer, kind = tasks.TASKS.get(config.task.name), row["answer"], row["kind"]
    if task:
        answer, kind = task.gold(task.example, False), task.kind
        completions = [task.right, task.wrong]
    else:
        answers = (answer, "Z" if kind == "choice" else "123456789")
        completions = [tasks.completion("worked out", other) for other in answers]
    weights = config.rewards.weights
    with Scorer(
        config.rewards.version,
        workers=config.rewards.workers,
        deadline_seconds=config.rewards.deadline_seconds,
        names=weights,
    ) as scorer:
        scores = scorer.score(completions, [answer] * 2, [kind] * 2)
    right, other = (sum(weights[k] * scores[k][i] for k in weights) for i in range(2))
    seen = f"{config.rewards.version}: right {right:.3f}, wrong {other:.3f}"
    if not right > other:
        return FAIL, f"{seen}; the right answer {answer!r} must earn more"
    return OK, seen


def groups(config: TrainConfig) -> tuple[str, str]:
    m, p, size = config.kept_per_prompt, config.prompts_per_step, config.micro_batch_size
    ranks = distributed.world_size()
    each = f" on each of {ranks} processes" if ranks > 1 else ""
    return OK, (
        f"{p} x {config.rollouts_per_prompt} rollouts a step, {p} x {m} trained on in "
        f"{p * m // ranks // size} micro-batches of {size}{each}"
    )


def disk(config: TrainConfig) -> tuple[str, str]:
    """Adapters of every checkpoint and the training states that are kept, against what is free."""
    shape = memory.shape_of(memory.model_config(config), config)
    trained = shape.adapter or shape.parameters
    state = (2 if config.optimizer.name == "adamw_8bit" else 8) * trained
    every, seconds = config.checkpoint.every_seconds, config.budget.train_seconds
    count = int(seconds // every) + 1 if every and seconds else 1
    states = count if config.checkpoint.keep is None else min(count, config.checkpoint.keep + 1)
    saved = 4 * shape.adapter or 2 * shape.parameters  # adapters in float32, whole models in 16 bit
    needed = count * saved + states * state + 20e6 * count  # a tokenizer takes up to 20 MB
    folder = Path(config.output_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    seen = (
        f"{count} checkpoints, about {needed / memory.GIB:.1f} GiB of {free / memory.GIB:.0f} free"
    )
    if needed > free:
        return FAIL, f"{seen}; set output_dir=<larger disk>, checkpoint.every_seconds or .keep"
    return OK, seen


def fits(config: TrainConfig, report: Report) -> tuple[str, str]:
    """The estimate of pods/memory.py against the card, or without one against known cards."""
    shape = memory.shape_of(memory.model_config(config), config)
    ranks, backend = distributed.world_size(), config.backend.name
    if torch.cuda.is_available():
        cards = {"this card": torch.cuda.get_device_properties(0).total_memory / memory.GIB}
    elif config.model.load_in_4bit:  # a training for another machine
        cards, backend = memory.CARDS, "unsloth"
        config = replace(config, optimizer=replace(config.optimizer, name="adamw_8bit"))
    else:
        cards = {"this machine": psutil.virtual_memory().available / memory.GIB / ranks}
    report.terms = memory.estimate(config, shape, backend, ranks, distributed.zero_stage())
    found = {
        name: memory.advice(config, report.terms, card * memory.GIB, backend)
        for name, card in cards.items()
    }
    peaks = ", ".join(f"{k} {v / memory.GIB:.1f}" for k, v in memory.phases(report.terms).items())
    each = f" for each of {ranks} processes" if ranks > 1 else ""
    seen = f"{shape.parameters / 1e9:.2f} G weights on {backend}: {peaks} GiB{each}"
    if not any(found.values()):
        return OK, f"{seen}; fits {', '.join(f'{k} ({v:.1f})' for k, v in cards.items())}"
    problems = "; ".join(f"{name}: {text}" for name, text in found.items() if text)
    return (FAIL if all(found.values()) else WARN), f"{seen}; {problems}"


def trial(config: TrainConfig, overrides: list[str]) -> tuple[tuple[str, str], None]:
    """A few real steps in a temporary folder: seconds a phase, steps to come, engine proofs.

    Under a launcher every process starts one of the run's, with the launcher's own settings.
    """
    # One folder for all processes, on the disk of the run: it takes a checkpoint of each.
    name = f".doctor-{os.environ['MASTER_PORT'] if distributed.world_size() > 1 else os.getpid()}"
    folder = Path(config.output_dir).absolute() / name
    command = [
        sys.executable, str(ROOT / "train.py"), *overrides, f"output_dir={folder}",
        f"max_steps={TRIAL_STEPS}", "logger=[]", "resume=never", "run=trial",
        "checkpoint.every_seconds=null",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"train.py ended with code {done.returncode}: {last}")
        steps = read_metrics(folder / "trial" / "metrics.jsonl") if distributed.is_main() else []
    finally:
        if distributed.is_main():
            shutil.rmtree(folder, ignore_errors=True)
    return (OK, describe(config, steps) if steps else "told by the first process"), None


def describe(config: TrainConfig, steps: list[dict[str, Any]]) -> str:
    """Seconds by phase of the steps after the first, and how many the budget holds."""
    steady = steps[1:]
    seconds = {
        name: sum(step[f"seconds/{name}"] for step in steady) / len(steady)
        for name in ("generate", "score", "select", "update")
    }
    parts = [f"{name} {value:.2f} s" for name, value in seconds.items()]
    if config.budget.train_seconds:
        count = config.budget.train_seconds / max(sum(seconds.values()), 1e-9)
        parts.append(f"about {count:.0f} steps in {config.budget.train_seconds:.0f} s of training")
    for name in ("engine/logprob_gap", "engine/probe_gap", "engine/probe_gap_without_adapter"):
        values = [step[name] for step in steps if name in step]
        if values:
            parts.append(f"{name} {json.dumps(round(max(values), 4))}")
    peaks = {k: v for step in steps for k, v in step.items() if k.startswith("peak_memory_gib/")}
    return "; ".join([*parts, *(f"{k} {v:.1f}" for k, v in peaks.items())])


def memory_rows(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """The table of the estimate: term, GiB, phase, what lowers it."""
    for term in report.terms:
        yield term.name, f"{term.bytes / memory.GIB:.2f}", term.phase, term.remedy
