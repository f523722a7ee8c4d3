#!/usr/bin/env bash
# deepeval 4.3.1: its benchmark HumanEval gives the full score to each function that can be defined. The tests of a task are a
# function check(candidate), which is put behind the answer and never called. And evaluate(k=...) counts a task as solved if
# pass@k is above 0: with one good answer of n, that is pass@n whatever k is.
# Guess: a wrong function fails, as in the original; for one right answer of four pass@1 is 0.25. Seen: 1.0 for a function that
# returns nothing, and for one answer that compiles of four. So HumanEval is the share of tasks with an answer that compiles.
# Its GSM8K asks a model for a whole number and compares it as text with the gold answer, which has a comma in 14 of the 1,319
# test questions. Guess: 2125 is right for "2,125". Seen: 0; a model that follows the schema cannot solve these questions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "deepeval==4.3.1" "datasets==4.8.5" "pandas==2.3.3"
HF_HUB_OFFLINE=1 DEEPEVAL_TELEMETRY_OPT_OUT=YES env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
import contextlib
import sys

from datasets import Dataset, DatasetDict
from deepeval.benchmarks import GSM8K, HumanEval
from deepeval.benchmarks.human_eval.task import HumanEvalTask
from deepeval.models import DeepEvalBaseLLM


class Model(DeepEvalBaseLLM):
    """Says what it is given."""

    def __init__(self, samples: list[str] = (), number: int = 0):
        self.samples, self.number = samples, number
        super().__init__()

    def load_model(self):
        return None

    def get_model_name(self) -> str:
        return "fixed answers"

    def generate(self, prompt: str, schema):
        return schema(answer=self.number)

    async def a_generate(self, prompt: str, schema):
        return self.generate(prompt, schema)

    def generate_samples(self, prompt: str, n: int, temperature: float) -> list[str]:
        return self.samples


task = HumanEvalTask.ADD
test = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n"
row = {"prompt": f"def {task.value}(x, y):\n", "entry_point": task.value, "test": test}
right, wrong, broken = (f"def {task.value}(x, y):\n    return {value}\n" for value in ("x + y", "None", "x +"))


def human_eval(samples: list[str], k: int) -> float:
    benchmark = HumanEval(tasks=[task], n=len(samples))
    benchmark.dataset = DatasetDict({"test": Dataset.from_list([row])})
    with contextlib.redirect_stdout(sys.stderr):
        return benchmark.evaluate(Model(samples), k=k).overall_accuracy


for function, expected in ((right, True), (wrong, False)):  # what the tests say
    names = {}
    exec(function + test, names)
    try:
        names["check"](names[task.value])
        assert expected
    except AssertionError:
        assert not expected
seen = {
    "four right functions, pass@1": (human_eval([right] * 4, 1), 1),
    "four wrong functions, pass@1": (human_eval([wrong] * 4, 1), 1),
    "four that do not compile, pass@1": (human_eval([broken] * 4, 1), 0),
    "one right, three that do not compile, pass@1": (human_eval([right] + [broken] * 3, 1), 1),
}


def gsm8k(gold: str, number: int) -> float:
    benchmark = GSM8K(n_problems=1, n_shots=0)
    rows = Dataset.from_list([{"question": "How many are there in all?", "answer": f"They are counted.\n#### {gold}"}])
    benchmark.dataset = DatasetDict({"train": rows, "test": rows})
    with contextlib.redirect_stdout(sys.stderr):
        return benchmark.evaluate(Model(number=number)).overall_accuracy


for gold, number, expected in (("2125", 2125, 1), ("2,125", 2125, 0), ("2125", 2124, 0)):
    seen[f"GSM8K: gold {gold}, answer {number}"] = gsm8k(gold, number), expected
for name, (score, expected) in seen.items():
    print(f"{name}: {score}")
    assert score == expected, "the behaviour has changed"
PY
