"""Which n, m and P should learn fastest: the signal of a step's gradient over the step's seconds.

    T(P, n, m) = fixed + generate n P + update m P     seconds a step
    J(n, m)    = m E[S]^2 / P(S > 0)                   S: population std of a prompt's kept rewards
    SNR2       = P / (A + 1 / (kappa J))               signal-to-noise of the gradient, squared
    rate       = SNR2 / (1 + SNR2) / T                 1/s

docs/planner.md derives it, and says how it failed its registered tests.
"""

from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from matplotlib import style
from matplotlib.figure import Figure as Canvas
from omegaconf import OmegaConf
from scipy.optimize import nnls
from scipy.stats import binom, spearmanr

from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.figures import STYLE, speedup
from pods.rules import select
from pods.runs import ledger

SIZES = ("prompts_per_step", "rollouts_per_prompt", "kept_per_prompt")
FEWEST_STEPS = 10  # with fewer, J and the costs are mostly noise
DRAWS = 1000  # groups of n rollouts drawn for one J
CLEAR = 1.2  # the registered tests could not tell predicted ratios nearer to 1 apart


class Cell(NamedTuple):
    """Sizes of a step: P prompts, n rollouts and m kept of each; and the predictions for it."""

    prompts: int
    n: int
    m: int
    seconds_per_step: float = 0.0
    snr2: float = 0.0  # in units of kappa if kappa is unknown
    rate: float = 0.0  # 1/s, likewise

    def __str__(self) -> str:
        return f"P = {self.prompts}, n = {self.n}, m = {self.m}"

    def predicted(self, cost: Prices, signal: float, kappa: float | None, between: float) -> "Cell":
        """The cell with J = signal; kappa None: the limit of small signals."""
        prompts, n, m, *_ = self
        seconds = cost.fixed + cost.generate * n * prompts + cost.update * m * prompts
        if kappa is None:
            return Cell(prompts, n, m, seconds, prompts * signal, prompts * signal / seconds)
        snr2 = prompts * kappa * signal / (1 + between * kappa * signal)
        return Cell(prompts, n, m, seconds, snr2, snr2 / (1 + snr2) / seconds)


def signal_of_accuracy(rule: str, n: int, m: int, accuracy: float) -> float:
    """J if each rollout has reward 1 with this probability, else 0: exact."""
    if rule == "random":  # m drawn from n independent rollouts are m independent rollouts
        n = m
    groups = [(np.arange(n) < correct).astype(float) for correct in range(n + 1)]
    spreads = [spread(rule, group, m, None) for group in groups]
    return signal(m, spreads, binom.pmf(np.arange(n + 1), n, accuracy))


