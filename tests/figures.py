"""Result files of the published kinds, made up small: what the figure tests read."""

import csv
import gzip
import json
import runpy
import sys
from itertools import product, zip_longest
from pathlib import Path
from unittest import mock

import pandas
from hydra.core.global_hydra import GlobalHydra

from pods.config.command import SEARCHED
from pods.figures.figure import Figure, FigureSeries
from tests.conftest import ROOT


def entry(accuracy, length=100.0):
    """One dataset of a checkpoint; a list of repeats, or one accuracy for two equal repeats. The
    three accuracies differ (1 : 1/2 : 1/4), so that a reader of the wrong one is noticed."""
    repeats = accuracy if isinstance(accuracy, list) else [accuracy, accuracy]
    shares = repeats if all(isinstance(value, float) for value in repeats) else []
    well_formed, both = ([factor * value for value in shares] for factor in (0.5, 0.25))
    content = {"ans_acc": repeats, "for_acc": well_formed, "both_acc": both, "examples": []}
    return content | {"lengths": [length] * len(repeats)}


def run_file(
    folder, name, accuracies, *, steps=(), dataset="gsm8k", metas=(), greedy=None, interval=1800.0
):
    """results/<name>.json, a checkpoint per accuracy, one each `interval` s; greedy: the factor of
    the greedy accuracy."""
    steps = steps or range(100, 100 * len(accuracies) + 1, 100)
    content = {
        f"checkpoint-{step}": {dataset: entry(accuracy)}
        | ({f"{dataset}.greedy": entry(greedy * accuracy)} if greedy else {})
        | {"meta": {"train_seconds": interval * number} | (meta or {})}
        for number, (step, accuracy, meta) in enumerate(zip_longest(steps, accuracies, metas), 1)
    }
    (folder / f"{name}.json").write_text(json.dumps(content))


def facts_file(folder, name, scored=None, dataset="gsm8k", **train):
    """results/<name>.meta.json as evaluate_run.py writes it, of a training with these keys, with
    these settings of the evaluation."""
    config = {"seed": 0, "prompts_per_step": 2, "task": {"name": "gsm8k"}}
    config |= {"model": {"name": "tiny", "path": "pods/tiny_policy"}}
    config |= {"optimizer": {"learning_rate": 0.001}, "budget": {"train_seconds": 7200.0}}
    tasks = {dataset: {"questions": 256, "temperature": 1.0, "engine": "vllm"} | (scored or {})}
    facts = {"train": config | train, "tasks": tasks}
    (folder / f"{name}.meta.json").write_text(json.dumps(facts))


def rollout_record(step, question, correct, **more):
    """A prompt's record of the rollout log with these verdicts; the first rollout is kept."""
    rewards = [float(value) for value in correct]
    record = {"step": step, "question_id": question, "answer": "5", "kept": [0]}
    record |= {"rewards": {"solved": rewards}, "correct": [value > 0 for value in rewards]}
    return record | {"total": rewards} | more


def rollout_log_file(run, records):
    """<run>/rollouts.jsonl.gz of these records, its last frame torn as by a kill."""
    path = run / "rollouts.jsonl.gz"
    frame = gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode())
    path.write_bytes(frame + frame[:20])
    return path


def base_file(folder, name, accuracy, dataset="gsm8k"):
    (folder / f"{name}.json").write_text(json.dumps({dataset: entry(accuracy, 50.0)}))


def export_files(folder, name, runs, length_only=""):
    """<name>-acc.csv and <name>-length.csv as wandb exports them: (minutes, value) per run, out of
    order. `length_only` names a run that the accuracy file lacks."""
    for kind, metric in (
        ("acc", "rewards/accuracy_reward/mean"),
        ("length", "completions/mean_length"),
    ):
        rows = [
            {"eval/time": 60 * minutes}
            | {f"data/{run} - _step{copy}": 160 * (i + 1) for copy in ("", "__MIN", "__MAX")}
            | {f"data/{run} - eval/{metric}{copy}": value for copy in ("", "__MIN", "__MAX")}
            for run, samples in runs.items()
            if kind == "length" or run != length_only
            for i, (minutes, value) in enumerate(samples)
        ]
        table = pandas.DataFrame(rows[::-1])
        table.to_csv(folder / f"{name}-{kind}.csv", index=False, quoting=csv.QUOTE_ALL)


