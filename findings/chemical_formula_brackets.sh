#!/usr/bin/env bash
# chemicals 1.5.2 deletes square brackets and the dot of a hydrate before it parses a formula, so that digits run
# together: [Fe(CN)6]3 is read as Fe(CN)63. chemparse 0.3.2 drops all that follows the dot. Neither reports an error.
# Guess: the counts of chempy 0.10.2, which are right for all below; the docs of chemicals promise "braces and their
# multipliers", those of chemparse square brackets. Seen: Prussian blue has 63 carbons, not 18, and blue vitriol 21
# oxygens or 4, not 9. A grader that compares compositions or molar masses takes such answers for wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "chemicals==1.5.2" "chemparse==0.3.2" "chempy==0.10.2"
"$folder/env/bin/python" -W ignore - <<'PY'
from chemicals.elements import nested_formula_parser
from chemparse import parse_formula
from chempy.util.parsing import formula_to_composition

numbers = {"H": 1, "C": 6, "N": 7, "O": 8, "S": 16, "Fe": 26, "Co": 27, "Cu": 29, "Ag": 47}
seen = {  # formula, element: its atoms according to chempy, chemicals and chemparse
    ("Fe4[Fe(CN)6]3", "C"): (18, 63, 18),
    ("Fe4[Fe(CN)6]3", "Fe"): (7, 5, 7),
    ("[Co(NH3)6]2(SO4)3", "N"): (12, 62, 12),
    ("[Ag(NH3)2]2O", "Ag"): (2, 1, 2),
    ("CuSO4·5H2O", "O"): (9, 21, 4),
    ("CuSO4·5H2O", "H"): (10, 2, 0),
}
for (formula, element), expected in seen.items():
    right = formula_to_composition(formula)[numbers[element]]
    counts = right, nested_formula_parser(formula).get(element, 0), parse_formula(formula).get(element, 0)
    print(f"{formula}: {element} {right}, chemicals {counts[1]}, chemparse {counts[2]:g}")
    assert counts == expected, "the behaviour has changed"
assert nested_formula_parser("Al2(SO4)3") == parse_formula("Al2(SO4)3") == {"Al": 2, "S": 3, "O": 12}
PY
