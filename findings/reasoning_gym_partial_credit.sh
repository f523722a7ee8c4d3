#!/usr/bin/env bash
# reasoning-gym 0.1.25 pays for an answer that contains the gold answer: its length over the length of the text.
# Many of its tasks with a number as the answer use this (gcd below). Guess: a wrong number earns 0, and the right
# one in a sentence more than it. Seen: for gold 3, "30" and "13" earn 0.5 and "The answer is 3" 0.067.
# In spell_backward a wrong answer, the right word and one more letter, earns 0.8 if the word has five letters, as
# intended, and 1.0000000000000002, more than the right answer, if it has nine: letters are added up as floats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "reasoning-gym==0.1.25"
"$folder/env/bin/python" -W ignore - 2>"$folder/progress" <<'PY'
import reasoning_gym

divisors = reasoning_gym.create_dataset("gcd", size=50, seed=0)
row = next(row for row in divisors if row["answer"] == "3")
credit = {text: round(divisors.score_answer(text, row), 3) for text in ("3", "30", "13", "The answer is 3")}
print(credit)
assert credit == {"3": 1.0, "30": 0.5, "13": 0.5, "The answer is 3": 0.067}, "the behaviour has changed"

words = reasoning_gym.create_dataset("spell_backward", size=200, seed=0)
rows = {len(row["answer"]): row for row in words}
longer = {letters: words.score_answer(rows[letters]["answer"] + "x", rows[letters]) for letters in (5, 9)}
print(longer)
assert longer == {5: 0.8, 9: 1.0000000000000002}, "the behaviour has changed"
PY
