"""Train a policy with PODS, GRPO or a rival (pods/algorithms.py) on one GPU, or several.

    uv run train.py                                        # quickstart: tiny policy, a minute, CPU
    uv run train.py experiment=gsm8k_qwen algorithm=pods   # the paper's setting (a), one GPU
    uv run train.py trial=true experiment=gsm8k_qwen       # three steps: would it run, how fast?
    uv run train.py -m seed=1,2,3 algorithm=grpo,pods      # a sweep

config/train.yaml lists every key. The run lands in checkpoints/<run>/ and resumes by itself.
"""

from contextlib import ExitStack
from itertools import islice

from pods import ranks
from pods.clock import Clock, peak_memory
from pods.config import cards
from pods.config.command import command
from pods.config.keys import TrainConfig
from pods.models import locate


def implied(algorithm: str) -> dict[str, str | None]:
    from pods import by_name  # --help waits for no numpy

    return by_name.implied(algorithm)


@command("train", TrainConfig, implied=implied)
def main(config: TrainConfig) -> None:
    """Check what needs no data and no model, then train or try."""
    from pods.training import trial  # a mistyped key waits for no numpy
    from pods.training.check import check, settle

    settle(config)
    check(config)
    if config.card:
        return print(cards.report(config, locate))
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
            from pods import scoring  # torch and TRL
            from pods.evaluation import midrun
            from pods.models.policy import load_tokenizer
            from pods.runs import folder as runs
            from pods.tasks import splits
            from pods.training import build, loop, trl_keys
            from pods.training.check import rehearse

            trl_keys.refuse_unknown(config)
            stack.enter_context(loop.restore_signals())
            ranks.start()
            tokenizer = load_tokenizer(config.model.path, config.model.pad_token)
            rewards = stack.enter_context(scoring.Rewards(config.rewards))
            questions = splits.load_prompts(config, tokenizer, rewards.scorer.grade)
            rewards.rehearse(questions[0])
            rehearse(config, list(islice(questions, 4 * config.prompts_per_step)))
            folder = stack.enter_context(runs.RunFolder(config))
            start = ranks.from_main(folder.find_start)
            split = {"questions of the train split": runs.digest_of_questions(questions)}
            folder.compare(start, runs.digests_of_files(config) | split)
            model = load(config, tokenizer)
            engine = choose.build_for_training(config, model)
            if engine is not None:
                stack.enter_context(engine)
            trainer = build.build_trainer(config, model, questions, rewards, engine, clock)
            evaluate = None
            if config.evaluation.every_seconds:
                evaluate = midrun.MidRun(config, trainer.engine, tokenizer, folder.evaluations)
                split = f"questions of the {config.evaluation.split} split"
                digest = runs.digest_of_questions(evaluate.questions.rows)
                folder.compare(start, {split: digest})
            callback = loop.RunCallback(config, folder, trainer, rewards, evaluate, start)
            trainer.add_callback(callback)
        loop.run(callback)


if __name__ == "__main__":
    main()
