"""Rollouts of a run by its engine, which a guard compares with the trainer."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from pods.batch import Prompt, Rollout, seed_of
from pods.config.keys import TrainConfig
from pods.engines import Engine, LivePolicy, Request, Work, choose, texts
from pods.engines.trl import TrlEngine
from pods.models.policy import Policy
from pods.requirements import requirements_of
from pods.trainer import PodsTrainer
from pods.training.guard import Guard


class EngineSampler:
    """The sampler of a run's PodsTrainer.

    Args:
        trainer: whose policy is sampled from.
        config: of the run; its engine is resolved (pods.engines.choose).
        policy: the model, its tokenizer and end tokens.
        engine: generates; None: TRL's own generation does.
    """

    def __init__(
        self, trainer: PodsTrainer, config: TrainConfig, policy: Policy, engine: Engine | None
    ) -> None:
        self.trainer = trainer
        self.config = config
        self.tokenizer = policy.tokenizer
        self.engine = engine or TrlEngine(trainer.generate_ids, policy.end_tokens)
        self.guard: Guard | None = None
        if choose.gives_logprobs(config.engine, config):
            self.guard = Guard(
                engine=self.engine,
                token_logprobs=trainer.token_logprobs,
                max_gap=config.guard.max_logprob_gap,
                check_every=config.guard.check_every,
                updates=trainer.num_iterations,
            )
        # Whether rollouts keep them: TRL's loss corrects by them, or the algorithm reads them.
        reads_logprobs = requirements_of(trainer.driver.algorithm).reads_logprobs
        self.keeps_logprobs = choose.corrects(config) or reads_logprobs

    def sample(self, wanted: Sequence[tuple[Prompt, int]]) -> list[Rollout]:
        """Each rollout has a seed made of (seed, step, question, index): a resumed run repeats
        them, and runs that differ in n, P or ranks share them."""
        step = self.trainer.state.global_step
        work = Work(self.requests(wanted, step), LivePolicy(self.trainer.model, step))
        due = self.guard is not None and self.guard.due(step)
        ((_, groups),) = self.engine.generate([work], logprobs=self.keeps_logprobs or due)
        if self.guard is not None:
            self.guard.check(work, groups, step)
        completions = [completion for group in groups for completion in group]
        if not self.keeps_logprobs:  # those that the guard asked for
            completions = [replace(completion, logprobs=None) for completion in completions]
        written = texts(self.tokenizer, completions, self.config.sampling.stop)
        rows = zip(work.prompts, completions, written, strict=True)
        return [Rollout(*row) for row in rows]

    def requests(self, wanted: Sequence[tuple[Prompt, int]], step: int) -> list[Request]:
        """One for each run of neighbours with the same prompt."""
        requests = []
        for _, neighbours in groupby(wanted, key=lambda pair: id(pair[0])):
            pairs = list(neighbours)
            prompt = pairs[0][0]
            seeds = [seed_of(self.config.seed, step, prompt, index) for _, index in pairs]
            requests.append(Request(prompt.row["prompt_ids"], seeds))
        return requests
