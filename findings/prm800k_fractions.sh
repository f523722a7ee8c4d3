#!/usr/bin/env bash
# tinker-cookbook 0.6.1 (grade_answer, the reward of its recipe math_rl) and oat-llm 0.2.4 (boxed_reward_fn) grade as PRM800K
# did: pylatexenc, here 2.11, makes text of LaTeX, and writes \frac and exponents without the parentheses that they stand for.
# Guess: \frac{x+1}{2} is (x+1)/2 and not x + 1/2, 2^{n+1} is not 2^n + 1, the cube root of 2 is not its square root, and 1/3
# is not 0.3. Seen: for \frac{x+1}{2} the answer (x+1)/2 earns 0 and x+1/2 earns 1, as all pairs below do, both ways around.
# A policy is paid for wrong algebra in fractions of sums and in exponents, and fined for right answers without LaTeX.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "tinker-cookbook==0.6.1" "oat-llm==0.2.4"
uv pip install --quiet --python "$folder/env/bin/python" "pylatexenc==2.11" "sympy==1.14.0" "math-verify==0.9.0" "latex2sympy2-extended==1.11.0"
"$folder/env/bin/python" -W ignore - <<'PY'
import runpy
from importlib.metadata import distribution


def names(package: str, file: str) -> dict:  # the packages import torch and more
    return runpy.run_path(str(distribution(package).locate_file(file)))


grade_answer = names("tinker-cookbook", "tinker_cookbook/recipes/math_rl/math_grading.py")["grade_answer"]
boxed_reward_fn = names("oat-llm", "oat/utils/math_grader.py")["boxed_reward_fn"]


def rewards(gold: str, answer: str) -> tuple[float, float]:
    _, reward = boxed_reward_fn(f"It is $\\boxed{{{answer}}}$.", gold, fast=True)  # fast: without a third, lenient opinion
    return float(grade_answer(answer, gold)), reward


pairs = [
    (r"\frac{x+1}{2}", "x+1/2"),
    (r"\frac{x+1}{2}", r"x+\frac{1}{2}"),
    (r"\frac{1+\sqrt{5}}{2}", r"1+\frac{\sqrt{5}}{2}"),
    (r"\frac{2}{x+1}", r"\frac{2}{x}+1"),
    ("2^{n+1}", "2^n+1"),
    ("e^{2x}", "e^2x"),
    (r"\sqrt[3]{2}", r"\sqrt{2}"),
    (r"0.\overline{3}", "0.3"),
]
assert rewards(r"\frac{3}{4}", "3/4") == (1, 1) and rewards(r"\frac{3}{4}", r"\frac{4}{3}") == (0, 0)
for gold, answer in pairs:
    seen = rewards(gold, answer), rewards(answer, gold)
    print(f"{gold} and {answer}: {seen}")
    assert seen == ((1, 1), (1, 1)), "the behaviour has changed"
right = rewards(r"\frac{x+1}{2}", "(x+1)/2")
print(r"\frac{x+1}{2} and (x+1)/2:", right)
assert right == (0, 0), "the behaviour has changed"
PY
