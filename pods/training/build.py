"""The trainer of a run: every argument of TRL's by value, our data, rewards and engine."""

import warnings
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PrinterCallback

from pods import ranks
from pods.clock import Clock
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, choose
from pods.engines.trl import generation_arguments, reset_generation
from pods.models.policy import Policy
from pods.pods_config import PodsConfig
from pods.trainer import PodsTrainer
from pods.training import trial
from pods.training.engine_sampler import EngineSampler
from pods.training.rewards import Rewards

# transformers 5.23 has new names for these, and TRL 1.16 calls the former ones at every step.
warnings.filterwarnings("ignore", r"`\w*gradient_checkpointing\w*` is deprecated", FutureWarning)


class RunConfig(PodsConfig):
    """PodsConfig of a run, which takes one card also where it sees several."""

    n_gpu = 1  # of a process, however many it sees (choose.resolve_auto says so)


def trl_arguments(config: TrainConfig, policy: Policy) -> dict[str, Any]:
    """PodsConfig's arguments: every value that a library could default differently is passed."""
    rows = config.kept_per_prompt * config.prompts_per_step // ranks.world_size()  # of a step
    accumulation = rows // config.micro_batch_size
    on_cpu = not torch.cuda.is_available()
    names = {"arguments": OmegaConf.load(CONFIG_DIR / "_trl.yaml")}  # TRL's, with our keys
    table = OmegaConf.create(config.model_dump() | names).arguments
    arguments = OmegaConf.to_container(table, resolve=True)
    arguments |= {
        "max_steps": config.max_steps or 10**9,  # a run without max_steps is ended by its budget
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,  # every update trains on the whole generation
        "epsilon_high": config.loss.epsilon_high or config.loss.epsilon,
        "bf16": config.model.dtype == "bfloat16",
        "use_cpu": on_cpu and not ranks.zero_stage(),  # see ranks.joined
        "ddp_backend": "gloo" if on_cpu and ranks.zero_stage() else None,
        "dataloader_pin_memory": not on_cpu,
    }
    if config.rule is not None:  # else the algorithm takes none
        arguments["rule"] = config.rule
    arguments |= generation_arguments(config, policy.end_tokens, choose.vllm_mode(config))
    return arguments | config.trl


def build_trainer(
    config: TrainConfig,
    policy: Policy,
    dataset: Dataset,
    rewards: Rewards,
    engine: Engine | None,
    clock: Clock,
) -> PodsTrainer:
    """The trainer of a run, whose sampler is an EngineSampler; without an engine TRL generates."""
    wanted = trl_arguments(config, policy)
    try:
        arguments = RunConfig(
            **wanted,
            reward_weights=list(rewards.weights.values()),
            correct=rewards.grader,
        )
    except ValueError as error:  # our keys have no such value
        raise UserError(f"trl={config.trl}: TRL refuses it: {error}") from error
    refuse_changes(arguments, wanted)
    if config.engine == "trl" and not arguments.use_vllm:
        reset_generation(policy.model)
    trainer = PodsTrainer(
        model=policy.model,
        reward_funcs=rewards.functions,
        args=arguments,
        algorithm=trial.with_grpo_steps(config) if config.trial else None,
        train_dataset=dataset,
        processing_class=policy.tokenizer,
        peft_config=policy.peft_config,
        sampler=partial(EngineSampler, config=config, policy=policy, engine=engine),
        phase=clock.phase,
    )
    train_in_float32(trainer.model)
    if trainer.sampler.guard is None and config.engine != "trl":
        ranks.say("log-probabilities are not compared with the trainer: top_k, top_p change them")
    trainer.remove_callback(PrinterCallback)  # pods/training/logs.py prints
    refuse_changes(arguments, wanted)  # again: Unsloth's constructor changes some
    policy.tokenizer.padding_side = "left"  # Unsloth's constructor sets right; checkpoints keep it
    return trainer


def train_in_float32(model: PreTrainedModel) -> None:
    """Cast the trained parameters to float32: bfloat16 rounds small updates away (5e-6 changes no
    number above 1.3e-3). TRL casts the adapters of a 4-bit
    base to bfloat16, and a full model has its own type; DeepSpeed keeps float32 weights itself."""
    for parameter in model.parameters():
        if parameter.requires_grad and not ranks.zero_stage():
            parameter.data = parameter.data.float()


def refuse_changes(arguments: PodsConfig, wanted: dict[str, Any]) -> None:
    """Raise UserError if a library replaced a value that was passed to it."""
    changed = []
    for key, value in wanted.items():
        actual = getattr(arguments, key)
        actual = getattr(actual, "value", actual)  # of an enum
        if actual != value:
            changed.append(f"{key} ({value} -> {actual})")
    if changed:
        raise UserError(f"the trainer replaced {', '.join(changed)} by other defaults")
