#!/usr/bin/env bash
# reasoning-gym 0.1.25 gives wrong answers the full reward of 1 in three of its tasks:
# game_of_life_halting ("True" or "False"): every answer that is not empty; what is compared is bool() of two texts.
# puzzle24 (make 24 of four given numbers): any four numbers of the task's range, also those of another question.
# gsm_symbolic: the gold answer with a minus sign, which is not read at the start of an answer.
# Guess: 0, or the task's small reward for a wrong answer. Seen: 1.0 for each answer below, so that a
# training on the first of them has rewards without any variance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "reasoning-gym==0.1.25"
"$folder/env/bin/python" -W ignore - 2>"$folder/progress" <<'PY'
import itertools

import reasoning_gym

halting, puzzle, sums = (
    reasoning_gym.create_dataset(name, size=20, seed=3)
    for name in ("game_of_life_halting", "puzzle24", "gsm_symbolic")
)
opposite = {"True": "False", "False": "True"}
scores = {
    "game_of_life_halting": [halting.score_answer(opposite[row["answer"]], row) for row in halting],
    "puzzle24": [
        puzzle.score_answer(other["answer"], row)
        for row, other in itertools.permutations(puzzle, 2)
        if sorted(other["metadata"]["numbers"]) != sorted(row["metadata"]["numbers"])
    ],
    "gsm_symbolic": [sums.score_answer("-" + row["answer"], row) for row in sums if int(row["answer"]) > 0],
}
for name, values in scores.items():
    print(f"{name}: {len(values)} wrong answers, mean reward {sum(values) / len(values)}")
    assert set(values) == {1.0}, "the behaviour has changed"
PY
