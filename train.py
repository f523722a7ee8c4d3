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


@command("train", TrainConfig, names_run=True)
def main(config: TrainConfig) -> None:
    from pods.training import trial  # a mistyped key waits for no numpy
    from pods.training.check import check, check_files, settle

    settle(config)
    check(config)
    check_files(config)
    if config.trial:
        return trial.run(config, train)
    train(config)


def train(config: TrainConfig) -> None:
    """Build a training and run it."""
    clock = Clock(peak=peak_memory)
    with ExitStack() as stack:
        with clock.phase("load"):
            prepare(config)
            from pods import scoring, tasks  # torch and TRL, after Unsloth
            from pods.engines import choose
            from pods.evaluation import midrun
            from pods.models import policy
            from pods.runs import folder as runs
            from pods.training import build, loop, warm_up

            loop.restore_signals(stack)
            ranks.start()
            tokenizer = policy.load_tokenizer(config.model.path, config.model.pad_token)
            questions = tasks.load_prompts(config, tokenizer)
            folder = stack.enter_context(runs.RunFolder(config))
            start = ranks.from_main(folder.find_start)
            rewards = stack.enter_context(scoring.Rewards(config.rewards))
            model = choose.load_policy(config, tokenizer)
            engine = choose.build_for_training(config, model)
            if engine is not None:
                stack.enter_context(engine)
            trainer = build.build_trainer(config, model, questions, rewards, engine, clock)
            evaluate, generator = None, trainer.sampler.engine
            if config.evaluation.every_seconds is not None:
                evaluate = midrun.MidRun(config, generator, tokenizer, folder.evaluations)
            warm = warm_up.warm_up if config.backend.warmup else None
            parts = rewards, warm, evaluate, start, stack
            callback = loop.RunCallback(config, folder, trainer, *parts)
            trainer.add_callback(callback)
        loop.run(callback)


def prepare(config: TrainConfig) -> None:
    """Settle backend and engine, and import Unsloth before the packages that it rewrites."""
    from pods.engines import choose
    from pods.models.policy import set_threads

    ranks.say(choose.settle(config))
    set_threads(config.backend.threads)
    if config.backend.name == "unsloth":
        from pods.models.unsloth import import_unsloth

        import_unsloth(config)


if __name__ == "__main__":
    main()
