"""Score every checkpoint of a run, and its base model: checkpoints/<run>/ -> results/<run>.json.

    uv run evaluate_run.py run=<run>                        # the run's own task, every checkpoint
    uv run evaluate_run.py run=<run> tasks=[gsm8k,math500]
    uv run evaluate_run.py run=<run> rewards=[v1,v2,strict] # grade stored completions again
    uv run evaluate_run.py run=<run> select_on=validation   # pick there, report one test score
    uv run evaluate_run.py run=<run> watch=true             # beside a training that goes on
    uv run evaluate_run.py run=<run> from_training=true     # the scores that training took
    uv run evaluate_run.py run="gsm8k_qwen-*" questions=100 # a quick look at several runs
    uv run evaluate_run.py run=<run> checkpoints=[best,last]
    uv run evaluate_run.py run=null experiment=gsm8k_qwen   # an experiment's base model alone
    uv run evaluate_run.py run=null model=<hub id or folder> tasks=[gsm8k]

Can be stopped at any moment; the same command goes on where it was.
config/evaluate/evaluate.yaml lists every key.
"""

from dataclasses import replace

from pods.config.command import CONFIG_DIR, command
from pods.config.errors import Skipped, UserError
from pods.engines import evaluation as engines
from pods.evaluation import from_training, scoreboard
from pods.evaluation.config import EvaluateConfig, check, own_keys, runs


@command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")
def main(config: EvaluateConfig) -> None:
    with own_keys(config):
        check(config)
        evaluate(config, runs(config))


def evaluate(config: EvaluateConfig, names: list[str | None]) -> None:
    """Score the runs one after the other, then show one table. Of several runs, those that cannot
    be scored are named and skipped."""
    rows, notes, files, skipped = [], [], [], []
    for name in names:
        try:
            found = one(replace(config, run=name))
        except UserError as error:
            if len(names) == 1 or type(error) is not UserError:
                raise
            found = [], [], [], [f"run={name}: {error}"]
        for everything, of_run in zip((rows, notes, files, skipped), found, strict=True):
            everything += of_run
    scoreboard.show(rows, notes, files)
    if skipped:
        raise Skipped("; ".join(skipped))


def one(config: EvaluateConfig) -> tuple[list, list, list, list]:
    """Rows, notes, written files and skipped checkpoints of one run."""
    if config.from_training:
        rows, files = from_training.publish(config)
        return rows, [from_training.NOTE], files, []
    name, reason = engines.choose(config.engine)
    # Imports transformers, which Unsloth must precede.
    from pods.evaluation.session import Session

    with Session(config, name, reason) as session:
        session.select() if config.select_on else session.score_everything()
    return session.rows, session.notes, session.files, session.skipped


if __name__ == "__main__":
    main()
