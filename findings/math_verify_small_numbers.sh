#!/usr/bin/env bash
# math-verify 0.9.0 says that numbers below about 1e-17 are all equal, also a number and its negative,
# and that entries of intervals and tuples are equal if they agree to six decimals.
# Guess: Planck's constants h and h-bar differ; [0.1234567, 1] and [0.1234568, 1] differ.
# Seen: True for each pair below. A grader must compare exact numbers before it calls verify.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "math-verify==0.9.0"
"$folder/env/bin/python" - <<'PY'
from math_verify import parse, verify

pairs = [
    (r"$6.63 \times 10^{-34}$", r"$1.05 \times 10^{-34}$"),
    (r"$2 \times 10^{-20}$", r"$-2 \times 10^{-20}$"),
    (r"$\frac{1}{2^{99}}$", r"$\frac{1}{2^{98}}$"),
    ("$[0.1234567, 1]$", "$[0.1234568, 1]$"),
]
for gold, answer in pairs:
    verdict = verify(parse(gold), parse(answer))
    print(f"{gold} and {answer}: {verdict}")
    assert verdict is True, "the behaviour has changed"
PY
