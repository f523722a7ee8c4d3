"""The runs on the disk that a command names, and the checkpoint for chat.py and export.py."""

import fnmatch
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pods.config.command import load_config
from pods.config.errors import UserError, meant
from pods.config.keys import Location, Section, Text, TrainConfig
from pods.config.paths import runs_of
from pods.evaluation import targets
from pods.evaluation.targets import Store, Target
from pods.files import few
from pods.runs.results import run_order

SAVED = ".hydra/config.yaml"  # in a run's folder


class OneCheckpoint(Section):
    """The keys that chat.py and export.py share."""

    run: Text
    checkpoint: Annotated[Text, Field(pattern=r"^(best|last|(checkpoint-)?\d+)$")]
    model_path: Text | None
    output_dir: Location
    results_dir: Location


def runs(patterns: list[str], output_dir: Path) -> list[str]:
    """The runs that `run` names or matches, those of a sweep by its folder, in order. Raises
    UserError if none does."""
    known = known_runs(output_dir)
    names: list[str] = []
    for pattern in patterns:
        if "/" in pattern and Path(pattern).parent.resolve() == output_dir.resolve():
            pattern = Path(pattern).name  # checkpoints/<run>, as a shell completes it
        matches = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        matches = matches or [run for run in runs_of(output_dir / pattern) if run in known]
        if not matches:
            raise UserError(
                f"run={pattern}: no such run in output_dir={output_dir}; it has "
                f"{few(known) or 'none: uv run train.py'}{meant(pattern, known)}"
            )
        names += matches
    return list(dict.fromkeys(names))


def known_runs(output_dir: Path) -> list[str]:
    """The names of the runs with a saved config, Run10 after Run9."""
    paths = output_dir.glob(f"*/{SAVED}")
    return sorted((path.parents[1].name for path in paths), key=run_order)


def find_run(pattern: str, output_dir: Path) -> str:
    """The name of the only run that `run` names or matches. Raises UserError."""
    names = runs([pattern], output_dir)
    if len(names) > 1:
        raise UserError(f"run={pattern}: matches {', '.join(names)}; name one")
    return names[0]


def find_one(config: OneCheckpoint) -> tuple[TrainConfig, Target]:
    """The config of a run's training, and the checkpoint that `checkpoint=` names; a pattern for
    the run becomes its name. Raises UserError before a model loads."""
    config.run = find_run(config.run, config.output_dir)
    folder = config.output_dir / config.run
    training = load_config(folder / SAVED).moved(config.model_path)
    step = config.checkpoint.removeprefix("checkpoint-")
    store = Store(config.results_dir, config.run)
    (target,), _ = targets.find(folder, [step], store, training.task.name)
    return training, target
