#!/usr/bin/env bash
# pint 0.25.3 with Python 3.11: a sign that its parser does not know vanishes, and what stands on both sides of it, or of a
# space, is multiplied: the minus of typeset text and the signs ± and ÷. No error, no warning; × and · are read as meant.
# Guess: the quantity that is written, or an error. Seen: −5 m is 5 m, 5 ± 2 m is 10 m, 1.2×10−3 mol is 36 mol; 1 000 m,
# digits in groups as in the SI brochure, is 0 m, because 1 is multiplied by 000; 2 1/2 h is 1 h; 1,5 m is 15 m.
# A grader of answers with units that takes pint's reading for the model's number gives wrong verdicts, both ways.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "pint==0.25.3"
"$folder/env/bin/python" - <<'PY'
import math

from pint import UnitRegistry

units = UnitRegistry(cache_folder=None)
right = {"-5 m": (-5, "m"), "1.2×10^-3 mol": (0.0012, "mol"), "1.2e-3 mol": (0.0012, "mol"), "3 m·s⁻¹": (3, "m/s")}
seen = {  # text: what pint reads
    "−5 m": (5, "m"),
    "5 ± 2 m": (10, "m"),
    "1.2×10−3 mol": (36, "mol"),
    "7 – 3 m": (21, "m"),
    "6 ÷ 2 s": (12, "s"),
    "1 000 m": (0, "m"),
    "12 500 J": (6000, "J"),
    "2 1/2 h": (1, "h"),
    "5 ft 3 in": (15, "ft * inch"),
    "1,5 m": (15, "m"),
}
for text, (number, unit) in (right | seen).items():
    quantity = units.parse_expression(text)
    print(f"{text} is read as {quantity}")
    same = quantity.units == units.parse_units(unit) and math.isclose(quantity.magnitude, number, abs_tol=1e-12)
    assert same, "the behaviour has changed"
PY
