"""Stage 3b: completions -> one float per reward function and completion.

Built-in rewards come from rewards/functions.py. A function of the user's has TRL's signature:
keyword arguments `prompts`, `completions`, `completion_ids` and every column of the data set, each
a list with one item per completion; it returns one float per completion, None counts as 0.
    uv run train.py rewards.functions.brevity=my_rewards.py:brevity rewards.weights.brevity=0.5
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pods import functions
from pods.config import Rewards as RewardsConfig
from pods.config import reward_weights
from rewards import Scorer

Row = dict[str, Any]


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


class Rewards:
    """Scores completions with every reward function of the config.

    `weights`: name -> weight in the total reward, in the order in which the scores come.
    """

    def __init__(self, config: RewardsConfig) -> None:
        self.own = {
            name: functions.load(f"rewards.functions.{name}", value)
            for name, value in config.functions.items()
        }
        self.weights = reward_weights(config)
        self.scorer = Scorer(
            config.version,
            workers=config.workers,
            deadline_seconds=config.deadline_seconds,
            names=[name for name in self.weights if name not in self.own],
        )

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
        scores = self._built_in(rows, texts, step)
        for name, function in self.own.items():
            scores[name] = _own(name, function, rows, texts, ids, step)
        return {
            name: [
                _number(value, name, i, step, texts[i], rows[i])
                for i, value in enumerate(scores[name])
            ]
            for name in self.weights
        }

    @property
    def timeouts(self) -> int:
        """Completions so far that scored 0 because grading them took too long."""
        return self.scorer.timeouts

    def __enter__(self) -> "Rewards":
        return self

    def __exit__(self, *_: object) -> None:
        self.scorer.close()

    def _built_in(
        self, rows: Sequence[Row], texts: Sequence[str], step: int
    ) -> dict[str, list[Any]]:
        names = self.scorer.names

        def call(rows: Sequence[Row], texts: Sequence[str], _: Any) -> list[tuple[float, ...]]:
            answers, kinds = [row["answer"] for row in rows], [row["kind"] for row in rows]
            scores = self.scorer.score(texts, answers, kinds)
            return list(zip(*(scores[name] for name in names), strict=True))

        if not names:
            return {}
        values = _attributed(" or ".join(names), call, rows, texts, [[] for _ in texts], step)
        return dict(zip(names, map(list, zip(*values, strict=True)), strict=True))


def _own(
    name: str,
    function: Callable[..., Any],
    rows: Sequence[Row],
    texts: Sequence[str],
    ids: Sequence[list[int]],
    step: int,
) -> list[Any]:
    """What a function of the user's returns for these completions, one value each."""

    def call(rows: Sequence[Row], texts: Sequence[str], ids: Sequence[list[int]]) -> list[Any]:
        return list(function(**accepted(function, keywords(rows, texts, ids))))

    values = _attributed(name, call, rows, texts, ids, step)
    if len(values) != len(texts):
        message = (
            f"reward function {name} returned {len(values)} values for {len(texts)} completions "
            f"at step {step}"
        )
        raise RewardError(message, texts[0], rows[0])
    return values


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
    name: str,
    call: Callable[..., list[Any]],
    rows: Sequence[Row],
    texts: Sequence[str],
    ids: Sequence[list[int]],
    step: int,
) -> list[Any]:
    """call(rows, texts, ids); an exception is traced to the first completion that raises alone."""
    try:
        return call(rows, texts, ids)
    except Exception as error:
        for i, (row, text, tokens) in enumerate(zip(rows, texts, ids, strict=True)):
            try:
                call([row], [text], [tokens])
            except Exception as alone:
                message = (
                    f"reward function {name} raised {alone!r} on completion {i} of step {step}"
                )
                raise RewardError(message, text, row) from alone
        message = f"reward function {name} raised {error!r} on all completions of step {step}"
        raise RewardError(message, "", {}) from error


def _number(value: Any, name: str, index: int, step: int, text: str, row: Row) -> float:
    """A finite float, 0 for None; RewardError otherwise."""
    if value is None:
        return 0.0
    try:
        number = float("nan") if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        message = (
            f"reward function {name} returned {value!r} for completion {index} of step {step}; a "
            "finite number or None is required"
        )
        raise RewardError(message, text, row)
    return number
