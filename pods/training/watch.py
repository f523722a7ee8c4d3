"""Whether a run learns, by its metric lines alone: a resumed run repeats it from metrics.jsonl."""

import pandas as pd

from pods.config.keys import TrainConfig

WINDOW = 50  # steps


class Watch:
    """`problem`: the first sign that a run does not learn, with the key to change; it stays."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.problem = config, ""
        self.lines: list[dict[str, float]] = []  # of the window
        self.best = 0.0  # highest mean reward of a window
        unpaid = config.rewards.version.startswith("v1")  # to correct answers at least
        self.formed = unpaid or not config.rewards.weights.get("format")

    def __call__(self, line: dict[str, float]) -> dict[str, float]:
        """Take the metrics of a step; returns those of the window."""
        self.lines = [*self.lines, line][-WINDOW:]
        self.formed |= line.get("all/format_mean", 0) > 0
        steps = pd.DataFrame(self.lines)
        dead, rewards = steps["all/zero_variance_groups"] == 1, steps["all/reward_mean"]
        metrics, reward = {"watch/steps_without_signal": float(dead.sum())}, rewards.mean()
        if len(steps) == WINDOW:
            self.best = max(self.best, reward)
            lost, noise = self.best - reward, 3 * rewards.std() / WINDOW**0.5
            metrics["watch/reward_lost"] = float(lost)
            fallen = lost > max(noise, self.best / 2)
            signs = dead.all(), fallen, not self.formed
            self.problem = self.problem or self.sign(*signs, reward, steps["all/clipped_ratio"])
        return metrics

    def sign(
        self, dead: bool, fallen: bool, unformed: bool, reward: float, clipped: pd.Series
    ) -> str:
        """The first sign that holds with its likely cause, empty without one."""
        limit = f"sampling.max_completion_length={self.config.sampling.max_completion_length}"
        remedy = f"most rollouts are clipped: raise {limit}" if clipped.mean() > 0.5 else ""
        if dead:
            sign = f"all rewards of a prompt are equal (mean {reward:.3g}): there is no signal"
            remedy = remedy or "choose harder or easier questions, or raise rollouts_per_prompt"
        elif fallen:
            sign = f"the mean reward fell from {self.best:.3g} to {reward:.3g}"
            rate = f"optimizer.learning_rate={self.config.optimizer.learning_rate}"
            remedy = remedy or f"lower {rate}, or raise loss.beta"
        elif unformed:
            sign = "no completion has earned format"
            remedy = remedy or "see the prompt with trial=true, and set task.system"
        else:
            return ""
        return f"in {WINDOW} steps {sign}; {remedy}"
