"""What is found out before a model loads: reward functions, rows and algorithm of a training."""

import inspect
import itertools
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from pods.advantages import Advantage
from pods.batch import Algorithm, AlgorithmError, Completion, Prompt, Rollout, Row, Step
from pods.config.errors import UserError
from pods.history import History, remember
from pods.needs import needs_of
from pods.rollouts import Driver

if TYPE_CHECKING:  # TRL and datasets: a mistake in a config waits for neither
    from datasets import Dataset, IterableDataset

    from pods.pods_config import PodsConfig

OF_PROMPTS = ("prompt", "completion", "completion_ids")  # columns that no reward receives
REHEARSED = (1.0, 0.5, 0.0, 0.5)  # share of the correct rollouts of made-up prompts, in turn


def refuse_multi_turn(**arguments: object) -> None:
    """Raise ValueError for an argument of GRPOTrainer that PodsTrainer does not have."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name}: PodsTrainer has no multi-turn rollouts; use GRPOTrainer")


def rehearse_on_first_rows(
    args: "PodsConfig",
    function: Algorithm,
    advantage: Advantage,
    reward_funcs: Any,
    train_dataset: "Dataset | IterableDataset",
) -> None:
    """Run the algorithm on rows of the data set before a model loads; raises ValueError with what
    is wrong with it, with a reward function or with the rows."""
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    names = [getattr(reward, "__name__", str(reward)) for reward in rewards]
    if all(map(inspect.isfunction, rewards)):  # the name of a model is known when it has loaded
        names = numbered(names, args.correct)
    rows = list(islice(train_dataset, 8))
    if not rows or "prompt" not in rows[0]:
        columns = f"no column prompt, but {', '.join(rows[0])}" if rows else "no rows"
        raise ValueError(f"train_dataset: has {columns}")
    refuse_signatures(rewards, [] if args.remove_unused_columns else [*rows[0]])
    rehearse(
        function,
        advantage,
        weights=dict.fromkeys(names, 1.0),
        correct=args.correct if args.correct in names else None,
        P=args.generation_batch_size // args.num_generations,
        n=args.rollouts_per_prompt,
        m=args.num_generations,
        rows=rows,
    )


def numbered(names: list[str], correct: str | None) -> list[str]:
    """The names of reward functions, those of one name with their numbers; ValueError if `correct`
    is none of them."""
    names = [f"{name}_{i}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    if correct is not None and correct not in names:
        known = ", ".join(names)
        raise ValueError(f"correct={correct}: no reward function; one of {known}, or None")
    return names


def refuse_signatures(rewards: Sequence[object], columns: Sequence[str]) -> None:
    """Raise ValueError if a reward function does not take what TRL calls it with, columns of the
    data set among it. It is not called: a reward may cost money or write files."""
    names = ["prompts", "completions", "completion_ids", "trainer_state"]
    names += [name for name in columns if name not in OF_PROMPTS]
    for number, reward in enumerate(rewards):
        if not callable(reward) and not isinstance(reward, str):
            raise ValueError(f"reward_funcs[{number}]={reward}: is neither a function nor a model")
        if not inspect.isfunction(reward):  # a reward model, or TRL finds it out
            continue
        try:
            signature = inspect.signature(reward, follow_wrapped=False)
            optional = {"log_extra", "log_metric"} & signature.parameters.keys()  # not of every TRL
            signature.bind(**dict.fromkeys([*names, *optional]))
        except TypeError as error:
            raise ValueError(
                f"reward function {reward.__name__} cannot be called: {error}; TRL calls it with "
                f"the keywords {', '.join(names)} and others, so name those that it needs, and **_"
            ) from None


def rehearse(
    algorithm: Algorithm,
    advantage: Advantage,
    *,
    weights: dict[str, float],
    correct: str | None,
    P: int,
    n: int,
    m: int,
    rows: Sequence[Row],
) -> None:
    """Try a user's functions on made-up rollouts, before a model loads: UserError if one fails.

    Four steps of the run's sizes: in turn all rollouts of a prompt are right, some, none and some,
    so that there are groups without signal and, if an algorithm asks again, of unlike size; from
    the second step on there is a history. rows: of the data set, which the prompts have in turn.
    """
    rng = np.random.default_rng(0)
    history: History = {}
    logprobs = needs_of(algorithm).reads_logprobs

    def draw(prompts: list[Prompt], indices: list[int]) -> list[Rollout]:
        rollouts = []
        for length in rng.integers(1, 50, len(prompts)).tolist():
            values = [-0.5] * length if logprobs else None
            completion = Completion([0] * length, length == 49, values)
            rollouts.append(Rollout([0], completion, ""))
        return rollouts

    def score(prompts: list[Prompt], rollouts: list[Rollout]) -> np.ndarray:
        shares = [REHEARSED[(int(prompt) + number) % len(REHEARSED)] for prompt in prompts]
        right = rng.random(len(prompts)) < shares
        return np.repeat(right[:, None], len(weights), axis=1).astype(np.float32)

    driver = Driver(
        algorithm=algorithm,
        advantage=advantage,
        draw=draw,
        score=score,
        weights=weights,
        correct=correct,
    )
    for number in range(len(REHEARSED)):
        every = (Prompt(i, rows[i % len(rows)]) for i in itertools.count())
        step = Step(
            number=number,
            P=P,
            n=n,
            m=m,
            prompts=list(itertools.islice(every, P)),
            fresh=lambda count, every=every: list(itertools.islice(every, count)),
            history=history,
            rng=rng,
        )
        try:
            record = driver(step)
        except AlgorithmError as error:
            raise UserError(f"{error} (made-up rollouts, before the model loads)") from error
        remember(history, record.visits())
