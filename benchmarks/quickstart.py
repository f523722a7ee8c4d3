"""The arms of the quickstart or the miniature at equal training time: a sweep, then unseen seeds.

    uv run benchmarks/quickstart.py sweep quickstart     # -> results/quickstart_sweep.md
    uv run benchmarks/quickstart.py report quickstart    # -> results/quickstart.md, quickstart/
    uv run scripts/plot.py figure=quickstart results_dir=benchmarks/results/quickstart

The arms are those of config/reproduce. The sweep gives each the same learning rates and prompts a
step, on the validation questions; the report takes what config/experiment holds, on the test
questions. Two runs of one thread go side by side, each bound to a core; nothing else should run.
A second call skips finished runs. Every run is scored as it trains, outside its clock.
"""
# ruff: noqa: E402

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import cycle, product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import train
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.keys import TrainConfig
from pods.evaluation.config import EvaluateConfig
from pods.evaluation.midrun import publish
from pods.figures import tables
from pods.recipes import ReproduceConfig, Run, plan
from pods.runs import results
from pods.runs.folder import provenance

RUNS, RESULTS = ROOT / "checkpoints" / "benchmarks", ROOT / "benchmarks" / "results"
SEEDS = {"sweep": (0, 2), "report": (10, 6)}  # first, number: the report's are in no sweep
SPLIT = {"sweep": "validation", "report": "test"}
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    ["__main__", "pods.training.loop", "pods.tasks.lengths", "pods.trainer"]
)
MARKS = 12  # evaluations of a run
RATES = (5e-4, 1e-3, 2e-3)
PROMPTS = {"quickstart": (1, 2), "miniature": (1,)}  # of a step
SHAPES = {  # more arms of a sweep
    "quickstart": {
        "GRPO-GA, n=64": ["algorithm=grpo_ga", "rollouts_per_prompt=64"],
        "GRPO-PODS, n=64": ["algorithm=pods", "rollouts_per_prompt=64"],
    },
}
NAME = "${algorithm.name}-n${rollouts_per_prompt}-m${kept_per_prompt}-P${prompts_per_step}"
NAME = f"sweep-{NAME}-lr${{optimizer.learning_rate}}-seed${{seed}}"


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("part", choices=SEEDS)
    parser.add_argument("experiment", choices=PROMPTS)
    part, experiment = vars(parser.parse_args()).values()
    runs = cells(part, experiment)
    scored = train_and_score(runs, experiment)
    if part == "report":
        (RESULTS / experiment).mkdir(exist_ok=True)
        for name in (f"base-{runs[0].config.model.name}", *(run.config.run for run in runs)):
            for file in (scored / f"{name}.json", scored / f"{name}.meta.json"):
                text = file.read_text().replace(f"{ROOT}/", "")  # no paths of this machine
                (RESULTS / experiment / file.name).write_text(text)
    file = RESULTS / f"{experiment}{'_sweep' if part == 'sweep' else ''}.md"
    file.write_text(f"{header(part, experiment, runs)}\n\n{table(runs, scored)}\n")
    print(file)


def cells(part: str, experiment: str) -> list[Run]:
    """Every run of a part: seed by seed, and within a seed the arms in turns."""
    first, seeds = SEEDS[part]
    keys = [f"figure={experiment}", f"first_seed={first}", f"seeds={seeds}"]
    keys.append(f"output_dir={RUNS / experiment}")
    found = compose("reproduce", ReproduceConfig, keys, CONFIG_DIR / "reproduce")
    config = typed(ReproduceConfig, found)
    budget = compose("train", TrainConfig, [f"experiment={experiment}"]).budget.train_seconds
    fixed, runs, shapes = scored_while_training(budget, SPLIT[part]), [], [[]]
    if part == "sweep":
        config.recipes[experiment].arms |= SHAPES.get(experiment, {})
        shapes = [
            [f"prompts_per_step={prompts}", f"optimizer.learning_rate={rate}", f"run={NAME}"]
            for prompts, rate in product(PROMPTS[experiment], RATES)
        ]
    for shape in shapes:
        config.train = [*fixed, *shape]
        runs += plan(config)
    return sorted(runs, key=lambda run: run.seed)


