"""Prompts without signal, from a run's rollout log; frequent wrong answers, from its evaluations.

uv run scripts/inspect_run.py run=<run>
"""

from pydantic import PositiveInt

from pods import files
from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text, typed_as
from pods.config.paths import as_typed
from pods.config.sweeps import evaluate_command
from pods.evaluation.lookup import find_run


class InspectConfig(Section):
    run: Text
    most: PositiveInt
    output_dir: Location
    results_dir: Location


@command("inspect", InspectConfig)
def main(config: InspectConfig) -> None:
    run = find_run(config.run, config.output_dir)
    log = config.output_dir / run / "rollouts.jsonl.gz"
    if not log.is_file():
        raise UserError(f"run={run}: no rollout log {log}; copy it there, or name another")
    from pods.evaluation import inspection  # pandas: neither --help nor a refusal waits for it

    rollouts = files.read_lines(log)
    answers = inspection.completions(config.results_dir / run)
    if rollouts:
        inspection.show_signal(run, inspection.visits_of(rollouts), config.most)
    if len(answers):
        inspection.show_wrong(answers, config.most)
    else:
        places = {"output_dir": config.output_dir, "results_dir": config.results_dir}
        command = evaluate_command(typed_as("run", run), **places)
        print(f"no scores of {run} yet: {as_typed(command)}")


if __name__ == "__main__":
    main()