def signal_of_rewards(
    rule: str, n: int, m: int, rewards: list[np.ndarray], rng: np.random.Generator
) -> float:
    """J of the rule at (n, m), from groups of n drawn from each prompt's recorded rewards.

    Beyond the recorded number a rollout repeats one of the same prompt or, as if one more had been
    recorded, one of any prompt, because a prompt without a success may still have one.
    """
    every, draws, spreads = np.concatenate(rewards), -(-DRAWS // len(rewards)), []
    for group in rewards:
        size, more = len(group), max(0, n - len(group))
        for _ in range(draws if n != size or rule == "random" else 1):
            own = rng.random(more) < size / (size + 1)
            further = np.where(own, rng.choice(group, more), rng.choice(every, more))
            group_of_n = np.concatenate([rng.permutation(group)[:n], further])
            spreads.append(spread(rule, group_of_n, m, rng))
    return signal(m, spreads)


def spread(rule: str, rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> float:
    """S: population std of the m rewards that the rule keeps."""
    kept = rewards if m == len(rewards) else rewards[select(rule, rewards, m, rng=rng)]
    return float(np.std(kept)) if np.ptp(kept) else 0.0  # equal floats can have a std of 1e-17


def signal(m: float, spreads: list[float], weights: np.ndarray | None = None) -> float:
    """J of spreads, alike or with weights that add up to 1; 0 if every spread is 0."""
    values = np.array(spreads)
    weights = np.full(len(values), 1 / len(values)) if weights is None else weights
    alive = float(weights @ (values > 0))
    return m * float(weights @ values) ** 2 / alive if alive else 0.0


def read(folder: Path, window: list[int] | None) -> tuple[Cell, Prices, list[np.ndarray]]:
    """The sizes of a run, its mean costs and the (n,) rewards of every prompt in the window."""
    first, last = window or (1, np.inf)
    records = ledger.read(ledger.find(str(folder.parent), folder.name))
    steps = {step: list(group) for step, group in groupby(records, lambda record: record["step"])}
    lines = [line for line in ledger.read(folder / "metrics.jsonl") if line["step"] in steps]
    lines = [line for line in lines if first <= line["step"] <= last]
    if len(lines) < FEWEST_STEPS:
        text = f"run={folder.name}: has {len(lines)} steps, a plan needs {FEWEST_STEPS} or more"
        raise UserError(f"{text}; train longer, or widen window")
    config = OmegaConf.load(folder / ".hydra" / "config.yaml")
    recorded = [steps[line["step"]] for line in lines]
    rewards = [np.array(record["total"]) for step in recorded for record in step]
    measured = config.get("clock", {}).get("name", "measured") == "measured"
    cost = mean_cost(lines, recorded) if measured else Prices(**config.clock)
    return Cell(*(config[size] for size in SIZES)), cost, rewards


def mean_cost(lines: list[dict[str, Any]], steps: list[list[dict[str, Any]]]) -> Prices:
    """Generation is split by least squares (coefficients of 0 or more) on a constant, the longest
    completion and all tokens; scoring counts per generated, the update per trained rollout."""
    lengths = [np.concatenate([record["lengths"] for record in step]) for step in steps]
    table = np.array([[1.0, step.max(), step.sum()] for step in lengths])
    table[:, 1:] *= np.ptp(table[:, 1:], axis=0) > 0  # equal lengths count as the constant
    columns = ("generate", "score", "select", "update")
    seconds = np.array([[line[f"seconds/{name}"] for name in columns] for line in lines])
    parts = nnls(table, seconds[:, 0])[0] * table.mean(axis=0)  # s of a step
    generated = np.mean([len(step) for step in lengths])
    trained = np.mean([sum(len(record["kept"]) for record in step) for step in steps])
    _, score, selection, update = seconds.mean(axis=0)
    generate = (parts[2] + score + selection) / generated
    costs = {"fixed": parts[0] + parts[1], "generate": generate, "update": update / trained}
    return Prices(name="measured", **{name: float(cost) for name, cost in costs.items()})


def verdict(cells: list[Cell]) -> str:
    """Whether the best cell with n > m is clearly faster than the best with n = m."""
    pods = max((c for c in cells if c.n > c.m), key=lambda cell: cell.rate, default=None)
    grpo = max((c for c in cells if c.n == c.m), key=lambda cell: cell.rate, default=None)
    if not (grpo and pods):
        return f"only {'PODS (n > m)' if pods else 'GRPO (n = m)'} was compared"
    ratio = pods.rate / grpo.rate if grpo.rate else np.inf
    words = "should pay" if ratio > CLEAR else "makes no clear difference"
    words = "should not pay" if ratio < 1 / CLEAR else words
    return f"PODS {words}: {pods} is predicted {ratio:.3g} times as fast as GRPO, {grpo}"


def beside(
    measured: dict[tuple[int, int, int], float], prices: Prices, rewards: list[np.ndarray]
) -> str:
    """The planner's speed of each (P, n, m) beside its accuracy in tuning, and how well they agree;
    rewards: (rollouts,) of each prompt, of the base."""
    rng, rows = np.random.default_rng(0), []
    for (P, n, m), accuracy in sorted(measured.items(), key=lambda item: -item[1]):
        signal = signal_of_rewards("max_variance", n, m, rewards, rng)
        cell = Cell(P, n, m).predicted(prices, signal, None, 0.0)
        rows.append((f"{P}, {n}, {m}", f"{100 * accuracy:.1f}", cell.rate))
    table = pandas.DataFrame(rows, columns=["P, n, m", "mean, %", "predicted"])
    rank = spearmanr([float(row[1]) for row in rows], table.predicted).statistic
    half = 1.96 * np.sqrt((1 + rank**2 / 2) / (len(rows) - 3))  # Bonett and Wright 2000
    low, high = np.tanh(np.arctanh(rank) + half * np.array([-1, 1]))
    table.predicted = [f"{value / table.predicted.max():.2f}" for value in table.predicted]
    return f"{speedup.markdown(table)}\n\nrank correlation {rank:.2f} [{low:.2f}, {high:.2f}]"


def heat_map(cells: list[Cell], base: Cell, title: str) -> Canvas:
    """The rate over (n, m) at the best cell's P, relative to that of `base`."""
    prompts = max(cells, key=lambda cell: cell.rate).prompts
    relative = {(c.n, c.m): c.rate / base.rate for c in cells if c.prompts == prompts}
    ns, ms = (sorted(set(sizes)) for sizes in zip(*relative, strict=True))
    grid = np.array([[relative.get((n, m), np.nan) for n in ns] for m in ms])
    with style.context([STYLE, {"axes.grid": False}]):
        canvas = Canvas(figsize=(2.5 + 0.6 * len(ns), 2 + 0.4 * len(ms)), layout="constrained")
        axes = canvas.subplots()
        image = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis", vmin=0)
        for i, j in np.argwhere(np.isfinite(grid)):
            colour = "white" if grid[i, j] < 0.6 * np.nanmax(grid) else "black"
            axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", color=colour)
        axes.set(xticks=range(len(ns)), xticklabels=ns, xlabel="n, rollouts per prompt")
        axes.set(yticks=range(len(ms)), yticklabels=ms, ylabel="m, kept per prompt")
        canvas.colorbar(image, label=f"speed / that of {base}")
        canvas.suptitle(f"{title}, P = {prompts}", fontsize=9)
    return canvas
