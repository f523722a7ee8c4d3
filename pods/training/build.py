"""TRL's trainer for a run: every argument by value, our rollouts, rewards and clock."""

from functools import partial
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, set_seed

from pods import ranks
from pods.clock import Clock
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, choose
from pods.engines.trl import TrlEngine, generation_arguments
from pods.models.policy import Policy
from pods.scoring import Rewards
from pods.trainer import PodsConfig, PodsTrainer
from pods.training.guard import Guard
from pods.training.sampler import EngineSampler


def trl_arguments(config: TrainConfig, policy: Policy) -> dict[str, Any]:
    """GRPOConfig's arguments: every value that a library could default differently is passed."""
    world_size = ranks.world_size()
    rows = config.kept_per_prompt * config.prompts_per_step // world_size  # of an optimiser step
    accumulation = rows // config.micro_batch_size
    sampling, optimizer, loss = config.sampling, config.optimizer, config.loss
    arguments = {
        "output_dir": f"{config.output_dir}/{config.run}",
        "seed": config.seed,
        "data_seed": config.seed,
        "max_steps": config.max_steps or 10**9,  # a run without max_steps is ended by its budget
        "per_device_train_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,  # every update trains on the whole generation
        "num_iterations": config.updates_per_generation,
        "max_completion_length": sampling.max_completion_length,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "optim": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "lr_scheduler_type": optimizer.schedule,
        "warmup_steps": optimizer.warmup_steps,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": optimizer.max_grad_norm,
        "loss_type": loss.type,
        "beta": loss.beta,
        "use_bias_correction_kl": False,  # the published k3 estimator, unweighted
        "epsilon": loss.epsilon,
        "epsilon_high": loss.epsilon if loss.epsilon_high is None else loss.epsilon_high,
        "importance_sampling_level": loss.importance_sampling_level,
        "top_entropy_quantile": loss.top_entropy_quantile,
        "mask_truncated_completions": loss.mask_truncated_completions,
        "bf16": policy.dtype == "bfloat16",
        "fp16": False,
        "use_cpu": policy.device == "cpu" and not ranks.zero_stage(),  # see ranks.start
        "gradient_checkpointing": config.backend.gradient_checkpointing,
        "save_strategy": "no",  # pods/runs/checkpoints.py writes them
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # a non-finite loss must be seen, not averaged away
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": policy.device != "cpu",
        "torch_empty_cache_steps": None,
        "vllm_importance_sampling_correction": config.engine.importance_sampling_correction,
    }
    if world_size > 1:
        arguments["ddp_find_unused_parameters"] = False  # every trained parameter takes part
    if policy.device == "cpu" and ranks.zero_stage():
        arguments["ddp_backend"] = "gloo"  # see ranks.start
    mode = choose.vllm_mode(config.engine.name, config)
    generation = generation_arguments(config, policy.end_tokens, mode)
    return arguments | choice(config) | generation | config.trl


def choice(config: TrainConfig) -> dict[str, Any]:
    """PodsConfig's arguments: how many rollouts are drawn, and which are trained on."""
    return {
        "num_generations": config.kept_per_prompt,
        "rollouts_per_prompt": config.rollouts_per_prompt,
        "algorithm": config.algorithm.name,
        "algorithm_kwargs": config.algorithm.params,
        "max_rounds": config.algorithm.max_rounds,
        "rule": config.rule.name,
        "rule_kwargs": config.rule.params,
        "advantage": config.advantage.name,
        "advantage_kwargs": config.advantage.params,
    }


def build_trainer(
    config: TrainConfig, policy: Policy, dataset: Dataset, rewards: Rewards,
    engine: Engine | None, clock: Clock,
) -> PodsTrainer:  # fmt: skip
    """The trainer of a run, over whichever GRPOTrainer the backend left in `trl`.

    engine: who generates; None: TRL, through the finished trainer.
    """
    import trl

    if policy.backend == "unsloth" and not trl.GRPOTrainer.__name__.startswith("Unsloth"):
        raise UserError("backend=unsloth: trl.GRPOTrainer was imported before unsloth rewrote it")
    wanted = trl_arguments(config, policy)
    if config.trl:
        passed = " ".join(f"{key}={value}" for key, value in config.trl.items())
        ranks.say(f"passed on to TRL: {passed}")
    arguments = PodsConfig(
        **wanted, reward_weights=list(rewards.weights.values()), correct=rewards.grader
    )
    refuse_changes(arguments, wanted)
    set_seed(config.seed)  # LoRA's initial weights are drawn before TRL seeds itself
    trainer = PodsTrainer(
        model=policy.model,
        args=arguments,
        train_dataset=dataset,
        processing_class=policy.tokenizer,
        reward_funcs=rewards.functions,
        peft_config=policy.peft_config,
        sampler=partial(sampler_of, config=config, policy=policy, engine=engine),
        clock=clock,
        reseed=True,
        schedule_seconds=(
            config.budget.train_seconds if config.optimizer.schedule_by == "seconds" else None
        ),
    )
    trainer.remove_callback(PrinterCallback)  # pods/training/logs.py prints
    refuse_changes(arguments, wanted)  # again: Unsloth's constructor changes some
    policy.tokenizer.padding_side = "left"  # Unsloth's constructor sets right; checkpoints keep it
    return trainer


def sampler_of(
    trainer: PodsTrainer, config: TrainConfig, policy: Policy, engine: Engine | None
) -> EngineSampler:
    """Rollouts by the engine, compared with the trainer where that can be done."""
    engine = engine or TrlEngine(trainer, policy.end_tokens)
    if choose.gives_logprobs(config.engine.name, config):
        limits = config.engine.max_logprob_gap, config.engine.check_every
        engine = Guard(engine, trainer, *limits)
    elif config.engine.name == "vllm":
        ranks.say(
            "engine=vllm is not checked against the trainer: with sampling.top_k or sampling.top_p "
            "and a temperature other than 1 its log-probabilities are not comparable"
        )
    # TRL's loss corrects by them; algorithms see them.
    logprobs = config.engine.importance_sampling_correction or config.algorithm.needs_logprobs
    stop = tuple(config.sampling.stop)
    return EngineSampler(engine, policy.tokenizer, stop, config.seed, logprobs)


def refuse_changes(arguments: Any, wanted: dict[str, Any]) -> None:
    """Raise UserError where a library replaced a value that was passed to it."""
    changed = [
        f"{key} ({value} -> {getattr(arguments, key)})"
        for key, value in wanted.items()
        if _differs(getattr(arguments, key), value)
    ]
    if changed:
        raise UserError(f"the trainer replaced {', '.join(changed)} by other defaults")


def _differs(actual: Any, wanted: Any) -> bool:
    plain = getattr(actual, "value", actual)  # TRL turns some strings into enums
    if wanted == "none":
        return plain not in ("none", [], None)
    return plain != wanted
