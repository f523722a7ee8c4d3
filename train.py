"""Train a policy with PODS, GRPO or a rival (pods/algorithms.py) on one GPU, or several.

    uv run train.py                                        # quickstart: tiny policy, a minute, CPU
    uv run train.py experiment=gsm8k_qwen algorithm=pods   # the paper's setting (a), one GPU
    uv run train.py trial=true experiment=gsm8k_qwen       # three steps: would it run, how fast?
    uv run train.py -m seed=1,2,3 algorithm=grpo,pods      # a sweep

config/train.yaml lists every key. The run lands in checkpoints/<run>/ and resumes by itself.
"""

from contextlib import ExitStack

from pods import ranks
from pods.clock import Clock, peak_memory
from pods.config.command import command
from pods.config.keys import TrainConfig
from pods.training import trial


@command("train", TrainConfig, names_run=True)
def main(config: TrainConfig) -> None:
    from pods.training.check import check, check_files, settle  # a mistyped key waits for no numpy

    settle(config)
    check(config)
    check_files(config)
    if config.trial:
        trial.run(config, train)
    else:
        train(config)


def train(config: TrainConfig) -> None:
    """Build a training and run it."""
    clock = Clock(peak=peak_memory)
    with ExitStack() as stack:
        with clock.phase("load"):
            prepare(config)
            # These import torch and TRL, which Unsloth must precede.
            from pods import scoring
            from pods.engines import choose
            from pods.models import initial, policy
            from pods.runs import folder as runs
            from pods.tasks import prompts
            from pods.training import build, loop

            stack.enter_context(loop.signals_restored())
            ranks.start()
            tokenizer = policy.load_tokenizer(config.model.path, config.model.pad_token)
            policy.check_device(config)
            questions = prompts.load_prompts(config, tokenizer)
            folder = stack.enter_context(runs.RunFolder(config))
            start = ranks.from_main(lambda: runs.find_start(config, folder))
            rewards = stack.enter_context(scoring.Rewards(config.rewards))
            model = policy.load_policy(config, tokenizer)
            engine = choose.build_for_training(config, model)
            if engine is not None:
                stack.enter_context(engine)
            trainer = build.build_trainer(config, model, questions, rewards, engine, clock)
            if start is None:
                initial.load_adapter(config, trainer.model)
            callback = loop.RunCallback(config, folder, trainer, rewards, stack)
            trainer.add_callback(callback)
        loop.run(callback, start)


def prepare(config: TrainConfig) -> None:
    """Settle backend, optimiser and engine, print the reasons, and import Unsloth before the
    packages that it rewrites."""
    from pods.engines import choose
    from pods.models.policy import choose_backend, choose_optimizer, set_threads

    config.backend.name, reason = choose_backend(config.backend.name)
    config.optimizer.name = optimizer = choose_optimizer(config.optimizer.name)
    config.engine.name, because = choose.for_training(config)
    names = f"backend {config.backend.name} ({reason}), engine {config.engine.name} ({because})"
    ranks.say(f"{names}, {optimizer}")
    set_threads(config.backend.threads)
    if config.backend.name == "unsloth":
        from pods.models.unsloth import import_unsloth

        import_unsloth(config)


if __name__ == "__main__":
    main()
