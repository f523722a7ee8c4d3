"""Whether a run learns, by its metric lines alone: a resumed run repeats it from metrics.jsonl."""

import pandas as pd

from pods.config.keys import TrainConfig

WINDOW = 50  # steps


class Watch:
    """`problem`: the first sign that a run does not learn, with the key to change; it stays."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.problem = config, ""
        self.lines: list[dict[str, float]] = []  # of the window
        self.best = float("-inf")  # highest mean reward of a window
        unpaid = config.rewards.version.startswith("v1")  # to correct answers at least
        self.formed = unpaid or not config.rewards.weights.get("format")

    def __call__(self, line: dict[str, float]) -> dict[str, float]:
        """Take the metrics of a step; returns those of the window."""
        self.lines = [*self.lines, line][-WINDOW:]
        self.formed |= line.get("all/format_mean", 0) > 0
        steps = pd.DataFrame(self.lines)
        dead, rewards = steps["all/zero_variance_groups"] == 1, steps["all/reward_mean"]
        metrics = {"watch/steps_without_signal": float(dead.sum())}
        if len(steps) < WINDOW:
            return metrics
        reward, noise = rewards.mean(), 3 * rewards.std() / WINDOW**0.5
        self.best = max(self.best, reward)
        lost = self.best - reward
        sign, fell = "", lost > max(noise, abs(self.best) / 2)
        if fell:
            sign = f"the mean reward fell from {self.best:.3g} to {reward:.3g}"
            rate = f"optimizer.learning_rate={self.config.optimizer.learning_rate}"
            remedy = f"lower {rate}, or raise loss.beta"
        elif dead.all():
            sign = f"all rewards of a prompt are equal (mean {reward:.3g}): there is no signal"
            remedy = "choose harder or easier questions, or raise rollouts_per_prompt"
        elif not self.formed:
            sign = "no completion has earned format"
            remedy = "see the prompt with trial=true, and set task.system"
        if steps["all/clipped_ratio"].mean() > 0.5 and not fell:
            limit = self.config.sampling.max_completion_length
            remedy = f"most rollouts are clipped: raise sampling.max_completion_length={limit}"
        if sign and not self.problem:
            self.problem = f"in {WINDOW} steps {sign}; {remedy}"
        return metrics | {"watch/reward_lost": float(lost)}
