"""Stage 3b: completions -> one float per reward function and completion.

Built-in rewards come from rewards/functions.py. A function of the user's has TRL's signature:
keyword arguments `prompts`, `completions`, `completion_ids` and every column of the data set, each
a list with one item per completion; it returns one float per completion, None counts as 0.
    uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from pods.config import functions
from pods.config.keys import Rewards as RewardsConfig
from pods.config.keys import reward_weights
from rewards import Scorer

Row = dict[str, Any]
Source = tuple[Sequence[str], Callable[..., list[list[Any]]]]  # names, their function


class RewardError(RuntimeError):
    """A reward function raised or returned something other than one finite number each."""

    def __init__(self, message: str, completion: str, row: Row) -> None:
        super().__init__(message)
        self.completion, self.answer = completion, str(row.get("answer", ""))


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
    """Scores completions with every reward function of the config.

    `weights`: name -> weight in the total reward, in the order in which the scores come.
    """

    def __init__(self, config: RewardsConfig) -> None:
        self.weights = reward_weights(config)
        self.scorer = Scorer(
            config.version,
            workers=config.workers,
            deadline_seconds=config.deadline_seconds,
            names=[name for name in self.weights if name not in config.functions],
        )
        self.sources: list[Source] = [(self.scorer.names, self._built_in)]
        for name, value in config.functions.items():
            function = functions.load(f"rewards.functions.{name}", value)
            self.sources.append(((name,), partial(_own, function)))

    def __call__(
        self, rows: Sequence[Row], texts: Sequence[str], ids: Sequence[list[int]], step: int
    ) -> dict[str, list[float]]:
        """{function: one float per completion}, unweighted.

        Args:
            rows: the dataset row of each completion.
            texts, ids: the completions as text and as token ids.
            step: named in errors.

        Raises RewardError naming function, completion and step.
        """
        scores = {}
        for names, function in self.sources:
            columns = _attributed(names, function, rows, texts, ids, step)
            for name, values in zip(names, columns, strict=True):
                scores[name] = _numbers(values, name, step, texts, rows)
        return scores

    def _built_in(self, rows: Sequence[Row], texts: Sequence[str], _: Any) -> list[list[float]]:
        scores = self.scorer.score(
            texts, [row["answer"] for row in rows], [row["kind"] for row in rows]
        )
        return [scores[name] for name in self.scorer.names]

    def __exit__(self, *_: object) -> None:
        self.scorer.close()


def _own(
    function: Callable[..., Any], rows: Sequence[Row], texts: Sequence[str], ids: Sequence[list]
) -> list[list[Any]]:
    return [list(function(**accepted(function, keywords(rows, texts, ids))))]


def keywords(
    rows: Sequence[Row], texts: Sequence[str], ids: Sequence[list[int]]
) -> dict[str, list[Any]]:
    """The keyword arguments of a reward function, as TRL passes them."""
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    return columns | {
        "prompts": [Text(row["prompt"], row.get("question")) for row in rows],
        "completions": [Text(text) for text in texts],
        "completion_ids": list(ids),
    }


def accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a function names; all of them where it takes **kwargs."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    return {p.name: arguments[p.name] for p in parameters if p.name in arguments}


def _attributed(
    names: Sequence[str],
    function: Callable[..., list[list[Any]]],
    rows: Sequence[Row],
    texts: Sequence[str],
    ids: Sequence[list[int]],
    step: int,
) -> list[list[Any]]:
    """function(rows, texts, ids); an exception is traced to the first completion that raises it."""
    try:
        return function(rows, texts, ids)
    except Exception as error:
        start = f"reward function {' or '.join(names)} raised"
        for i, (row, text, tokens) in enumerate(zip(rows, texts, ids, strict=True)):
            try:
                function([row], [text], [tokens])
            except Exception as alone:
                message = f"{start} {alone!r} on completion {i} of step {step}"
                raise RewardError(message, text, row) from alone
        raise RewardError(f"{start} {error!r} on all completions of step {step}", "", {}) from error


def _numbers(
    values: Sequence[Any], name: str, step: int, texts: Sequence[str], rows: Sequence[Row]
) -> list[float]:
    """Finite floats, one per completion, 0 for None; RewardError otherwise."""
    if len(values) != len(texts):
        message = (
            f"reward function {name} returned {len(values)} values for {len(texts)} completions "
            f"at step {step}"
        )
        raise RewardError(message, texts[0], rows[0])
    numbers = [_number(value) for value in values]
    for i, number in enumerate(numbers):
        if not np.isfinite(number):
            message = (
                f"reward function {name} returned {values[i]!r} for completion {i} of step {step}; "
                "a finite number or None is required"
            )
            raise RewardError(message, texts[i], rows[i])
    return numbers


def _number(value: Any) -> float:
    """The value as a float, NaN if it is no number."""
    try:
        return 0.0 if value is None else float("nan") if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return float("nan")
