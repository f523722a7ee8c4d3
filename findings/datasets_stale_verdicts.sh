#!/usr/bin/env bash
# datasets 4.8.5: map and filter take the result of an earlier run from the disk if "a hash of the latest transform" is the same.
# The hash has the code of a function of the script itself, but of a function in another file only its name.
# Guess: after a change of the grader's file the rows are graded again, as after a change of the script. Seen: the old
# verdicts, without a word, also if the script's own function calls the grader; then only a new name in that file is noticed.
# Who mends a grader and evaluates again compares the old scores. Pass load_from_cache_file=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "datasets==4.8.5"
cd "$folder"
cat >run.py <<'PY'
import datasets

import grader


def own(row):
    return {"score": grader.score(row["answer"], row["gold"])}


def copied(row):  # the first grader, in the script
    return {"score": float(row["answer"] == row["gold"])}


rows = datasets.load_dataset("json", data_files="rows.jsonl", split="train", cache_dir="cache")
scores = [rows.map(function)["score"][1] for function in (grader.grade, own, copied)]
print(*scores, grader.score("72.0", "72"), len(rows.filter(grader.is_right)))
PY
write_grader() {
    printf '%s\n' "$2" "def score(answer, gold): return float($1)" \
        'def grade(row): return {"score": score(row["answer"], row["gold"])}' \
        'def is_right(row): return score(row["answer"], row["gold"]) == 1' >grader.py
}
printf '%s\n' '{"answer": "72", "gold": "72"}' '{"answer": "72.0", "gold": "72"}' >rows.jsonl
export HF_HUB_OFFLINE=1 HF_DATASETS_CACHE="$folder/cache" PYTHONDONTWRITEBYTECODE=1
expect() {  # the score of 72.0 by grader.grade, own and copied in map, and by the grader itself; number of right rows
    seen=$(env/bin/python run.py 2>progress) || { tail -5 progress; exit 1; }
    echo "$1: $seen"
    [ "$seen" = "$2" ] || { echo "the behaviour has changed"; exit 1; }
}
write_grader 'answer == gold' ''
expect "72.0 is not 72" "0.0 0.0 0.0 0.0 1"
write_grader 'float(answer) == float(gold)' ''
expect "grader mended" "0.0 0.0 0.0 1.0 1"
write_grader 'float(answer) == float(gold)' 'VERSION = 2'
sed -i 's/row\["answer"\] == row\["gold"\]/float(row["answer"]) == float(row["gold"])/' run.py
expect "copy in the script mended, a new name in the grader's file" "0.0 1.0 1.0 1.0 1"
