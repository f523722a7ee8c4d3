"""The test of the planner: predictions that are committed first, then the runs, then the report.

    uv run benchmarks/planner_test.py predict    # one GRPO run -> results/planner_predictions.json
    uv run benchmarks/planner_test.py test       # 105 runs -> results/planner_test.json, .md, .png

A cell (P, n, m) of the quickstart has the measured rate 1 / (time to TARGET): the first crossing of
a run's isotonic curve, between two marks by a straight line. Cells get the same learning rates;
each takes the one of shortest mean log time. Log-ratios against the first cell are paired by seed.
A second call skips finished runs; nothing else should run.
"""
# ruff: noqa: E402

import json
import subprocess
import sys
from argparse import ArgumentParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from quickstart import (
    RATES,
    RESULTS,
    RUNS,
    call,
    conditions,
    scored_while_training,
    train_and_score,
)
from scipy.stats import spearmanr

from pods import results
from pods.cli import CONFIG_DIR, compose, typed
from pods.figures import tables
from pods.figures.statistics import difference, first_crossing
from pods.files import write_atomic
from pods.recipes import Recipe, ReproduceConfig, Run, plan
from pods.runs import provenance

CELLS = ((1, 16, 16), (1, 64, 16), (1, 64, 32), (2, 16, 16), (2, 32, 16), (2, 32, 32), (2, 64, 16))
TARGET, SECONDS = 0.6, 60.0  # share right and well formed on the test questions; s of a run
FIRST_SEED, SEEDS, PROBE_SEED = 100, 5, 99
GOALS = "goals: rank correlation of at least .8, at least 6 of 7 intervals cover their prediction"
FOLDER = RUNS / "planner"


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("part", choices=("predict", "test"))
    predicted = RESULTS / "planner_predictions.json"
    if parser.parse_args().part == "predict":
        write_atomic(predicted, json.dumps(predictions(), indent=1) + "\n")
        print(predicted)
        return
    found = measured(cells())
    write_atomic(RESULTS / "planner_test.json", json.dumps(found, indent=1) + "\n")
    text, picture = report(json.loads(predicted.read_text()), found)
    (RESULTS / "planner_test.md").write_text(text)
    picture.savefig(RESULTS / "planner_test.png", dpi=150)
    print(text)


def predictions() -> dict[str, Any]:
    """What plan.py says of the cells after one GRPO run."""
    keys = ["experiment=quickstart", "algorithm=grpo", "planner.gradient_noise_every=2"]
    keys += [f"seed={PROBE_SEED}", "run=probe", f"output_dir={FOLDER}", "backend.threads=1"]
    call("train.py", *keys, "checkpoint.every_seconds=null", "logger=[]")
    wanted = "[" + ",".join(str([*cell]).replace(" ", "") for cell in CELLS) + "]"
    command = [sys.executable, str(ROOT / "scripts" / "plan.py"), "run=probe", f"cells={wanted}"]
    command += [f"output_dir={FOLDER}", f"out_dir={FOLDER}", "rule=max_variance", "json=true"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout)
    return {"commit": provenance()["git_commit"], "probe": keys[:4], "target": TARGET, **found}


def cells() -> list[Run]:
    """Every run: seed by seed, and within a seed cells and rates in turns."""
    keys = ["figure=quickstart", f"first_seed={FIRST_SEED}", f"seeds={SEEDS}"]
    found = compose(
        "reproduce", ReproduceConfig, [*keys, f"output_dir={FOLDER}"], CONFIG_DIR / "reproduce"
    )
    config, arms = typed(ReproduceConfig, found), {}
    for (p, n, m), rate in product(CELLS, RATES):
        own = ["algorithm=pods", f"rollouts_per_prompt={n}"] if n > m else ["algorithm=grpo"]
        name = f"run=P{p}-n{n}-m{m}-lr{rate:g}-seed${{seed}}"
        own += [f"kept_per_prompt={m}", f"prompts_per_step={p}", f"optimizer.learning_rate={rate}"]
        arms[f"{p},{n},{m} {rate:g}"] = [*own, f"micro_batch_size={m}", name]
    config.recipes["quickstart"] = Recipe("quickstart", arms)
    config.train = scored_while_training(SECONDS, "test")
    config.train[0] = f"evaluation.every_seconds={SECONDS / 24}"
    return plan(config)


