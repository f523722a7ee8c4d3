#!/usr/bin/env bash
# reasoning-gym 0.1.25: the questions of a fixed seed change from process to process in six of its 106 tasks.
# isomorphic_strings, knight_swap, polynomial_multiplication, ransom_note and word_ladder depend on the order of sets,
# thus on PYTHONHASHSEED; list_functions changes even with that set.
# Guess: (task, seed, index) names a question. Seen, for two of the six and gcd below: not for these, so that a
# resumed training meets other questions, and a test set is not the same on two machines.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "reasoning-gym==0.1.25"
questions() {  # of one task, made in a process with this hash seed
    PYTHONHASHSEED=$2 "$folder/env/bin/python" -W ignore -c "
import reasoning_gym
for row in reasoning_gym.create_dataset('$1', size=20, seed=1): print(repr(row['question']))" 2>"$folder/progress"
}
for task in isomorphic_strings ransom_note gcd; do
    questions "$task" 1 >"$folder/first"
    questions "$task" 1 >"$folder/again"
    questions "$task" 2 >"$folder/other"
    cmp -s "$folder/first" "$folder/again" || { echo "the behaviour has changed"; exit 1; }
    same=$(paste -d '\n' "$folder/first" "$folder/other" | awk 'NR % 2 {line = $0; next} $0 == line' | wc -l)
    echo "$task: $same of 20 questions are the same with another PYTHONHASHSEED"
    if [ "$task" = gcd ]; then [ "$same" -eq 20 ]; else [ "$same" -lt 20 ]; fi || { echo "the behaviour has changed"; exit 1; }
done
