#!/usr/bin/env bash
# inspect-ai 0.3.285: match(numeric=True), the scorer of GSM8K and MGSM in inspect-evals 0.28.0, compares numbers after it has
# rounded them to five significant digits, and sees no number that has a unit or a box around it.
# Guess: 123457 is wrong for 123456, and "72cm" and "\boxed{72}" are right for 72. Seen: correct, and incorrect twice;
# of "5 + 67 = 72kg" it takes 67. So answers of six digits and more are not checked, and a prompt for boxes scores 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "inspect-ai==0.3.285"
"$folder/env/bin/python" - <<'PY'
import asyncio

from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target, match
from inspect_ai.solver import TaskState


def score(gold: str, text: str):
    output = ModelOutput.from_content("model", text)
    state = TaskState("model", sample_id=1, epoch=1, input="Question", messages=[], output=output)
    return asyncio.run(match(numeric=True)(state, Target(gold)))


verdicts = {  # C: correct, I: incorrect
    ("123456", "The answer is 123457."): "C",
    ("2024001", "There are 2,023,999 of them."): "C",
    ("3.14159", "It is 3.14161."): "C",
    ("72", "The answer is 72cm."): "I",
    ("72", "The answer is \\boxed{72}."): "I",
    ("72", "5 + 67 = 72kg"): "I",
}
assert score("72", "The answer is 72.").value == "C" and score("72", "The answer is 73.").value == "I"
for (gold, text), verdict in verdicts.items():
    seen = score(gold, text)
    print(f"{text!r} for {gold}: {seen.value}, read as {seen.answer!r}")
    assert seen.value == verdict, "the behaviour has changed"
PY
