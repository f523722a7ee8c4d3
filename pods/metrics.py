"""Numbers of a step for the metrics: of all R rollouts, and of those that are trained on."""

import numpy as np
import pandas as pd

from pods.batch import Record

Metrics = dict[str, float]  # by name, such as all/reward_mean


def summary(record: Record) -> Metrics:
    """all/* of the R rollouts, kept/* of those trained on; NaN metrics are omitted."""
    batch, kept = record.batch, record.selection.kept
    table = pd.DataFrame(
        {
            "prompt": batch.prompt,
            "reward": batch.rewards.astype(float),
            "length": batch.lengths,
            "clipped": batch.clipped,
        }
    )
    trained = table.iloc[kept]
    rewards = table.groupby("prompt").reward  # pandas leaves out what is NaN
    kept_rewards = trained.groupby("prompt").reward
    values = {
        "all/reward_mean": table.reward.mean(),
        "all/reward_std": rewards.std(ddof=0).mean(),
        "all/reward_variance": rewards.var(ddof=0).mean(),
        "all/reward_min": table.reward.min(),
        "all/reward_max": table.reward.max(),
        "all/zero_variance_groups": rewards.nunique().eq(1).mean(),
        "all/completion_length_mean": table.length.mean(),
        "all/completion_length_max": table.length.max(),
        "all/clipped_ratio": table.clipped.mean(),
        "kept/reward_mean": trained.reward.mean(),
        "kept/reward_variance": kept_rewards.var(ddof=0).mean(),
        "kept/zero_variance_groups": kept_rewards.nunique().eq(1).mean(),
        "kept/completion_length_mean": trained.length.mean(),
        "generate/rounds": record.rounds,
        "generate/rollouts": len(batch),
        "select/filled": record.step.budget - len(kept),
    }
    for name, scores in batch.by_function.items():
        values[f"all/{name}_mean"] = pd.Series(scores, dtype=float).mean()
    return {name: float(value) for name, value in values.items() if not np.isnan(value)}
