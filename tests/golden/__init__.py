"""The net under changes: digests of what training, evaluation, grading and figures give.

    uv run python -m tests.golden                    # every case: which digests changed
    uv run python -m tests.golden pods resume        # these cases
    uv run python -m tests.golden write pods resume  # store their digests; without names all

A change that moves or removes code changes no digest. One that is meant to change results stores
new digests and says so in its commit. Weights depend on torch and the processor: on another machine
what trains is not compared. There, store digests at the commit that you start from.
"""

import hashlib
import json
import platform
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch

import rewards
from pods import files
from tests import processes
from tests.conftest import ROOT, SHARED

STORED = Path(__file__).with_name("digests.json")
REFERENCE = SHARED / "reference"
SIX_STEPS = [
    "experiment=quickstart",
    "clock=l40s",
    "run=r",
    "threads=1",
    "logger=[]",
    "backend=transformers",
    "optimizer.name=adamw_torch_fused",
    "optimizer.schedule=constant",
    "max_steps=6",
    "budget.train_seconds=null",
    "checkpoint.every_seconds=null",
    "checkpoint.every_steps=3",
    "evaluation.every_seconds=null",
]
BREVITY = "def brevity(completions, **_):\n    return [-len(text) / 100 for text in completions]\n"
Values = dict[str, Any]  # the digests of a case by name


