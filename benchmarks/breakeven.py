"""When does PODS pay? The experiment that docs/log.md registers under 2026-11-29.

    uv run benchmarks/breakeven.py sums-tune       # each stage resumes; stored rows stay
    uv run benchmarks/breakeven.py sums-tune pods  # one arm only: two calls, one on each core
    uv run benchmarks/breakeven.py sums-test       # reads the rates that sums-tune chose
    uv run benchmarks/breakeven.py sums-twin       # one run of each arm again, equal to the bit
    uv run benchmarks/breakeven.py smollm2-tune
    uv run benchmarks/breakeven.py smollm2-test
    uv run benchmarks/breakeven.py result          # of the stored rows; trains nothing
    uv run benchmarks/breakeven.py picture         # docs/breakeven.png, of the rows of sums

A stage prints the lines of `train.py -m` that it runs. A run is trained in steps, at a constant
rate after warm-up, so prices do not change it: c, the seconds of a PODS step over those of a GRPO
step on the same m rollouts, is applied to its accuracies afterwards.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style as styles
from matplotlib.figure import Figure as Canvas
from scipy import stats

from pods import files
from pods.figures import COLOURS, STYLE
from pods.tasks import arithmetic

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/breakeven"
RUNS = ROOT / "checkpoints/breakeven"
C = 1.39  # of the paper: (4.8 + 0.060 n + 0.105 m) s a step on an L40S, n = 64 to n = m = 16
DASHES = ((1.13, ":"), (C, "-"), (1.86, "--"))
TRAINED = 16  # rollouts of every step
COMMON = [
    *("loss.type=grpo", "optimizer.warmup_steps=0.1"),
    *("budget.train_seconds=null", "checkpoint.every_seconds=null", "micro_batch_size=16"),
    *("ledger_texts=first", "logger=[]", "threads=1"),
]


class Policy(NamedTuple):
    overrides: list[str]
    steps: int
    evaluate_every: float  # steps
    prompts: tuple[int, ...]  # P
    rates: tuple[float, ...]
    arms_to_tune: tuple[str, ...]
    validation_seeds: range
    test_seeds: range


POLICIES = {
    "sums": Policy(
        [
            *("experiment=sums", "task=own", f"task.source={RUNS / 'sums'}"),
            *("task.question=question", "task.answer=answer", "task.system=''"),
        ],
        160,
        10,
        (1, 4),
        (5e-4, 1e-3, 2e-3, 4e-3),
        ("grpo", "pods"),
        range(3),
        range(200, 224),
    ),
    "smollm2": Policy(
        ["experiment=smollm2", "evaluation.questions=128"],  # evaluations take most of the time
        30,
        7.5,
        (1,),
        (1e-4, 3e-4, 1e-3),
        ("grpo",),
        range(2),
        range(200, 216),
    ),
}


class Setting(NamedTuple):
    """Runs that differ by their seed only."""

    stage: str  # tune | test | twin | base: one step that moves nothing
    policy: str
    arm: str  # grpo | pods
    P: int
    rate: float

    @property
    def steps(self) -> int:
        return 1 if self.stage == "base" else POLICIES[self.policy].steps

    @property
    def sizes(self) -> tuple[int, int]:
        """(n, m)"""
        m = TRAINED // self.P
        return (4 * m, m) if self.arm == "pods" else (m, m)

    def run(self, seed: int | str) -> str:
        return f"{self.policy}-{self.stage}-{self.arm}-P{self.P}-rate{self.rate:g}-seed{seed}"

    def command(self, seeds: Iterable[int]) -> list[str]:
        """The words of train.py; a step is priced at 1 s, so that seconds are steps."""
        policy = POLICIES[self.policy]
        n, m = self.sizes
        schedule = "constant" if self.stage == "base" else "constant_with_warmup"
        evaluate_every = min(self.steps, policy.evaluate_every)
        split = "validation" if self.stage == "tune" else "test"
        return [
            *("train.py", "-m", *COMMON, *policy.overrides, f"evaluation.split={split}"),
            f"optimizer.schedule={schedule}",
            *(f"algorithm={self.arm}", f"prompts_per_step={self.P}", f"kept_per_prompt={m}"),
            *(f"rollouts_per_prompt={n}", f"optimizer.learning_rate={self.rate:g}"),
            *(f"max_steps={self.steps}", f"evaluation.every_seconds={evaluate_every:g}"),
            *(f"clock={RUNS / 'steps.yaml'}", f"output_dir={RUNS}", f"run={self.run('${seed}')}"),
            f"seed={','.join(map(str, seeds))}",
        ]


def main(stage: str, arm: str = "") -> None:
    if stage in ("result", "picture"):
        return (report if stage == "result" else draw)(rows())
    policy, _, kind = stage.partition("-")
    write_inputs()
    for setting, seeds in plan(kind, policy, rows()):
        if arm and setting.arm != arm:
            continue
        store(setting, seeds)  # what an interrupted call has trained
        missing = [seed for seed in seeds if not is_stored(setting, seed, rows())]
        if missing:
            words = setting.command(missing)
            print(shlex.join(["uv", "run", *words]), flush=True)
            subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
            store(setting, missing)


def plan(kind: str, policy: str, stored: list[dict[str, Any]]) -> Iterable[tuple[Setting, range]]:
    facts = POLICIES[policy]
    if kind == "tune":
        for P, rate, arm in product(facts.prompts, facts.rates, facts.arms_to_tune):
            yield Setting("tune", policy, arm, P, rate), facts.validation_seeds
    else:
        if kind == "test":
            yield Setting("base", policy, "grpo", 1, 1e-12), range(4)
        for P, arm in product(facts.prompts, ("grpo", "pods")):
            rate = best_rate(policy, P, stored)
            seeds = facts.test_seeds[:1] if kind == "twin" else facts.test_seeds
            yield Setting(kind, policy, arm, P, rate), seeds


def write_inputs() -> None:
    """A price list of one second a step; the questions of `sums` with 256 new test questions."""
    RUNS.mkdir(parents=True, exist_ok=True)
    files.write_atomic(RUNS / "steps.yaml", "fixed: 1\nround: 0\ngenerate: 0\nupdate: 0\n")
    old = {row["question"] for row in arithmetic.rows("test")}
    new = dict(p for p in islice(arithmetic.problems("test", seed=1), 2000) if p[0] not in old)
    test = [{"question": q, "answer": new[q]} for q in islice(new, arithmetic.SIZES["test"])]
    splits = {split: arithmetic.rows(split) for split in ("train", "validation")} | {"test": test}
    for split, lines in splits.items():
        (RUNS / "sums").mkdir(exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        files.write_atomic(RUNS / "sums" / f"{split}.jsonl", text)


def rows() -> list[dict[str, Any]]:
    return [row for file in sorted(RESULTS.glob("*.jsonl")) for row in files.read_lines(file)]


def is_stored(setting: Setting, seed: int, stored: list[dict[str, Any]]) -> bool:
    wanted = setting._asdict() | {"seed": seed}
    return any(wanted.items() <= row.items() for row in stored)


def store(setting: Setting, seeds: Iterable[int]) -> None:
    """Append a row for each finished run that has none."""
    n, m = setting.sizes
    for seed in seeds:
        lines = files.read_lines(RUNS / setting.run(seed) / "evaluations.jsonl")
        if not lines or lines[-1]["step"] < setting.steps or is_stored(setting, seed, rows()):
            continue
        row = setting._asdict() | {"n": n, "m": m, "seed": seed}
        row |= {"steps": [line["step"] for line in lines]}
        row |= {"accuracy": [line["eval/accuracy"] for line in lines]}
        row |= {"greedy": [line["eval/greedy_accuracy"] for line in lines]}
        row |= {"tokens_generated": [line["tokens/generated"] for line in lines]}
        row |= {"tokens_trained": [line["tokens/trained"] for line in lines]}
        checkpoint = RUNS / setting.run(seed) / f"checkpoint-{setting.steps}"
        meta = json.loads((checkpoint / "meta.json").read_text())
        row |= {"adapter": meta["files"]["adapter_model.safetensors"]["sha256"]}
        row |= {"commit": meta["git_commit"], "date": time.strftime("%F")}
        files.append(RESULTS / f"{setting.policy}-{setting.stage}.jsonl", row)


def means(chosen: list[dict[str, Any]], base: float, c: float) -> np.ndarray:
    """(seeds,): accuracy in percent, averaged over equal priced seconds up to GRPO's last step, of
    runs whose step takes c times as long: the trapezoid from the base at step 0 to steps / c."""
    averages = []
    for row in sorted(chosen, key=lambda row: row["seed"]):
        steps = np.array([0, *row["steps"]])
        accuracy = 100 * np.array([base, *row["accuracy"]])
        end = steps[-1] / c
        x = np.array([*steps[steps < end], end])
        averages.append(np.trapezoid(np.interp(x, steps, accuracy), x) / end)
    return np.array(averages)


def validation_means(policy: str, P: int, stored: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Arm -> (rates,): mean of its validation seeds, at the paper's c."""
    facts = POLICIES[policy]
    averages = {}
    for arm in facts.arms_to_tune:
        averages[arm] = np.zeros(len(facts.rates))
        for i, rate in enumerate(facts.rates):
            setting = Setting("tune", policy, arm, P, rate)._asdict()
            chosen = [row for row in stored if setting.items() <= row.items()]
            if {row["seed"] for row in chosen} != {*facts.validation_seeds}:
                sys.exit(f"{setting}: not all validation seeds are stored; run {policy}-tune first")
            # The base is the same for all; its accuracy does not change the order.
            averages[arm][i] = means(chosen, 0.5, C if arm == "pods" else 1).mean()
    return averages


