#!/usr/bin/env bash
# opencompass 0.5.4 cuts answers before it compares them. math_postprocess_v2, of its MATH tasks, takes a sentence without a box up
# to the first point, be it a decimal point. Its prompt with four examples, for base models, teaches just this sentence without a
# box. first_option_postprocess, of few-shot MMLU and about a hundred other configurations, takes the first capital A to D, also of
# a word, if the letter is in none of the wordings that it knows; in bold behind "Answer:", or in a box of its own, it is in none.
# Guess: 0.15 is right for 0.15 and 3.21 wrong for 3; "Because it is cold, I choose (C)." is C. Seen: the contrary, and B.
# Of the 500 gold answers of MATH-500 nine have a decimal point; in these sentences all nine are marked wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --no-deps --python env/bin/python "opencompass==0.5.4"
uv pip install --quiet --python env/bin/python "datasets==4.8.5"
env/bin/python -W ignore - <<'PY'
import importlib
import re
import sys
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace

folder = distribution("opencompass").locate_file("opencompass")


def module(name: str, **contents) -> ModuleType:
    sys.modules[name] = loaded = ModuleType(name)
    loaded.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
    vars(loaded).update(contents)
    return loaded


class Evaluator:
    def __init__(self, pred_postprocessor=None):
        pass


registry = SimpleNamespace(register_module=lambda *names: lambda registered: registered)
names = "LOAD_DATASET", "TEXT_POSTPROCESSORS", "ICL_EVALUATORS"
for name in ("opencompass", "opencompass.openicl"):  # the real ones import all its tasks and models
    module(name)
module("opencompass.registry", **dict.fromkeys(names, registry))
module("opencompass.openicl.icl_evaluator", BaseEvaluator=Evaluator)
module("opencompass.utils", get_data_path=None)
module("opencompass.datasets")
module("opencompass.datasets.base", BaseDataset=object)
tasks = importlib.import_module("opencompass.datasets.math")
option = importlib.import_module("opencompass.utils.text_postprocessors").first_option_postprocess
prompt = importlib.import_module("opencompass.configs.datasets.math.math_4shot_example_from_google_research").prompt
(lesson,) = re.findall(r".*\$24\$.*answer.*|.*answer.*\$24\$.*", prompt, re.M)


def accuracy(sentence: str, gold: str) -> float:
    read = tasks.math_postprocess_v2(sentence)
    score = tasks.MATHEvaluator(version="v2").score([read], [gold])["accuracy"]
    print(f"{sentence!r}, gold {gold}: read as {read}, accuracy {score}")
    return score


for answer, gold, expected in (
    ("24", "24", 100), (r"\frac{1}{2}", r"\frac{1}{2}", 100), ("3.21", "4", 0),
    ("0.15", "0.15", 0), ("4.5", "4.5", 0), ("3.21", "3", 100), ("0.15", "0", 100),
):
    assert accuracy(lesson.replace("24", answer), gold) == expected, "the behaviour has changed"
golds = ["1.25", "0.15", "3.21", ".0000672", r"5.4 \text{ cents}", "326.5", "4.5", ".35625", r"\$18.90"]
assert not any(accuracy(lesson.replace("24", gold), gold) for gold in golds), "the behaviour has changed"
assert accuracy(r"The final answer is $\boxed{0.15}$.", "0.15") == 100

letters = {  # text: its letter, what is read
    "The answer is C.": "CC",
    "(C) Denmark": "CC",
    "Because it is cold, I choose (C).": "CB",
    "Based on the text, option C is correct.": "CB",
    "Answer: **C**": "CA",
    r"All metals conduct. \boxed{C}": "CA",
    "Considering the dates, it must be (B).": "BC",
}
for text, (letter, expected) in letters.items():
    seen = option(text, "ABCD")
    print(f"{text!r}: {letter}, read as {seen}")
    assert seen == expected, "the behaviour has changed"
PY
