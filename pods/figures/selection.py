"""The settings of a sweep by their validation scores: which is best, and which cannot be told from
it. The runs that a setting was chosen among are noted, so that no figure reports them unseen."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods.config.errors import UserError
from pods.config.keys import flat, key_has, written
from pods.figures import statistics
from pods.figures.statistics import Difference
from pods.figures.tables import percent
from pods.files import few, write_atomic
from pods.runs import results

FILE = "selections.json"  # in results_dir: the runs that settings were chosen among
NOTE = (
    "[ ]: Student's 95 % interval over seeds, of three or more; mean of the last three checkpoints"
)
VALIDATION = re.compile(r"[^.]+\.validation(\.sample\d+)?")  # a data set, not greedy


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but the seed. accuracies: (runs,) on validation questions, the
    mean of the last three checkpoints of each."""

    label: str  # the keys in which the settings of the sweep differ
    runs: list[str]
    seeds: list[int]
    config: dict[str, Any]  # of the training, flat, without the seed
    accuracies: np.ndarray

    def facts(self) -> dict[str, Any]:
        low, high = (float(end[0]) for end in statistics.band(self.accuracies[:, None], 1))
        return {
            "setting": self.label,
            "runs": self.runs,
            "seeds": self.seeds,
            "validation_accuracy": float(self.accuracies.mean()),
            "ci95": None if np.isnan(low) else [low, high],
        }


def read(
    results_dir: Path, patterns: list[str], accuracy: Callable[[Path], float] = lambda _: np.nan
) -> list[Setting]:
    """The settings of these runs, those of GRPO first. accuracy: of a run, by its file. Raises
    UserError without runs."""
    scored: dict[str, list[tuple[int, str, float]]] = {}  # by setting: seed, run, accuracy
    configs: dict[str, dict[str, Any]] = {}
    for path in results.find(results_dir, patterns):
        train = flat(results.read_settings(path).train or {})
        if not isinstance(train.get("seed"), int):
            raise UserError(f"{path}: is no run of train.py; leave it out of runs")
        config = {  # what is of the method, not of the machine
            name: value
            for name, value in train.items()
            if name not in ("seed", "run") and not key_has("private", name)
        }
        key = json.dumps(config, sort_keys=True)
        configs[key] = config
        scored.setdefault(key, []).append((train["seed"], path.stem, accuracy(path)))
    if not scored:
        raise UserError(
            f"runs=[{', '.join(patterns)}]: no file in results_dir={results_dir} matches; run "
            "evaluate_run.py first"
        )
    settings = []
    for label, (key, runs) in zip(labelled([*configs.values()]), scored.items(), strict=True):
        seeds, names, accuracies = zip(*sorted(runs), strict=True)
        settings.append(Setting(label, [*names], [*seeds], configs[key], np.array(accuracies)))
    return sorted(settings, key=lambda setting: setting.config["algorithm"] != "grpo")


def choose_among(
    results_dir: Path, patterns: list[str], metric: str, command: str
) -> list[Setting]:
    """The settings of these runs with their accuracies, the best first. Raises UserError for a run
    without validation scores, with the command that scores all, and for fewer than two settings."""
    paths = results.find(results_dir, patterns)
    if chosen_among(results_dir) & {path.stem for path in paths}:
        # Chosen before, so fresh seeds may match, which have test scores only.
        patterns = [path.stem for path in paths if validation_scores(path, metric)]
        left_out = {path.stem for path in paths} - {*patterns}
        if left_out:
            print(f"without validation scores, left out: {few(sorted(left_out))}", file=sys.stderr)
    settings = read(results_dir, patterns, lambda path: final_accuracy(path, metric, command))
    if len(settings) < 2:
        raise UserError(
            f"runs=[{', '.join(patterns)}]: all have one setting; there is nothing to choose"
        )
    return sorted(settings, key=lambda setting: -setting.accuracies.mean())


def validation_scores(path: Path, metric: str) -> list[float]:
    """The accuracy of each checkpoint with validation scores."""
    return [
        float(np.mean(getattr(entry, metric)))
        for scores in results.read(path).values()
        for name, entry in scores.datasets.items()
        if VALIDATION.fullmatch(name) and getattr(entry, metric)
    ]


