"""PodsTrainer for a run: our engines draw, a guard compares them, a clock times the steps; and the
warm-up before its first step."""

from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed

from pods import ranks
from pods.batch import Completion, Prompt, Rollout, Row, seed_of
from pods.clock import Clock
from pods.config.keys import TrainConfig
from pods.engines import Engine, LivePolicy, Request, Work, choose, texts
from pods.engines.trl import TrlEngine
from pods.models.policy import Policy
from pods.needs import needs_of
from pods.seam import Tensors
from pods.trainer import PodsTrainer
from pods.training.guard import Guard


class RunTrainer(PodsTrainer):
    """PodsTrainer with what a run has beside it: engine, guard, clock, and a schedule by the clock.

    Args:
        config: of the run; its engine is settled (pods.engines.choose).
        policy: the model, its tokenizer and end tokens.
        engine: draws the rollouts; None: TRL's own generation does.
        clock: times the phases of a step.
        arguments: of PodsTrainer.
    """

    def __init__(
        self,
        *,
        config: TrainConfig,
        policy: Policy,
        engine: Engine | None,
        clock: Clock,
        **arguments: Any,
    ) -> None:
        super().__init__(
            model=policy.model,
            processing_class=policy.tokenizer,
            peft_config=policy.peft_config,
            **arguments,
        )
        self.config = config
        self.clock = clock
        self.engine = engine or TrlEngine(self.generate_ids, policy.end_tokens)
        self.guard: Guard | None = None
        if choose.gives_logprobs(config.engine, config):
            self.guard = Guard(
                engine=self.engine,
                token_logprobs=self.token_logprobs,
                max_gap=config.guard.max_logprob_gap,
                check_every=config.guard.check_every,
                updates=self.num_iterations,
            )
        # Whether rollouts keep them: TRL's loss corrects by them, or the algorithm reads them.
        reads_logprobs = needs_of(self.driver.algorithm).reads_logprobs
        self.keeps_logprobs = choose.corrects(config) or reads_logprobs

    def phase(self, name: str) -> AbstractContextManager:
        return self.clock.phase(name)

    def train_batch(self, inputs: list[dict]) -> Tensors:
        """As PodsTrainer's, from random states that are a function of seed, step and rank: TRL
        shuffles rows, and its generation samples, from torch's. So a resumed run is exact."""
        set_seed(seed_of(self.args.seed, self.state.global_step, ranks.rank()) % 2**32)
        return super().train_batch(inputs)

    def draw_share(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        """Rollouts by the engine, each with a seed made of (seed, step, question, index): a resumed
        run repeats them, and runs that differ in n, P or ranks share them."""
        step = self.state.global_step
        work = Work(self.requests(wanted, step), LivePolicy(self.model, step))
        due = self.guard is not None and self.guard.due(step)
        ((_, groups),) = self.engine.generate([work], logprobs=self.keeps_logprobs or due)
        if self.guard is not None:
            self.guard.check(work, groups, step)
        completions = [completion for group in groups for completion in group]
        if not self.keeps_logprobs:  # those that the guard asked for
            completions = [replace(completion, logprobs=None) for completion in completions]
        written = texts(self.processing_class, completions, self.config.sampling.stop)
        rows = zip(work.prompts, completions, written, strict=True)
        return [Rollout(*row) for row in rows]

    def requests(self, wanted: list[tuple[Prompt, int]], step: int) -> list[Request]:
        """One for each run of neighbours with the same prompt."""
        requests = []
        for _, neighbours in groupby(wanted, key=lambda pair: id(pair[0])):
            pairs = list(neighbours)
            prompt = pairs[0][0]
            seeds = [seed_of(self.config.seed, step, prompt, index) for _, index in pairs]
            requests.append(Request(prompt.row["prompt_ids"], seeds))
        return requests

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """transformers' schedule over steps, or over the milliseconds of training by the clock."""
        if self.config.optimizer.schedule_by != "seconds":
            return super().create_scheduler(num_training_steps, optimizer)
        milliseconds = round(1000 * self.config.budget.train_seconds)
        schedule = super().create_scheduler(milliseconds, optimizer)
        factor = schedule.lr_lambdas[0]  # the same for each group of parameters

        def by_the_clock(step: int) -> float:
            return factor(1000 * self.clock.train_seconds)

        schedule.lr_lambdas = [by_the_clock] * len(schedule.lr_lambdas)
        return schedule


def warm_up(trainer: RunTrainer) -> None:
    """A round, another at the length limits of the sampling, and a micro-batch of the loss: kernels
    compile and a lack of memory shows before the clock starts. Nothing of it stays."""
    limits = trainer.config.sampling
    n = trainer.args.rollouts_per_prompt
    P = trainer.args.generation_batch_size // trainer.num_generations
    order = trainer.data_order
    rows = [order.dataset[order.index(place)] for place in range(P)]  # those of the first step
    prompts = []
    for row in rows:
        prompts += [Prompt(row["id"], row)] * n
    with trainer.phase("generate"):
        indices = list(range(n)) * P
        rollouts = trainer.draw(prompts, indices)
        wanted = ranks.share(list(zip(prompts, indices, strict=True)))
        requests = [
            replace(request, prompt=np.resize(request.prompt, limits.max_prompt_length).tolist())
            for request in trainer.requests(wanted, 0)
        ]
        work = Work(requests, LivePolicy(trainer.model, 0), full_length=True)
        list(trainer.engine.generate([work]))
    with trainer.phase("score"):
        trainer.score(prompts, rollouts)
    batch = longest_batch(trainer, rows[0], requests[0].prompt, limits.max_completion_length)
    with trainer.phase("update"):
        trainer.rehearse(batch)


def longest_batch(trainer: RunTrainer, row: Row, tokens: list[int], length: int) -> Tensors:
    """TRL's batch of equal rollouts at the length limits, with made-up tokens."""
    special = trainer.processing_class.all_special_ids
    plain = [token for token in tokens if token not in special] or tokens
    logprobs = [0.0] * length if trainer.keeps_logprobs else None
    completion = Completion(
        token_ids=np.resize(plain, length).tolist(),
        clipped=True,
        logprobs=logprobs,
    )
    scores = torch.zeros(trainer.args.generation_batch_size, len(trainer.reward_func_names))
    count = len(scores) // ranks.world_size()
    rollouts = [Rollout(tokens, completion, "")] * count
    return trainer.tensors([row["prompt"]] * count, rollouts, scores)