def best_rate(policy: str, P: int, stored: list[dict[str, Any]]) -> float:
    """The rate with the best mean over the arms that were tuned."""
    averages = validation_means(policy, P, stored)
    return POLICIES[policy].rates[int(np.argmax(sum(averages.values())))]


def own_rates(policy: str, P: int, stored: list[dict[str, Any]]) -> str:
    """Each arm at its own best rate, on validation questions."""
    texts = []
    for arm, averages in validation_means(policy, P, stored).items():
        i = int(np.argmax(averages))
        texts.append(f"{arm} {averages[i]:.1f} % at {POLICIES[policy].rates[i]:g}")
    return f"own best rate on validation: {', '.join(texts)}"


def sign_flips(differences: np.ndarray) -> float:
    """Exact two-sided p value: the share of the 2^seeds signs whose sum is as far from 0."""
    sums = differences[:1]  # the other half is symmetric
    for difference in differences[1:]:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9))


class Test(NamedTuple):
    mean: float
    low: float  # of Student's interval at 1 - alpha
    high: float
    student: float  # p values
    flips: float
    alpha: float

    @property
    def text(self) -> str:
        interval = f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{interval} at alpha {self.alpha}, p {self.student:.2g}, by signs {self.flips:.2g}"

    @property
    def verdict(self) -> str:
        """The first registered threshold that applies, in points."""
        if self.low > 0 and self.flips < self.alpha:
            return "pays"
        if self.high < 1:
            return "does not pay"
        if self.low > -2 and self.high < 2:
            return "equal"
        return "undecided"


