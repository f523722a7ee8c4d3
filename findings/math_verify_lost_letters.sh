#!/usr/bin/env bash
# math-verify 0.9.0 (with latex2sympy2-extended 1.11.0) removes units before it compares, and takes a c, d, g, h, l, m, o,
# s or t behind the last number for one, also "ab": a variable is gone. The base of a number is gone, too.
# Guess: 20 - 5t is not 15, 5 km is not 5 m, and 101 in base 2 is not 101 in base 3. Seen: True for all below, both ways
# around, while 7p, 7x and 7y keep their letters. An answer without its variable, or in a wrong unit, passes for right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "math-verify==0.9.0" "latex2sympy2-extended==1.11.0"
"$folder/env/bin/python" - <<'PY'
from math_verify import parse, verify


def equal(gold: str, answer: str) -> bool:
    return verify(parse(f"${gold}$"), parse(f"${answer}$"))


pairs = [(f"7{letter}", "7") for letter in "cdghlmost"]
pairs += [("20 - 5t", "15"), ("3x + 2t", "3x + 2"), ("x = 2m", "2"), ("12t", "12s"), ("2ab", "2")]
pairs += [(r"5 \text{ km}", r"5 \text{ m}"), (r"5 \text{ hours}", r"5 \text{ minutes}"), ("101_2", "101_3")]
for gold, answer in pairs:
    verdicts = equal(gold, answer), equal(answer, gold)
    print(f"{gold} and {answer}: {verdicts}")
    assert verdicts == (True, True), "the behaviour has changed"
for letter in "pxy":
    assert not equal(f"7{letter}", "7"), "the behaviour has changed"
PY
