#!/usr/bin/env bash
# verl 0.9.1: prime_math, its reward of the six data sources "numina_...", deletes all parentheses and braces before it compares
# two texts, takes a number for its hundredfold and its hundredth (with or without a percent sign), and numbers for equal that
# differ by less than one part in ten thousand. Guess: 2(x+1) is not 2x+1, e^{x+1} is not e^x+1, 50 is not 0.5, and 12345 is
# not 12346. Seen: the full reward of 1 for all below, both ways around. A policy learns to leave out the parentheses that
# the mathematics needs, and counts and years of five digits are not checked.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "verl==0.9.1"
uv pip install --quiet --python "$folder/env/bin/python" "sympy==1.14.0" "pylatexenc==2.10" "antlr4-python3-runtime==4.11.0"
"$folder/env/bin/python" -W ignore - <<'PY'
import importlib
import sys
from importlib.metadata import distribution
from types import ModuleType

folder = distribution("verl").locate_file("verl")
for name in ("verl", "verl.utils", "verl.utils.reward_score", "verl.utils.py_functional"):  # the real ones import torch
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
sys.modules["verl.utils.py_functional"].timeout_limit = lambda seconds: lambda function: function  # none takes long
compute_score = importlib.import_module("verl.utils.reward_score.prime_math").compute_score


def reward(gold: str, answer: str) -> float:
    result = compute_score(f"We are done. The answer is $\\boxed{{{answer}}}$.", gold)
    return float(result if isinstance(result, bool) else result[0])  # as verl's default_compute_score


pairs = [
    ("2(x+1)", "2x+1"),
    ("3-(x-1)", "3-x-1"),
    ("(a+b)/2", "a+b/2"),
    ("(x+1)^2", "x+1^2"),
    ("e^{x+1}", "e^x+1"),
    ("50", "0.5"),
    ("2024", "20.24"),
    (r"3\%", "300"),
    ("12345", "12346"),
    ("100000", "100001"),
]
assert reward("72", "72") == reward("2(x+1)", "2x+2") == 1
assert reward("72", "73") == reward("2(x+1)", "2x+3") == reward("72", "720") == 0
for gold, answer in pairs:
    seen = reward(gold, answer), reward(answer, gold)
    print(f"{gold} and {answer}: {seen}")
    assert seen == (1, 1), "the behaviour has changed"
PY
