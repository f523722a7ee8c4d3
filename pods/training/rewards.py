"""The reward functions of a training.

uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from pods import ranks
from pods.config.errors import UserError
from pods.config.functions import load
from pods.config.keys import RewardsKeys, grader, reward_weights
from pods.rewards import grades, score
from pods.scoring import MADE_UP, RewardError, call_once, checked

RIGHT = (  # completions of the dry run, in the formats that are most common
    "<think>\n1 + 1 = 2\n</think>\n<answer>\n{answer}\n</answer>",
    "<think>1 + 1 = 2</think><answer>{answer}</answer>",
    "1 + 1 = 2, so \\boxed{{answer}}",
    "1 + 1 = 2\n#### {answer}",
    "{answer}",
)


class Rewards:
    """The reward functions of a config. `grader` names the function whose values above 0 mean a
    correct answer, None if it has no weight."""

    def __init__(self, config: RewardsKeys) -> None:
        self.weights = reward_weights(config)
        self.own = config.functions
        self.grader = grader(config)
        self.version = config.version
        self.answers: Sequence[str] | None = None  # of the completions that were scored last
        self.scores: dict[str, list[float]] = {}  # of those completions, by function
        self.functions = [self.function(name) for name in self.weights]

    def function(self, name: str) -> Callable:
        """The reward function of this name, the user's or a built-in one. All built-in ones score
        the completions of a round once."""
        if name in self.own:
            return checked(load(f"rewards.functions.{name}", self.own[name]), name, required=True)

        def built_in(
            prompts: Sequence[str],
            completions: Sequence[str],
            answer: Sequence[str],
            kind: Sequence[str],
            **_: Any,
        ) -> list[float]:
            if self.answers is not answer:  # the same list for every function of a round
                self.answers = answer
                self.scores = score(completions, answer, self.version, kind, prompts)
            return self.scores[name]

        built_in.__name__ = name
        built_in.is_checked = True  # needs no wrapper
        return built_in

    def grade(
        self, completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]
    ) -> list[bool]:
        return grades(completions, answers, self.version, kinds)

    def dry_run(self, row: dict[str, Any]) -> None:
        """Call the user's functions on made-up completions of a question, without an answer and
        with its gold answer in several formats; says which of them gives all the same."""
        texts = ["I do not know", *(form.replace("{answer}", str(row["answer"])) for form in RIGHT)]
        columns = {name: [value] * len(texts) for name, value in row.items()}
        columns |= {"completions": texts, "completion_ids": [[0] for _ in texts]}
        columns["prompts"] = columns.pop("prompt")
        for name, path in self.own.items():
            try:
                first, *others = call_once(self.function(name), columns)
                # 0 may be right if the function does not look for the gold answer.
                tells = first or "answer" in signature(load(name, path)).parameters
                if tells and {*others} == {first} and self.weights[name]:
                    ranks.say(
                        f"rewards.functions.{name}={path}: {first:g} for a text without an answer "
                        r"and for the gold answer in <answer>, in \boxed{}, after #### and alone; "
                        "rollouts whose rewards are all equal teach nothing"
                    )
            except RewardError as error:
                reason = str(error)
                if isinstance(error.__cause__, TypeError):  # such as a parameter without a column
                    names = ", ".join(sorted({*columns, *MADE_UP}))
                    reason += f"; its parameters can be {names}"
                elif error.__cause__:
                    reason += " (a made-up completion); give any text a number, perhaps 0"
                raise UserError(f"rewards.functions.{name}={path}: {reason}") from error
