"""Apply selection rules to the recorded rollouts of a run, without a GPU.

    uv run scripts/replay.py run=<run>                    every built-in rule in one table
    uv run scripts/replay.py run=<run> rule=max_reward    one rule against the run's own selections
    uv run scripts/replay.py run=<run> rule=max_variance kept_per_prompt=8

The rule selects again from the rollouts of every step in the ledger; one with history starts empty.
J is the signal of a step's gradient (pods/figures/planner.py).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from omegaconf import MISSING
from rich.console import Console
from rich.table import Column, Table

from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Rule
from pods.config.schema import at_least, positive
from pods.rules import RULES, Batch, Selection, find, select_batch
from pods.runs import ledger


@dataclass
class Chosen(Rule):
    name: str | None = None


@dataclass
class ReplayConfig:
    run: str = MISSING
    output_dir: str = MISSING
    kept_per_prompt: int | None = positive()
    seed: int = at_least(0)
    rule: Chosen = field(default_factory=Chosen)


@command("replay", ReplayConfig)
def main(config: ReplayConfig) -> None:
    path = ledger.find(config.output_dir, config.run)
    if not (steps := list(ledger.steps(path))):
        raise UserError(f"run={config.run}: {path} holds no complete record yet")
    if config.rule.name is None:
        Console().print(every_rule(config, steps))
        return
    try:
        rule = find(config.rule.name)
        rows = [replay(rule, *step, config) for step in steps]
    except ValueError as error:  # an unknown rule, or one that does not fit the batches
        raise UserError(f"rule.name={config.rule.name}: {error}") from None
    Console().print(table(config, rows))


def every_rule(config: ReplayConfig, steps: list[tuple[Batch, Selection]]) -> Table:
    """A row for each built-in rule that fits the run's n and m."""
    columns = "kept variance", "J", "no signal", "as PODS", "ms a step"
    right = (Column(name, justify="right") for name in columns)
    found = Table(
        Column("rule", no_wrap=True),
        *right,
        title=f"{config.run}: {len(steps)} steps under every rule",
    )
    reference = chosen("max_variance", steps, config)
    for name in RULES:
        started = time.perf_counter()
        try:
            kept = chosen(name, steps, config)
        except ValueError:  # `all` where n > m
            continue
        seconds = time.perf_counter() - started
        batches = [batch for batch, _ in steps]
        groups = [
            group for step in zip(batches, kept, strict=True) for group in rewards_by_prompt(*step)
        ]
        spreads = np.array(
            [group.std() if len(group) and np.ptp(group) else 0.0 for group in groups]
        )
        alive, budget = np.mean(spreads > 0), np.mean([len(s.kept) for s in kept])
        signal = budget / batches[0].shape[0] * spreads.mean() ** 2 / max(alive, 1e-12)
        common = [
            len(np.intersect1d(a.kept, b.kept)) / len(a.kept)
            for a, b in zip(kept, reference, strict=True)
        ]
        numbers = np.mean(spreads**2), signal, 1 - alive, np.mean(common)
        found.add_row(name, *map("{:.4f}".format, numbers), f"{1000 * seconds / len(steps):.2f}")
    return found


def chosen(
    rule: str, steps: list[tuple[Batch, Selection]], config: ReplayConfig
) -> list[Selection]:
    """What a rule keeps of each step."""
    return [again(find(rule), batch, before, config, {}) for batch, before in steps]


def replay(
    rule: Callable, batch: Batch, before: Selection, config: ReplayConfig
) -> dict[str, float]:
    """Both selections of one step; means over its prompts, as in the metrics of the run."""
    prompts, n = batch.shape
    after = again(rule, batch, before, config, config.rule.params)
    old, new = rewards_by_prompt(batch, before), rewards_by_prompt(batch, after)
    same = [np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(old, new, strict=True)]
    common = np.intersect1d(before.kept, after.kept)
    differing = {int(i) // n for i in np.setxor1d(before.kept, after.kept)}
    return {
        "differs": len(differing) / prompts,
        "rewards differ": 1 - np.mean(same),
        "rollouts in common": len(common) / len(after.kept),
        "variance kept by the run": mean_variance(old),
        "variance kept now": mean_variance(new),
        "variance of all": batch.rewards.var(axis=1).mean(),
        "mean reward kept by the run": np.concatenate(old).mean(),
        "mean reward kept now": np.concatenate(new).mean(),
        **shares("kept by the run", before),
        **shares("kept now", after),
    }


def again(
    rule: Callable, batch: Batch, before: Selection, config: ReplayConfig, params: dict[str, Any]
) -> Selection:
    """What the rule keeps of a recorded step."""
    prompts, n = batch.shape
    m = config.kept_per_prompt
    if m is not None and m > n:
        raise UserError(f"kept_per_prompt={m}: the run has {n} rollouts per prompt; lower it")
    budget = len(before.kept) if m is None else m * prompts
    rng = np.random.default_rng([config.seed, batch.step])
    return select_batch(rule, batch, budget, rng=rng, **params)


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
