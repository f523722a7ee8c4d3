"""One step's numbers: `all/*` over the n generated, `kept/*` over the m trained on."""

import numpy as np

from pods.rollouts import Step


def summarize(step: Step) -> dict[str, float]:
    """Metrics of one step; `step_tokens/*` are counts of this step alone."""
    batch, kept = step.batch, step.selection.kept
    rewards = np.asarray(batch.rewards, dtype=np.float64)  # (P, n)
    groups = [rewards[p, step.kept_of(p)] for p in range(len(rewards))]
    kept_lengths = batch.lengths.reshape(-1)[kept]
    metrics = {
        "all/reward_mean": rewards.mean(),
        "all/reward_std": rewards.std(axis=1).mean(),  # within a prompt
        "all/reward_variance": rewards.var(axis=1).mean(),
        "all/reward_min": rewards.min(),
        "all/reward_max": rewards.max(),
        "all/zero_variance_groups": (np.ptp(rewards, axis=1) == 0).mean(),
        "all/completion_length_mean": batch.lengths.mean(),
        "all/completion_length_max": batch.lengths.max(),
        "all/clipped_ratio": batch.clipped.mean(),
        "kept/reward_mean": rewards.reshape(-1)[kept].mean(),
        "kept/reward_variance": np.mean([group.var() for group in groups if len(group)]),
        "kept/completion_length_mean": kept_lengths.mean(),
        **{f"all/{name}_mean": values.mean() for name, values in batch.by_function.items()},
        "step_tokens/generated": batch.lengths.sum(),
        "step_tokens/trained": kept_lengths.sum(),
    }
    return {name: float(value) for name, value in metrics.items()}
