"""Scores taken during training: checkpoints/<run>/evaluations.jsonl -> results/<run>.json.

The published multi-GPU runs were scored this way. No model is loaded; each evaluation is stored
under its step, with or without a checkpoint of that step.
    uv run evaluate_run.py run=<run> from_training=true
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.evaluation import scoreboard, scores
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.records import Record, Store, named_disk_errors
from pods.runs import results
from pods.runs.folder import read_metrics

NOTE = "one completion per question; picking the best row overstates accuracy"


def publish(config: EvaluateConfig) -> tuple[list[scoreboard.Row], list[Path]]:
    """Write results/<run>.json and its facts from the run's evaluations; returns rows and files.

    Raises UserError: the run was never evaluated, a line is incomplete, the questions changed, or
    results_dir holds scores of the run's checkpoints.
    """
    training, folder = training_config(config), Path(config.output_dir) / str(config.run)
    store, version = Store(Path(config.results_dir), str(config.run)), training.rewards.version
    refuse_mixture(store, from_training=True)
    metrics, meta = folder / "metrics.jsonl", folder / "meta.json"
    steps = {line["step"]: line for line in (read_metrics(metrics) if metrics.is_file() else [])}
    found, rows = {}, []
    for line, records in read(folder / "evaluations.jsonl", version):
        step, seconds, task = line["step"], line["train_seconds"], line["task"]
        details = scores.details([records], [version], pass_at=())
        facts = {"train_seconds": seconds, "scores": {task: details}}
        for name in ("tokens/generated", "tokens/trained"):
            if name in steps.get(step, {}):
                facts[name.replace("/", "_")] = steps[step][name]
        found[step] = results.Checkpoint({task: scores.entry([records], version, ())}, facts)
        rows.append(scoreboard.Row(str(config.run), f"step {step}", seconds, task, details))
    store.facts = {"from_training": True, "train": asdict(training)}
    store.facts |= json.loads(meta.read_text()) if meta.is_file() else {}
    store.facts["tasks"] = {task: {"split": line["split"], "questions": len(records)}}
    store.write_facts()
    with named_disk_errors(store.summary):
        results.write(store.summary, found)
    return rows, [store.summary, store.facts_path]


def refuse_mixture(store: Store, from_training: bool) -> None:
    """Raise UserError where results_dir holds the run's scores from the other source."""
    if store.facts["tasks"] and store.facts.get("from_training", False) != from_training:
        source = "its checkpoints" if from_training else "its training (from_training=true)"
        raise UserError(
            f"results_dir={store.summary.parent}: holds scores of {store.folder.name} from {source}"
            ", and the two kinds are not mixed; choose another results_dir"
        )


def read(path: Path, version: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Every evaluation of a run with its records, all of the same questions, else a UserError."""
    found, remedy = [], "leave from_training out to score the checkpoints"
    for number, text in enumerate(path.read_text().splitlines() if path.is_file() else [], start=1):
        try:
            found.append(_parsed(text, version))
        except (ValueError, KeyError, TypeError, IndexError):
            raise UserError(
                f"{path}:{number}: incomplete evaluation; remove the line (resuming removes one "
                f"that a kill cut off), or {remedy}"
            ) from None
    if not found:
        raise UserError(
            f"from_training=true: no evaluation in {path}; train with evaluation.every_seconds=120,"
            f" or {remedy}"
        )
    asked = {f"{len(records)} of {line['task']}/{line['split']}" for line, records in found}
    if len(asked) > 1:
        listed = "; ".join(sorted(asked))
        raise UserError(f"{path}: evaluations of different questions ({listed}); {remedy}")
    return found


def _parsed(text: str, version: str) -> tuple[dict[str, Any], list[Record]]:
    """A line with its records, whose completions are empty: training does not keep them."""
    line = json.loads(text)
    names = ("correct", "well_formed", "tokens", "clipped")
    records = [
        {"completion": "", "tokens": float(tokens), "truncated": bool(clipped),
         "well_formed": bool(formed), "correct": {version: bool(correct)}}
        for correct, formed, tokens, clipped in zip(*(line[name] for name in names), strict=True)
    ]  # fmt: skip
    line["step"], line["train_seconds"], line["task"], line["split"], records[0]  # raise if absent
    return line, records
