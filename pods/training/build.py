"""TRL's trainer for a run: every argument by value, our rollouts, rewards and clock."""

from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from datasets import Dataset
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PrinterCallback, set_seed

from pods import ranks
from pods.batch import Prompt, Rollout
from pods.clock import Clock
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, LivePolicy, Request, Work, choose, seed_of, texts
from pods.engines.trl import TrlEngine, generation_arguments
from pods.models.policy import Policy
from pods.scoring import Rewards
from pods.tasks import encode_prompt
from pods.trainer import PodsConfig, PodsTrainer
from pods.training.guard import Guard


class RunConfig(PodsConfig):
    n_gpu = 1  # of a process, however many it sees (choose.settle says so)


def trl_arguments(config: TrainConfig, policy: Policy) -> dict[str, Any]:
    """PodsConfig's arguments: every value that a library could default differently is passed."""
    rows = config.kept_per_prompt * config.prompts_per_step // ranks.world_size()  # of a step
    accumulation, loss = rows // config.micro_batch_size, config.loss
    names = {"arguments": OmegaConf.load(CONFIG_DIR / "_trl.yaml")}  # TRL's, with our keys
    table = OmegaConf.create(config.model_dump() | names).arguments
    arguments = OmegaConf.to_container(table, resolve=True) | {
        "max_steps": config.max_steps or 10**9,  # a run without max_steps is ended by its budget
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,  # every update trains on the whole generation
        "epsilon_high": loss.epsilon if loss.epsilon_high is None else loss.epsilon_high,
        "bf16": config.model.dtype == "bfloat16",
        "use_cpu": policy.device == "cpu" and not ranks.zero_stage(),  # see ranks.start
        "ddp_backend": "gloo" if policy.device == "cpu" and ranks.zero_stage() else None,
        "dataloader_pin_memory": policy.device != "cpu",
    }
    arguments |= generation_arguments(config, policy.end_tokens, choose.vllm_mode(config))
    return arguments | config.trl.model_dump(exclude_none=True)


def build_trainer(
    config: TrainConfig,
    policy: Policy,
    dataset: Dataset,
    rewards: Rewards,
    engine: Engine | None,
    clock: Clock,
) -> PodsTrainer:
    """The trainer of a run; without an engine TRL generates, through the finished trainer."""
    wanted = trl_arguments(config, policy)
    weights = list(rewards.weights.values())
    arguments = RunConfig(**wanted, reward_weights=weights, correct=rewards.grader)
    refuse_changes(arguments, wanted)
    set_seed(config.seed)  # LoRA's initial weights are drawn before TRL seeds itself
    by_seconds = config.optimizer.schedule_by == "seconds"
    trainer = PodsTrainer(
        model=policy.model,
        args=arguments,
        train_dataset=dataset,
        processing_class=policy.tokenizer,
        reward_funcs=rewards.functions,
        peft_config=policy.peft_config,
        sampler=partial(EngineSampler, config=config, policy=policy, engine=engine),
        clock=clock,
        schedule_seconds=config.budget.train_seconds if by_seconds else None,
    )
    train_in_float32(trainer.model)
    if trainer.sampler.guard is None and config.engine.name != "trl":
        ranks.say("log-probabilities are not compared with the trainer: top_k, top_p change them")
    trainer.remove_callback(PrinterCallback)  # pods/training/logs.py prints
    refuse_changes(arguments, wanted)  # again: Unsloth's constructor changes some
    policy.tokenizer.padding_side = "left"  # Unsloth's constructor sets right; checkpoints keep it
    return trainer


def train_in_float32(model: PreTrainedModel) -> None:
    """An update of 5e-6 moves no bfloat16 number above 1.3e-3. TRL casts the adapters of a 4-bit
    base to bfloat16, and a full model has its own type; DeepSpeed keeps float32 weights itself."""
    for parameter in model.parameters():
        if parameter.requires_grad and not ranks.zero_stage():
            parameter.data = parameter.data.float()


def refuse_changes(arguments: PodsConfig, wanted: dict[str, Any]) -> None:
    """Raise UserError if a library replaced a value that was passed to it."""
    actual = {key: getattr(arguments, key) for key in wanted}
    actual = {key: getattr(value, "value", value) for key, value in actual.items()}  # of enums
    changed = [f"{k} ({v} -> {actual[k]})" for k, v in wanted.items() if actual[k] != v]
    if changed:
        raise UserError(f"the trainer replaced {', '.join(changed)} by other defaults")


class EngineSampler:
    """Rollouts of a training by an engine, each with a seed made of (seed, step, question, index):
    a resumed run repeats them, and runs that differ in n, P or ranks share them."""

    def __init__(
        self, trainer: PodsTrainer, config: TrainConfig, policy: Policy, engine: Engine | None
    ) -> None:
        self.trainer, self.config, self.tokenizer = trainer, config, policy.tokenizer
        self.engine = engine or TrlEngine(trainer, policy.end_tokens)
        self.guard, keys = None, config.engine
        if choose.gives_logprobs(keys.name, config):
            self.guard = Guard(self.engine, trainer, keys.max_logprob_gap, keys.check_every)
        # Whether rollouts keep them: TRL's loss corrects by them; algorithms see them.
        self.logprobs = keys.importance_sampling_correction or config.algorithm.needs_logprobs

    def __call__(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        """A rollout for each prompt, with its index among those of its question."""
        requests, step = [], self.trainer.state.global_step
        for _, pairs in groupby(wanted, key=lambda pair: id(pair[0])):  # neighbours of one prompt
            prompts, indices = zip(*pairs, strict=True)
            seeds = [seed_of(self.config.seed, step, prompts[0], index) for index in indices]
            requests.append(Request(encode_prompt(prompts[0].row["prompt"], self.tokenizer), seeds))
        work = Work(requests, LivePolicy(self.trainer.model, step))
        due = self.guard is not None and self.guard.due(step)
        ((_, groups),) = self.engine.generate([work], logprobs=self.logprobs or due)
        if self.guard is not None:
            self.guard.check(work, groups, step)
        completions = [completion for group in groups for completion in group]
        if not self.logprobs:  # those that the guard asked for
            completions = [replace(completion, logprobs=None) for completion in completions]
        prompt_ids = [list(request.prompt) for request in requests for _ in request.seeds]
        written = texts(self.tokenizer, completions, self.config.sampling.stop)
        return [Rollout(*row) for row in zip(prompt_ids, completions, written, strict=True)]
