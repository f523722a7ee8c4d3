#!/usr/bin/env bash
# verl 0.9.1: math_dapo, its reward of the data sources "math", "math_dapo" and "aime...", deletes "a " and "an " as if they
# were articles, commas between numbers as if they stood for thousands, and units. SkyRL Gym 0.4.0 has the same in its "aime".
# Guess: 2a - 1 is not 2 - 1, the list 3, 5, 7 is not 357, and 5 km is not 5 cm. Seen: the full reward of 1 for all below,
# both ways around, while the variable b is kept. A policy is paid for an answer without its variable, and for y = 5 in place
# of x = 5: only what follows the last sign of equality is compared.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "verl==0.9.1" "skyrl-gym==0.4.0"
"$folder/env/bin/python" - <<'PY'
import runpy
from importlib.metadata import distribution

files = {"verl": "verl/utils/reward_score/math_dapo.py", "skyrl-gym": "skyrl_gym/envs/aime/utils.py"}
graders = [  # by file: the packages import torch and ray
    runpy.run_path(str(distribution(name).locate_file(file)))["compute_score"] for name, file in files.items()
]


def rewards(gold: str, answer: str) -> list[float]:
    return [grade(f"So we are done.\nAnswer: ${answer}$", gold)["score"] for grade in graders]


pairs = [
    ("2a - 1", "2 - 1"),
    (r"\frac{a - b}{2}", r"\frac{-b}{2}"),
    ("3, 5, 7", "357"),
    ("3,5,7", "35,7"),
    (r"5 \text{ km}", r"5 \text{ cm}"),
    ("x = 5", "y = 5"),
]
assert rewards("72", "72") == [1, 1] and rewards("72", "73") == rewards("2b - 1", "2 - 1") == [-1, -1]
for gold, answer in pairs:
    seen = rewards(gold, answer), rewards(answer, gold)
    print(f"{gold} and {answer}: {seen}")
    assert seen == ([1, 1], [1, 1]), "the behaviour has changed"
PY
