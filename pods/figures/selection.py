"""The settings of a sweep by their validation scores: which is best, and which cannot be told from
it. The runs that a setting was chosen among are noted, so that no figure reports them unseen."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods.config.errors import UserError
from pods.config.keys import flat, key_has, written
from pods.figures import statistics
from pods.figures.statistics import Difference
from pods.files import write_atomic
from pods.runs import results

FILE = "selections.json"  # in results_dir: the runs that settings were chosen among
VALIDATION = re.compile(r"[^.]+\.validation(\.sample\d+)?")  # a data set, not greedy


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but the seed. accuracies: (runs,) on validation questions, the
    mean of the last three checkpoints of each."""

    label: str  # the keys in which the settings of the sweep differ
    runs: list[str]
    seeds: list[int]
    accuracies: np.ndarray
    config: dict[str, Any]  # of the training, flat, without the seed

    @property
    def mean(self) -> float:
        return float(self.accuracies.mean())

    @property
    def ci95(self) -> list[float] | None:
        """Student's interval over runs; None with one run."""
        n = len(self.runs)
        if n < 2:
            return None
        half = float(statistics.t95(n - 1) * self.accuracies.std(ddof=1) / np.sqrt(n))
        return [self.mean - half, self.mean + half]

    def facts(self) -> dict[str, Any]:
        return {
            "setting": self.label,
            "runs": self.runs,
            "seeds": self.seeds,
            "validation_accuracy": self.mean,
            "ci95": self.ci95,
        }


def read(results_dir: Path, patterns: list[str], metric: str) -> list[Setting]:
    """The settings of these runs, the best first. Raises UserError for a run without validation
    scores, and if there are fewer than two settings."""
    paths = results.find(results_dir, patterns)
    if not paths:
        raise UserError(
            f"runs=[{', '.join(patterns)}]: no file in results_dir={results_dir} matches; run "
            "evaluate_run.py split=validation first"
        )
    known = chosen_among(results_dir)
    if known & {path.stem for path in paths}:  # chosen before: fresh seeds may match, too
        paths = [path for path in paths if path.stem in known or validation_scores(path, metric)]
    scored: dict[str, list[tuple[str, int, float]]] = {}  # by setting: run, seed, accuracy
    configs: dict[str, dict[str, Any]] = {}
    for path in paths:
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
        accuracy = final_accuracy(path, metric)
        scored.setdefault(key, []).append((path.stem, train["seed"], accuracy))
    if len(scored) < 2:
        raise UserError(
            f"runs=[{', '.join(patterns)}]: all have one setting; there is nothing to choose"
        )
    labels = dict(zip(scored, labelled([configs[key] for key in scored]), strict=True))
    settings = []
    for key, runs in scored.items():
        names, seeds, accuracies = zip(*sorted(runs, key=lambda run: run[1]), strict=True)
        accuracies = np.array(accuracies)
        settings.append(Setting(labels[key], [*names], [*seeds], accuracies, configs[key]))
    return sorted(settings, key=lambda setting: -setting.mean)


def validation_scores(path: Path, metric: str) -> list[float]:
    """The accuracy of each checkpoint with validation scores."""
    return [
        float(np.mean(getattr(entry, metric)))
        for scores in results.read(path).values()
        for name, entry in scores.datasets.items()
        if VALIDATION.fullmatch(name) and getattr(entry, metric)
    ]


def final_accuracy(path: Path, metric: str) -> float:
    """Mean of the last three checkpoints with validation scores."""
    values = validation_scores(path, metric)
    if not values:
        raise UserError(
            f"{path}: has no validation scores; run evaluate_run.py run={path.stem} "
            "split=validation, a choice by test questions would overstate them"
        )
    return float(np.mean(values[-statistics.LAST :]))


def labelled(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A label for each: the keys in which they differ, with their values."""
    names = dict.fromkeys(key for config in configs for key in config)
    differing = [
        key for key in names if len({json.dumps(config.get(key)) for config in configs}) > 1
    ]
    return [
        ", ".join(f"{key}={written(config[key])}" for key in differing if key in config)
        for config in configs
    ]


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
        interval = ""
        if setting.ci95:
            low, high = setting.ci95
            interval = f" [{100 * low:.1f}, {100 * high:.1f}]"
        rows.append(
            {
                "setting": setting.label,
                "seeds": len(setting.seeds),
                "validation %": f"{100 * setting.mean:.1f}{interval}",
            }
        )
    note = "[ ]: Student's 95 % interval over seeds; mean of the last three checkpoints"
    return f"{pandas.DataFrame(rows).to_string(index=False)}\n{note}"


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


def warnings(results_dir: Path, methods: Iterable[tuple[str, list[str]]]) -> list[str]:
    """A line for each method with runs that its setting was chosen among; methods: label, runs."""
    known = chosen_among(results_dir)
    return [
        f"{label}: {len(known & {*runs})} of {len(runs)} runs are those that a setting was chosen "
        "among (scripts/best.py), so the accuracy is too high; compare fresh seeds only"
        for label, runs in methods
        if known & {*runs}
    ]
