#!/usr/bin/env bash
# lighteval 0.13.0: maj@4, the only metric of its seven MATH tasks ("math:algebra", ...), compares the whole completion with the
# whole written solution of the data set. The tasks pass math_normalizer, which takes the answer out of the box, as normalize_pred
# and normalize_gold; the metric reads neither, only "normalize". A name that it does not know is set without a word.
# Guess: four completions with the right box score 1 and with a wrong one 0; three right ones outvote the one that is wrong.
# Seen: 0 for every completion that is not the solution word by word, and no majority: four right ones in other words are four
# different votes. So a model that solves MATH scores about 0. With normalize=math_normalizer the guess holds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "lighteval==0.13.0" "transformers==5.17.0" "datasets==4.8.5" "torch==2.13.0"
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES="" env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
from lighteval.metrics.metrics import Metrics
from lighteval.metrics.normalizations import math_normalizer
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.tasks import math

(shipped,) = math.math_algebra.metrics
repaired = Metrics.maj_at_n(sample_params={"n": 4, "strip_strings": True, "normalize": math_normalizer})
solution = r"Both sides are divided by $3$, so $x = \boxed{24}$."
doc = math.math_prompt({"problem": "If $3x = 72$, what is $x$?", "solution": solution}, "math:algebra")


def score(metric, completions: list[str]) -> int:
    (value,) = metric.compute_sample(doc=doc, model_response=ModelResponse(text=completions)).values()
    return int(value)


right = [r" It is $\boxed{24}$.", r" $72 / 3 = \boxed{24}$", r" $\boxed{24}$", r" So $x$ must be $\boxed{24}$."]
wrong = [r" It is $\boxed{216}$."]
cases = {  # completions, the score of the task's metric, that with the parameter it reads
    "the solution itself": ([" " + solution] * 4, 1, 1),
    "right, four times the same": (right[:1] * 4, 0, 1),
    "right, in four wordings": (right, 0, 1),
    "three right, one wrong": (right[:3] + wrong, 0, 1),
    "one right, three wrong": (right[:1] + wrong * 3, 0, 0),
    "the answer alone": (["24"] * 4, 0, 0),  # no box
}
for name, (completions, *expected) in cases.items():
    seen = [score(metric, completions) for metric in (shipped, repaired)]
    print(f"{name}: {seen[0]}, with normalize {seen[1]}")
    assert seen == expected, "the behaviour has changed"
print("set and never read:", sorted(name for name in vars(shipped.sample_level_fn) if name.startswith("normalize_")))
assert shipped.sample_level_fn.normalize is None, "the behaviour has changed"
PY
