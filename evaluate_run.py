"""Score every checkpoint of a run, and its base model: checkpoints/<run>/ -> results/<run>.json.

    uv run evaluate_run.py run=<run>                        # the run's own task, every checkpoint
    uv run evaluate_run.py run=<run> tasks=[gsm8k,math500]
    uv run evaluate_run.py run=<run> rewards=[v1,v2,strict] # grade stored completions again
    uv run evaluate_run.py run="gsm8k_qwen-*" questions=100 # a quick look at several runs
    uv run evaluate_run.py run=null experiment=gsm8k_qwen   # only an experiment's base model

After a stop the same command goes on. config/evaluate/evaluate.yaml lists every key.
"""

from pods.config.command import CONFIG_DIR, command
from pods.config.errors import Skipped, UserError
from pods.evaluation.config import EvaluateConfig, check
from pods.evaluation.lookup import runs


@command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")
def main(config: EvaluateConfig) -> None:
    """Score the runs in turn, then show one table; a run that cannot be scored is skipped."""
    check(config)
    names = runs(config.run, config.output_dir) or [None]
    from pods.evaluation import run, scoreboard  # --help and mistakes wait for no torch

    boards, skipped = [], []
    for name in names:
        try:
            boards.append(run.evaluate(config, name))
            skipped += boards[-1].skipped
        except UserError as error:
            if len(names) == 1 or error.exit_code != UserError.exit_code:
                raise
            skipped.append(f"run={name}: {error}")
    scoreboard.show(boards)
    if skipped:
        raise Skipped("; ".join(skipped))


if __name__ == "__main__":
    main()
