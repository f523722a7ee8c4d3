"""Whether a run learns, by its metric lines alone: a resumed run repeats it from metrics.jsonl."""

import pandas as pd

from pods.config.keys import TrainConfig
from pods.metrics import Metrics

WINDOW = 50  # steps


class Watch:
    """`problem`: the first sign that a run does not learn, with the key to change; it stays."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.problem = ""
        self.lines: list[Metrics] = []  # of the window
        self.best = float("-inf")  # highest mean reward of a window
        # Under v1 a correct answer earns no format, so that its absence says nothing.
        rewards = config.rewards
        self.formed = rewards.version.startswith("v1") or not rewards.weights.get("format")

    def __call__(self, line: Metrics) -> Metrics:
        """Take the metrics of a step; returns those of the window."""
        self.lines = [*self.lines, line][-WINDOW:]
        self.formed |= line.get("all/format_mean", 0) > 0
        steps = pd.DataFrame(self.lines)
        dead = (steps["all/zero_variance_groups"] == 1).sum()
        metrics = {"watch/steps_without_signal": float(dead)}
        if len(steps) < WINDOW:
            return metrics
        reward = steps["all/reward_mean"].mean()
        self.best = max(self.best, reward)
        self.problem = self.problem or self.sign(steps, reward)
        metrics["watch/reward_lost"] = self.best - reward
        return metrics

    def sign(self, steps: pd.DataFrame, reward: float) -> str:
        """What is wrong with a full window of steps, and what to change; "" if nothing is. reward:
        their mean."""
        noise = 3 * steps["all/reward_mean"].std() / WINDOW**0.5
        if self.best - reward > max(noise, abs(self.best) / 2):
            rate = self.config.optimizer.learning_rate
            return (
                f"in {WINDOW} steps the mean reward fell from {self.best:.3g} to {reward:.3g}; "
                f"lower optimizer.learning_rate={rate}, or raise loss.beta"
            )
        clipped = steps["all/clipped_ratio"].mean() > 0.5
        limit = self.config.sampling.max_completion_length
        longer = f"most rollouts are clipped: raise sampling.max_completion_length={limit}"
        if (steps["all/zero_variance_groups"] == 1).all():
            easier = "choose harder or easier questions, or raise rollouts_per_prompt"
            return (
                f"in {WINDOW} steps all rewards of a prompt are equal (mean {reward:.3g}): "
                f"there is no signal; {longer if clipped else easier}"
            )
        if "kept/completion_length_mean" not in steps:
            return (
                f"in {WINDOW} steps no rollout was trained on: algorithm={self.config.algorithm} "
                "returns none; correct it, or take another"
            )
        if not self.formed:
            template = "see the prompt with trial=true, and set task.system"
            return (
                f"in {WINDOW} steps no completion has earned format; "
                f"{longer if clipped else template}"
            )
        return ""
