#!/usr/bin/env bash
# openbench 0.5.3 (with inspect-ai 0.3.125) scores all its MathArena tasks with the scorer of AIME, whose answers are whole
# numbers of up to three digits: also hmmt_feb_2023 to 2025 and brumo_2025, with answers such as \frac{1}{576}, 8\sqrt{10} and
# larger numbers. Guess: the gold answer itself, in a box, is right in each task. Seen: incorrect for every such gold, of
# which HMMT of February 2025 has about a half, whatever the model says; the task's accuracy cannot come near to 1.
# robust_boxed_scorer, for "various number formats", compares the digits at the start of the last part between commas.
# Guess: 3.7 is wrong for 3.2, and 1,234 right for 1234. Seen: the contrary for both; 1/2 is right for 1/3, and 2 for 2\pi.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "inspect-ai==0.3.125"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "openbench==0.5.3"
"$folder/env/bin/python" -W ignore - <<'PY'
import asyncio
import runpy
from importlib.metadata import distribution
from pathlib import Path

from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target
from inspect_ai.solver import TaskState

package = Path(distribution("openbench").locate_file("openbench"))
scorers = runpy.run_path(str(package / "scorers/robust_boxed.py"))  # the package imports all of its benchmarks' needs


def verdict(scorer: str, gold: str, answer: str) -> str:
    """C: correct, I: incorrect."""
    output = ModelOutput.from_content("model", f"The answer is $\\boxed{{{answer}}}$.")
    state = TaskState("model", sample_id=1, epoch=1, input="Question", messages=[], output=output)
    return asyncio.run(scorers[scorer]()(state, Target(gold))).value


tasks = package / "evals/matharena"
assert "scorer=aime_scorer()" in (tasks / "matharena.py").read_text(), "the behaviour has changed"
for name in ("hmmt_feb_2023", "hmmt_feb_2024", "hmmt_feb_2025", "brumo_2025"):
    assert "return matharena_task(" in (tasks / name / f"{name}.py").read_text(), "the behaviour has changed"
assert verdict("aime_scorer", "103", "103") == "C" and verdict("aime_scorer", "103", "104") == "I"
for gold in (r"\frac{1}{576}", r"8\sqrt{10}", r"14+4\sqrt{37}", "3375", "-984", "1/2"):
    print(f"HMMT: gold {gold}, answer {gold}: {verdict('aime_scorer', gold, gold)}")
    assert verdict("aime_scorer", gold, gold) == "I", "the behaviour has changed"

seen = {("3.2", "3.7"): "C", ("1234", "1,234"): "I", ("234", "1,234"): "C", ("1/3", "1/2"): "C", (r"2\pi", "2"): "C"}
assert verdict("robust_boxed_scorer", "1234", "1234") == "C" and verdict("robust_boxed_scorer", "3", "4") == "I"
for (gold, answer), expected in seen.items():
    print(f"robust_boxed_scorer: gold {gold}, answer {answer}: {verdict('robust_boxed_scorer', gold, answer)}")
    assert verdict("robust_boxed_scorer", gold, answer) == expected, "the behaviour has changed"
PY
