"""Which n, m and P learn fastest: the signal of a step's gradient against the seconds it takes.

    T(n, m, P) = a + g n P + u m P         seconds a step
    J(n, m)    = m E[S]^2 / P(S > 0)       S: population std of the kept rewards of a prompt
    SNR2       = P / (A + 1 / (kappa J))   signal-to-noise of the step's gradient, squared
    rate       = SNR2 / (1 + SNR2) / T     1/s; of the root of the fraction with the lr held fixed

docs/planner.md derives it and names its assumptions. Pure: arrays in, arrays out. An estimate from
a run is an array (1 + B,): the run's own value, then those of B resamplings of its steps. J changes
while the policy learns: it is estimated in each of K phases, (1 + B, K).
Used by scripts/plan.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.stats import betabinom, binom

from pods.rules import select

FEWEST_STEPS = 10  # below it a bootstrap over steps is too narrow
MOST_PHASES = 5
DRAWS = 1000  # groups of n' rollouts drawn for one J: its noise is then below that of the steps
TINY = 1e-12


class Cell(NamedTuple):
    """Sizes of a step: P prompts, n rollouts and m kept of each."""

    prompts: int
    n: int
    m: int


@dataclass(frozen=True)
class Costs:
    """Seconds, arrays (1 + B,) or numbers: of a step, of a generated rollout, of a trained one."""

    fixed: np.ndarray | float
    generate: np.ndarray | float
    update: np.ndarray | float
    residual: dict[str, float] | None = None  # phase -> residual sd as a share of its mean seconds

    def of(self, cell: Cell) -> np.ndarray | float:
        """Seconds of a step of this cell, shaped as the costs."""
        drawn, kept = cell.n * cell.prompts, cell.m * cell.prompts
        return self.fixed + self.generate * drawn + self.update * kept


@dataclass(frozen=True)
class Steps:
    """Recorded steps of a run with cell `cell`."""

    cell: Cell
    rewards: np.ndarray  # (steps, P, n)
    right: np.ndarray  # (steps, P, n) bool
    seconds: dict[str, np.ndarray]  # (steps,) of generate, score (with selection), update
    generated: np.ndarray  # (steps,) tokens of all P * n rollouts
    trained: np.ndarray  # (steps,) tokens of the P * m kept
    longest: np.ndarray  # (steps,) tokens of the longest completion

    @property
    def steps(self) -> np.ndarray:
        return np.ones(len(self.rewards))

    @property
    def kept(self) -> np.ndarray:
        """(steps,) rollouts that are trained on."""
        return self.steps * self.cell.m * self.cell.prompts


def resampled(steps: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """(1 + B, steps) weights that add up to 1: equal ones, then B bootstrap samples of the steps.

    Raises ValueError below FEWEST_STEPS.
    """
    if steps < FEWEST_STEPS:
        raise ValueError(f"{steps} steps; intervals need {FEWEST_STEPS} or more")
    drawn = rng.multinomial(steps, np.full(steps, 1 / steps), size=resamples)
    return np.vstack([np.ones(steps), drawn]) / steps


def fit_costs(runs: list[Steps], weights: list[np.ndarray]) -> Costs:
    """a, g and u of the first run, by least squares with coefficients of 0 or more.

    Generation: fixed + the longest completion + tokens. Update: kept rollouts, which micro-batches
    take one after the other, + their tokens. Lengths then are the means of the first run, and
    scoring and selection count per generated rollout. The steps of one run are alike; runs of
    other n and m tell a, g and u apart.
    """
    own, mean = runs[0], weights[0]
    drawn, kept = own.cell.n * own.cell.prompts, own.cell.m * own.cell.prompts
    regressors = {"generate": ("steps", "longest", "generated"), "update": ("kept", "trained")}
    found, residual = {}, {}
    for phase, (first, *others) in regressors.items():
        columns = [np.concatenate([getattr(run, name) for run in runs]) for name in others]
        columns = [column * (np.ptp(column) > 0) for column in columns]  # equal: counts as `first`
        table = np.column_stack([np.concatenate([getattr(run, first) for run in runs]), *columns])
        seconds = np.concatenate([run.seconds[phase] for run in runs])
        roots = np.sqrt(np.hstack(weights))
        fits = np.array([nnls(table * root[:, None], seconds * root)[0] for root in roots])
        residual[phase] = float(np.std(seconds - table @ fits[0]) / seconds.mean())
        found[phase] = fits.T
    start, wait, token = found["generate"]
    row, trained = found["update"]
    return Costs(
        fixed=start + wait * (mean @ own.longest),
        generate=(token * (mean @ own.generated) + mean @ own.seconds["score"]) / drawn,
        update=row + trained * (mean @ own.trained) / kept,
        residual=residual,
    )


def phases(steps: int) -> list[np.ndarray]:
    """The steps of each of the K phases of a window, as even as they come."""
    return np.array_split(np.arange(steps), max(1, min(MOST_PHASES, steps // FEWEST_STEPS)))


def spread(rule: str, rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> float:
    """S: population std of the m of the (n,) rewards that the rule keeps."""
    kept = rewards if m == len(rewards) else rewards[select(rule, rewards, m, rng=rng)]
    return float(np.std(kept)) if np.ptp(kept) else 0.0  # equal floats can have a std of 1e-17


def signal_of_accuracy(rule: str, n: int, m: int, accuracy: float) -> float:
    """J of rewards 0 and 1, every rollout right with probability `accuracy`: exact."""
    if rule == "random":  # m drawn from n independent rollouts are m independent rollouts
        n = m
    right = np.arange(n + 1)
    spreads = [spread(rule, (np.arange(n) < k).astype(float), m, None) for k in right]
    return float(_signal(m, np.array(spreads), binom.pmf(right, n, accuracy)[None])[0])


def signal(
    recorded: Steps, rule: str, n: int, m: int, weights: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(1 + B, K) J of the rule at (n, m), from groups of n drawn from recorded ones."""
    steps, prompts, most = recorded.rewards.shape
    more = Further(recorded, rng) if n > most else None
    fixed = n == most and rule != "random"  # every draw is the recorded group
    draws = 1 if fixed else -(-DRAWS // (steps * prompts))
    spreads = np.empty((steps, prompts, draws))
    for step, prompt, draw in np.ndindex(spreads.shape):
        group = recorded.rewards[step, prompt]
        if more is not None:
            group = np.concatenate([group, more(recorded.right[step, prompt], n - most)])
        elif not fixed:
            group = rng.permutation(group)[:n]
        spreads[step, prompt, draw] = spread(rule, group, m, rng)
    parts = phases(steps)
    return np.stack([_signal(m, spreads[part], weights[:, part]) for part in parts], axis=1)


def _signal(m: int, spreads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(1 + B,) J from (steps, ...) spreads and (1 + B, steps) weights."""
    spreads = spreads.reshape(len(spreads), -1)
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
    mean, alive = weights @ spreads.mean(axis=1), weights @ (spreads > 0).mean(axis=1)
    return m * mean**2 / np.maximum(alive, TINY)


class Further:
    """More rollouts of a recorded prompt: right or wrong by a beta-binomial fit over the prompts,
    with the reward of any recorded rollout that was right or wrong too."""

    def __init__(self, recorded: Steps, rng: np.random.Generator) -> None:
        self.rng = rng
        self.shape = fit_beta(recorded.right.sum(axis=2).ravel(), recorded.right.shape[2])
        parts = (recorded.rewards[~recorded.right], recorded.rewards[recorded.right])
        self.pools = [part if len(part) else recorded.rewards.ravel() for part in parts]

    def __call__(self, right: np.ndarray, count: int) -> np.ndarray:
        """(count,) further rewards of a prompt whose recorded rollouts are (n,) `right`."""
        hits = right.sum()
        share = self.rng.beta(self.shape[0] + hits, self.shape[1] + len(right) - hits)
        wrong, good = (self.rng.choice(pool, size=count) for pool in self.pools)
        return np.where(self.rng.random(count) < share, good, wrong)


def fit_beta(right: np.ndarray, n: int) -> tuple[float, float]:
    """(alpha, beta) of greatest likelihood for (prompts,) counts of right among n."""
    counts, times = np.unique(right, return_counts=True)

    def loss(logs: np.ndarray) -> float:
        return -float(times @ betabinom.logpmf(counts, n, *np.exp(logs)))

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", bounds=[(-7, 7)] * 2)
    alpha, beta = np.exp(found.x)
    return float(alpha), float(beta)


def fit_noise(
    norms: np.ndarray, prompts: int, own: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """kappa and A, both (1 + B,), from squared gradient norms (pods/training/gradient_noise.py).

    Args:
        norms: (steps, 3) of the mean over half a prompt, a prompt and the step; NaN: not measured.
        prompts: P of the run; with 1 the noise between prompts is unknown, None.
        own: (1 + B,) J of the run's cell.
        weights: (1 + B, steps).

    Returns:
        None for kappa with fewer than FEWEST_STEPS measured steps.
    """
    measured = np.isfinite(norms[:, 0])
    if measured.sum() < FEWEST_STEPS:
        return None, None
    weights = weights[:, measured] + TINY  # a resampling may hold none of these steps
    half, prompt, step = (weights @ norms[measured] / weights.sum(axis=1, keepdims=True)).T
    within, mean = half - prompt, 2 * prompt - half
    common = mean if prompts == 1 else (prompts * step - prompt) / (prompts - 1)
    common = np.maximum(common, TINY * prompt)  # the noise can hide the signal
    kappa = common / np.maximum(within * own, TINY * prompt)
    return kappa, None if prompts == 1 else np.maximum(mean / common - 1, 0)


def snr2(
    signal: np.ndarray, prompts: int, kappa: np.ndarray | float, between: np.ndarray | float
) -> np.ndarray:
    """Squared signal-to-noise ratio of a step's gradient: P / (A + 1 / (kappa J))."""
    single = kappa * signal
    return prompts * single / (1 + between * single)


def break_even(accuracy: float) -> float:
    """u / g above which PODS pays: 1 / |1 - 2p|, for large n, small SNR and a spread over many
    prompts."""
    return 1 / abs(1 - 2 * accuracy) if accuracy != 0.5 else float("inf")


def where_it_pays(ratio: float) -> str:
    """The shares right at which PODS should pay where u / g is `ratio`, in words."""
    if ratio <= 1:
        return f"u/g = {ratio:.2g}: choosing rollouts should not pay, which needs more than 1"
    edge = (1 - 1 / ratio) / 2
    return (
        f"u/g = {ratio:.2g}: choosing rollouts should pay where less than {edge:.0%} or more than "
        f"{1 - edge:.0%} are right; after 10 steps scripts/plan.py run=<run> says which n and m"
    )


@dataclass(frozen=True)
class Knowledge:
    """What cells are compared with: of a run, or of numbers."""

    experiment: str  # of the training that the plan is for
    origin: str  # of the costs, in words
    own: Cell
    rule: str
    accuracy: float  # mean share of right rollouts
    costs: Costs
    signal: Callable[[int, int], np.ndarray]  # (n, m) -> (1 + B, K) J
    phases: np.ndarray  # (K,) share of the steps; they add up to 1
    kappa: np.ndarray | float | None  # None: unknown, the limit of small signals
    between: np.ndarray | float | None  # A; None: unknown, 0


@dataclass(frozen=True, eq=False)
class Prediction:
    """One cell, arrays (1 + B,)."""

    cell: Cell
    seconds: np.ndarray  # s a step
    snr2: np.ndarray  # in units of kappa where that is unknown
    rate: np.ndarray  # 1/s, likewise


def predict(known: Knowledge, cell: Cell, lr: str) -> Prediction:
    """Seconds, SNR2 and rate of a cell; an unknown kappa leaves the limit of small signals.

    The rate is that of the progress which the run's own cell made in each phase: where that cell
    learned slowly, a cell of stronger signal saves most of the time.
    """
    found, rates = _by_phase(known, cell, lr)
    done = known.phases * _by_phase(known, known.own, lr)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        spent = np.where(done > 0, done / rates, 0).sum(axis=1)  # inf: a phase without signal
    rate = done.sum(axis=1) / np.maximum(spent, TINY)
    return Prediction(cell, known.costs.of(cell), found @ known.phases, rate)


def _by_phase(known: Knowledge, cell: Cell, lr: str) -> tuple[np.ndarray, np.ndarray]:
    """(1 + B, K) SNR2 and rates of a cell."""
    signal, seconds = known.signal(cell.n, cell.m), np.reshape(known.costs.of(cell), (-1, 1))
    if known.kappa is None:
        learned = found = cell.prompts * signal
    else:
        between = 0.0 if known.between is None else np.reshape(known.between, (-1, 1))
        found = snr2(signal, cell.prompts, np.reshape(known.kappa, (-1, 1)), between)
        learned = found / (1 + found)
    return found, (learned if lr == "tuned" else learned**0.5) / seconds


def interval(values: np.ndarray) -> list[float] | None:
    """95 % interval of an estimate (1 + B,); None without resamplings."""
    return np.percentile(values[1:], [2.5, 97.5]).tolist() if len(values) > 1 else None
