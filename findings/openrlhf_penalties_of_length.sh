#!/usr/bin/env bash
# OpenRLHF 0.11.2: the two penalties of length undo each other. "Both can be enabled simultaneously", says their module;
# the one for truncated answers then scales the reward after the overlong penalty has been subtracted from it.
# Guess: with both, a truncated answer never earns more than with the overlong penalty alone, nor more than the same
# answer that ends a token earlier. Seen, for wrong answers (reward 0) of 1000 tokens: -1 with the overlong penalty,
# -0.5 with both at coefficient 0.5, and 0 at 0, while a wrong answer of 999 tokens that ends earns -0.995.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "openrlhf==0.11.2"
uv pip install --quiet --python "$folder/env/bin/python" "numpy==2.3.5"
"$folder/env/bin/python" - <<'PY'
import runpy
import sys
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace

import numpy as np

folder = distribution("openrlhf").locate_file("openrlhf")
for name in ("openrlhf", "openrlhf.utils"):  # the real ones import torch and ray
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [str(folder / name.removeprefix("openrlhf").removeprefix("."))]
apply = runpy.run_path(str(folder / "trainer/ppo_utils/length_penalty.py"))["apply_length_penalties"]
limit = 1000  # new tokens


def rewards(coefficient: float | None) -> list[float]:
    """Of two wrong answers: one ends with its 999th token, the other is cut off."""
    answers = SimpleNamespace(rewards=np.zeros(2), info={})
    answers.response_length, answers.truncated = np.array([limit - 1, limit]), np.array([False, True])
    reward = SimpleNamespace(overlong_buffer_len=200, overlong_penalty_factor=1.0, stop_properly_penalty_coef=coefficient)
    apply([answers], SimpleNamespace(rollout=SimpleNamespace(max_new_tokens=limit), reward=reward))
    return answers.rewards.tolist()


for coefficient, expected in {None: [-0.995, -1], 0.5: [-0.995, -0.5], 0.0: [-0.995, 0]}.items():
    seen = rewards(coefficient)
    print(f"coefficient {coefficient}: ended {seen[0]}, cut off {seen[1]}")
    assert seen == expected, "the behaviour has changed"
PY
