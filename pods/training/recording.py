"""The trainer of a run for scripts/plan.py: it draws, scores and gives gradients."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pods import ranks
from pods.clock import Clock
from pods.config.keys import TrainConfig
from pods.engines import choose
from pods.models import is_adapter, unsloth
from pods.models import policy as models
from pods.training.check import settle

if TYPE_CHECKING:
    from pods.training.run_trainer import RunTrainer


def settings(training: TrainConfig, rollouts: int) -> TrainConfig:
    """The training's config with all rollouts of one prompt as a micro-batch, and without KL term,
    which is no signal."""
    config = training.model_copy(deep=True)
    config.max_sequences = (
        training.max_sequences or training.rollouts_per_prompt * training.prompts_per_step
    )
    config.algorithm, config.algorithm_kwargs = "grpo", {}
    config.advantage, config.advantage_kwargs = "kept", {}
    config.rollouts_per_prompt = config.kept_per_prompt = config.micro_batch_size = rollouts
    config.prompts_per_step = config.updates_per_generation = 1
    config.loss.beta = 0.0
    return config


@contextmanager
def trainer_of(config: TrainConfig, weights: Path | None, step: int) -> "Iterator[RunTrainer]":
    """The trainer of a run at a checkpoint, or with the base's weights, as train.py builds it."""
    settle(config)
    ranks.say(choose.settle(config))
    models.set_threads(config.threads)
    load = models.load_transformers
    if config.backend == "unsloth":
        load = unsloth.load_unsloth
        unsloth.import_unsloth(config)  # before the packages that it rewrites
    from peft import load_peft_weights, set_peft_model_state_dict

    from pods import scoring
    from pods.tasks import splits
    from pods.training import build

    with ExitStack() as stack:
        ranks.start()
        adapter = weights if weights and is_adapter(weights) else None
        if weights and not adapter:
            config = config.moved(str(weights))
        tokenizer = models.load_tokenizer(config.model.path, config.model.pad_token)
        questions = splits.load_prompts(config, tokenizer)
        rewards = stack.enter_context(scoring.Rewards(config.rewards))
        model = load(config, tokenizer)
        engine = choose.build_for_training(config, model)
        if engine is not None:
            stack.enter_context(engine)
        trainer = build.build_trainer(config, model, questions, rewards, engine, Clock())
        if adapter:
            tensors = load_peft_weights(str(adapter), device=str(trainer.accelerator.device))
            set_peft_model_state_dict(trainer.model, tensors)
        trainer.state.global_step = step
        trainer.keeps_logprobs = trainer.guard is not None  # an algorithm may read them
        yield trainer