def final_accuracy(path: Path, metric: str, command: str) -> float:
    """Mean of the last three checkpoints with validation scores. UserError without any, with the
    command that makes them."""
    values = validation_scores(path, metric)
    if not values:
        raise UserError(
            f"{path}: has no validation scores, and a choice by test questions would overstate "
            f"them; first type: {command}"
        )
    return float(np.mean(values[-statistics.LAST :]))


def labelled(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A label for each: its algorithm, and the keys that tell them apart with their values."""
    labels = [(written(config["algorithm"]),) for config in configs]
    for key in dict.fromkeys(key for config in configs for key in config):
        name = key.rpartition(".")[2]
        longer = [
            (*label, f"{name}={written(config[key])}") if key in config else label
            for label, config in zip(labels, configs, strict=True)
        ]
        if len({*longer}) > len({*labels}):
            labels = longer
    return [", ".join(label) for label in labels]


def difference(setting: Setting, best: Setting) -> Difference:
    """Best minus setting, paired by seed if the seeds are the same."""
    return statistics.difference(
        setting.accuracies, best.accuracies, paired=setting.seeds == best.seeds
    )


def not_told_apart(best: Setting, others: Sequence[Setting]) -> list[str]:
    """Labels of the settings whose difference from the best is not established: p values are
    corrected for their number (Holm), and one run establishes nothing."""
    raw = {other.label: difference(other, best).p for other in others}
    adjusted = statistics.holm({label: p for label, p in raw.items() if p is not None})
    return [label for label in raw if adjusted.get(label, 1.0) >= statistics.SIGNIFICANT]


def table(settings: Sequence[Setting]) -> str:
    """A line for each setting, the best first."""
    rows = []
    for setting in settings:
        facts = setting.facts()
        accuracy = percent(facts["validation_accuracy"], facts["ci95"])
        rows.append(
            {"setting": setting.label, "seeds": len(setting.seeds), "validation %": accuracy}
        )
    return f"{pandas.DataFrame(rows).to_string(index=False)}\n{NOTE}"


def note(results_dir: Path, runs: list[str]) -> None:
    """Remember that a setting was chosen among these runs."""
    known = chosen_among(results_dir)
    if not known >= {*runs}:
        write_atomic(results_dir / FILE, json.dumps(sorted(known | {*runs}), indent=1) + "\n")


def chosen_among(results_dir: Path) -> set[str]:
    """The runs that settings were chosen among."""
    try:
        return {*map(str, json.loads((results_dir / FILE).read_text()))}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, TypeError):
        raise UserError(f"{results_dir / FILE}: cannot be read; remove it") from None


def tuned(methods: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """A line for the methods that differ in keys of the optimiser, and in no others: the best of
    them is selected by these scores. methods: label, settings of a run."""
    groups: dict[str, dict[str, str]] = {}  # other settings -> label -> those of the optimiser
    for label, settings in methods:
        if "seed" not in settings:  # published runs have no config
            continue
        optimiser, others = {}, {}
        for key, value in settings.items():
            if key.startswith("optimizer."):
                optimiser[key] = value
            elif not (
                key.startswith(("scored.", "git_commit"))
                or key in ("seed", "run")
                or key_has("private", key)
            ):
                others[key] = value
        group = groups.setdefault(json.dumps(others, sort_keys=True), {})
        group[label] = json.dumps(optimiser, sort_keys=True)
    return [
        f"{', '.join(group)} differ in keys of the optimiser only: the best of them was selected "
        "on these scores, so its own is too high; scripts/best.py selects by validation questions "
        "and prints the commands of fresh seeds"
        for group in groups.values()
        if len({*group.values()}) > 1
    ]


def warnings(results_dir: Path, methods: Iterable[tuple[str, list[str]]]) -> list[str]:
    """A line for each method with runs that its setting was chosen among; methods: label, runs."""
    known = chosen_among(results_dir)
    return [
        f"{label}: {len(known & {*runs})} of {len(runs)} runs are those that a setting was chosen "
        "among (scripts/best.py), so the accuracy is too high; compare fresh seeds only"
        for label, runs in methods
        if known & {*runs}
    ]
