"""Checks a training before it starts: one function per check, and a trial of a few real steps.

A check returns (verdict, seen) and, where a later check needs it, a value; a UserError is a failure
with its remedy. Under `accelerate launch` every process makes all checks without communication;
when one fails, the launcher stops the others (`stop`).
    uv run scripts/doctor.py experiment=<name>
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from pods import ranks, tasks
from pods.clock import GIB, STEP_PHASES
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.figures import planner
from pods.models import policy
from pods.runs.folder import PACKAGES, read_metrics
from pods.scoring import Rewards
from pods.tasks.lengths import load_prompts
from pods.tasks.overlap import compare

OK, WARN, FAIL = "ok", "warn", "FAIL"
TRIAL_STEPS = 3  # the first compiles, so the projection leaves it out
GPU_ONLY = ("unsloth", "vllm", "bitsandbytes", "vllm-bnb-plugin")
STOPPED = "stopped by SIGTERM: another process failed and said why, or the machine shuts down"
ROOT = policy.ROOT
SHAPES = ROOT / "benchmarks" / "shapes"  # config.json of the paper's models


@dataclass
class Report:
    """The rows (check, verdict, seen) and the first prompt as text."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    first_prompt: str | None = None

    def attempt(self, name: str, check: Callable, *arguments: Any) -> Any:
        """Add the row of check(*arguments) and return its value, None where it failed."""
        try:
            verdict, seen, *value = check(*arguments)
        except UserError as error:
            verdict, seen, value = FAIL, str(error), []
        self.rows.append((name, verdict, seen))
        return value[0] if value else None

    @property
    def failed(self) -> bool:
        return any(verdict == FAIL for _, verdict, _ in self.rows)


def examine(config: TrainConfig, overrides: list[str]) -> Report:
    """Every check in the order of a training; the trial runs only if all pass.

    overrides: the command line of the training, which the trial repeats.
    """
    report = Report()
    report.attempt("versions", versions, ROOT / "uv.lock")
    report.attempt("device", device, config)
    rows = report.attempt("data", data, config)
    report.attempt("overlap", overlap, config)
    tokenizer = report.attempt("model", model, config)
    if tokenizer is not None:
        report.first_prompt = report.attempt("prompt", prompt, config, tokenizer)
    if rows is not None:
        report.attempt("reward", reward, config, rows[0])
    report.attempt("groups", groups, config)
    report.attempt("disk", disk, config)
    if report.failed:
        report.rows.append(("trial", WARN, "not run: correct the failures above first"))
    else:
        report.attempt("trial", trial, config, overrides)
    return report


def stop(*_: Any) -> None:
    """Handler of SIGTERM: the running check fails, and the report is still shown."""
    raise UserError(STOPPED)


def versions(lock: Path) -> tuple[str, str]:
    """Installed packages against uv.lock: Unsloth rewrites TRL's source, so pins matter."""
    if not lock.is_file():
        return WARN, f"no {lock.name} beside the source; versions not compared"
    locked = {p["name"]: p.get("version") for p in tomllib.loads(lock.read_text())["package"]}
    wrong, absent = [], []
    for package in dict.fromkeys((*PACKAGES, *GPU_ONLY)):
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            (absent if package in GPU_ONLY else wrong).append(package)
            continue
        if locked.get(package) not in (installed, installed.removesuffix("+cpu")):
            wrong.append(f"{package} {installed} (lock: {locked.get(package)})")
    if wrong:
        return FAIL, f"absent or not as locked: {', '.join(wrong)}; run uv sync --locked"
    return OK, "as locked" + (f"; without the gpu extra ({', '.join(absent)})" if absent else "")


