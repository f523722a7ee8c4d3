"""Whether a run learns: one line, once, with the likely cause and the key to change. It goes by the
metric lines alone, so a resumed run repeats it from metrics.jsonl."""

from collections import deque

import numpy as np

from pods.config.keys import TrainConfig, reward_weights

WINDOW = 50  # steps
Metrics = dict[str, float]


class Watch:
    """`problem` is set at the first sign that a run does not learn, and stays."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.problem = config, ""
        self.lines: deque[Metrics] = deque(maxlen=WINDOW)
        self.best = 0.0  # highest mean reward of WINDOW steps
        version, weights = config.rewards.version, reward_weights(config.rewards)
        self.formed = version == "v1-correctness" or not weights.get("format")  # never paid

    def __call__(self, line: Metrics) -> Metrics:
        """Take the line of a step; returns the numbers that it goes by, for the same line."""
        self.lines.append(line)
        # Under v1 only wrong answers earn format.
        few_wrong = (
            self.config.rewards.version == "v1" and line.get("all/correctness_mean", 0) > 0.5
        )
        self.formed |= few_wrong or line.get("all/format_mean", 0) > 0
        dead = sum(line.get("all/zero_variance_groups") == 1 for line in self.lines)
        numbers = {"watch/steps_without_signal": float(dead)}
        if len(self.lines) < WINDOW:
            return numbers
        rewards = [line.get("all/reward_mean", 0.0) for line in self.lines]
        reward, noise = np.mean(rewards), 3 * np.std(rewards) / WINDOW**0.5
        self.best = max(self.best, reward)
        if self.best > 0:
            numbers["watch/reward_to_best"] = float(reward / self.best)
        if not self.problem:
            fallen = reward < self.best / 2 and self.best - reward > noise
            self.problem = self.sign(dead, fallen, reward)
        return numbers

    def sign(self, dead: int, fallen: bool, reward: float) -> str:
        """The line for the first sign that holds, empty without one."""
        if dead == WINDOW:
            line = f"the rollouts of each prompt have equal rewards for {WINDOW} steps: no signal"
            remedy = "raise rollouts_per_prompt or sampling.temperature"
            if (correct := self.mean("all/correctness_mean")) >= 0.99:
                remedy = "all are correct: choose a task with harder questions"
            elif correct <= 0.01:
                remedy = "none is correct: trial=true shows the prompt; choose easier questions"
        elif fallen:
            line = f"the mean reward of {WINDOW} steps fell from {self.best:.3g} to {reward:.3g}"
            rate = self.config.optimizer.learning_rate
            remedy = f"lower optimizer.learning_rate={rate}, or raise loss.beta"
        elif not self.formed:
            line = f"no completion of {WINDOW} steps earned format"
            remedy = "trial=true shows the prompt; set task.system, or rewards.weights.format=0"
        else:
            return ""
        if self.mean("all/clipped_ratio") > 0.5:
            limit = self.config.sampling.max_completion_length
            remedy = f"most are clipped: raise sampling.max_completion_length={limit}"
        return f"{line}; {remedy}"

    def mean(self, name: str) -> float:
        """Of the window, 0.5 for a metric that the run does not have."""
        return float(np.mean([line.get(name, 0.5) for line in self.lines]))
