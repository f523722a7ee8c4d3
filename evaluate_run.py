"""Score every checkpoint of a run, and its base model: checkpoints/<run>/ -> results/<run>.json.

    uv run evaluate_run.py run=<run>                        # the run's own task, every checkpoint
    uv run evaluate_run.py run=<run> tasks=[gsm8k,math500]
    uv run evaluate_run.py run=<run> rewards=[v1,v2,strict] # grade stored completions again
    uv run evaluate_run.py run=<run> select_on=validation   # pick there, report one test score
    uv run evaluate_run.py run=<run> watch=true             # beside a training that goes on
    uv run evaluate_run.py run=<run> from_training=true     # the scores that training took
    uv run evaluate_run.py run=null experiment=gsm8k_qwen   # an experiment's base model alone

Can be stopped at any moment; the same command goes on where it was.
config/evaluate/evaluate.yaml lists every key.
"""

from pods.cli import CONFIG_DIR, Skipped, command
from pods.engines import evaluation as engines
from pods.evaluation import from_training
from pods.evaluation.config import EvaluateConfig, check


@command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")
def main(config: EvaluateConfig) -> None:
    check(config)
    if config.from_training:
        from_training.publish(config)
        return
    name, reason = engines.choose(config.engine)
    # Imports transformers, which Unsloth must precede.
    from pods.evaluation.session import Session

    with Session(config, name, reason) as session:
        session.select() if config.select_on else session.score_everything()
    if session.skipped:
        raise Skipped("; ".join(session.skipped))


if __name__ == "__main__":
    main()
