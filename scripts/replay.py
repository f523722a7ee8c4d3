"""Apply another selection rule to the recorded rollouts of a run, without a GPU.

    uv run scripts/replay.py run=<run> rule=max_reward
    uv run scripts/replay.py run=<run> rule=max_variance kept_per_prompt=8

The rule selects again from the same n rewards of every group in the ledger. The table shows how
often the selections differ, the share of common rollouts, and the reward variance of each.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import MISSING
from rich.console import Console
from rich.table import Table

from pods import ledger
from pods.cli import UserError, command
from pods.config import Rule
from pods.rules import RULES, select


@dataclass
class ReplayConfig:
    run: str = MISSING
    output_dir: str = MISSING
    rule: Rule = field(default_factory=Rule)
    kept_per_prompt: int | None = MISSING
    seed: int = MISSING


@command("replay", ReplayConfig)
def main(config: ReplayConfig) -> None:
    path = Path(config.output_dir) / config.run / "rollouts.jsonl.zst"
    if not path.is_file():
        runs = sorted(p.parent.name for p in Path(config.output_dir).glob("*/rollouts.jsonl.zst"))
        raise UserError(
            f"run={config.run}: no ledger {path}; runs with one: {', '.join(runs) or 'none'}"
        )
    if config.rule.name not in RULES:
        raise UserError(f"rule.name={config.rule.name}: must be one of {', '.join(RULES)}")
    groups = [replay(record, config) for record in ledger.read(path)]
    if not groups:
        raise UserError(f"run={config.run}: {path} holds no complete record yet")
    Console().print(table(config, groups))


def replay(record: dict[str, Any], config: ReplayConfig) -> dict[str, float]:
    """Both selections of one group; variances as in the metrics of the run."""
    total = np.array(record["total"])
    before = np.array(record["kept"])
    m = config.kept_per_prompt or len(before)
    if m > len(total):
        raise UserError(f"kept_per_prompt={m}: the run has {len(total)} rollouts per prompt")
    rng = np.random.default_rng([config.seed, record["step"], record["group"]])
    after = select(config.rule.name, total, m, rng=rng, **config.rule.params)
    return {
        "differs": float(not np.array_equal(before, after)),
        "rewards differ": float(sorted(total[before]) != sorted(total[after])),
        "rollouts in common": len(np.intersect1d(before, after)) / m,
        "variance kept by the run": total[before].var(),
        "variance kept now": total[after].var(),
        "variance of all": total.var(),
        "mean reward kept by the run": total[before].mean(),
        "mean reward kept now": total[after].mean(),
    }


def table(config: ReplayConfig, groups: list[dict[str, float]]) -> Table:
    """Means over the groups with their standard errors."""
    found = Table(title=f"{config.run} replayed with rule {config.rule.name}: {len(groups)} groups")
    found.add_column("per group")
    found.add_column("mean", justify="right")
    found.add_column("standard error", justify="right")
    for name in groups[0]:
        values = np.array([group[name] for group in groups])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        found.add_row(name, f"{values.mean():.4f}", f"{error:.4f}")
    return found


if __name__ == "__main__":
    main()
