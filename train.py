"""Train a policy with PODS, GRPO or another algorithm (pods/algorithms.py) on one GPU, or several.

    uv run train.py                                        # quickstart: tiny policy, a minute, CPU
    uv run train.py experiment=gsm8k_qwen algorithm=pods   # the paper's setting (a), one GPU
    uv run train.py trial=true experiment=gsm8k_qwen       # five steps: would it run, how fast?
    uv run train.py -m seed=1,2,3 algorithm=grpo,pods      # a sweep

config/train.yaml lists every key. The run is in checkpoints/<run>/; the same command resumes it.
"""

from collections.abc import Collection
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from pods import ranks
from pods.clock import Clock, peak_memory
from pods.config.command import command
from pods.config.keys import TrainConfig
from pods.models import card, locate

if TYPE_CHECKING:
    from omegaconf import DictConfig


def resolve(config: "DictConfig") -> dict[str, str]:
    from pods import registry  # --help waits for no numpy

    return registry.resolve(config)


def check(config: TrainConfig, swept: Collection[str]) -> None:
    """Check what needs no data and no model, in a sweep of every job before the first starts."""
    from pods.training.check import check, resolve_defaults

    resolve_defaults(config)
    check(config)
    if any(key.startswith(("trl", "optimizer.name")) for key in swept):
        from pods.engines import choose
        from pods.models import unsloth

        if choose.backend(config.backend, config)[0] == "unsloth":
            unsloth.import_unsloth(config)  # before TRL
        from pods.training import trl_keys

        trl_keys.refuse_unknown(config)


@command("train", TrainConfig, resolve=resolve, check=check)
def main(config: TrainConfig) -> None:
    """Train, or try to."""
    from pods.training import trial

    if config.card:
        return print(card.report(config, locate(config.model.path)))
    if config.trial:
        return trial.run(config, train)
    train(config)


def train(config: TrainConfig) -> None:
    """Load everything, the model last; then the training loop."""
    clock = Clock(peak=peak_memory)
    with ExitStack() as stack:
        with clock.phase("load"):
            from pods.engines import choose

            load = choose.loader(config)
            from pods.evaluation import midrun  # torch and TRL
            from pods.models.policy import load_tokenizer
            from pods.runs import folder as runs
            from pods.tasks import splits
            from pods.training import build, loop, trl_keys
            from pods.training.check import (
                check_algorithm,
                say_if_clipped,
                say_if_not_evaluated,
                say_if_system_is_unknown,
            )
            from pods.training.rewards import Rewards

            trl_keys.refuse_unknown(config)
            stack.enter_context(loop.restore_signals())
            stack.enter_context(ranks.joined())
            tokenizer = load_tokenizer(config.model.path, config.model.pad_token)
            rewards = Rewards(config.rewards)
            questions = splits.load_prompts(config, tokenizer, rewards.grade)
            rewards.dry_run(questions[0])
            say_if_system_is_unknown(config)
            say_if_not_evaluated(config)
            say_if_clipped(config, tokenizer, islice(questions, 200))
            check_algorithm(config, list(islice(questions, 4 * config.prompts_per_step)))
            folder = stack.enter_context(runs.RunFolder(config))
            start = ranks.from_main(folder.find_start)
            folder.refuse_unshared(start)
            split = {"questions of the train split": runs.digest_of_questions(questions)}
            folder.compare(start, runs.digests_of_files(config) | split)
            ranks.say(f"loading {config.model.path} for {len(questions)} questions")
            model = load(config, tokenizer)
            engine = choose.build_for_training(config, model)
            if engine is not None:
                stack.enter_context(engine)
            trainer = build.build_trainer(config, model, questions, rewards, engine, clock)
            evaluate = None
            if config.evaluation.every_seconds:
                evaluate = midrun.MidRun(
                    config, trainer.sampler.engine, tokenizer, folder.evaluations
                )
                split = f"questions of the {config.evaluation.split} split"
                digest = runs.digest_of_questions(evaluate.questions.rows)
                folder.compare(start, {split: digest})
            callback = loop.RunCallback(config, folder, trainer, clock, rewards, evaluate, start)
            trainer.add_callback(callback)
        loop.run(callback)


if __name__ == "__main__":
    main()
