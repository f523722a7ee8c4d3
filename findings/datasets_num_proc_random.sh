#!/usr/bin/env bash
# datasets 4.8.5 (5.2.0 alike), on Linux, where processes fork: map(num_proc=4) gives the function in each of its processes the same
# random numbers of NumPy, and takes no notice of random.seed. Nothing warns, and without num_proc both are as they should be.
# Guess: each row has its own random numbers, and a seed that is set before makes them repeatable, as without num_proc.
# Seen, for 400 rows whose four options are shuffled: with NumPy rows i, i + 100, i + 200 and i + 300 have the same order, and a second
# call has the numbers of the first; with Python's random two runs with seed 0 differ in as many orders as two with different seeds.
# The places of right options, examples in prompts and labels that are flipped are then copies of each other, or cannot be made again.
# Draw from the row's number: map(..., with_indices=True) and np.random.default_rng([seed, index]).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "datasets==4.8.5" "numpy==2.3.5"
cat >run.py <<'PY'
"""python run.py PROCESSES: two calls of map after seeding; the orders of the options, drawn in three ways, as JSON."""

import json
import random
import sys

import numpy as np
from datasets import Dataset

random.seed(0)
np.random.seed(0)


def shuffled(row: dict, index: int) -> dict:
    order = list("ABCD")
    random.shuffle(order)
    return {
        "numpy": np.random.random(),
        "options": "".join(np.random.permutation(list("ABCD"))),
        "python": "".join(order),
        "own": np.random.default_rng([0, index]).random(),
    }


rows = Dataset.from_dict({"x": range(400)})
processes = int(sys.argv[1]) if sys.argv[1] != "1" else None
for _ in range(2):
    result = rows.map(shuffled, with_indices=True, num_proc=processes, load_from_cache_file=False)
    print(json.dumps({name: result[name][:] for name in ("numpy", "options", "python", "own")}))
PY
for processes in 1 4; do
    for run in first second; do
        HF_HUB_OFFLINE=1 HF_DATASETS_CACHE="$folder/cache" env/bin/python -W ignore run.py "$processes" >"$processes-$run" 2>progress \
            || { tail -5 progress; exit 1; }
    done
done
env/bin/python - <<'PY'
import json

results = {n: [[json.loads(line) for line in open(f"{n}-{run}")] for run in ("first", "second")] for n in (1, 4)}
for processes, ((first, call), (second, _)) in results.items():
    numbers, orders = len(set(first["numpy"])), first["options"]
    groups = sum(orders[i] == orders[i + 100] == orders[i + 200] == orders[i + 300] for i in range(100))
    same = sum(a == b for a, b in zip(first["python"], second["python"]))
    print(f"{processes} processes: {numbers} different numbers of NumPy in 400 rows; in {groups} of 100 groups the four rows have one order")
    print(f"    a second call has the numbers of the first: {call['numpy'] == first['numpy']}")
    print(f"    a second run with the same seed has {same} of 400 orders of Python's random again")
    assert first["numpy"] == second["numpy"]  # NumPy's seed is heard
    if processes == 1:
        assert numbers == 400 and groups < 5 and same == 400 and call["numpy"] != first["numpy"]
    else:
        assert numbers == 100 and groups == 100 and same < 60 and call["numpy"] == first["numpy"], "the behaviour has changed"
    assert len(set(first["own"])) == 400 and first["own"] == second["own"] == results[1][0][0]["own"]  # the remedy
PY