def test(differences: np.ndarray, alpha: float) -> Test:
    result = stats.ttest_1samp(differences, 0)
    low, high = result.confidence_interval(1 - alpha)
    flips = sign_flips(differences)
    return Test(differences.mean(), low, high, result.pvalue, flips, alpha)


def holm(first: np.ndarray, second: np.ndarray) -> tuple[Test, Test]:
    """Both primary tests. The one with the smaller p value is at alpha / 2; the other at alpha if
    that one rejects, by both p values, else at alpha / 2, too."""
    tests = [test(first, 0.025), test(second, 0.025)]
    smaller = min((0, 1), key=lambda i: max(tests[i].student, tests[i].flips))
    if max(tests[smaller].student, tests[smaller].flips) < 0.025:
        tests[1 - smaller] = test((first, second)[1 - smaller], 0.05)
    return tests[0], tests[1]


def break_even(leads: np.ndarray, cs: np.ndarray) -> tuple[float, float, float]:
    """Largest c at which the mean lead is at least 0, and its 95 % bootstrap interval over seeds;
    0 if PODS is behind at the smallest c. leads: (seeds, cs)."""
    seeds = len(leads)
    rng = np.random.default_rng(0)
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=10_000) / seeds

    def largest(mean: np.ndarray) -> np.ndarray:
        return np.max(np.where(mean >= 0, cs, 0), axis=-1)

    low, high = np.quantile(largest(weights @ leads), [0.025, 0.975])
    return float(largest(leads.mean(axis=0))), low, high


