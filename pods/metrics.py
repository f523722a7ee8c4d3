"""Numbers of a step for the metrics: of all R rollouts, and of those that are trained on."""

import numpy as np

from pods.batch import Record, mean

Metrics = dict[str, float]  # by name, such as all/reward_mean


def summary(record: Record) -> Metrics:
    """all/* of the R rollouts, kept/* of those trained on; NaN metrics are omitted."""
    batch, kept = record.batch, record.selection.kept
    rewards = batch.rewards.astype(float)
    scored = rewards[~np.isnan(rewards)]
    variances, equal = within_prompts(rewards, batch.prompt)
    kept_variances, kept_equal = within_prompts(rewards[kept], batch.prompt[kept])
    values = {
        "all/reward_mean": mean(rewards),
        "all/reward_std": mean(np.sqrt(variances)),
        "all/reward_variance": mean(variances),
        "all/reward_min": scored.min() if len(scored) else np.nan,
        "all/reward_max": scored.max() if len(scored) else np.nan,
        "all/zero_variance_groups": mean(equal),
        "all/completion_length_mean": mean(batch.lengths),
        "all/completion_length_max": batch.lengths.max(),
        "all/clipped_ratio": mean(batch.clipped),
        "kept/reward_mean": mean(rewards[kept]),
        "kept/reward_variance": mean(kept_variances),
        "kept/zero_variance_groups": mean(kept_equal),
        "kept/completion_length_mean": mean(batch.lengths[kept]),
        "generate/rounds": record.rounds,
        "generate/rollouts": len(batch.lengths),
        "select/filled": record.step.budget - len(kept),
    }
    for name, scores in batch.by_function.items():
        values[f"all/{name}_mean"] = mean(scores)
    return {name: float(value) for name, value in values.items() if not np.isnan(value)}


def within_prompts(rewards: np.ndarray, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each prompt with a rollout the variance of its rewards, NaN without one, and whether all
    are equal. Welford's method in the order of the rollouts, all prompts at once: equal to the last
    digit to pandas, with which earlier metrics were written.

    rewards: (R,), NaN is left out. prompt: (R,) its number for each rollout.
    """
    prompts, group = np.unique(prompt, return_inverse=True)
    scored = ~np.isnan(rewards)
    rewards, group = rewards[scored], group[scored]
    counts = np.bincount(group, minlength=len(prompts))
    order = np.argsort(group, kind="stable")
    places = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    table = np.full((counts.max(initial=1), len(prompts)), np.nan)  # a column a prompt
    table[places, group[order]] = rewards[order]
    means = np.zeros(len(prompts))
    squares = np.zeros(len(prompts))
    for number, row in enumerate(table, 1):
        differences = row - means
        means = np.where(np.isnan(row), means, means + differences / number)
        squares = np.where(np.isnan(row), squares, squares + (row - means) * differences)
    equal = counts > 0
    equal[group[rewards != table[0, group]]] = False
    return squares / np.where(counts == 0, np.nan, counts), equal