def device(config: TrainConfig) -> tuple[str, str]:
    """The driver, the card and the backend that training would choose."""
    cuda, found = torch.version.cuda, driver()
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        seen = f"{card.name}, {card.total_memory / GIB:.1f} GiB, CUDA {cuda}, driver {found}"
    elif found:
        return FAIL, f"torch for CUDA {cuda} cannot use driver {found}; update the driver"
    else:
        seen = f"{os.cpu_count()} CPU cores, no CUDA device"
    try:
        config.backend.name, reason = policy.choose_backend(config.backend.name)
        config.optimizer.name = policy.choose_optimizer(config.optimizer.name)
        policy.check_device(config)
    except UserError as error:
        return FAIL, f"{seen}; {error}"
    if config.backend.name == "unsloth" and torch.cuda.get_device_capability()[0] < 8:
        return WARN, f"{seen}; backend unsloth, but bfloat16 needs compute capability 8.0"
    return OK, f"{seen}; backend {config.backend.name} ({reason}), {config.optimizer.name}"


def driver() -> str | None:
    """The version of the NVIDIA driver, None without one."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def data(config: TrainConfig) -> tuple[str, str, Any]:
    rows = tasks.load_for(config.task, "train", config.data_dir)
    return OK, f"{config.task.name}: {len(rows)} training questions, e.g. {rows[0]['id']}", rows


def overlap(config: TrainConfig) -> tuple[str, str]:
    """Questions that train, validation and test share."""
    load = partial(tasks.load_for, config.task, data_dir=config.data_dir)
    try:
        shared, seen = compare({split: load(split)["question"] for split in tasks.SPLITS})
    except UserError as error:
        return WARN, f"splits not compared: {error}"
    return (WARN if shared else OK), seen


def model(config: TrainConfig) -> tuple[str, str, Any]:
    """The tokenizer, the tokens that end a completion, and the pad token."""
    from pods.models.unsloth import check_pad, end_tokens

    path = config.model.path
    tokenizer = policy.load_tokenizer(path, config.model.pad_token)
    check_pad(path, tokenizer)
    ends = tokenizer.convert_ids_to_tokens(sorted(end_tokens(path, tokenizer)))
    seen = f"{path}: ends with {' '.join(ends)}, pad {tokenizer.pad_token}"
    if config.task.style == "instruct" and not tokenizer.chat_template:
        raise UserError(f"{seen}; no chat template: set task.style=base")
    return OK, seen, tokenizer


def prompt(config: TrainConfig, tokenizer: Any) -> tuple[str, str, str]:
    """The first prompt as the policy sees it, and its number of BOS tokens."""
    prompts = load_prompts(config, tokenizer)
    text = prompts[0]["prompt"]
    ids = tasks.encode_prompt(text, tokenizer)
    count = ids.count(tokenizer.bos_token_id)
    seen = f"{len(prompts)} prompts fit, the first has {len(ids)} tokens and {count} BOS"
    return (FAIL if count > 1 else OK), seen, text


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
    own = config.rewards.functions  # only the trial runs these
    weights = {name: w for name, w in config.rewards.weights.items() if name not in own}
    with Rewards(replace(config.rewards, functions={}, weights=weights)) as score:
        scores = score([{"answer": answer, "kind": kind}] * 2, completions, [[], []], 0)
    right, other = (sum(weights[k] * scores[k][i] for k in weights) for i in range(2))
    seen = f"{config.rewards.version}: right {right:.3f}, wrong {other:.3f}"
    if right > other:
        return OK, seen
    return FAIL, f"{seen}; the right answer {answer!r} must earn more"


def groups(config: TrainConfig) -> tuple[str, str]:
    n, m, p = config.rollouts_per_prompt, config.kept_per_prompt, config.prompts_per_step
    world_size, size = ranks.world_size(), config.micro_batch_size
    each = f" on each of {world_size} processes" if world_size > 1 else ""
    batches = f"{p * m // world_size // size} micro-batches of {size}{each}"
    return OK, f"{p} x {n} rollouts a step, {p} x {m} trained on in {batches}"


def disk(config: TrainConfig) -> tuple[str, str]:
    """The size of all checkpoints and of the training states that are kept, against free space."""
    parameters, adapter = weights(config)
    state = (2 if config.optimizer.name == "adamw_8bit" else 8) * (adapter or parameters)
    every, keep = config.checkpoint.every_seconds, config.checkpoint.keep
    seconds = config.budget.train_seconds
    count = int(seconds // every) + 1 if every and seconds else 1
    states = count if keep is None else min(count, keep + 1)
    saved = 4 * adapter or 2 * parameters  # adapters in float32, whole models in 16 bit
    needed = count * saved + states * state + 20e6 * count  # a tokenizer takes up to 20 MB
    folder = Path(config.output_dir).absolute()
    free = shutil.disk_usage(next(f for f in (folder, *folder.parents) if f.exists())).free
    seen = f"{count} checkpoints, about {needed / GIB:.1f} GiB of {free / GIB:.0f} free"
    if needed > free:
        return FAIL, f"{seen}; set output_dir=<larger disk>, checkpoint.every_seconds or .keep"
    return OK, seen


def weights(config: TrainConfig) -> tuple[int, int]:
    """Number of the model's weights and of its LoRA adapter's (0 without one).

    Counted on torch's meta device, without memory; a model that is not on this machine from
    benchmarks/shapes/<model.name>.json. Raises UserError without both.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    path, shape = config.model.path, SHAPES / f"{config.model.name}.json"
    try:
        architecture = AutoConfig.from_pretrained(policy.locate(path), trust_remote_code=False)
    except (OSError, ValueError, UserError):
        if not shape.is_file():
            missing = f"model.path={path}: cannot be read, and {shape} does not exist"
            raise UserError(missing) from None
        architecture = AutoConfig.for_model(**json.loads(shape.read_text()))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architecture)
    adapted = (
        module.in_features + module.out_features
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in config.lora.target_modules
    )
    return model.num_parameters(), config.lora.rank * sum(adapted) if config.lora.rank else 0


