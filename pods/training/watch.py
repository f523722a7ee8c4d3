"""Whether a run learns, by its metric lines only: a resumed run repeats the check from
metrics.jsonl."""

from collections import deque
from statistics import fmean, pstdev

from pods.config.keys import TrainConfig
from pods.metrics import Metrics

WINDOW = 50  # steps


class Watch:
    """`problem`: the first sign that a run does not learn, with the key to change; it stays."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.problem = ""
        self.steps: deque[Metrics] = deque(maxlen=WINDOW)
        self.best = float("-inf")  # highest mean reward of a window
        # Under v1 a correct answer earns no format, so that its absence says nothing.
        rewards = config.rewards
        self.formed = rewards.version.startswith("v1") or not rewards.weights.get("format")

    def __call__(self, line: Metrics) -> Metrics:
        """Take the metrics of a step; returns those of the window."""
        self.steps.append(line)
        self.formed |= line.get("all/format_mean", 0) > 0
        without_signal = sum(step.get("all/zero_variance_groups") == 1 for step in self.steps)
        metrics = {"watch/steps_without_signal": float(without_signal)}
        # A step has no mean reward if no rollout got one.
        rewards = [step["all/reward_mean"] for step in self.steps if "all/reward_mean" in step]
        if len(self.steps) == WINDOW and rewards:
            reward = fmean(rewards)
            self.best = max(self.best, reward)
            self.problem = self.problem or self.sign(rewards, without_signal)
            metrics["watch/reward_lost"] = self.best - reward
        return metrics

    def sign(self, rewards: list[float], without_signal: int) -> str:
        """Why a full window of steps does not learn, and what to change; "" if it learns."""
        reward = fmean(rewards)
        lost = self.best - reward
        if lost > abs(self.best) / 2 and lost > 3 * pstdev(rewards) / WINDOW**0.5:
            rate = self.config.optimizer.learning_rate
            return (
                f"in {WINDOW} steps the mean reward fell from {self.best:.3g} to {reward:.3g}; "
                f"lower optimizer.learning_rate={rate}, or raise loss.beta"
            )
        clipped = fmean(step.get("all/clipped_ratio", 0) for step in self.steps) > 0.5
        limit = self.config.sampling.max_completion_length
        longer = f"most rollouts are clipped: raise sampling.max_completion_length={limit}"
        if without_signal == WINDOW:
            easier = "choose harder or easier questions, or raise rollouts_per_prompt"
            return (
                f"in {WINDOW} steps all rewards of a prompt are equal (mean {reward:.3g}): "
                f"there is no signal; {longer if clipped else easier}"
            )
        if not any("kept/completion_length_mean" in step for step in self.steps):
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
