"""Prove the suite on this card and measure it: one report to attach to an issue.

    uv run benchmarks/gpu_proof.py out=proof                       # NVIDIA GPU, gpu extra; an hour
    uv run benchmarks/gpu_proof.py out=proof model.path=<folder or hub id>
    uv run benchmarks/gpu_proof.py out=proof cpu=true minutes=0.2  # on a tiny shape, without a GPU

The doctor, a few steps of every engine, seconds by phase of GRPO, PODS and GRPO-GA, the planner's
constants, and a training. Every part runs in a process of its own; one that fails is named and the
others go on. A second call repeats what failed or is missing.
"""
# ruff: noqa: E402

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # this folder's rewards.py would hide the package

from rich.console import Console

from benchmarks.proof_report import write_report
from benchmarks.random_model import write_random_model
from pods.clock import STEP_PHASES
from pods.config.command import command, compose, typed
from pods.config.errors import Skipped, UserError
from pods.config.keys import TrainConfig
from pods.config.schema import at_least
from pods.figures import plan, planner
from pods.runs.files import write_atomic
from pods.runs.folder import provenance, read_metrics
from pods.training.guard import FIRST_STEPS

# A GSM8K prompt has about 192 tokens: here 176 of the system text and up to 16 of the question. The
# limit leaves room for gsm8k_qwen's 1024: below 512 in all Unsloth checkpoints in another way.
RANDOM = f"""experiment=quickstart model.name=random prompts_per_step=1 loss.type=grpo
    sampling.max_prompt_length=768 optimizer.learning_rate=5e-6 task.system={"a" * 176}""".split()
ALWAYS = ["resume=never", "logger=[]", "budget.train_seconds=null", "checkpoint.every_seconds=null",
          "backend.warmup=true"]  # fmt: skip
CPU = ["backend=transformers", "sampling.max_completion_length=16"]
GPU = ["backend.gradient_checkpointing=true", "model.dtype=bfloat16", "model.load_in_4bit=true",
       "lora.rank=64", "sampling.max_completion_length=256"]  # fmt: skip
FULL = ["lora.rank=null", "lora.alpha=1", "model.load_in_4bit=false", "optimizer.name=adamw_8bit"]
ENGINES = {  # backend and engine: overrides
    "unsloth, unsloth": [],
    "unsloth, vllm": [],
    "transformers, vllm": [],
    "transformers, transformers": [],
    "transformers, trl": [*FULL, "engine.vllm_mode=colocate"],
}
ON_A_CPU = {"transformers, trl": []}  # the sizes below have transformers
STEPS, MEASURED = 5, 14  # of an engine's part; of a size's, after which the planner fits
PUBLISHED = {"GRPO 16/16": 7.6, "PODS 64/16": 10.1}  # s a step on an L40S
FLOPS = 4  # per weight and trained token: forward, and the gradient of the activations


class Arm(NamedTuple):
    algorithm: str
    n: int
    m: int

    @property
    def name(self) -> str:
        names = {"grpo": "GRPO", "pods": "PODS", "grpo_ga": "GRPO-GA"}
        return f"{names[self.algorithm]} {self.n}/{self.m}"


@dataclass
class Model:
    path: str | None


@dataclass
class ProofConfig:
    out: str
    train: list[str]
    cpu: bool
    model: Model
    minutes: float = at_least(0)


