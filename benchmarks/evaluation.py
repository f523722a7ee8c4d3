"""One engine with adapters against merge + reload per checkpoint: seconds end to end, their ratio.

    uv run benchmarks/evaluation.py [<output_dir>/<run>]   # without a run: trains the quickstart

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
        for backend, python in pythons().items():
            ours, memory = evaluate(python, backend, adapters)
            theirs, _ = evaluate(python, backend, merged)
            theirs += merge_seconds
            table[backend] = {
                "one_engine_seconds": round(ours, 1),
                "merge_and_reload_seconds": round(theirs, 1),
                "ratio": round(theirs / ours, 2),
                "peak_memory_mb": round(memory),
                "peak_memory_mb_of_2_checkpoints": round(memory_of_two(python, backend, adapters)),
            }
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


def pythons() -> dict[str, str]:
    """The interpreter of every backend that can run here."""
    found = {"transformers": sys.executable}
    if importlib.util.find_spec("vllm"):
        found["vllm"] = sys.executable
    elif VLLM_PYTHON.is_file():
        found["vllm"] = str(VLLM_PYTHON)
    return found


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


def evaluate(python: str, backend: str, run: Path) -> tuple[float, float]:
    """Seconds and peak memory (MiB, of the command's own process) of scoring every checkpoint."""
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
        return seconds, usage.ru_maxrss / 1024


def memory_of_two(python: str, backend: str, run: Path) -> float:
    few = run.with_name("two")
    shutil.copytree(run, few)
    for path in sorted(few.glob("checkpoint-*"))[2:]:
        shutil.rmtree(path)
    _, memory = evaluate(python, backend, few)
    shutil.rmtree(few)
    return memory


if __name__ == "__main__":
    main()
