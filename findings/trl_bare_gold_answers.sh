#!/usr/bin/env bash
# TRL 1.16.0 (with math-verify 0.9.0): accuracy_reward takes one number out of a gold answer without dollar signs, as in
# the answers of MATH-500. Its docs ask for "raw-text solutions" and show \frac{1}{3}, one of the few LaTeX forms that
# are read whole without them. Guess: a box with the same LaTeX earns 1. Seen, for all below: it earns 0, and a box with
# a number that is a part of the gold answer earns 1. Write golds as "$...$".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"  # uv applies the constraints of the project around it
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "trl==1.16.0"
uv pip install --quiet --python "$folder/env/bin/python" "math-verify==0.9.0" "latex2sympy2-extended==1.11.0" packaging
"$folder/env/bin/python" - <<'PY'
import importlib
import sys
from importlib.metadata import distribution
from types import ModuleType

trl = sys.modules["trl"] = ModuleType("trl")  # the real one imports more than its rewards need
trl.__path__ = [str(distribution("trl").locate_file("trl"))]
accuracy_reward = importlib.import_module("trl.rewards.accuracy_rewards").accuracy_reward


def reward(gold: str, answer: str) -> float:
    (value,) = accuracy_reward([[{"role": "assistant", "content": f"It is \\boxed{{{answer}}}."}]], [gold])
    return value


assert (reward(r"\frac{1}{3}", r"\frac{1}{3}"), reward(r"\frac{1}{3}", "3")) == (1, 0)  # as in the docs
for gold, part in {r"2\sqrt{3}": "2", r"3\pi": "3", "(3, 4)": "4", "2^{10}": "2", "6 - 5i": "5"}.items():
    bare, marked = ([reward(text, answer) for answer in (gold, part)] for text in (gold, f"${gold}$"))
    print(f"gold {gold}: the same earns {bare[0]}, {part} earns {bare[1]}; with dollar signs {marked}")
    assert bare == [0, 1], "the behaviour has changed"
    assert marked == [1, 0], "the behaviour has changed"
PY
