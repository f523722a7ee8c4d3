"""The reward functions of a training, in TRL's form: keyword arguments `prompts`, `completions`,
`completion_ids` and every column of the data set; one float per completion back, or None for 0.

    uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.config.functions import FAILURES, load, place
from pods.config.keys import RewardsKeys, grader, reward_weights
from pods.rewards import Scorer

LARGEST = float(np.finfo(np.float32).max)  # 3.4e38: TRL adds rewards up in float32
MADE_UP = {  # beside the columns of a question, for one call before a model loads
    "completions": ["<think>\n1 + 1 = 2\n</think>\n<answer>\n2\n</answer>", "2"],
    "completion_ids": [[0], [0]],
    "trainer_state": SimpleNamespace(global_step=0, epoch=0.0, max_steps=1),
    "log_extra": lambda *_: None,  # TRL's
    "log_metric": lambda *_: None,
}


class RewardError(UserError):
    """A reward function raised or returned something other than one finite number each."""


class ChatText(str):
    """A text for a user's function, which also reads as a chat with one message,
    `text[0]["content"]`, as reward functions of TRL and of Unsloth's notebooks do.

    content: the message, if it is another text: the question of a prompt with its template.
    """

    content: str

    def __new__(cls, text: str, content: str | None = None) -> "ChatText":
        instance = super().__new__(cls, text)
        instance.content = content if content is not None else text
        return instance

    def __getitem__(self, key: object) -> str:
        if isinstance(key, str):
            return {"content": self.content, "role": "assistant"}[key]
        if key in (0, -1):
            return ChatText(self[key:][:1], self.content)
        return super().__getitem__(key)


class Rewards(AbstractContextManager):
    """The reward functions of a config; closing it ends the graders' processes. `grader` names the
    function whose values above 0 mean a correct answer, None if it has no weight."""

    def __init__(self, config: RewardsKeys) -> None:
        self.weights = reward_weights(config)
        self.own = config.functions
        self.grader = grader(config)
        self.scorer = Scorer(
            config.version,
            workers=config.workers,
            deadline_seconds=config.deadline_seconds,
        )
        self.answers: Sequence[str] | None = None  # of the completions that were scored last
        self.scores: dict[str, list[float]] = {}  # of those completions, by function
        self.functions = [self.function(name) for name in self.weights]

    def function(self, name: str) -> "Reward":
        """The reward function of this name, the user's or a built-in one."""
        if name in self.own:
            return Reward(name, load(f"rewards.functions.{name}", self.own[name]))
        return Reward(name, partial(self.built_in, name), as_chats=False)

    def built_in(
        self,
        name: str,
        prompts: Sequence[str],
        completions: Sequence[str],
        answer: Sequence[str],
        kind: Sequence[str],
    ) -> list[float]:
        """A built-in reward function; all of them score the completions of a round once."""
        if self.answers is not answer:  # the same list for every function of a round
            self.answers = answer
            self.scores = self.scorer.score(completions, answer, kind, prompts)
        return self.scores[name]

    def rehearse(self, row: dict[str, Any]) -> None:
        """Call the user's functions on two made-up completions of a question."""
        columns = {name: [value, value] for name, value in row.items()} | MADE_UP
        columns["prompts"] = columns.pop("prompt")
        for reward in self.functions:
            name = reward.__name__
            if name not in self.own:
                continue
            try:
                reward(**columns)
            except RewardError as error:
                raise UserError(f"rewards.functions.{name}={self.own[name]}: {error}") from error

    def __exit__(self, *_: object) -> None:
        self.scorer.close()


class Reward:
    """One reward function with checked results; TRL calls it by keywords."""

    def __init__(self, name: str, function: Callable[..., Sequence], as_chats: bool = True) -> None:
        """as_chats: whether it receives texts that read as a chat too."""
        self.__name__ = name
        self.function = function
        self.as_chats = as_chats

    def __call__(self, **arguments: Any) -> list[float]:
        """One float per completion. Raises RewardError naming function, completion and step."""
        prompts = arguments["prompts"]
        completions = arguments["completions"]
        if self.as_chats:
            questions = arguments.get("question", prompts)
            arguments["prompts"] = [
                ChatText(*pair) for pair in zip(prompts, questions, strict=True)
            ]
            arguments["completions"] = [ChatText(text) for text in completions]
        name = f"reward function {self.__name__}"
        step = f"step {getattr(arguments.get('trainer_state'), 'global_step', 0)}"
        try:
            values = self.values(arguments)
        except FAILURES as error:
            raise RewardError(
                f"{name} raised {error!r}{place(error)} on {self.failing(arguments)} of {step}"
            ) from error
        if len(values) != len(completions):
            raise RewardError(
                f"{name} returned {len(values)} values for {len(completions)} completions of "
                f"{step}; return one for each"
            )
        numbers = [number(value) for value in values]
        for i, value in enumerate(numbers):
            if not abs(value) <= LARGEST:  # of NaN it is not true either
                raise RewardError(
                    f"{name} returned {values[i]!r:.60} for completion {i} of {step}; "
                    "a finite number or None is required, in float32 (up to 3.4e38)"
                )
        return numbers

    def values(self, arguments: dict[str, Any]) -> list[float | None]:
        """What the function returns for the arguments that it takes."""
        parameters = inspect.signature(self.function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            arguments = {name: arguments[name] for name in parameters if name in arguments}
        return list(self.function(**arguments))

    def failing(self, arguments: dict[str, Any]) -> str:
        """The first completion on which the function raises, with its text."""
        for i, completion in enumerate(arguments["completions"]):
            row = {}  # lists are columns, one value a completion; others are of the step
            for key, value in arguments.items():
                row[key] = value[i : i + 1] if isinstance(value, list) else value
            try:
                self.values(row)
            except FAILURES:
                return f"completion {i} ({completion!r})"
        return "all completions"


def number(value: object) -> float:
    """The value as a float, None as 0; NaN if it is no number, such as the text "1.0", and if no
    float can hold it."""
    if value is None:
        return 0.0
    if isinstance(value, str | bytes):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan
