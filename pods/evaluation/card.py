"""The model card of an exported checkpoint: how it was trained, chosen and scored.

README.md in the format of the Hugging Face hub. Scores come from results/<run>.json.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from pods import tasks
from pods.config.keys import TrainConfig
from pods.evaluation.evaluation import Target
from pods.evaluation.records import Store
from pods.figures import tables
from pods.models.policy import locate
from pods.runs import results

CHOSEN = {
    "best": "It was chosen by accuracy on validation questions, not on test questions. Its "
    "validation accuracy is therefore overstated, its test accuracy is not.",
    "last": "It is the last checkpoint of the run; no score had a part in the choice.",
}
BY_NAME = "It was named by hand. If the choice was made by the scores below, they are overstated."
PRIVATE = ("data_dir", "output_dir", "resume", "init_from", "logger", "backend")  # of the machine
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TEXT = """
# {title}

{training.model.name}, trained for {minutes:.1f} minutes with GRPO and rollout selection (PODS,
arXiv 2504.13818): n = {training.rollouts_per_prompt} rollouts per prompt, of which the rule
`{training.rule.name}` kept {training.kept_per_prompt}; task {training.task.name}, seed
{training.seed}.
{form}

**How this checkpoint was chosen.** {target.name} of run {run}. {chosen}{again}

## Prompt

```text
{prompt}
```

## Scores

{scores}

## Training

Facts of the run: {facts}

```yaml
{config}```
"""
NO_SCORES = "Not scored: `uv run evaluate_run.py run={run}`, then export again."
INTERVALS = """
Answers right under grader {grader}, in %, with 95 % intervals over questions; {settings}.
The row in bold is this checkpoint."""


def card(
    training: TrainConfig, target: Target, wanted: str, prompt: str, merged: bool, again: str
) -> ModelCard:
    """The card of `target`, which `checkpoint=<wanted>` named; again: its score once exported."""
    run, store = target.weights.parent, target.summary.store
    marks = scored(store, f"base-{training.model.name}")
    base = locate(training.model.path)
    source = training.task.source or getattr(tasks.TASKS.get(training.task.name), "hub", "")
    data = ModelCardData(
        model_name=f"{run.name}-{target.name}",
        base_model=None if Path(base).is_dir() else base,
        datasets=[source] if HUB_ID.fullmatch(source) and not Path(source).exists() else None,
        library_name="transformers" if merged else "peft",
        pipeline_tag="text-generation",
        tags=["grpo", "pods", "trl"],
        eval_results=eval_results(marks.get(target.name, {}), source) or None,
    )
    config = {key: value for key, value in asdict(training).items() if key not in PRIVATE}
    text = TEXT.format(
        title=data.model_name,
        training=training,
        target=target,
        run=run.name,
        minutes=target.meta.get("train_seconds", 0) / 60,
        form="The folder holds the whole model." if merged else "The folder holds a LoRA adapter.",
        chosen=CHOSEN.get(wanted, BY_NAME),
        again=f" After the export: {again}." if again else "",
        prompt=prompt,
        scores=table(marks, target.name, store) or NO_SCORES.format(run=run.name),
        facts=", ".join(f"{name} {value}" for name, value in made_with(run / "meta.json").items()),
        config=yaml.safe_dump(config, sort_keys=False),
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")


def made_with(path: Path) -> dict[str, Any]:
    """Commit, hardware and package versions of a training."""
    facts = json.loads(path.read_text()) if path.is_file() else {}
    return {k: facts[k] for k in ("git_commit", "gpu") if facts.get(k)} | facts.get("versions", {})


def scored(store: Store, base: str) -> dict[str, dict[str, Any]]:
    """Policy -> its meta in the results, the base model first, then by step."""
    marks: dict[str, dict[str, Any]] = {}
    facts = results.facts_path(store.summary.with_name(f"{base}.json"))
    if facts.is_file() and (details := json.loads(facts.read_text()).get("details")):
        marks["base"] = details
    # The last two are of select_on=validation.
    paths = store.summary, store.folder / "validation.json", store.folder / "selected.json"
    found = [results.read(path) for path in paths if path.is_file()]
    for step in sorted({step for scores in found for step in scores}):
        metas = [scores[step].meta for scores in found if step in scores]
        by_task = {k: v for meta in metas for k, v in meta.get("scores", {}).items()}
        marks[f"checkpoint-{step}"] = metas[0] | {"scores": by_task}
    return marks


def table(marks: dict[str, dict[str, Any]], name: str, store: Store) -> str:
    """The curve in Markdown: a row for each policy, a column for each task; "" without scores."""
    found = {policy: meta["scores"] for policy, meta in marks.items()}
    columns = sorted({task for scores in found.values() for task in scores})
    if not columns:
        return ""
    rows = []
    for policy, scores in found.items():
        seconds = f"{marks[policy].get('train_seconds', 0):.0f}"
        row = {"policy": f"**{policy}**" if policy == name else policy, "training, s": seconds}
        rows.append(row | {t: percent(scores[t]) if t in scores else "" for t in columns})
    graders = dict.fromkeys(next(iter(s["rewards"])) for f in found.values() for s in f.values())
    asked = store.facts.get("tasks", {})
    settings = [
        f"{task}: {details['questions']} questions x {details['repeats']} completions, "
        f"seed {asked.get(task, {}).get('seed', 'of the training')}"
        for task, details in found.get(name, {}).items()
    ]
    note = INTERVALS.format(
        grader=", ".join(graders), settings="; ".join(settings) or "not this one"
    )
    return f"{tables.markdown(rows)}\n{note}"


def percent(details: dict[str, Any]) -> str:
    answer = next(iter(details["rewards"].values()))["answer"]
    return f"{100 * answer['mean']:.1f} [{100 * answer['low']:.1f}, {100 * answer['high']:.1f}]"


def eval_results(meta: dict[str, Any], source: str) -> list[EvalResult]:
    """The test accuracy of the checkpoint on every task, as the hub's metadata have it."""
    found = []
    for task, details in meta.get("scores", {}).items():
        name, _, part = task.partition(".")
        grader, numbers = next(iter(details["rewards"].items()))
        answer = {key: round(value, 4) for key, value in numbers["answer"].items()}
        if not part.startswith("validation"):
            result = EvalResult(
                task_type="text-generation",
                dataset_name=task,
                dataset_type=getattr(tasks.TASKS.get(name), "hub", source or name),
                dataset_split="test",
                metric_type="accuracy",
                metric_name=f"accuracy, grader {grader}",
                metric_value=answer["mean"],
                metric_args={"ci95": [answer["low"], answer["high"]]},
            )
            found.append(result)
    return found