def collapses(grpo: list[dict[str, Any]], pods: list[dict[str, Any]], base: float) -> str:
    """How many runs end below the base, by the mean of their last three evaluations."""
    lost = {
        name: {row["seed"] for row in runs if np.mean(row["accuracy"][-3:]) < base}
        for name, runs in (("GRPO", grpo), ("PODS", pods))
    }
    only = [len(lost["GRPO"] - lost["PODS"]), len(lost["PODS"] - lost["GRPO"])]
    p = stats.binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0  # McNemar, exact
    counts = ", ".join(f"{name} {len(seeds)}" for name, seeds in lost.items())
    return f"collapsed: {counts} of {len(grpo)}; McNemar p {p:.2g}"


def report(stored: list[dict[str, Any]]) -> None:
    """Print the registered tests, the break-even and the collapses of what is stored."""
    cs = np.arange(1, 4.001, 0.01)
    for name, policy in POLICIES.items():
        scored = [r["accuracy"] for r in stored if (r["stage"], r["policy"]) == ("base", name)]
        base = np.mean(scored) if scored else np.nan
        leads = {}
        for P in policy.prompts:
            arms = {}
            for arm in ("grpo", "pods"):
                fields = {"stage": "test", "policy": name, "arm": arm, "P": P}
                arms[arm] = [row for row in stored if fields.items() <= row.items()]
                if {row["seed"] for row in arms[arm]} != {*policy.test_seeds}:
                    return print(f"{fields}: {len(arms[arm])} runs are stored; run {name}-test")
            grpo = means(arms["grpo"], base, 1)
            leads[P] = np.stack([means(arms["pods"], base, c) - grpo for c in cs], axis=1)
            c, low, high = break_even(leads[P], cs)
            ends = f"{c:.2f} [{low:.2f}, {high:.2f}]"
            print(f"{name}, P={P}: break-even c {ends} (0: behind at c = 1; 4: or more)")
            for c in (1.13, C, 1.86):
                at = test(leads[P][:, np.argmin(abs(cs - c))], 0.05)
                print(f"  c = {c}: {at.mean:+.1f} [{at.low:+.1f}, {at.high:+.1f}] points")
            print(f"  {collapses(arms['grpo'], arms['pods'], base)}")
            print(f"  {own_rates(name, P, stored)}; tested at {best_rate(name, P, stored):g}")
            twins = [row for row in stored if (row["stage"], row["policy"]) == ("twin", name)]
            once = {row["adapter"] for row in arms["grpo"] + arms["pods"]}
            again = [row["adapter"] in once for row in twins if row["P"] == P]
            print(
                f"  {sum(again)} of {len(again)} runs that were trained again are equal to the bit"
            )
        at_paper = {P: values[:, np.argmin(abs(cs - C))] for P, values in leads.items()}
        if len(at_paper) == 2:
            tests = holm(at_paper[1], at_paper[1] - at_paper[4])
            labels = ("H1: PODS - GRPO at P = 1", "H2: that minus PODS - GRPO at P = 4")
        else:
            tests, labels = [test(at_paper[1], 0.05)], ["replication of H1"]
        for label, result in zip(labels, tests, strict=True):
            print(f"{name}, {label}: {result.text}: {result.verdict}")


