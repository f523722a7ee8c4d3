#!/usr/bin/env bash
# evalplus 0.3.1 (HumanEval+, MBPP+) and bigcodebench 0.2.5 "sanitize" each answer before they run its tests: of the top level
# only imports, classes, functions and the first assignment to each name are kept. Functions with a decorator, loops,
# conditions and calls such as table.append(1) are dropped; evalplus drops functions without "return", too.
# Guess: what is cut off is the text around the program, and a right program stays right. Seen: of the programs below, of
# which each gives climb(10) == 89, only the plain one does so afterwards in both; the rest raises an error or gives 0.
# Answers with a memoised function (@cache), or a table that is filled in advance, are counted as wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "evalplus==0.3.1" "bigcodebench==0.2.5"
uv pip install --quiet --python "$folder/env/bin/python" "tree-sitter==0.26.1" "tree-sitter-python==0.25.0" "tqdm==4.70.1" "termcolor==3.3.0" "pqdm==0.2.0"
"$folder/env/bin/python" - <<'PY'
import runpy
import sys
from importlib.metadata import distribution
from types import ModuleType

sanitizers = []
for name in ("evalplus", "bigcodebench"):
    folder = distribution(name).locate_file(name)
    package = sys.modules[name] = ModuleType(name)  # the data, not the sanitizers, import the packages of all providers
    package.__path__ = [str(folder)]
    data = sys.modules[f"{name}.data"] = ModuleType(f"{name}.data")
    for function in "get_human_eval_plus get_mbpp_plus get_bigcodebench load_solutions write_directory write_jsonl".split():
        setattr(data, function, None)
    sanitizers.append(runpy.run_path(str(folder / "sanitize.py"))["sanitize"])


def outcome(program: str) -> int | str:
    """climb(10), or the name of the error."""
    names = {}
    try:
        exec(program, names)
        return names["climb"](10)
    except Exception as error:
        return type(error).__name__


loop = "def climb(n):\n    a, b = 1, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
recursion = "    return 1 if n < 2 else climb(n - 1) + climb(n - 2)\n"
programs = {  # name: program, what evalplus and bigcodebench make of it
    "plain": (loop, 89, 89),
    "cached": (f"from functools import cache\n\n@cache\ndef climb(n):\n{recursion}", "KeyError", "KeyError"),
    "cached helper": (
        "from functools import cache\n\n@cache\ndef ways(n):\n    return 1 if n < 2 else ways(n - 1) + ways(n - 2)\n\n"
        "def climb(n):\n    return ways(n)\n",
        "NameError",
        "NameError",
    ),
    "table": (
        "table = [1, 1]\nfor i in range(2, 99):\n    table.append(table[-1] + table[-2])\n\ndef climb(n):\n    return table[n]\n",
        "IndexError",
        "IndexError",
    ),
    "entries": (
        "table = [0] * 12\ntable[0] = 1\ntable[1] = 1\n\ndef climb(n):\n    for i in range(2, n + 1):\n"
        "        table[i] = table[i - 1] + table[i - 2]\n    return table[n]\n",
        0,
        0,
    ),
    "second try": (f"def climb(n):\n    return 0\n\n{loop}", 0, 0),
    "helper without return": (
        "def fill(table, n):\n    for i in range(2, n + 1):\n        table.append(table[i - 1] + table[i - 2])\n\n"
        "def climb(n):\n    table = [1, 1]\n    fill(table, n)\n    return table[n]\n",
        "NameError",
        89,
    ),
}
for name, (program, *expected) in programs.items():
    assert outcome(program) == 89
    seen = [outcome(sanitize(program, "climb")) for sanitize in sanitizers]
    print(f"{name}: evalplus {seen[0]}, bigcodebench {seen[1]}")
    assert seen == expected, "the behaviour has changed"
PY
