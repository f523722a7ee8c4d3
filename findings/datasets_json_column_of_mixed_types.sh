#!/usr/bin/env bash
# datasets 4.8.5 decodes texts of a JSON Lines column that also has numbers: "007" is read as the
# number 7, "true" as True and "null" as None. Rows that hold only texts are left alone.
# Guess: texts stay texts. Seen: [7, 3, True, None]. An identifier or an answer with leading zeros is
# lost before any code of the user sees it; give such a column one type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "datasets==4.8.5"
cd "$folder"
HF_HUB_OFFLINE=1 env/bin/python - <<'PY'
import json

import datasets


def read(values):
    with open("rows.jsonl", "w") as file:
        file.writelines(json.dumps({"answer": value}) + "\n" for value in values)
    rows = datasets.load_dataset(
        "json", data_files="rows.jsonl", split="train", cache_dir="cache", download_mode="force_redownload"
    )
    return [row["answer"] for row in rows]


texts, mixed = read(["007", "true", "null"]), read(["007", 3, "true", "null"])
print(texts, mixed)
assert texts == ["007", "true", "null"]
assert mixed == [7, 3, True, None], "the behaviour has changed"
PY
