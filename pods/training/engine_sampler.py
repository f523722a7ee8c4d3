"""Rollouts of a run by its engine, which a guard compares with the trainer."""

from collections.abc import Sequence
from dataclasses import replace

from pods.batch import Prompt, Rollout
from pods.config.keys import TrainConfig
from pods.engines import Engine, LivePolicy, Work, choose, requests_of, texts
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
        from_server = choose.vllm_mode(config) == "server"
        self.engine = engine or TrlEngine(trainer.generate_ids, policy.end_tokens, from_server)
        self.guard: Guard | None = None
        if choose.gives_logprobs(config.engine, config):
            self.guard = Guard(
                engine=self.engine,
                token_logprobs=trainer.token_logprobs,
                max_gap=config.guard.max_logprob_gap,
                check_every=config.guard.check_every,
                updates=trainer.num_iterations,
            )
        # Rollouts keep them if TRL's loss has importance weights, or the algorithm reads them.
        reads_logprobs = requirements_of(trainer.driver.algorithm).reads_logprobs
        self.keeps_logprobs = choose.uses_importance_weights(config) or reads_logprobs

    def sample(self, wanted: Sequence[tuple[Prompt, int]]) -> list[Rollout]:
        """Each rollout has a seed made of (seed, step, question, index): a resumed run repeats
        them, and runs that differ in n, P or ranks share them."""
        step = self.trainer.state.global_step
        prompts = [prompt.row["prompt_ids"] for prompt, _ in wanted]
        requests = requests_of(wanted, prompts, self.config.seed, step)
        work = Work(requests, LivePolicy(self.trainer.model, step))
        due = self.guard is not None and self.guard.due(step)
        ((_, groups),) = self.engine.generate([work], logprobs=self.keeps_logprobs or due)
        completions = [completion for group in groups for completion in group]
        if not self.keeps_logprobs:  # those that the guard asked for
            completions = [replace(completion, logprobs=None) for completion in completions]
        written = texts(self.tokenizer, completions, self.config.sampling.stop)
        rows = zip(work.prompts, completions, written, strict=True)
        rollouts = [Rollout(*row) for row in rows]
        if self.guard is not None:
            self.guard.check(work, groups, step)
        return rollouts
