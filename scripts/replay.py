"""Apply another selection rule to the recorded rollouts of a run, without a GPU.

    uv run scripts/replay.py run=<run> rule=max_reward
    uv run scripts/replay.py run=<run> rule=max_variance kept_per_prompt=8

The rule selects again from the rollouts of every step in the ledger; one with history starts empty.
The table shows how often the selections differ, the share of common rollouts, and the reward
variance of each.
"""

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from pods import ledger
from pods.cli import UserError, command
from pods.config import Function
from pods.rules import Batch, Rule, Selection, find, select_batch


@dataclass
class ReplayConfig:
    run: str
    output_dir: str
    rule: Function
    kept_per_prompt: int | None
    seed: int


@command("replay", ReplayConfig)
def main(config: ReplayConfig) -> None:
    path = ledger.find(config.output_dir, config.run)
    try:
        rule = find(config.rule.name)
        rows = [replay(rule, *step, config) for step in ledger.steps(path)]
    except ValueError as error:  # an unknown rule, or one that does not fit the batches
        raise UserError(f"rule.name={config.rule.name}: {error}") from None
    if not rows:
        raise UserError(f"run={config.run}: {path} holds no complete record yet")
    Console().print(table(config, rows))


def replay(rule: Rule, batch: Batch, before: Selection, config: ReplayConfig) -> dict[str, float]:
    """Both selections of one step; means over its prompts, as in the metrics of the run."""
    prompts, n = batch.shape
    m = config.kept_per_prompt
    if m is not None and m > n:
        raise UserError(f"kept_per_prompt={m}: the run has {n} rollouts per prompt; lower it")
    budget = len(before.kept) if m is None else m * prompts
    rng = np.random.default_rng([config.seed, batch.step])
    after = select_batch(rule, batch, budget, rng=rng, **config.rule.params)
    old, new = rewards_by_prompt(batch, before), rewards_by_prompt(batch, after)
    same = [np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(old, new, strict=True)]
    common = np.intersect1d(before.kept, after.kept)
    differing = {int(i) // n for i in np.setxor1d(before.kept, after.kept)}
    return {
        "differs": len(differing) / prompts,
        "rewards differ": 1 - np.mean(same),
        "rollouts in common": len(common) / budget,
        "variance kept by the run": mean_variance(old),
        "variance kept now": mean_variance(new),
        "variance of all": batch.rewards.var(axis=1).mean(),
        "mean reward kept by the run": np.concatenate(old).mean(),
        "mean reward kept now": np.concatenate(new).mean(),
        **shares("kept by the run", before),
        **shares("kept now", after),
    }


def shares(kept: str, selection: Selection) -> dict[str, float]:
    """The share of the kept rollouts that has each reason, where the rule gives reasons."""
    reasons = list(selection.reasons or ())
    return {f"{kept}: {one}": reasons.count(one) / len(reasons) for one in sorted(set(reasons))}


def rewards_by_prompt(batch: Batch, selection: Selection) -> list[np.ndarray]:
    """The kept rewards of each prompt."""
    owner = selection.kept // batch.shape[1]
    kept = batch.rewards.reshape(-1)[selection.kept]
    return [kept[owner == p] for p in range(batch.shape[0])]


def mean_variance(groups: list[np.ndarray]) -> float:
    return float(np.mean([group.var() for group in groups if len(group)]))


def table(config: ReplayConfig, steps: list[dict[str, float]]) -> Table:
    """Means over the steps with their standard errors."""
    title = f"{config.run} replayed with rule {config.rule.name}: {len(steps)} steps"
    right = (Column(name, justify="right") for name in ("mean", "standard error"))
    found = Table("mean over prompts", *right, title=title)
    for name in dict.fromkeys(name for step in steps for name in step):
        values = np.array([step.get(name, 0.0) for step in steps])  # 0: a reason that did not occur
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        found.add_row(name, f"{values.mean():.4f}", f"{error:.4f}")
    return found


if __name__ == "__main__":
    main()
