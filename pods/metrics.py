"""Numbers of a step for the metrics: of all R rollouts, and of those that are trained on."""

from collections.abc import Callable

import numpy as np

from pods.batch import Record, mean


def summary(record: Record) -> dict[str, float]:
    """all/* of the R rollouts, kept/* of those trained on; what is not defined is left out."""
    batch, kept = record.batch, record.selection.kept
    rewards = batch.rewards.astype(float)
    groups = [rewards[group] for group in batch.groups]
    kept_groups = [rewards[np.intersect1d(group, kept)] for group in batch.groups]
    stds = [statistic(np.std, group) for group in groups]
    variances = [statistic(np.var, group) for group in groups]
    kept_variances = [statistic(np.var, group) for group in kept_groups]
    without_signal = [statistic(np.ptp, group) == 0 for group in groups]
    values = {
        "all/reward_mean": statistic(np.mean, rewards),
        "all/reward_std": mean(stds),
        "all/reward_variance": mean(variances),
        "all/reward_min": statistic(np.min, rewards),
        "all/reward_max": statistic(np.max, rewards),
        "all/zero_variance_groups": mean(without_signal),
        "all/completion_length_mean": batch.lengths.mean(),
        "all/completion_length_max": batch.lengths.max(),
        "all/clipped_ratio": batch.clipped.mean(),
        "kept/reward_mean": statistic(np.mean, rewards[kept]),
        "kept/reward_variance": mean(kept_variances),
        "kept/completion_length_mean": mean(batch.lengths[kept]),
        "generate/rounds": record.rounds,
        "generate/rollouts": len(batch),
        "select/filled": record.step.budget - len(kept),
    }
    for name, scores in batch.by_function.items():
        values[f"all/{name}_mean"] = mean(scores)
    return {name: float(value) for name, value in values.items() if not np.isnan(value)}


def statistic(function: Callable[[np.ndarray], float], rewards: np.ndarray) -> float:
    """Of the rewards that are not NaN; NaN if there are none."""
    numbers = rewards[~np.isnan(rewards)]
    return float(function(numbers)) if len(numbers) else float("nan")
