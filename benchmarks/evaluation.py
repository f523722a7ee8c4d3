"""One engine with adapters against merge + reload per checkpoint: seconds end to end, their ratio.

    uv run benchmarks/evaluation.py                          # trains the quickstart first
    uv run benchmarks/evaluation.py <output_dir>/<run> vllm   # a run's checkpoints, one backend

Both sides are evaluate_run.py with its defaults: same backend, questions and repeats. The second
does what the published script does: it merges every checkpoint into the base, writes the merged
model and loads it into a new engine. Backends: transformers, and vllm where it or the environment
of .ci/vllm-env is there. Nothing else should run beside it; processor seconds are printed as well,
which other work on the machine disturbs less.
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
        table = {}
        for backend, python in pythons(sys.argv[2:]).items():
            ours = evaluate(python, backend, adapters)
            theirs = evaluate(python, backend, merged)
            seconds, processor = ours.seconds, ours.processor_seconds
            theirs_seconds = theirs.seconds + merge_seconds
            theirs_processor = theirs.processor_seconds + merge_seconds
            table[backend] = {
                "one_engine_seconds": round(seconds, 1),
                "merge_and_reload_seconds": round(theirs_seconds, 1),
                "ratio": round(theirs_seconds / seconds, 2),
                "ratio_of_processor_seconds": round(theirs_processor / processor, 2),
                "peak_memory_mb": round(ours.peak_memory_mb),
            }
            if backend != "vllm":  # its memory is set aside at the start, in other processes
                two = few(adapters, 2)
                memory = evaluate(python, backend, two).peak_memory_mb
                table[backend]["peak_memory_mb_of_2_checkpoints"] = round(memory)
            print(f"{backend}: {table[backend]}", flush=True)
    result = {
        "checkpoints": len(checkpoints),
        "merge_seconds": round(merge_seconds, 1),
        "backends": table,
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def train(work: Path) -> Path:
    """The quickstart with 12 checkpoints on a grid of steps, so that every machine has as many."""
    keys = ["run=run", f"output_dir={work / 'trained'}", "max_steps=60", "checkpoint.every_steps=5"]
    keys += ["budget.train_seconds=null", "checkpoint.every_seconds=null"]
    subprocess.run([sys.executable, str(ROOT / "train.py"), *keys], cwd=work, check=True)
    return work / "trained" / "run"


def pythons(wanted: list[str]) -> dict[str, str]:
    """The interpreter of every backend that can run here, or of the wanted ones."""
    found = {"transformers": sys.executable}
    if importlib.util.find_spec("vllm"):
        found["vllm"] = sys.executable
    elif VLLM_PYTHON.is_file():
        found["vllm"] = str(VLLM_PYTHON)
    return {backend: found[backend] for backend in wanted or found}


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


def evaluate(python: str, backend: str, run: Path) -> Cost:
    """What it costs to score every checkpoint of a run and its base."""
    with tempfile.TemporaryDirectory() as results:
        command = [python, str(ROOT / "evaluate_run.py"), f"run={run.name}", f"backend={backend}"]
        command += [f"output_dir={run.parent}", f"results_dir={results}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as on a user's machine
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            sys.exit(f"evaluate_run.py ended with {os.waitstatus_to_exitcode(status)}")
        processor_seconds = usage.ru_utime + usage.ru_stime
        return Cost(seconds, processor_seconds, usage.ru_maxrss / 1024)


def few(run: Path, count: int) -> Path:
    """The run with its first `count` checkpoints alone."""
    copy = run.with_name(f"first-{count}")
    shutil.copytree(run, copy)
    for path in sorted(copy.glob("checkpoint-*"))[count:]:
        shutil.rmtree(path)
    return copy


if __name__ == "__main__":
    main()