def trial(config: TrainConfig, overrides: list[str]) -> tuple[str, str]:
    """A few real steps in a temporary folder: seconds, memory and engine gaps as measured.

    Under a launcher every process starts one process of the trial with the launcher's settings.
    """
    # One folder for all processes, on the run's disk, because each saves its part of a checkpoint.
    name = f".doctor-{os.environ['MASTER_PORT'] if ranks.world_size() > 1 else os.getpid()}"
    folder = Path(config.output_dir).absolute() / name
    command = [
        sys.executable, str(ROOT / "train.py"), *overrides, f"output_dir={folder}",
        f"max_steps={TRIAL_STEPS * config.updates_per_generation}", "logger=[]", "resume=never",
        "run=trial", "checkpoint.every_seconds=null",
        "backend.warmup=true",  # at the longest lengths
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"train.py ended with code {done.returncode}: {last}")
        steps = read_metrics(folder / "trial" / "metrics.jsonl") if ranks.is_main() else []
    finally:
        if ranks.is_main():
            shutil.rmtree(folder, ignore_errors=True)
    return OK, describe(config, steps) if steps else "see rank 0"


def describe(config: TrainConfig, steps: list[dict[str, Any]]) -> str:
    """Seconds by phase without the first step, steps within the budget, largest gaps and peaks."""
    seconds = {name: mean(step[f"seconds/{name}"] for step in steps[1:]) for name in STEP_PHASES}
    parts = [f"{name} {value:.2f} s" for name, value in seconds.items()]
    if budget := config.budget.train_seconds:
        count = config.updates_per_generation * budget / sum(seconds.values())
        hours = f"{ranks.world_size() * budget / 3600:.2f} GPU hours"
        spent = f" ({hours})" if torch.cuda.is_available() else ""
        parts.append(f"about {count:.0f} steps in {budget:.0f} s of training{spent}")
    measured = ("engine/logprob_gap", "engine/probe_gap", "peak_memory_gib/")
    for name in dict.fromkeys(name for step in steps for name in step if name.startswith(measured)):
        value = max(step[name] for step in steps if name in step)
        parts.append(f"{name} {round(value, 4):g}")
    g, u = (  # the fixed seconds of a step count as per rollout
        seconds["generate"] / config.rollouts_per_prompt, seconds["update"] / config.kept_per_prompt
    )  # fmt: skip
    return "; ".join([*parts, planner.where_it_pays(u / g)])