@styles.context(STYLE)
def draw(stored: list[dict[str, Any]]) -> None:
    """Accuracy over priced seconds with one prompt a step, and the lead of PODS against c."""
    cs = np.arange(1, 2.501, 0.01)
    scored = [
        row["accuracy"] for row in stored if (row["stage"], row["policy"]) == ("base", "sums")
    ]
    base = float(np.mean(scored))
    canvas = Canvas(figsize=(8.4, 3.8))
    curves, lead = canvas.subplots(1, 2)

    def tested(arm: str, P: int) -> list[dict[str, Any]]:
        fields = {"stage": "test", "policy": "sums", "arm": arm, "P": P}
        return sorted((r for r in stored if fields.items() <= r.items()), key=lambda r: r["seed"])

    lines = [("grpo", 1.0, "GRPO, 16 rollouts", "black", "-")]
    lines += [("pods", c, f"PODS, 16 of 64, c = {c}", COLOURS[0], dash) for c, dash in DASHES]
    for arm, c, label, colour, dash in lines:
        rows = tested(arm, 1)
        accuracy = 100 * np.array([[base, *row["accuracy"]] for row in rows])
        steps = c * np.array([0, *rows[0]["steps"]])
        curves.plot(steps, accuracy.mean(axis=0), color=colour, linestyle=dash, label=label)
        if c in (1, C):
            low, high = student(accuracy)
            curves.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    curves.set(xlim=(0, POLICIES["sums"].steps), ylim=(54, 68), title="One prompt a step")
    curves.set(xlabel="training time, GRPO steps", ylabel="accuracy, %")
    curves.legend(loc="upper left")
    for P, colour, dash in ((1, COLOURS[0], "-"), (4, COLOURS[1], "--")):
        grpo = means(tested("grpo", P), base, 1)
        leads = np.stack([means(tested("pods", P), base, c) - grpo for c in cs], axis=1)
        lead.plot(
            cs,
            leads.mean(axis=0),
            color=colour,
            linestyle=dash,
            label="one prompt a step" if P == 1 else "four",
        )
        lead.fill_between(cs, *student(leads), color=colour, alpha=0.15, linewidth=0)
    lead.axhline(0, color="black", linewidth=0.8)
    for c, name in ((1.13, "cheap sampling"), (C, "paper"), (1.86, "H100")):
        lead.axvline(c, color="grey", linestyle=":", linewidth=0.8)
        lead.text(
            c, 0.02, f" {name}", transform=lead.get_xaxis_transform(), rotation=90, va="bottom"
        )
    lead.set(xlim=(1, 2.5), title="Lead of PODS over GRPO")
    lead.set(xlabel="c: seconds of a PODS step / of a GRPO step", ylabel="lead, points")
    lead.legend(loc="upper right")
    canvas.set_layout_engine("constrained")
    canvas.savefig(ROOT / "docs/breakeven.png", dpi=150)


def student(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 95 % interval over seeds. values: (seeds, points)."""
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return values.mean(axis=0) - half, values.mean(axis=0) + half


if __name__ == "__main__":
    kinds = ("tune", "test", "twin")
    stages = [f"{policy}-{kind}" for policy in POLICIES for kind in kinds]
    stages += ["result", "picture"]
    if (
        len(sys.argv) < 2
        or sys.argv[1] not in stages
        or sys.argv[2:] not in ([], ["grpo"], ["pods"])
    ):
        sys.exit(f"usage: uv run benchmarks/breakeven.py {' | '.join(stages)} [grpo | pods]")
    main(*sys.argv[1:])
