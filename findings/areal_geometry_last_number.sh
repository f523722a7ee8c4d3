#!/usr/bin/env bash
# AReaL 1.0.4: geometry3k_reward_fn, its reward for Geometry3K, does not look into the box that its own prompt asks for. It takes what
# stands in the last square brackets of the completion, and without brackets the last number of the text; of the gold answer, too.
# Guess: \boxed{2 \sqrt { 5 }} earns 1 and \boxed{5} earns 0, as in any reward for boxed answers. Seen: 1 for both, and for every box
# that ends with the last number of the gold, as that is all that is left of gold answers with a root, a fraction or pi. 1.5 for
# \frac { 3 } { 2 } earns 0. A right number earns 0 if brackets such as [1] stand in the thoughts, or any number behind the box.
# So a policy is paid for the last number: the factor in front of a root and the numerator of a fraction are never learnt.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --no-deps --python env/bin/python "areal==1.0.4"
uv pip install --quiet --python env/bin/python "math-verify==0.9.0" "latex2sympy2-extended==1.11.0"
env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
import logging
import sys
from importlib.metadata import distribution
from types import ModuleType

folder = distribution("areal").locate_file("areal")
prompt = folder.joinpath("dataset/geometry3k.py").read_text()
assert r"final answer MUST BE put in \boxed{}" in prompt, "the behaviour has changed"
for name, contents in (("areal", {"__path__": [str(folder)]}), ("areal.utils", {"logging": logging})):  # the real ones import its engines
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(contents)
from areal.reward.geometry3k import geometry3k_reward_fn

ROOT, FRACTION = r"2 \sqrt { 5 }", r"\frac { 3 } { 2 }"
seen = [  # completion, gold, reward
    (r"\boxed{12}", "12", 1),
    (r"\boxed{13}", "12", 0),
    (rf"\boxed{{{ROOT}}}", ROOT, 1),
    (r"\boxed{5}", ROOT, 1),
    (r"\boxed{7 \sqrt { 5 }}", ROOT, 1),
    (r"\boxed{\sqrt { 20 }}", ROOT, 0),
    (rf"\boxed{{{FRACTION}}}", FRACTION, 1),
    (r"\boxed{\frac { 9 } { 2 }}", FRACTION, 1),
    (r"\boxed{2}", FRACTION, 1),
    (r"\boxed{1.5}", FRACTION, 0),
    (r"\boxed{36}", r"36 \pi", 1),
    (r"\boxed{\frac{36}{\pi}}", r"36 \pi", 1),
    (r"<think>By [1] the angles are equal.</think> \boxed{12}", "12", 0),
    (r"\boxed{12}, because triangle 3 is equilateral.", "12", 0),
]
for completion, gold, expected in seen:
    reward = geometry3k_reward_fn(None, completion, None, None, gold)
    print(f"{completion}, gold {gold}: {reward}")
    assert reward == expected, "the behaviour has changed"
PY
