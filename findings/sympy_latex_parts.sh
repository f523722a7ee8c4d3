#!/usr/bin/env bash
# sympy 1.14.0: parse_latex returns what it can read of an answer as if it were the whole: the first entry of a list, a
# number without its base, the 1 of 1{,}000, the 11 of 11\sqrt2. A \text is the product of its letters. Its docs say that it
# recovers from "common mistakes" unless strict=True; these are none. ms-swift 4.6.0 compares answers with it (reward "math").
# Guess: the reward compares whole answers, and takes for unequal what cannot be read, as its code for errors does.
# Seen: 1 for each pair below, whatever the number of entries. Of the 500 gold answers of MATH-500, 11 are read in part.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "ms-swift==4.6.0"
uv pip install --quiet --python "$folder/env/bin/python" "sympy==1.14.0" "antlr4-python3-runtime==4.11.0"
"$folder/env/bin/python" -W ignore - <<'PY'
import runpy
import sys
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace

from sympy.parsing.latex import LaTeXParsingError, parse_latex

for name in ("swift", "swift.infer_engine"):  # the real ones import torch and more
    sys.modules[name] = ModuleType(name)
sys.modules["swift.infer_engine"].InferRequest = object
MathORM = runpy.run_path(str(distribution("ms-swift").locate_file("swift/rewards/orm.py")))["MathORM"]
grader = MathORM.__new__(MathORM)  # its __init__ only asks transformers whether an environment variable is true
grader.use_opencompass = False


def reward(gold: str, answer: str) -> float:
    request = SimpleNamespace(messages=[{"role": "assistant", "content": f"It is $\\boxed{{{answer}}}$."}])
    (value,) = grader([request], [f"\\boxed{{{gold}}}"])
    return value


def read_strictly(text: str) -> str:
    try:
        return str(parse_latex(text, strict=True))
    except LaTeXParsingError:
        return "an error"


pairs = {  # gold, answer: the gold with strict=True
    ("3, 5, 7", "3, 8"): "an error",
    ("-2,1", "-2,5"): "an error",
    ("52_8", "52_{10}"): "an error",
    ("1{,}000", "1{,}999"): "an error",
    (r"11\sqrt2", r"11\sqrt3"): "an error",
    (r"x \in [-2,7]", r"x \in [0,1]"): "an error",
    (r"\text{east}", r"\text{seat}"): "text*(e*(a*(s*t)))",
}
assert reward("3", "3.0") == reward(r"\frac{1}{2}", "0.5") == 1 and reward("3", "4") == reward("x + 1", "x") == 0
for (gold, answer), strictly in pairs.items():
    value = reward(gold, answer)
    print(f"{answer} for {gold} earns {value}; that is read as {parse_latex(gold)}, strictly {read_strictly(gold)}")
    assert value == 1 and read_strictly(gold) == strictly, "the behaviour has changed"
PY