def measured(runs: list[Run]) -> dict[str, Any]:
    """Natural logs of seconds to the target: {"conditions": text, "log_seconds": {"P,n,m lr": one
    a seed, null where the run does not reach it}}."""
    scored, found = train_and_score(runs, "planner"), {}
    for run in runs:
        marks = results.read(scored / f"{run.config.run}.json")
        seconds = np.array([mark.meta["train_seconds"] for mark in marks.values()])
        curve = np.array([mark.datasets["arithmetic"].both_acc[0] for mark in marks.values()])
        after, by = first_crossing(seconds, curve, 0.0, TARGET)
        reached = None if np.isinf(by) else float(np.log((after + by) / 2))
        found.setdefault(run.arm, []).append(reached)
    return {"conditions": conditions(runs), "log_seconds": found}


def best(found: dict[str, list[float | None]], cell: tuple[int, ...]) -> tuple[str, np.ndarray]:
    """The learning rate of shortest mean log time at which all seeds reach the target."""
    name = ",".join(map(str, cell))
    times = {arm.split()[1]: logs for arm, logs in found.items() if arm.split()[0] == name}
    whole = {rate: np.array(logs) for rate, logs in times.items() if None not in logs}
    if not whole:
        raise SystemExit(f"{name}: no learning rate reaches {TARGET:.0%} with every seed")
    return min(whole.items(), key=lambda item: item[1].mean())


def report(predicted: dict[str, Any], found: dict[str, Any]) -> tuple[str, Any]:
    """Table and picture of predicted and measured speeds, relative to the first cell."""
    guesses = [np.log(cell["relative"]) for cell in predicted["cells"]]
    chosen = [best(found["log_seconds"], cell) for cell in CELLS]
    pairs = [difference(logs, chosen[0][1], paired=True) for _, logs in chosen]
    rows, covered = [], 0
    for cell, guess, (rate, logs), pair in zip(CELLS, guesses, chosen, pairs, strict=True):
        low, high = pair.ci95
        covered += low <= guess <= high or cell == CELLS[0]
        seen = (float(np.exp(pair.difference)), [float(np.exp(end)) for end in pair.ci95])
        row = {"P, n, m": ", ".join(map(str, cell)), "lr": rate}
        row["s to target"] = f"{np.exp(logs.mean()):.1f}"
        rows.append(row | {"predicted": f"{np.exp(guess):.2f}", "measured": tables.times(*seen)})
    rank = spearmanr(guesses, [pair.difference for pair in pairs])[0]
    said = f"Rank correlation {rank:.2f}; {covered} of {len(CELLS)} intervals cover their "
    said += f"prediction, the first trivially ({GOALS})."
    head = f"# The planner's test\n\n{found['conditions']}; predictions of commit "
    head += (
        f"{predicted['commit']}. Speed: of reaching {TARGET:.0%}, relative to the first cell. [ ]: "
    )
    head += "Student's 95 % interval of the mean log-ratio, paired by seed."
    return f"{head}\n\n{tables.markdown(rows)}\n\n{said}\n", draw(guesses, pairs)


def draw(guesses: list[float], pairs: list[Any]) -> Any:
    import matplotlib

    from pods.figures.drawing import COLOURS, STYLE

    with matplotlib.rc_context(STYLE):
        canvas = matplotlib.figure.Figure(figsize=(4.5, 4), layout="constrained")
        axes = canvas.subplots()
        for cell, guess, pair, colour in zip(CELLS, guesses, pairs, COLOURS, strict=True):
            label = "P={}, n={}, m={}".format(*cell)
            axes.vlines(guess, *pair.ci95, colors=colour)
            axes.scatter([guess], [pair.difference], color=colour, label=label, s=20, zorder=3)
        axes.axline((0, 0), slope=1, color="black", linewidth=0.8)
        axes.set(
            xlabel="predicted, log of speed over GRPO 1, 16, 16", ylabel="measured (95% interval)"
        )
        axes.legend(fontsize=7)
    return canvas


if __name__ == "__main__":
    main()
