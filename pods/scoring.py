"""The reward functions of a training, in TRL's form: keyword arguments `prompts`, `completions`,
`completion_ids` and every column of the data set, one float per completion back.

The built-in ones come from rewards/functions.py. A function of the user's has the same form; None
counts as 0.
    uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pods.config import functions
from pods.config.keys import Rewards as RewardsConfig
from pods.config.keys import reward_weights
from rewards import Scorer


class RewardError(RuntimeError):
    """A reward function raised or returned something other than one finite number each."""

    def __init__(self, message: str, completion: str, answer: str) -> None:
        super().__init__(message)
        self.completion, self.answer = completion, answer


class Text(str):
    """A text that also reads as a chat with one message, `text[0]["content"]`: reward functions of
    TRL and of Unsloth's notebooks are written for that form.

    `content` is the message, where it differs from the text (a prompt's question).
    """

    content: str

    def __new__(cls, text: str, content: str | None = None) -> "Text":
        made = super().__new__(cls, text)
        made.content = text if content is None else content
        return made

    def __getitem__(self, key: Any) -> str:
        if isinstance(key, str):
            return {"content": self.content, "role": "assistant"}[key]
        if key in (0, -1):
            return Text(self[key:][:1], self.content)
        return super().__getitem__(key)


class Rewards(AbstractContextManager):
    """The reward functions of a config; closing it ends the graders' processes.

    `functions` and `weights` (by name) have one order; `grader` names the function whose values
    above 0 mean a correct answer, None where it has no weight.
    """

    def __init__(self, config: RewardsConfig) -> None:
        self.weights = reward_weights(config)
        self.grader = "correctness" if self.weights.get("correctness") else None
        built_in = [name for name in self.weights if name not in config.functions]
        self.scorer = Scorer(
            config.version,
            workers=config.workers,
            deadline_seconds=config.deadline_seconds,
            names=built_in,
        )
        columns = BuiltIn(self.scorer)
        own = {
            name: functions.load(f"rewards.functions.{name}", path)
            for name, path in config.functions.items()
        }
        self.functions = [
            Reward(name, own[name] if name in own else columns.function(name))
            for name in self.weights
        ]

    def __exit__(self, *_: object) -> None:
        self.scorer.close()


@dataclass
class BuiltIn:
    """Scores the completions of a step once for all built-in functions."""

    scorer: Scorer
    newest: tuple[Any, dict[str, list[float]]] = (None, field(default_factory=dict))

    def function(self, name: str) -> Callable[..., list[float]]:
        """The built-in reward of this name."""

        def score(completions: list[str], answer: list[str], kind: list[str]) -> list[float]:
            if self.newest[0] is not answer:  # the same list for every function of a step
                self.newest = answer, self.scorer.score(completions, answer, kind)
            return self.newest[1][name]

        return score


class Reward:
    """One reward function with checked results; TRL calls it by keywords."""

    def __init__(self, name: str, function: Callable[..., Sequence[Any]]) -> None:
        self.__name__, self.function = name, function

    def __call__(
        self, prompts: list[str], completions: list[str], completion_ids: list[list[int]],
        trainer_state: Any = None, **columns: Any,
    ) -> list[float]:  # fmt: skip
        """One float per completion, None as 0. Raises RewardError naming function, completion and
        step."""
        questions = columns.get("question", [None] * len(prompts))
        arguments = columns | {
            "prompts": [Text(*pair) for pair in zip(prompts, questions, strict=True)],
            "completions": [Text(text) for text in completions],
            "completion_ids": completion_ids,
            "trainer_state": trainer_state,
        }
        step = getattr(trainer_state, "global_step", 0)
        return self._numbers(self._values(arguments, step), arguments, step)

    def _values(self, arguments: dict[str, Any], step: int) -> list[Any]:
        """function(**arguments); an exception is traced to the first completion that raises it."""
        try:
            return list(self.function(**accepted(self.function, arguments)))
        except Exception as error:
            start, count = f"reward function {self.__name__} raised", len(arguments["completions"])
            for i in range(count):
                one = {
                    name: values[i : i + 1] if isinstance(values, list) else values
                    for name, values in arguments.items()
                }
                try:
                    list(self.function(**accepted(self.function, one)))
                except Exception as alone:
                    message = f"{start} {alone!r} on completion {i} of step {step}"
                    raise RewardError(message, *_shown(arguments, i)) from alone
            message = f"{start} {error!r} on all completions of step {step}"
            raise RewardError(message, "", "") from error

    def _numbers(self, values: list[Any], arguments: dict[str, Any], step: int) -> list[float]:
        """Finite floats, one per completion; RewardError otherwise."""
        count = len(arguments["completions"])
        if len(values) != count:
            message = (
                f"reward function {self.__name__} returned {len(values)} values for {count} "
                f"completions at step {step}"
            )
            raise RewardError(message, *_shown(arguments, 0))
        numbers = [_number(value) for value in values]
        for i, number in enumerate(numbers):
            if not np.isfinite(number):
                message = (
                    f"reward function {self.__name__} returned {values[i]!r} for completion {i} of "
                    f"step {step}; a finite number or None is required"
                )
                raise RewardError(message, *_shown(arguments, i))
        return numbers


def accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a function names; all of them where it takes **kwargs."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    return {p.name: arguments[p.name] for p in parameters if p.name in arguments}


def _shown(arguments: dict[str, Any], i: int) -> tuple[str, str]:
    """Completion and answer of a report."""
    answers = arguments.get("answer")
    return str(arguments["completions"][i]), str(answers[i]) if answers else ""


def _number(value: Any) -> float:
    """The value as a float, NaN if it is no number."""
    try:
        return 0.0 if value is None else float("nan") if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return float("nan")
