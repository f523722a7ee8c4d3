#!/usr/bin/env bash
# datasets 4.8.5: a score that map, or add_item, puts into a column of truth values is cast back to one: every number but 0
# is True. In a column of whole numbers the text "007" becomes 7. A column of whole numbers, given 0.5, becomes one of floats,
# and map puts lists where there was a truth value; only these casts go unsaid. remove_columns of that column changes nothing.
# Guess: the column gets the type of what the function returns, as for 0.5 above. Seen: 0.5 and 0.25 are both True. Who grades
# again, with partial credit, into the column that held right or wrong, gets a mean of 1.
# Dataset.to_json keeps ten decimals: a probability of 1e-12 is 0.0 in the file. Guess: floats survive, as in to_csv.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "datasets==4.8.5"
cd "$folder"
HF_HUB_OFFLINE=1 HF_DATASETS_CACHE="$folder/cache" env/bin/python - 2>progress <<'PY'
import csv
import json

import datasets


def graded_again(old: list, new: list, **options) -> list:
    rows = datasets.Dataset.from_dict({"score": old})
    again = rows.map(lambda row, i: {"score": new[i]}, with_indices=True, **options)["score"]
    print(old, "with", new, "gives", list(again))
    return list(again)


assert graded_again([1, 0], [0.5, 0.25]) == [0.5, 0.25]
assert graded_again([True, False], [[0.5], [0.25]]) == [[0.5], [0.25]]
for options in ({}, {"remove_columns": ["score"]}):
    assert graded_again([True, False], [0.5, 0.25], **options) == [True, True], "the behaviour has changed"
assert graded_again([True, False], [-1, 2]) == [True, True], "the behaviour has changed"
assert graded_again([3, 4], ["007", "11"]) == [7, 11], "the behaviour has changed"
assert datasets.Dataset.from_dict({"score": [True]}).add_item({"score": 0.5})["score"][1] is True, "the behaviour has changed"

probabilities = datasets.Dataset.from_dict({"p": [1e-12, 1 / 3]})
probabilities.to_json("rows.jsonl")
probabilities.to_csv("rows.csv")
with open("rows.jsonl") as file, open("rows.csv") as table:
    as_json = [json.loads(line)["p"] for line in file]
    as_csv = [float(row["p"]) for row in csv.DictReader(table)]
print(as_json, as_csv)
assert as_csv == [1e-12, 1 / 3]
assert as_json == [0.0, 0.3333333333], "the behaviour has changed"
PY
