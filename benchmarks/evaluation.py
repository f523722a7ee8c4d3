"""One engine with adapters against merge + reload per checkpoint: seconds end to end, their ratio.

    uv run benchmarks/evaluation.py                          # trains the quickstart first
    uv run benchmarks/evaluation.py <output_dir>/<run> vllm   # a run's checkpoints, one engine

All sides are evaluate_run.py: same engine, questions, repeats. The others merge every checkpoint
into the base and write the merged models; then they load one after the other into a new engine, in
one process (merge_and_reload) or in a process for each, which is what frees a card's memory for
certain (merge_and_process). What is saved is loading, so the ratio depends on how long that takes
beside generating: it is measured with one completion a question, as for a curve, and with the five
that are the default.
Nothing else should run beside it; processor seconds are what other work disturbs less.
"""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
REPEATS = (1, 5)
RESULT = ROOT / "benchmarks" / "results" / "evaluation.json"
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else train(work)
        checkpoints = sorted(run.glob("checkpoint-*"))
        adapters, merged = work / "adapters" / "run", work / "merged" / "run"
        shutil.copytree(run, adapters)
        merge_seconds = merge(adapters, merged)
        table: dict[str, dict] = {}
        for engine, python in pythons(sys.argv[2:]).items():
            evaluate(python, engine, [adapters], 1)  # not counted: what is compiled and cached
            for repeats in REPEATS:
                costs = compare(python, engine, adapters, merged, merge_seconds, repeats)
                table.setdefault(engine, {})[f"repeats={repeats}"] = costs
                print(f"{engine} repeats={repeats}: {costs}", flush=True)
    result = {
        "checkpoints": len(checkpoints),
        "merge_seconds": round(merge_seconds, 1),
        "engines": table,
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def compare(
    python: str, engine: str, adapters: Path, merged: Path, merge_seconds: float, repeats: int
) -> dict[str, float]:
    """One engine, a reload in the same process, a process per checkpoint: seconds and ratios."""
    ours = evaluate(python, engine, [adapters], repeats)
    reload = evaluate(python, engine, [merged], repeats)
    singles = [only(merged, [path.name]) for path in sorted(merged.glob("checkpoint-*"))]
    processes = evaluate(python, engine, singles, repeats)
    table = {"one_engine_seconds": round(ours.seconds, 1)}
    for name, theirs in (("merge_and_reload", reload), ("merge_and_process", processes)):
        table[f"{name}_seconds"] = round(theirs.seconds + merge_seconds, 1)
        table[f"{name}_ratio"] = round((theirs.seconds + merge_seconds) / ours.seconds, 2)
        processor = theirs.processor_seconds + merge_seconds
        table[f"{name}_processor_ratio"] = round(processor / ours.processor_seconds, 2)
    table["peak_memory_mb"] = round(ours.peak_memory_mb)
    if engine != "vllm":  # its memory is set aside at the start, in other processes
        names = [path.name for path in sorted(adapters.glob("checkpoint-*"))[:2]]
        two = evaluate(python, engine, [only(adapters, names)], repeats)
        table["peak_memory_mb_of_2_checkpoints"] = round(two.peak_memory_mb)
    return table


def train(work: Path) -> Path:
    """The quickstart with 12 checkpoints on a grid of steps, so that every machine has as many."""
    keys = ["run=run", f"output_dir={work / 'trained'}", "max_steps=60", "checkpoint.every_steps=5"]
    keys += ["budget.train_seconds=null", "checkpoint.every_seconds=null"]
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


def merge(adapters: Path, merged: Path) -> float:
    """Write the run again with full-parameter checkpoints; returns the seconds without imports."""
    sys.path.insert(0, str(ROOT))
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    shutil.copytree(adapters / ".hydra", merged / ".hydra")
    seconds = 0.0
    for source in adapters.glob("checkpoint-*"):
        target = merged / source.name
        start = time.perf_counter()
        model = AutoPeftModelForCausalLM.from_pretrained(source).merge_and_unload()
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(source).save_pretrained(target)
        seconds += time.perf_counter() - start
        meta = json.loads((source / "meta.json").read_text())
        (target / "meta.json").write_text(json.dumps({**meta, "files": {}}))
    return seconds


class Cost(NamedTuple):
    seconds: float  # wall clock, end to end
    processor_seconds: float  # of all its processes, which other work disturbs less
    peak_memory_mb: float  # of its largest process


def evaluate(python: str, engine: str, runs: list[Path], repeats: int) -> Cost:
    """What it costs to score the checkpoints of these runs, a process each, and the base once."""
    seconds = processor_seconds = peak = 0.0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as on a user's machine
    with tempfile.TemporaryDirectory() as results:
        for run in runs:
            command = [python, str(ROOT / "evaluate_run.py"), f"run={run.name}"]
            command += [f"engine={engine}", f"output_dir={run.parent}", f"results_dir={results}"]
            command += [f"repeats={repeats}", "pass_at=[1]"]
            start = time.perf_counter()
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds += time.perf_counter() - start
            processor_seconds += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss / 1024)
            if status:
                sys.exit(f"evaluate_run.py ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(seconds, processor_seconds, peak)


def only(run: Path, names: list[str]) -> Path:
    """A copy of the run with these checkpoints alone."""
    copy = run.with_name("-".join(["only", *names]))
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run / ".hydra", copy / ".hydra")
    for name in names:
        shutil.copytree(run / name, copy / name)
    return copy


if __name__ == "__main__":
    main()
