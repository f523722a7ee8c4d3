#!/usr/bin/env bash
# verl 0.9.1 scores right GSM8K answers 0 for punctuation: the full stop after a number is taken as a part of it, a
# dollar sign hides it ("strict", the default, reads what follows "####"), and with "flexible" a comma later in
# the sentence is the answer. Guess: 1.0 for each text below, whose gold answer is 72. Seen: 0.0 for each.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "verl==0.9.1"
"$folder/env/bin/python" - <<'PY'
import runpy
from importlib.metadata import distribution

path = distribution("verl").locate_file("verl/utils/reward_score/gsm8k.py")  # verl itself imports torch and ray
score = runpy.run_path(str(path))["compute_score"]
texts = {
    "strict": ["#### 72.", "#### $72", "#### 72.00", "#### 72. I checked it twice."],
    "flexible": ["The answer is 72.", "She sold 72 clips, half of them in May.", "She sold 72 clips in all, so 72."],
}
assert score("#### 72", "72") == score("The answer is 72", "72", method="flexible") == 1.0
for method, answers in texts.items():
    for text in answers:
        value = score(text, "72", method=method)
        print(f"{method}: {text!r} earns {value}")
        assert value == 0, "the behaviour has changed"
PY
