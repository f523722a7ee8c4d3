"""Every way to choose rollouts, at equal training time on the quickstart and the miniature.

    uv run benchmarks/rules.py          # -> results/rules.json, rules.md, rules.png
    uv run benchmarks/rules.py draw     # table and picture from rules.json

Every arm but GRPO and GRPO-GA has the experiment's n, m and learning rate of PODS; a rule whose
advantages have another scale might do better with its own. Two runs of one thread go side by side,
seed by seed, arms in turns; nothing else should run. A second call skips finished runs.
"""
# ruff: noqa: E402

import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from quickstart import RESULTS, RUNS, conditions, scored_while_training, train_and_score
from scipy.stats import ttest_1samp

from pods.config.command import CONFIG_DIR, compose, typed
from pods.figures import tables
from pods.figures.statistics import Difference, difference, level, time_average
from pods.recipes import Recipe, ReproduceConfig, Run, plan
from pods.runs import results
from pods.runs.files import write_atomic

EXPERIMENTS, SECONDS = ("quickstart", "miniature"), 60.0
FIRST_SEED, SEEDS = 20, 5  # in no sweep and no report of quickstart.py
BASELINES = ("GRPO", "max_variance")
WIDEST = 10.0  # points: the axis of the picture
RULES = ("max_variance", "max_reward", "random", "percentile", "cppo", "d3s", "gfpo", "half_right",
         "max_abs_advantage", "ragen2")  # fmt: skip
ARMS = {
    "GRPO": ["algorithm=grpo"],
    "GRPO-GA": ["algorithm=grpo_ga"],
    **{rule: ["algorithm=pods", f"rule={rule}"] for rule in RULES},
    "gfpo, reward per token": ["algorithm=pods", "rule=gfpo", "rule.params.metric=efficiency"],
    **{f"max_variance, prompts={p}": ["algorithm=pods", f"prompts={p}"]
       for p in ("greso", "mopps", "easy_to_hard")},
    "max_variance, P=2": ["algorithm=pods", "prompts_per_step=2"],  # knapsack needs several prompts
    "max_variance, P=2, prompts=knapsack": ["algorithm=pods", "prompts_per_step=2",
                                            "prompts=knapsack"],
    "max_variance, resample=dapo": ["algorithm=pods", "resample=dapo"],
    "half_right, resample=ada": ["algorithm=pods", "rule=half_right", "resample=ada"],
}  # fmt: skip
Arm = dict[str, Any]


def main() -> None:
    file = RESULTS / "rules.json"
    if sys.argv[1:] != ["draw"]:
        write_atomic(file, json.dumps({name: measured(name) for name in EXPERIMENTS}, indent=1))
    found = json.loads(file.read_text())
    (RESULTS / "rules.md").write_text("\n\n".join(section(*item) for item in found.items()) + "\n")
    draw(found).savefig(RESULTS / "rules.png", dpi=150)
    print(RESULTS / "rules.md", RESULTS / "rules.png", sep="\n")


def measured(experiment: str) -> dict[str, Any]:
    """Train and score every arm: {"conditions": text, "arms": {label: a value a seed each}}."""
    runs = cells(experiment)
    scored, arms = train_and_score(runs, experiment), {}
    base = results.read_base(scored / f"base-{runs[0].config.model.name}.json")
    start = fmean(base.datasets["arithmetic"].both_acc)
    for run in runs:
        marks = results.read(scored / f"{run.config.run}.json")
        seconds = np.array([mark.meta["train_seconds"] for mark in marks.values()])
        curve = np.array([mark.datasets["arithmetic"].both_acc[0] for mark in marks.values()])
        arm = arms.setdefault(run.arm, {"seeds": [], "steps": [], "mean": [], "level": []})
        arm["seeds"].append(run.seed)
        arm["steps"].append(max(marks))
        arm["mean"].append(time_average(seconds, curve, start, SECONDS))
        arm["level"].append(float(level(curve[None])[0]))
    return {"conditions": f"{conditions(runs)}, test questions at T=1", "arms": arms}