def digest(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def trained(folder: Path, *overrides: str) -> Values:
    """Digests of the adapter, and of the metrics by their first word, after six steps."""
    processes.run(folder, *SIX_STEPS, *overrides)
    run = folder / "checkpoints" / "r"
    lines = files.read_lines(run / "metrics.jsonl")
    assert len(lines) == 6
    metrics: dict[str, list] = {}
    for line in lines:
        line.pop("wall_seconds")
        for name, value in line.items():
            metrics.setdefault(name.partition("/")[0], []).append((name, value))
    adapter = (run / "checkpoint-6" / "adapter_model.safetensors").read_bytes()
    return {"adapter": digest(adapter)} | {name: digest(metrics[name]) for name in sorted(metrics)}


def pods(folder: Path) -> Values:
    """As trained, and an evaluation of both checkpoints and the base."""
    values = trained(folder, "algorithm=pods")
    evaluation = ["run=r", "engine=transformers", "questions=32"]
    processes.run(folder, *evaluation, script="evaluate_run.py")
    for name in ("r", "base-tiny"):
        scores = json.loads((folder / "results" / f"{name}.json").read_text())
        for content in scores.values():
            content.pop("meta", None)  # of the checkpoint: times, commit
        values[f"results/{name}"] = digest(scores)
    return values


def resume(folder: Path) -> Values:
    processes.run(folder, *SIX_STEPS, "algorithm=pods", "max_steps=3")
    return trained(folder, "algorithm=pods")


def own_reward(folder: Path) -> Values:
    (folder / "my.py").write_text(BREVITY)
    return trained(folder, "algorithm=pods", "rewards.functions.brevity=my.py:brevity")


def board(folder: Path, algorithm: str, m: int, commit: str) -> Values:
    """The first three of twelve evaluations of a row in benchmarks/results/board/report.jsonl, and
    whether they are those of the row."""
    sizes = ["prompts_per_step=16", "rollouts_per_prompt=4", f"kept_per_prompt={m}"]
    run = ["run=r", "threads=1", "logger=[]", "micro_batch_size=64", "seed=100", "max_steps=26"]
    rates = ["optimizer.learning_rate=2e-3", "optimizer.schedule_by=seconds"]
    processes.run(folder, "experiment=sums", f"algorithm={algorithm}", *sizes, *run, *rates)
    lines = files.read_lines(folder / "checkpoints" / "r" / "evaluations.jsonl")[:3]
    values = {
        "accuracy": [line["eval/accuracy"] for line in lines],
        "greedy": [line["eval/greedy_accuracy"] for line in lines],
    }
    wanted = {"arm": algorithm, "cell": [16, 4, m, 2e-3], "seed": 100, "clock": "l40s"}
    wanted["commit"] = commit
    rows = files.read_lines(ROOT / "benchmarks" / "results" / "board" / "report.jsonl")
    rows = [row for row in rows if row.get("world", "sums") == "sums"]  # early rows have none
    (row,) = (row for row in rows if wanted.items() <= row.items())
    repeats = all(row[metric][:3] == values[metric] for metric in values)
    return values | {"repeats the stored row": repeats}


def verdicts(folder: Path) -> Values:
    """Digests of the verdicts on the shared files."""
    values = {}
    for name in ("grade_pairs", "grade_pairs3", "grading_sample"):
        rows = files.read_lines(REFERENCE / f"{name}.jsonl")
        assert rows
        texts = [row.get("completion", f"<answer>{row.get('given')}</answer>") for row in rows]
        golds = [row["answer" if "answer" in row else "gold"] for row in rows]
        kinds = [row.get("kind", "math") for row in rows]
        for version in rewards.VERSIONS:
            values[f"{name}/{version}"] = digest(rewards.grades(texts, golds, version, kinds))
    return values


def curves(folder: Path) -> Values:
    """The curves of the published figures whose files are shared, as numbers."""
    values = {}
    words = [f"folder={REFERENCE / 'results'}", f"results_dir={folder}"]
    processes.run(folder, *words, script="scripts/import_published.py")
    for figure in ("gsm8k_main", "h100s"):
        words = [f"figure={figure}", f"results_dir={folder}", f"out_dir={folder}"]
        processes.run(folder, *words, script="scripts/plot.py")
        series = json.loads((folder / figure / "curves.json").read_text())["series"]
        for (label, curve), name in product(series.items(), ("time_hours", "mean", "sem")):
            values[f"{figure}/{label}/{name}"] = curve[name]
    return values


ALGORITHMS = ("grpo", "dapo", "thin", "horvitz_thompson")
TRAINED: dict[str, Callable[[Path], Values]] = {
    "pods": pods,
    **{name: lambda folder, name=name: trained(folder, f"algorithm={name}") for name in ALGORITHMS},
    "resume": resume,
    "own_reward": own_reward,
    "board_grpo": lambda folder: board(folder, "grpo", 4, "434efffe39b3"),
    "board_pods": lambda folder: board(folder, "pods", 2, "8e533231fcb1-dirty"),
}
SHARED_FILES = {"verdicts": verdicts, "curves": curves}
CASES = TRAINED | SHARED_FILES


def machine() -> dict[str, str]:
    """What digests of trained weights depend on: torch and the processor, by whose model, features
    and caches libraries choose their kernels."""
    capability = torch.backends.cpu.get_cpu_capability()
    info = Path("/proc/cpuinfo")  # of Linux
    first = info.read_text().partition("\n\n")[0] if info.exists() else platform.processor()
    fixed = re.findall(r"^(?:cpu family|model|stepping|cache size|flags)\b.*", first, re.M)
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    kind = digest([*fixed, *(path.read_text() for path in caches)])
    return {"torch": torch.__version__, "cpu": f"{platform.machine()} {capability} {kind}"}


def reason_to_skip(case: str) -> str | None:
    stored = json.loads(STORED.read_text())
    if case in SHARED_FILES and not SHARED.is_dir():
        return "../shared is not on this machine"
    if case in TRAINED and machine() != stored["machine"]:
        return f"the digests are of {stored['machine']}, this is {machine()}"
    return None


def changed(case: str, folder: Path) -> list[str]:
    """Names of the digests of a case that are not those stored. The folder is empty."""
    stored, values = json.loads(STORED.read_text())["cases"][case], CASES[case](folder)
    names = dict.fromkeys([*stored, *values])
    return [name for name in names if not same(stored.get(name), values.get(name))]


def same(stored: Any, value: Any) -> bool:
    """Equal; numbers of curves to 1e-9."""
    if isinstance(stored, list) and isinstance(value, list) and len(stored) == len(value):
        return all(abs(a - b) <= 1e-9 for a, b in zip(stored, value, strict=True))
    return stored == value


def write(case: str, folder: Path) -> None:
    """Store the digests of a case."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"cases": {}}
    stored["cases"][case] = CASES[case](folder)
    stored["machine"] = machine()
    text = json.dumps(stored, indent=1)
    numbers_in_one_line = re.sub(r"\n *(?=[-\d\]])", " ", text)
    files.write_atomic(STORED, numbers_in_one_line + "\n")
