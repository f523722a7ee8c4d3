"""One engine with adapters against merge + reload per checkpoint: seconds end to end, their ratio.

    uv run benchmarks/evaluation.py                          # trains the quickstart first
    uv run benchmarks/evaluation.py <output_dir>/<run> vllm   # a run's checkpoints, one engine

All sides are evaluate_run.py: same engine, questions, repeats. The others merge every checkpoint
into the base and write the merged models; then they load one after the other into a new engine, in
one process (merge_and_reload) or in a process for each, which frees all of a card's memory
(merge_and_process). Only loading is saved, so the ratio depends on the time of loading relative to
generating: it is measured with one completion per question, as for a curve, and with the default of
five. Nothing else should run beside it; other work disturbs processor seconds less.
"""

import importlib.util
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "evaluation.json"
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work, engines = Path(folder), {}
        source = Path(sys.argv[1]) if len(sys.argv) > 1 else train(work)
        run = shutil.copytree(source, work / "adapters" / "run")
        merge_seconds = merge(run, work / "merged" / "run")
        for engine, python in pythons(sys.argv[2:]).items():
            evaluate([run], python, engine, 1)  # not counted: compiles and fills caches
            engines[engine] = {
                f"repeats={repeats}": compare(work, merge_seconds, python, engine, repeats)
                for repeats in (1, 5)
            }
    result = {
        "checkpoints": len(list(source.glob("checkpoint-*"))),
        "merge_seconds": round(merge_seconds, 1),
        "engines": engines,
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def compare(work: Path, merge_seconds: float, *how: Any) -> dict[str, float]:
    """One engine, a reload in the same process, a process per checkpoint: seconds and ratios."""
    merged = work / "merged"
    ours = evaluate([work / "adapters" / "run"], *how)
    table = {"one_engine_seconds": round(ours[0], 1)}
    singles = sorted(merged.glob("checkpoint-*"))
    for name, runs in (("merge_and_reload", [merged / "run"]), ("merge_and_process", singles)):
        theirs = evaluate(runs, *how) + merge_seconds
        table[f"{name}_seconds"] = round(theirs[0], 1)
        table[f"{name}_ratio"] = round(theirs[0] / ours[0], 2)
        table[f"{name}_processor_ratio"] = round(theirs[1] / ours[1], 2)
    return table


def train(work: Path) -> Path:
    """The quickstart with 12 checkpoints on a grid of steps, so that every machine has as many."""
    keys = ["run=run", f"output_dir={work / 'trained'}", "max_steps=60", "checkpoint.every_steps=5",
            "budget.train_seconds=null", "checkpoint.every_seconds=null"]  # fmt: skip
    subprocess.run([sys.executable, str(ROOT / "train.py"), *keys], cwd=work, check=True)
    return work / "trained" / "run"


def pythons(wanted: list[str]) -> dict[str, str]:
    """The interpreter of every engine that can run here, or of the wanted ones."""
    found = {"transformers": sys.executable}
    if importlib.util.find_spec("vllm"):
        found["vllm"] = sys.executable
    elif VLLM_PYTHON.is_file():
        found["vllm"] = str(VLLM_PYTHON)
    return {engine: found[engine] for engine in wanted or found}


def merge(adapters: Path, run: Path) -> float:
    """Write the run with merged checkpoints, and beside it a run of each checkpoint; seconds."""
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    shutil.copytree(adapters / ".hydra", run / ".hydra")
    seconds = 0.0
    for source in adapters.glob("checkpoint-*"):
        target, single = run / source.name, run.with_name(source.name)
        start = time.perf_counter()
        model = AutoPeftModelForCausalLM.from_pretrained(source).merge_and_unload()
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(source).save_pretrained(target)
        seconds += time.perf_counter() - start
        meta = json.loads((source / "meta.json").read_text())
        (target / "meta.json").write_text(json.dumps({**meta, "files": {}}))
        single.mkdir()
        for name in (".hydra", source.name):
            (single / name).symlink_to(run / name)
    return seconds


def evaluate(runs: list[Path], python: str, engine: str, repeats: int) -> np.ndarray:
    """Wall-clock and processor seconds, (2,), to score these runs, a process each."""
    costs = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as on a user's machine
    with tempfile.TemporaryDirectory() as results:
        for run in runs:
            command = [python, str(ROOT / "evaluate_run.py"), f"run={run.name}", f"engine={engine}",
                       f"output_dir={run.parent}", f"results_dir={results}", f"repeats={repeats}",
                       "pass_at=[1]"]  # fmt: skip
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs.append((time.perf_counter() - start, processor))
    return np.sum(costs, axis=0)


if __name__ == "__main__":
    main()