@dataclass
class Proof:
    """The parts that are done, kept in out/proof.json: name -> {"error": text or null, ...}."""

    config: ProofConfig
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def __post_init__(self) -> None:
        self.folder = Path(self.config.out).absolute()
        self.file, keys = self.folder / "proof.json", asdict(self.config)
        self.parts = json.loads(self.file.read_text()) if self.file.is_file() else {"with": keys}
        if self.parts.pop("with") != keys:
            raise UserError(f"out={self.config.out}: was begun with other keys; name a new folder")

    def part(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What `work` finds, from this call or an earlier one; None where it fails."""
        if self.parts.get(name, {"error": "missing"})["error"] is not None:
            started = time.monotonic()
            try:
                with self.console.status(name):
                    found = {"error": None} | work()
            except Exception as error:  # out of memory, a library's own: the other parts go on
                found = {"error": str(error) or type(error).__name__}
            self.parts[name] = found | {"wall_seconds": round(time.monotonic() - started, 1)}
            content = {"with": asdict(self.config)} | self.parts
            write_atomic(self.file, json.dumps(content, indent=1))
        found = self.parts[name]
        self.console.print(f"{name}: {found['error'] or 'done'}", markup=False)
        return None if found["error"] else found

    def train(self, name: str, keys: list[str]) -> list[dict[str, Any]]:
        """The metric lines of a training."""
        shutil.rmtree(self.folder / slug(name), ignore_errors=True)  # of a part that failed
        keys = [*keys, *self.config.train, f"output_dir={self.folder}", f"run={slug(name)}"]
        call("train.py", *keys)
        return read_metrics(self.folder / slug(name) / "metrics.jsonl")


@command("gpu_proof", ProofConfig)
def main(config: ProofConfig) -> None:
    import torch

    if not config.cpu and not torch.cuda.is_available():
        raise UserError("cpu=false: no CUDA device; cpu=true tries the command on a tiny shape")
    proof = Proof(config)
    proof.folder.mkdir(parents=True, exist_ok=True)
    model = config.model.path or str(proof.folder / "model")
    if config.model.path is None:
        proof.part("random weights", lambda: alone(write_random_model, Path(model), config.cpu))
    base = ["experiment=gsm8k_qwen"] if config.model.path else RANDOM
    base = [*base, *ALWAYS, *(CPU if config.cpu else GPU), f"model.path={model}"]
    card = proof.part("card", lambda: alone(speeds, 64 if config.cpu else 8192))
    keys = [*base, *config.train, f"output_dir={proof.folder}", f"max_steps={STEPS}"]
    proof.part("doctor", lambda: {"text": call("scripts/doctor.py", *keys)})
    for name, own in (ON_A_CPU if config.cpu else ENGINES).items():
        proof.part(f"engine {name}", lambda name=name, own=own: engine(proof, base, name, own))
    arms = sizes(config.cpu)
    for arm in arms:
        proof.part(arm.name, lambda arm=arm: size(proof, base, arm, card))
    proof.part("planner", lambda: constants(proof, arms))
    for arm in (arms[0], arms[2], arms[1]) if config.minutes else ():
        proof.part(f"training {arm.name}", lambda arm=arm: training(proof, arm, model))
    print(write_report(proof.folder, proof.parts))
    if failed := [name for name, found in proof.parts.items() if found["error"]]:
        raise Skipped(f"failed: {', '.join(failed)}; the same command repeats these parts")


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def call(script: str, *keys: str) -> str:
    """Run a command of the suite; its output. Raises UserError with its last lines."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *keys], capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise UserError(f"{script} ended with code {done.returncode}:\n{last}")
    return done.stdout


def alone(work: Callable, *arguments: Any) -> Any:
    """work(*arguments) in a process of its own: this one must hold no memory of the card."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def speeds(size: int) -> dict[str, Any]:
    """The card, its bandwidth (copying, bytes/s) and its rate of bfloat16 products (FLOP/s)."""
    import torch

    cuda = torch.cuda.is_available()
    device, wait = ("cuda", torch.cuda.synchronize) if cuda else ("cpu", lambda: None)
    a = torch.ones(size, size, device=device, dtype=torch.bfloat16)
    b = torch.empty_like(a)

    def seconds(work: Callable) -> float:
        times = []
        for _ in range(12):
            start = time.perf_counter()
            work()
            wait()
            times.append(time.perf_counter() - start)
        return min(times)

    copied = torch.ones(size**2 * 4, device=device)
    other = torch.empty_like(copied)
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {os.cpu_count()} cores",
        "memory_gib": torch.cuda.get_device_properties(0).total_memory / 2**30 if cuda else None,
        "bytes_per_second": 2 * copied.nbytes / seconds(lambda: other.copy_(copied)),
        "flops_per_second": 2 * size**3 / seconds(lambda: torch.mm(a, a, out=b)),
        **provenance(),
    }


def engine(proof: Proof, base: list[str], name: str, own: list[str]) -> dict[str, Any]:
    """A few steps with this backend and engine."""
    backend, generates = name.split(", ")
    keys = [f"backend={backend}", f"engine={generates}", *own, f"max_steps={STEPS}"]
    arm = sizes(proof.config.cpu)[1]
    return {"row": row(proof.train(f"engine {name}", [*base, *keys, *cell(arm)]))}


def sizes(cpu: bool) -> list[Arm]:
    """GRPO, PODS and GRPO-GA at the paper's sizes, then PODS with other n."""
    m, others = (4, ()) if cpu else (16, (16, 32, 128, 256))
    first = [Arm("grpo", m, m), Arm("pods", 4 * m, m), Arm("grpo_ga", 4 * m, 4 * m)]
    return first + [Arm("pods", n, m) for n in others]


def cell(arm: Arm) -> list[str]:
    keys = [f"algorithm={arm.algorithm}", f"kept_per_prompt={arm.m}"]
    keys += [f"micro_batch_size={min(arm.m, 16)}"]
    return keys + ([] if arm.algorithm == "grpo" else [f"rollouts_per_prompt={arm.n}"])


def size(proof: Proof, base: list[str], arm: Arm, card: dict[str, Any] | None) -> dict[str, Any]:
    """Seconds and memory of an arm, and how far they are from what the card can do."""
    lines = proof.train(arm.name, [*base, *cell(arm), f"max_steps={MEASURED}"])
    found = row(lines)
    if card:
        from pods.doctor import weights

        keys = [*base, *proof.config.train]
        count, _ = weights(typed(TrainConfig, compose("train", TrainConfig, keys)))
        reads = fmean(line["all/completion_length_max"] for line in lines[FIRST_STEPS:])
        moved = 2 * count * reads / found["generate, s"]
        found["16-bit weights read, share of bandwidth"] = moved / card["bytes_per_second"]
        rate = FLOPS * count * per_step(lines, "tokens/trained") / found["update, s"]
        found["update, share of matrix rate"] = rate / card["flops_per_second"]
    return {"row": found | {"published L40S, s": PUBLISHED.get(arm.name)}}


def row(lines: list[dict[str, Any]]) -> dict[str, float | None]:
    """Means over the steps after those that the guard checks, whose forward passes count as
    generation; the largest peak and gap of all steps, None where not measured."""
    timed = lines[FIRST_STEPS:]
    seconds = {name: fmean(line[f"seconds/{name}"] for line in timed) for name in STEP_PHASES}
    tokens = per_step(lines, "tokens/generated")
    found = {f"{name}, s": value for name, value in seconds.items()}
    found |= {"step, s": sum(seconds.values()), "tokens/s": tokens / seconds["generate"]}
    for name in ("peak_memory_gib/generate", "peak_memory_gib/update", "engine/logprob_gap"):
        found[name] = max((line[name] for line in lines if name in line), default=None)
    return found


def per_step(lines: list[dict[str, Any]], counter: str) -> float:
    """The mean growth of a counter over the steps that are timed."""
    return (lines[-1][counter] - lines[FIRST_STEPS - 1][counter]) / (len(lines) - FIRST_STEPS)


def constants(proof: Proof, arms: list[Arm]) -> dict[str, Any]:
    """The planner's seconds: of a step, of a rollout generated and of one trained on."""
    config = typed(plan.PlanConfig, compose("plan", plan.PlanConfig, [], plan.FOLDER))
    config.output_dir = str(proof.folder)
    window = [FIRST_STEPS + 1, MEASURED]
    runs = [plan.read(config, slug(arm.name), window)[0][0] for arm in arms]
    rng = np.random.default_rng(0)
    weights = [planner.resampled(len(run.rewards), 500, rng) for run in runs]
    costs = planner.fit_costs(runs, weights)
    found = {name: getattr(costs, name) for name in ("fixed", "generate", "update")}
    return {
        "costs": {name: float(value[0]) for name, value in found.items()},
        "ci95": {name: planner.interval(value) for name, value in found.items()},
        "residual": costs.residual,
        "where_it_pays": planner.where_it_pays(float(costs.update[0] / costs.generate[0])),
    }


def training(proof: Proof, arm: Arm, model: str) -> dict[str, Any]:
    """A third of the minutes: the miniature, or GSM8K with the given model."""
    seconds = proof.config.minutes * 60 / 3
    keys = ["experiment=gsm8k_qwen", f"model.path={model}"] if proof.config.model.path else []
    keys = keys or ["experiment=miniature", "engine=transformers", "backend=transformers"]
    keys += [*cell(arm), f"budget.train_seconds={seconds}", "logger=[]"]
    keys += [f"evaluation.every_seconds={seconds / 6}", "checkpoint.every_seconds=null"]
    name = f"training {arm.name}"
    lines = proof.train(name, keys)
    marks = read_metrics(proof.folder / slug(name) / "evaluations.jsonl")
    curve = {f"accuracy {i + 1}/6": mark["eval/accuracy"] for i, mark in enumerate(marks[:6])}
    return {"row": {"steps": float(lines[-1]["step"]), **curve}}


if __name__ == "__main__":
    main()
