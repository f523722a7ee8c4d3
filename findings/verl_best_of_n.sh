#!/usr/bin/env bash
# verl 0.9.1: "best@N/mean" and "maj@N/mean", its validation metrics beside "mean@N", are means over draws of N answers with replacement
# from the N answers that were sampled. A draw of four leaves each answer out with probability 0.32, also the only right one.
# Guess: with N answers sampled, best@N is the share of questions with a right answer (pass@N), and maj@N that of right majorities.
# Seen: 0.69 and not 1 if each question has one right answer of 4, 0.62 for 1 of 32; 0.65 for a right majority of 2 to 1 to 1.
# The order of two models changes: one that solves every question once in four is behind one that solves 70 % always and the rest
# never, 0.69 to 0.70. best@2 of 4 answers is 0.45, pass@2 is 0.5. A base model, which has the more spread, looks worse than it is.
# Compute pass@k from the answers that trainer.validation_data_dir saves.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --no-deps --python env/bin/python "verl==0.9.1" "numpy==2.3.5"
env/bin/python - <<'PY'
import runpy
import sys
from importlib.metadata import distribution
from math import comb
from unittest.mock import MagicMock

path = distribution("verl").locate_file("verl/trainer/ppo/metric_utils.py")
utilities = ("torch_functional", "fs", "import_utils", "model")
for name in ("torch", "omegaconf", "transformers", "verl", "verl.utils", *(f"verl.utils.{utility}" for utility in utilities)):
    sys.modules[name] = MagicMock()  # these metrics use none of them
metrics_of = runpy.run_path(str(path))["process_validation_metrics"]


def metrics(questions: list[list[int]], letters: str = "") -> dict[str, float]:
    """questions: verdicts of the answers to each; letters: the answers, the same for each question."""
    rows = [(str(i), verdict) for i, verdicts in enumerate(questions) for verdict in verdicts]
    values = {"acc": [verdict for _, verdict in rows]}
    if letters:
        values["pred"] = list(letters) * len(questions)
    return metrics_of(["data"] * len(rows), [uid for uid, _ in rows], values)["data"]["acc"]


def pass_at(k: int, questions: list[list[int]]) -> float:
    return sum(1 - comb(len(v) - sum(v), k) / comb(len(v), k) for v in questions) / len(questions)


seldom = [[1, 0, 0, 0]] * 10
always = [[1, 1, 1, 1]] * 7 + [[0, 0, 0, 0]] * 3
long = [[1] + [0] * 31] * 10
for name, questions, k, true, low, high in (
    ("one right answer of four", seldom, 4, 1.0, 0.65, 0.7),
    ("70 % always, 30 % never", always, 4, 0.7, 0.7, 0.7),
    ("one right answer of four", seldom, 2, 0.5, 0.42, 0.47),
    ("one right answer of 32", long, 32, 1.0, 0.6, 0.68),
):
    seen, expected = metrics(questions)[f"best@{k}/mean"], pass_at(k, questions)
    print(f"{name}: best@{k}/mean {seen:.3f}, pass@{k} {expected:.3f}")
    assert abs(expected - true) < 1e-9 and low - 1e-9 <= seen <= high + 1e-9, "the behaviour has changed"
seen = metrics([[1, 1, 0, 0]] * 10, "AABC")["maj@4/mean"]
print(f"answers A, A, B, C, of which A is right: maj@4/mean {seen:.3f}, majority vote 1")
assert 0.6 < seen < 0.7, "the behaviour has changed"
PY
