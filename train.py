"""Train a policy with GRPO, GRPO-GA or GRPO-PODS (arXiv 2504.13818) on one GPU, or several.

    uv run train.py                                        # quickstart: tiny policy, a minute, CPU
    uv run train.py experiment=gsm8k_qwen algorithm=pods   # the paper's setting (a), one GPU
    uv run train.py -m seed=1,2,3 algorithm=grpo,pods      # a sweep
    uv run accelerate launch --config_file config/accelerate/zero2.yaml train.py \\
        experiment=gsm8k_h100 algorithm=pods               # setting (e), 8 GPUs

config/train.yaml lists every key. The run lands in checkpoints/<run>/ and resumes by itself.
"""

import os
from contextlib import ExitStack
from functools import partial

from pods import distributed
from pods.check import check
from pods.cli import command
from pods.clock import Clock, peak_memory_reader
from pods.config import TrainConfig
from rewards import Scorer


@command("train", TrainConfig)
def main(config: TrainConfig) -> None:
    check(config)
    clock = Clock()
    with ExitStack() as stack:
        with clock.phase("load"):
            prepare(config)
            from pods import runs  # these import torch and TRL, which Unsloth must precede
            from pods.loop import Loop, train
            from pods.policy import check_device, load_policy, load_tokenizer
            from pods.prompts import load_prompts
            from pods.rollouts import Rollouts
            from pods.rules import select
            from pods.trainer import build_trainer

            distributed.start()
            tokenizer = load_tokenizer(config.model.path, config.model.pad_token)
            check_device(config)
            prompts = load_prompts(config, tokenizer)
            folder = stack.enter_context(runs.RunFolder(config))
            start = distributed.from_main(partial(runs.find_start, config, folder))
            rewards, rule = config.rewards, config.rule
            scorer = stack.enter_context(
                Scorer(
                    rewards.version,
                    workers=rewards.workers,
                    deadline_seconds=rewards.deadline_seconds,
                    names=rewards.weights,
                )
            )
            clock.peak = peak_memory_reader()
            policy = load_policy(config, tokenizer)
            keep = partial(select, rule.name, m=config.kept_per_prompt, **rule.params)
            rollouts = Rollouts(
                config.rollouts_per_prompt, scorer.score, rewards.weights, keep, clock, config.seed
            )
            loop = Loop(config, folder, clock, rollouts, scorer, stack)
            trainer = build_trainer(config, policy, prompts, rollouts, loop)
        train(trainer, loop, start)


def prepare(config: TrainConfig) -> None:
    """Settle backend and optimiser, say why, and import Unsloth before everything it rewrites."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is used on purpose
    from pods.policy import choose_backend, choose_optimizer, set_threads

    config.backend.name, reason = choose_backend(config.backend.name)
    config.optimizer.name = choose_optimizer(config.optimizer.name)
    distributed.say(f"backend {config.backend.name} ({reason}), {config.optimizer.name}")
    set_threads(config.backend.threads)
    if config.backend.name == "unsloth":
        from pods.unsloth import import_unsloth

        import_unsloth(config)


if __name__ == "__main__":
    main()
