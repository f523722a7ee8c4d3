"""Stage 3: prompts -> n completions each -> rewards -> the m that are kept (TRL's `rollout_func`).

Everything after this file (log-probabilities, advantages, loss, optimiser) sees m rows per prompt,
never n. Advantages are taken by TRL on the m kept, as in the paper (section 3, algorithm 1).

With several ranks each generates and scores an equal share of all n * P rollouts, whatever group
they belong to; the shares are gathered, every rank selects alike on whole groups, and trains on an
equal share of the m * P kept, in TRL's order. The published 8-GPU code selects wrongly.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from transformers import set_seed

from pods import distributed
from pods.clock import Clock
from pods.tasks import encode_prompt

Score = Callable[[list[str], list[str], list[str]], dict[str, list[float]]]
Select = Callable[..., np.ndarray]  # (rewards (n,), rng=...) -> (m,)


class RewardError(RuntimeError):
    """A reward function raised or returned something that is not a finite number."""

    def __init__(self, message: str, completion: str, answer: str) -> None:
        super().__init__(message)
        self.completion, self.answer = completion, answer


@dataclass
class Group:
    """The n rollouts of one prompt: what was generated, its rewards, which m were kept."""

    question_id: str
    prompt: str
    answer: str
    completions: list[str]  # (n,)
    lengths: list[int]  # (n,) tokens
    clipped: list[bool]  # (n,) stopped by the length limit
    rewards: dict[str, list[float]] = field(default_factory=dict)  # reward function -> (n,)
    total: list[float] = field(default_factory=list)  # (n,) weighted sum, what selection sees
    kept: list[int] = field(default_factory=list)  # (m,) ascending indices into the n

    def record(self, texts: bool) -> dict[str, Any]:
        """The group as a plain dict for the ledger."""
        record = asdict(self)
        if not texts:
            del record["prompt"], record["completions"]
        return record


class Rollouts:
    """Callable that TRL hands its prompts to; keeps the groups of the newest call in `groups`:
    those of all ranks, on every rank.

    Args:
        n: rollouts per prompt while training; evaluation generates what TRL asks for.
        score: (completions, answers, kinds) -> reward function -> one float per completion.
        weights: reward function -> weight in the total reward.
        select: ((n,) total rewards, rng=...) -> (m,) ascending indices.
        clock: times generate, score and select.
        seed: each call is reseeded from (seed, step, rank), so that rollouts are a function of
            weights and position and a resumed run repeats them; None leaves the generator alone.
    """

    def __init__(
        self,
        n: int,
        score: Score,
        weights: dict[str, float],
        select: Select,
        clock: Clock,
        seed: int | None,
    ) -> None:
        self.n, self.score, self.weights = n, score, weights
        self.select, self.clock, self.seed = select, clock, seed
        self.groups: list[Group] = []
        self._kept_ids: list[list[int]] = []
        self._kept_scores: dict[str, list[float]] = {}

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list | None]:
        training = trainer.model.training  # read before generating: Unsloth leaves it switched on
        m = trainer.num_generations if training else trainer.num_generations_eval
        n = self.n if training else m  # evaluation does not down-sample
        rows = group_rows(distributed.gather(prompts), distributed.gather(trainer.dataset_rows), m)
        step = trainer.state.global_step
        if self.seed is not None:
            entropy = [self.seed, step, distributed.rank()]
            set_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        tokenizer = trainer.processing_class
        with self.clock.phase("generate"):
            prompt_ids, ids, logprobs = self._generate(rows, n, trainer)
            texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        stop = {tokenizer.eos_token_id, tokenizer.pad_token_id}
        self.groups = [
            Group(
                question_id=str(row["id"]),
                prompt=row["prompt"],
                answer=str(row["answer"]),
                completions=texts[i : i + n],
                lengths=[len(tokens) for tokens in ids[i : i + n]],
                clipped=[tokens[-1] not in stop for tokens in ids[i : i + n]],
            )
            for i, row in zip(range(0, len(ids), n), rows, strict=True)
        ]
        with self.clock.phase("score"):
            self._score(rows)
        with self.clock.phase("select"):
            for index, group in enumerate(self.groups):
                rng = np.random.default_rng([self.seed or 0, step, 0, index])
                keep = self.select(np.array(group.total), rng=rng) if training else np.arange(n)
                group.kept = [int(i) for i in keep]
        kept = [g * n + i for g, group in enumerate(self.groups) for i in group.kept]
        kept = kept[distributed.share(len(kept))]
        self._kept_ids = [ids[i] for i in kept]
        self._kept_scores = {
            name: [self.groups[i // n].rewards[name][i % n] for i in kept] for name in self.weights
        }
        return {
            "prompt_ids": [prompt_ids[i] for i in kept],
            "completion_ids": self._kept_ids,
            "logprobs": logprobs and [logprobs[i] for i in kept],
        }

    def _generate(self, rows: list[dict], n: int, trainer: Any) -> tuple[list, list, list | None]:
        """Prompt, completion and log-probabilities of all n * P rollouts, of which this rank draws
        its share."""
        tokenizer = trainer.processing_class
        encoded = [encode_prompt(row["prompt"], tokenizer) for row in rows]
        prompt_ids = [tokens for tokens in encoded for _ in range(n)]
        mine = prompt_ids[distributed.share(len(prompt_ids))]
        ids, logprobs = trainer._generate_single_turn(mine, None, {})
        if len(ids) != len(mine):
            raise RuntimeError(f"asked for {len(mine)} completions, got {len(ids)}")
        ids = [tokens or [tokenizer.eos_token_id] for tokens in ids]  # TRL reads the last token
        return prompt_ids, distributed.gather(ids), logprobs and distributed.gather(logprobs)

    def _score(self, rows: list[dict]) -> None:
        texts = [text for group in self.groups for text in group.completions]
        answers = [group.answer for group in self.groups for _ in group.completions]
        kinds = [row["kind"] for row, g in zip(rows, self.groups, strict=True) for _ in g.lengths]
        mine = distributed.share(len(texts))
        texts, answers, kinds = texts[mine], answers[mine], kinds[mine]
        try:
            scores = self.score(texts, answers, kinds)
        except Exception as error:
            raise self._culprit(texts, answers, kinds, error) from error
        for name in self.weights:
            for i, value in enumerate(scores[name]):
                if value is None or not np.isfinite(value):
                    message = f"reward function {name} returned {value}, not a finite number"
                    raise RewardError(message, texts[i], answers[i])
        scores = {name: distributed.gather(list(scores[name])) for name in self.weights}
        start = 0
        for group in self.groups:
            end = start + len(group.completions)
            group.rewards = {name: values[start:end] for name, values in scores.items()}
            group.total = [
                sum(self.weights[name] * group.rewards[name][i] for name in self.weights)
                for i in range(end - start)
            ]
            start = end

    def _culprit(
        self, texts: list[str], answers: list[str], kinds: list[str], error: Exception
    ) -> RewardError:
        """The first completion on which scoring raises by itself, named in the error."""
        for text, answer, kind in zip(texts, answers, kinds, strict=True):
            try:
                self.score([text], [answer], [kind])
            except Exception as alone:
                return RewardError(f"a reward function raised {alone!r}", text, answer)
        return RewardError(f"a reward function raised {error!r} on the whole batch", "", "")

    def trl_reward_functions(self) -> list[Callable[..., list[float]]]:
        """What TRL calls for rewards: the kept scores by position, never computed twice."""

        def reader(name: str) -> Callable[..., list[float]]:
            def read(completion_ids: list[list[int]], **_: Any) -> list[float]:
                if completion_ids != self._kept_ids:
                    raise RuntimeError("rewards asked for other completions than the rollout's")
                return self._kept_scores[name]

            read.__name__ = name
            return read

        return [reader(name) for name in self.weights]


def group_rows(prompts: list[str], rows: list[dict], m: int) -> list[dict]:
    """One dataset row per group. TRL sends each prompt m times in a row; two neighbouring groups
    may hold the same text, so groups go by position. Raises where rows are no whole groups."""
    if len(rows) != len(prompts) or len(prompts) % m:
        raise RuntimeError(f"{len(prompts)} prompts for {len(rows)} rows are no groups of {m}")
    starts = range(0, len(prompts), m)
    if any(rows[s] != rows[s + j] for s in starts for j in range(m)):
        raise RuntimeError(f"a group of {m} straddles two groups of rows: they came out of order")
    return [rows[s] for s in starts]


def summarize(groups: list[Group]) -> dict[str, float]:
    """Metrics of one step: `all/*` over the n generated, `kept/*` over the m trained on."""
    totals = [np.array(g.total) for g in groups]
    kept = [np.array(g.total)[g.kept] for g in groups]
    lengths = np.concatenate([g.lengths for g in groups])
    kept_lengths = np.concatenate([np.array(g.lengths)[g.kept] for g in groups])
    everything = np.concatenate(totals)
    metrics = {
        "all/reward_mean": everything.mean(),
        "all/reward_std": np.mean([t.std() for t in totals]),  # within a group
        "all/reward_variance": np.mean([t.var() for t in totals]),
        "all/reward_min": everything.min(),
        "all/reward_max": everything.max(),
        "all/zero_variance_groups": np.mean([np.ptp(t) == 0 for t in totals]),
        "all/completion_length_mean": lengths.mean(),
        "all/completion_length_max": lengths.max(),
        "all/clipped_ratio": np.mean(np.concatenate([g.clipped for g in groups])),
        "kept/reward_mean": np.concatenate(kept).mean(),
        "kept/reward_variance": np.mean([k.var() for k in kept]),
        "kept/completion_length_mean": kept_lengths.mean(),
    }
    for name, values in _by_function(groups):
        metrics[f"all/{name}_mean"] = np.mean(values)
    metrics["step_tokens/generated"] = lengths.sum()
    metrics["step_tokens/trained"] = kept_lengths.sum()
    return {name: float(value) for name, value in metrics.items()}


def _by_function(groups: list[Group]) -> Iterator[tuple[str, list[float]]]:
    for name in groups[0].rewards:
        yield name, [value for group in groups for value in group.rewards[name]]
