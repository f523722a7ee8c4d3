"""What a run scored while it trained: checkpoints/<run>/evaluations.jsonl -> results/<run>.json.

The published multi-GPU runs were scored so, and their figures drawn from it. No model is loaded;
each evaluation stands under the step it was made at, whether a checkpoint was saved there or not.
    uv run evaluate_run.py run=<run> from_training=true
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pods import results
from pods.cli import UserError
from pods.evaluation import scoreboard, scores
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.records import Store, named_disk_errors
from pods.runs import read_metrics

VERDICTS = ("correct", "well_formed", "tokens", "clipped")  # one value a question


def publish(config: EvaluateConfig) -> None:
    """Write results/<run>.json and its facts anew from the run's evaluations, and show them.

    Raises UserError: the run was never evaluated, a line is incomplete, the questions changed, or
    results_dir holds scores of the run's checkpoints.
    """
    training, folder = training_config(config), Path(config.output_dir) / str(config.run)
    store = Store(Path(config.results_dir), str(config.run))
    refuse_mixture(store, from_training=True)
    version = training.rewards.version
    counters = _counters(folder / "metrics.jsonl")
    found: results.Results = {}
    rows: list[scoreboard.Row] = []
    lines = read(folder / "evaluations.jsonl")
    task, split = lines[0]["task"], lines[0]["split"]
    for line in lines:
        step, seconds = line["step"], line["train_seconds"]
        records = [_record(version, *row) for row in zip(*map(line.get, VERDICTS), strict=True)]
        details = scores.details([records], [version], pass_at=())
        meta = {"train_seconds": seconds, **counters.get(step, {}), "scores": {task: details}}
        found[step] = results.Checkpoint({task: scores.entry([records], version, ())}, meta)
        rows.append((f"step {step}", seconds, details))
    store.facts = {
        "from_training": True,
        "train": asdict(training),
        **_provenance(folder / "meta.json"),
        "tasks": {task: {"split": split, "questions": len(lines[0]["correct"])}},
    }
    store.write_facts()
    with named_disk_errors(store.summary):
        results.write(store.summary, found)
    note = "scored while training, one completion per question: the best row flatters itself"
    scoreboard.console().print(scoreboard.task_table(task, rows, note))


def refuse_mixture(store: Store, from_training: bool) -> None:
    """Raise UserError where results_dir holds the other kind of scores of the run."""
    if not store.facts["tasks"] or store.facts.get("from_training", False) == from_training:
        return
    there = "its checkpoints" if from_training else "training itself (from_training=true)"
    raise UserError(
        f"results_dir={store.summary.parent}: holds scores of {store.folder.name} from {there}, "
        "which are not mixed with others; choose another results_dir"
    )


def read(path: Path) -> list[dict[str, Any]]:
    """Every evaluation of a run, all of the same questions; UserError where it is not so."""
    lines = path.read_text().splitlines() if path.is_file() else []
    if not lines:
        raise UserError(
            f"from_training=true: no evaluation in {path}; train with evaluation.every_seconds=120,"
            " or leave from_training out to score the checkpoints"
        )
    found = [_complete(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    asked = {(len(line["correct"]), line["split"], line["task"]) for line in found}
    if len(asked) > 1:
        sets = "; ".join(f"{n} of {task}/{split}" for n, split, task in sorted(asked))
        raise UserError(
            f"{path}: evaluations of different questions ({sets}) make no curve; leave "
            "from_training out to score the checkpoints"
        )
    return found


def _complete(line: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
        columns = [[float(value) for value in values[name]] for name in VERDICTS]
        lengths = {len(column) for column in columns}
        whole = {"step", "train_seconds", "task", "split"} <= values.keys()
        if whole and len(lengths) == 1 and min(lengths):
            return values
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{where}: not a whole evaluation (step, train_seconds, task, split, "
        f"{', '.join(VERDICTS)}); remove the line (resuming drops the one that a kill tore), or "
        "leave from_training out to score the checkpoints"
    )


def _record(version: str, correct: float, formed: int, tokens: int, clipped: int) -> scores.Record:
    """As pods/evaluation/records.py keeps it, but the text: training keeps none."""
    right = {version: bool(correct)}
    flags = {"well_formed": bool(formed), "truncated": bool(clipped)}
    return {"completion": "", "tokens": tokens, "correct": right, **flags}


def _counters(path: Path) -> dict[int, dict[str, int]]:
    """step -> cumulative tokens, of the steps whose metrics were written."""
    names = ("tokens/generated", "tokens/trained")
    lines = read_metrics(path) if path.is_file() else []
    return {
        line["step"]: {name.replace("/", "_"): line[name] for name in names if name in line}
        for line in lines
    }


def _provenance(path: Path) -> dict[str, Any]:
    """Commit, versions and hardware of the training, which is where the scores were made."""
    return json.loads(path.read_text()) if path.is_file() else {}
