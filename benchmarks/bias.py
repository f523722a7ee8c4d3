"""How biased is each choice of rollouts? Its mean update beside that of all rollouts (grpo_ga).

    uv run scripts/plan.py run=<run>       # records rollouts and their gradients
    uv run benchmarks/bias.py checkpoints/<run>/signal-<checkpoint>.npz

cosine, length: of the mean of 4,000 simulated updates, to that of grpo_ga on the same rollouts. An
unbiased choice has 1 and 1. [ ]: 95 % of a bootstrap over questions.
"""

import sys
from pathlib import Path

import numpy as np
import pandas

from pods.advantages import over_kept
from pods.algorithms import ALGORITHMS
from pods.config.prices import read_prices
from pods.signal import compare
from pods.signal.pool import load
from pods.signal.simulate import Candidate, Simulator

P, N, M = 8, 16, 4  # prompts of a step, rollouts of a prompt, and those of them that are kept
FEW = ("grpo", "dapo", "greso", "thin")  # sample M of a prompt
STEPS = 4000
RESAMPLES = 2000


def main(path: Path) -> None:
    pool = load(path)
    simulator = Simulator(pool, pool.facts["training"]["loss"]["type"], P * M)
    prices = read_prices("l40s")
    means = {}
    for name, algorithm in ALGORITHMS.items():
        cell = Candidate(name, P, M if name in FEW else N, N if name == "grpo_ga" else M)
        means[cell] = simulator.updates(algorithm, over_kept, cell, prices, STEPS).mean
    full = means[Candidate("grpo_ga", P, N, N)]
    questions = len(full)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(questions, np.full(questions, 1 / questions), RESAMPLES)
    weights = np.vstack([np.ones(questions), counts])  # the first row: every question once
    full_length = np.linalg.norm(weights @ full, axis=1)
    rows = []
    for cell, mean in means.items():
        length = np.linalg.norm(weights @ mean, axis=1)
        cosine = np.einsum("ij,ij->i", weights @ mean, weights @ full) / length / full_length
        rows.append(
            {
                "algorithm": cell.algorithm,
                "n": cell.n,
                "m": cell.m,
                "cosine": with_interval(cosine),
                "length": with_interval(length / full_length),
            }
        )
    print(
        f"{path.stem} of {pool.facts['name']}: {questions} questions x {simulator.count} rollouts"
    )
    print(pandas.DataFrame(rows).to_string(index=False))


def with_interval(values: np.ndarray) -> str:
    """The first value, with the middle 95 % of the others."""
    low, high = compare.interval(values)
    return f"{values[0]:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
