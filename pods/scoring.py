"""The wrapper of a reward function of the user's, in training and in evaluation.

A reward function has TRL's form: keyword arguments `prompts`, `completions`, `completion_ids` and
every column of the data set; one float per completion back.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.config.functions import FAILURES, location
from pods.rollouts import contained

LARGEST = float(np.finfo(np.float32).max)  # 3.4e38: TRL adds rewards up in float32
MADE_UP = {  # TRL's arguments, for a call without a trainer
    "trainer_state": SimpleNamespace(global_step=0, epoch=0.0, max_steps=1),
    "log_extra": lambda column, values: None,
    "log_metric": lambda name, value: None,
}


class RewardError(UserError):
    """A reward function raised, or returned something other than one number for each completion."""


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


def checked(function: Callable, name: str, *, required: bool = False) -> Callable:
    """The reward function with readable texts, contained and with checked results.

    It receives the arguments that it has parameters for; texts read as chats, too (ChatText). An
    `async def` function stays one, because TRL awaits all of them at once; an object with an
    `async def __call__` is awaited here. required: None counts as
    0, and NaN is refused; else both mean that a completion is not scored, as in TRL. Raises
    RewardError naming function, line and step. A function that raised is not called again: it may
    count calls, pay for them or log.
    """
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def taken(columns: dict[str, Any]) -> dict[str, Any]:
        if takes_all:
            return columns
        return {name: columns[name] for name in parameters if name in columns}

    @contextmanager
    def named_errors(
        columns: dict[str, Any], failures: tuple[type[BaseException], ...] = FAILURES
    ) -> Iterator[None]:
        """An error of the function in this block names it, the step and the completion."""
        try:
            with contained():
                yield
        except RewardError:
            raise
        except failures as error:
            raise RewardError(
                f"reward function {name} raised {error!r}{location(error)} at {step_of(columns)}"
            ) from error

    def call(**columns: Any) -> list[float | None]:
        columns |= chats(columns)
        with named_errors(columns):
            values = function(**taken(columns))
            if inspect.iscoroutine(values):
                values = asyncio.run(values)
            return reward_values(name, values, columns, required)

    async def later(**columns: Any) -> list[float | None]:
        columns |= chats(columns)
        with named_errors(columns, (BaseException,)):  # KeyboardInterrupt would end TRL's thread
            return reward_values(name, await function(**taken(columns)), columns, required)

    wrapper = later if inspect.iscoroutinefunction(function) else call
    wrapper.__name__ = name
    wrapper.is_checked = True
    return wrapper


def chats(columns: dict[str, Any]) -> dict[str, list]:
    """Prompts and completions that read as chats, too; chats stay as they are."""
    prompts, completions = columns["prompts"], columns["completions"]
    questions = columns.get("question", prompts)
    pairs = zip(prompts, questions, strict=True)
    return {
        "prompts": [ChatText(*pair) if isinstance(pair[0], str) else pair[0] for pair in pairs],
        "completions": [ChatText(c) if isinstance(c, str) else c for c in completions],
    }


def call_once(function: Callable, columns: dict[str, Any]) -> list[float | None]:
    """The values of a checked function outside of a training, also of an `async def` one."""
    values = function(**columns, **MADE_UP)
    return asyncio.run(values) if inspect.iscoroutine(values) else values


def reward_values(
    function: str, values: object, columns: dict[str, Any], required: bool
) -> list[float | None]:
    """What a reward function returned for the completions, as numbers; RewardError if it is
    anything else. required: as in checked."""
    name, step = f"reward function {function}", step_of(columns)
    count = len(columns["completions"])
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        values = list(values)
    except TypeError:
        raise RewardError(
            f"{name} returned {values!r:.60} at {step}; "
            f"return a list with one number for each of the {count} completions"
        ) from None
    if len(values) != count:
        raise RewardError(
            f"{name} returned {len(values)} values for {count} completions of {step}; "
            "return one for each"
        )
    numbers: list[float | None] = []
    for i, value in enumerate(values):
        number = value
        if value is not None:
            try:
                number = np.inf if isinstance(value, str | bytes) else float(value)
            except (TypeError, ValueError, OverflowError):
                number = np.inf
            if abs(number) > LARGEST or (np.isnan(number) and required):
                raise RewardError(
                    f"{name} returned {value!r:.60} for completion {i} of {step}; "
                    "a finite number or None is required, in float32 (up to 3.4e38)"
                )
        numbers.append(number)
    return [number or 0.0 for number in numbers] if required else numbers


def step_of(columns: dict[str, Any]) -> str:
    return f"step {getattr(columns.get('trainer_state'), 'global_step', 0)}"
