#!/usr/bin/env bash
# eval-protocol 0.3.33: math_reward reads only plain numbers, a simple \frac and single letters out of a box, and takes numbers for
# equal that differ by less than a thousandth. A gold answer that it cannot read is no error, but a score of 0 for every answer.
# Guess: a box with the gold answer itself earns 1, and 2024 is wrong for 2025. Seen: 0 for -\frac{1}{2}, \sqrt{51}, 90^\circ, 1,000
# and 3x + 2, each its own gold; 1 for 2024 and for 12345 in place of 12346. The minus sign of a fraction is lost if its numerator is
# a root. Of the 500 gold answers of MATH-500, 133 earn 0 for themselves: their prompts have no variance in any group.
# Pass tolerance=0, or a small one, for whole numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "eval-protocol==0.3.33" "pydantic==2.12.5"
env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
from eval_protocol.rewards.math import math_reward


def score(answer: str, gold: str, **options) -> float:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": rf"So the answer is $\boxed{{{answer}}}$."}]
    return math_reward(messages=messages, ground_truth=rf"$\boxed{{{gold}}}$", **options).score


def expect(answer: str, gold: str, expected: float, **options) -> None:
    seen = score(answer, gold, **options)
    print(f"{answer}, gold {gold}{options or ''}: {seen}")
    assert seen == expected, "the behaviour has changed"


for answer, gold, expected in (("72", "72", 1), ("72", "71", 0), ("-72", "72", 0), (r"\frac{3}{4}", "0.75", 1), (r"\frac{3}{4}", r"\frac{1}{4}", 0)):
    expect(answer, gold, expected)  # as guessed
for gold in (r"-\frac{1}{2}", r"\sqrt{51}", r"90^\circ", "1,000", "3x + 2", "6 - 5i", "(3, 4)", r"\pi", "x=5", r"\text{east}"):
    expect(gold, gold, 0)
for answer, gold in (("2024", "2025"), ("12345", "12346"), (r"\frac{\sqrt{3}}{2}", r"-\frac{\sqrt{3}}{2}")):
    expect(answer, gold, 1)
expect("2024", "2025", 0, tolerance=0)
expect("2025", "2025", 1, tolerance=0)
PY
