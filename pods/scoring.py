"""The reward functions of a training, in TRL's form: keyword arguments `prompts`, `completions`,
`completion_ids` and every column of the data set; one float per completion back, or None for 0.

    uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from pods.config.errors import UserError
from pods.config.functions import FAILURES, contained, load, location
from pods.config.keys import RewardsKeys, grader, reward_weights
from pods.rewards import Scorer
from pods.rollouts import RewardError, reward_values

MADE_UP = {  # beside the columns of a question, for one call before a model loads
    "completions": ["<think>\n1 + 1 = 2\n</think>\n<answer>\n2\n</answer>", "2"],
    "completion_ids": [[0], [0]],
    "trainer_state": SimpleNamespace(global_step=0, epoch=0.0, max_steps=1),
    "log_extra": lambda *_: None,  # TRL's
    "log_metric": lambda *_: None,
}


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

    def function(self, name: str) -> Callable:
        """The reward function of this name, the user's or a built-in one. TRL awaits all `async
        def` functions at once, and knows one by being one."""
        if name not in self.own:
            return Reward(name, partial(self.built_in, name))
        reward = Reward(name, load(f"rewards.functions.{name}", self.own[name]))
        if not inspect.iscoroutinefunction(reward.function):
            return reward

        async def later(**arguments: Any) -> list[float]:
            return await reward.later(arguments)

        later.__name__ = name
        return later

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

    def dry_run(self, row: dict[str, Any]) -> None:
        """Call the user's functions on two made-up completions of a question."""
        columns = {name: [value, value] for name, value in row.items()} | MADE_UP
        columns["prompts"] = columns.pop("prompt")
        for name, path in self.own.items():
            reward = Reward(name, load(f"rewards.functions.{name}", path))
            try:
                inspect.signature(reward.function).bind(**reward.taken(columns))
                reward(**columns)
            except TypeError as error:
                raise UserError(
                    f"rewards.functions.{name}={path}: {error}; name its parameters "
                    f"as any of {', '.join(sorted(columns))}"
                ) from error
            except RewardError as error:
                raise UserError(f"rewards.functions.{name}={path}: {error}") from error

    def __exit__(self, *_: object) -> None:
        self.scorer.close()


class Reward:
    """One reward function with checked results; TRL calls it by keywords."""

    def __init__(self, name: str, function: Callable) -> None:
        self.__name__ = name
        self.function = function

    def __call__(self, **arguments: Any) -> list[float]:
        """One float per completion; of an `async def` function too. Raises RewardError naming
        function, completion and step."""
        arguments = self.readable(arguments)
        with self.named_errors(arguments):
            return self.numbers(self.values(arguments), arguments)

    async def later(self, arguments: dict[str, Any]) -> list[float]:
        """The same of an `async def` function, beside other ones."""
        arguments = self.readable(arguments)
        with self.named_errors(arguments):
            return self.numbers(await self.function(**self.taken(arguments)), arguments)

    def readable(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with texts that read as chats too."""
        prompts = arguments["prompts"]
        questions = arguments.get("question", prompts)
        chats = [ChatText(*pair) for pair in zip(prompts, questions, strict=True)]
        completions = [ChatText(text) for text in arguments["completions"]]
        return {**arguments, "prompts": chats, "completions": completions}

    @contextmanager
    def named_errors(self, arguments: dict[str, Any]) -> Iterator[None]:
        """An error of the function in this block names it, the step and the completion."""
        try:
            with contained():
                yield
        except RewardError:
            raise
        except FAILURES as error:
            raise RewardError(
                f"reward function {self.__name__} raised {error!r}{location(error)} "
                f"on {self.failing(arguments)} of {step_of(arguments)}"
            ) from error

    def numbers(self, values: object, arguments: dict[str, Any]) -> list[float]:
        """The checked result; None counts as 0, and NaN is refused."""
        count = len(arguments["completions"])
        numbers = reward_values(self.__name__, values, count, step_of(arguments), nan=False)
        return [number or 0.0 for number in numbers]

    def values(self, arguments: dict[str, Any]) -> object:
        """What the function returns for the arguments that it takes."""
        values = self.function(**self.taken(arguments))
        return asyncio.run(values) if inspect.iscoroutine(values) else values

    def taken(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the function has parameters for."""
        parameters = inspect.signature(self.function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return arguments
        return {name: arguments[name] for name in parameters if name in arguments}

    def failing(self, arguments: dict[str, Any]) -> str:
        """The first completion on which the function raises, with its text."""
        if inspect.iscoroutinefunction(self.function):  # a loop runs here already
            return "a completion"
        for i, completion in enumerate(arguments["completions"]):
            row = {}  # lists are columns, one value a completion; others are of the step
            for key, value in arguments.items():
                row[key] = value[i : i + 1] if isinstance(value, list) else value
            try:
                with contained():
                    self.values(row)
            except FAILURES:
                return f"completion {i} ({completion!r})"
        return "all completions"


def step_of(arguments: dict[str, Any]) -> str:
    return f"step {getattr(arguments.get('trainer_state'), 'global_step', 0)}"