def scored_while_training(seconds: float, split: str) -> list[str]:
    fixed = [f"evaluation.every_seconds={seconds / MARKS}", f"evaluation.split={split}"]
    return [*fixed, "checkpoint.every_seconds=null", "backend.threads=1", "logger=[]"]


def train_and_score(runs: list[Run], folder: str) -> Path:
    """Train what is left, two runs at a time; the folder with all scores and the base model's."""
    scored, experiment = RUNS / folder / "results", runs[0].config.experiment
    left = [run for run in runs if not run.finished]
    print(f"{len(left)} of {len(runs)} runs left")
    os.environ["OMP_NUM_THREADS"] = "1"
    turn = cycle(os.sched_getaffinity(0))  # a core for each thread, which its processes take
    with ThreadPoolExecutor(2, initializer=lambda: os.sched_setaffinity(0, {next(turn)})) as pool:
        list(pool.map(train_forked, left))
    for run in runs:
        keys = [f"run={run.config.run}", f"output_dir={RUNS / folder}", f"results_dir={scored}"]
        found = compose("evaluate", EvaluateConfig, keys, CONFIG_DIR / "evaluate")
        publish(typed(EvaluateConfig, found))
    call("evaluate_run.py", "run=null", f"experiment={experiment}", f"results_dir={scored}")
    return scored


def train_forked(run: Run) -> None:
    """train.py in a process forked from one that has imported everything: 20 s less a run."""
    keys = [*run.overrides, f"seed={run.seed}"]
    child = FORKS.Process(target=train_here, args=(keys, os.sched_getaffinity(0)))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"train.py {' '.join(keys)} ended with {child.exitcode}")


def train_here(keys: list[str], cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)
    os.chdir(ROOT)
    sys.argv = ["train.py", *keys]
    train.main()


def call(script: str, *keys: str) -> None:
    subprocess.run([sys.executable, str(ROOT / script), *keys], check=True, cwd=ROOT)


def header(part: str, experiment: str, runs: list[Run]) -> str:
    return (
        f"# {experiment}, {part}\n\n{conditions(runs)}, {SPLIT[part]} questions at T=1. A "
        f"cell: share right and well formed (grader v2), mean over {MARKS} marks in time / mean of "
        f"the last three; mean over seeds. `uv run benchmarks/quickstart.py {part} {experiment}`"
    )


def conditions(runs: list[Run]) -> str:
    """What was run, where and when."""
    facts, cpu = provenance(), Path("/proc/cpuinfo").read_text().partition("model name")[2]
    return (
        f"{date.today().isoformat()}, commit {facts['git_commit']}, "
        f"{facts['cpu_count']} cores of{cpu.partition(chr(10))[0].partition(':')[2]}; two runs at "
        f"a time, each with one thread on one core; {runs[0].config.budget.train_seconds:g} s of "
        f"training, seeds {sorted({run.seed for run in runs})}"
    )


def table(runs: list[Run], scored: Path) -> str:
    """A row an arm and shape, a column a learning rate; the best cell of a row is bold."""
    values, steps = defaultdict(list), defaultdict(list)
    for run in runs:
        c, found = run.config, results.read(scored / f"{run.config.run}.json")
        curve = [e.both_acc[0] for mark in found.values() for e in mark.datasets.values()]
        row = (run.arm, c.rollouts_per_prompt, c.kept_per_prompt, c.prompts_per_step)
        values[row, c.optimizer.learning_rate].append((fmean(curve), fmean(curve[-3:])))
        steps[row].append(found[max(found)].meta["train_seconds"] / max(found))
    mean = {key: tuple(map(fmean, zip(*pairs, strict=True))) for key, pairs in values.items()}
    rates = sorted({rate for _, rate in mean})
    lines = []
    for row, seconds in steps.items():
        pairs = [mean.get((row, rate)) for rate in rates]
        best = max(pair for pair in pairs if pair)
        said = ["{:.3f} / {:.3f}".format(*pair) if pair else "" for pair in pairs]
        said[pairs.index(best)] = f"**{said[pairs.index(best)]}**"
        line = dict(zip(("arm", "n", "m", "P"), row, strict=True))
        line |= {"s a step": f"{fmean(seconds):.3f}"}
        lines.append(line | dict(zip(map("lr {:g}".format, rates), said, strict=True)))
    return tables.markdown(lines)


if __name__ == "__main__":
    main()