def cells(experiment: str) -> list[Run]:
    """Every run: seed by seed, and within a seed the arms in turns."""
    keys = [f"figure={experiment}", f"first_seed={FIRST_SEED}", f"seeds={SEEDS}"]
    keys.append(f"output_dir={RUNS / experiment}")
    found = compose("reproduce", ReproduceConfig, keys, CONFIG_DIR / "reproduce")
    config = typed(ReproduceConfig, found)
    names = {label: re.sub(r"\W+", "-", label) for label in ARMS}
    named = {
        label: [*own, f"run=rules-{names[label]}-seed${{seed}}"] for label, own in ARMS.items()
    }
    config.recipes[experiment] = Recipe(experiment, named)
    config.train = [*scored_while_training(SECONDS, "test"), f"budget.train_seconds={SECONDS}"]
    return plan(config)


def section(experiment: str, found: dict[str, Any]) -> str:
    """A table of one experiment, best arm first."""
    arms = found["arms"]
    families = {base: holm(p_values(arms, base)) for base in BASELINES}
    rows = []
    for label, arm in by_mean(arms):
        row = {"arm": label, "s a step": f"{SECONDS / fmean(arm['steps']):.3f}"}
        row |= {"mean accuracy": f"{fmean(arm['mean']):.1%}", "level": f"{fmean(arm['level']):.1%}"}
        for base, corrected in families.items():
            if label in corrected:
                p = f"p {corrected[label]:.3f}".replace("p 0.000", "p < 0.001")
                said = f"{tables.points(against(arms, label, base))}, {p}"
            row[f"against {base}, points"] = said if label in corrected else "-"
        rows.append(row)
    return (
        f"# Ways to choose rollouts: {experiment}\n\n{found['conditions']}. Mean accuracy: right "
        f"and well formed (grader v2), averaged over {SECONDS:g} s from the base model on; level: "
        "last three marks. [ ]: Student's 95 % interval of the mean difference, paired by seed; p:"
        " of that test, corrected after Holm for all arms of a column. `uv run "
        f"benchmarks/rules.py`\n\n{tables.markdown(rows)}"
    )


def by_mean(arms: dict[str, Arm]) -> list[tuple[str, Arm]]:
    return sorted(arms.items(), key=lambda item: -fmean(item[1]["mean"]))


def against(arms: dict[str, Arm], label: str, base: str) -> Difference:
    return difference(np.array(arms[base]["mean"]), np.array(arms[label]["mean"]), paired=True)


def p_values(arms: dict[str, Arm], base: str) -> dict[str, float]:
    """Of a t-test of the differences of seeds, for every arm but the baseline."""
    return {
        label: float(ttest_1samp(np.subtract(arm["mean"], arms[base]["mean"]), 0).pvalue)
        for label, arm in arms.items()
        if label != base
    }


def holm(p: dict[str, float]) -> dict[str, float]:
    """Holm's step-down correction: k hypotheses, the i-th smallest p times k - i + 1, in order."""
    corrected, highest = {}, 0.0
    for i, label in enumerate(sorted(p, key=p.get)):
        highest = max(highest, min(1.0, (len(p) - i) * p[label]))
        corrected[label] = highest
    return corrected


def draw(found: dict[str, Any]) -> Any:
    """A panel an experiment: mean accuracy over GRPO's, with intervals, best arm on top."""
    import matplotlib

    from pods.figures.drawing import COLOURS, STYLE

    with matplotlib.rc_context(STYLE):
        canvas = matplotlib.figure.Figure(figsize=(10, 4.6), layout="constrained")
        for axes, (experiment, one) in zip(
            canvas.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
        ):
            labels = [label for label, _ in by_mean(one["arms"]) if label != "GRPO"][::-1]
            for row, label in enumerate(labels):
                pair, colour = against(one["arms"], label, "GRPO"), COLOURS[label == "max_variance"]
                centre, ends = 100 * pair.difference, 100 * np.array(pair.ci95)
                if centre < -WIDEST:  # would squeeze all others together
                    axes.text(-WIDEST, row, f" ← {centre:.1f}", va="center", color=colour)
                    continue
                axes.hlines(row, *ends, colors=colour)
                axes.plot(centre, row, "o", color=colour, markersize=4)
            axes.axvline(0, color="black", linewidth=0.8)
            axes.set_xlim(-WIDEST, WIDEST)
            axes.set_ylim(-0.8, len(labels) - 0.2)
            axes.set_yticks(range(len(labels)), labels)
            seeds = len(one["arms"]["GRPO"]["seeds"])
            axes.set_title(f"{experiment}, {SECONDS:g} s, {seeds} seeds")
        canvas.supxlabel(
            "mean accuracy over time less that of GRPO 16/16, points (95% interval)", fontsize=9
        )
    return canvas


if __name__ == "__main__":
    main()