def published_run(folder, name, accuracies, dataset="gsm8k", steps=()):
    """A run's file as the authors published it, without times."""
    steps = steps or range(100, 100 * len(accuracies) + 1, 100)
    content = {
        f"checkpoint-{s}": {dataset: entry(a)} for s, a in zip(steps, accuracies, strict=True)
    }
    (folder / f"{name}.json").write_text(json.dumps(content))


def published_files(folder):
    """Every kind of published file, made up: speed-ups 3 (math), 2 (llama), 5 (a100s), 4 (n=64)."""
    methods = {
        "Llama-512-16-16-0.04": [0.1, 0.2, 0.3, *[0.4] * 6, *[0.9] * 3],  # 9 points count
        "Llama-512-64-16-0.04": [0.1, *[0.4] * 11],
        "GSM8K-512-16-16": [0.1, 0.2, 0.3, *[0.5] * 9],
        "GSM8K-512-64-16": [0.5] * 12,
        "MATH-NF-512-8-8": [0.4, 0.45, *[0.8] * 10],
        "MATH-NF-512-32-8": [0.8] * 12,
    }
    for (name, accuracies), i in product(methods.items(), (1, 2, 10)):
        dataset = "math500" if "MATH" in name else "gsm8k"
        published_run(folder, f"Instruct-{name}-Run{i}", accuracies, dataset)
    base_file(folder, "base-qwen", 0.1, "math500")
    base_file(folder, "base-llama", 0.05)
    runs, methods = {}, {"n32-m32-ga16": 20, "n128-m32-ga4": 4}  # minutes of the step from .1 to .7
    for (method, first), seed in product(methods.items(), (1, 2)):
        curve = [(minute, 0.1 if minute < first else 0.7) for minute in range(2, 32, 2)]
        runs[f"GR7B-s{seed}-p8-{method}"] = curve
    export_files(folder, "a100s", runs)


def in_process(script, *arguments):
    """A command's exit code; what it prints goes to capsys. A new process takes a second each."""
    argv = [str(ROOT / script), *arguments]
    with mock.patch.object(sys, "argv", argv):
        try:
            runpy.run_path(argv[0], run_name="__main__")
        except SystemExit as error:
            return error.code
        finally:
            GlobalHydra.instance().clear()
            del SEARCHED[1:]
    return 0


def printed(capsys, *command, code=0):
    """What a command prints to stdout and stderr before it ends with this code."""
    capsys.readouterr()
    assert in_process(*command) == code
    return capsys.readouterr()


def refused(capsys, *command):
    """The one line with which a command ends with 2; it leaves no file, and prints nothing else but
    the engine that it would have had."""
    before = {*Path().rglob("*")}
    out, err = printed(capsys, *command, code=2)
    (line,) = (line for line in err.splitlines() if not line.startswith("backend "))
    assert (out, {*Path().rglob("*")}) == ("", before)
    return line


def figure(**changes):
    """A figure on a four-point, half-hour grid with the methods GRPO and GRPO-PODS."""
    methods = {"GRPO": "grpo-*", "GRPO-PODS": "pods-*"}
    values = {"name": "toy", "title": "Toy", "dataset": "gsm8k", "metric": "ans_acc"}
    values |= {"grid_seconds": 1800.0, "budget_seconds": 7200.0}
    values |= {"time_unit": "hours", "base": ["base-toy"]}
    values |= {"baseline": "GRPO", "pods": "GRPO-PODS"}
    values["series"] = {label: FigureSeries(runs=[runs]) for label, runs in methods.items()}
    return Figure(**values | changes)
