#!/usr/bin/env bash
# ms-swift 4.6.0: two of its rewards let answers off that they are to hold down. "cosine" goes up again behind cosine_max_len,
# its "maximum length for generated text", as a cosine does: nothing stops it there. "repetition" counts words between
# spaces, so that Chinese, or a formula without spaces, is one word and never repeats itself; the paper it cites counts tokens.
# Guess: behind the maximum the value stays what it is there; a sentence said 200 times has a penalty near -1 in Chinese as in
# English. Seen: at twice the maximum a right answer earns 1 and a wrong one -0.5, as if they were empty; penalties -0.99
# and 0. An answer can be longer: max_completion_length is another setting, and the turns of a conversation are added up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "ms-swift==4.6.0"
"$folder/env/bin/python" - <<'PY'
import math
import runpy
import sys
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace

for name in ("swift", "swift.infer_engine"):  # the real ones import torch and more
    sys.modules[name] = ModuleType(name)
sys.modules["swift.infer_engine"].InferRequest = object
rewards = runpy.run_path(str(distribution("ms-swift").locate_file("swift/rewards/orm.py")))["orms"]
settings = SimpleNamespace(  # all are ms-swift's defaults but the first, which follows max_completion_length
    cosine_max_len=1000,
    cosine_min_len_value_wrong=-0.5,
    cosine_max_len_value_wrong=0.0,
    cosine_min_len_value_correct=1.0,
    cosine_max_len_value_correct=0.5,
    repetition_n_grams=3,
    repetition_max_penalty=-1.0,
)
cosine = rewards["cosine"](settings, accuracy_orm=lambda texts, solutions, **columns: [1.0, 0.0])
for tokens, expected in {0: (1, -0.5), 500: (0.75, -0.25), 1000: (0.5, 0), 1500: (0.75, -0.25), 2000: (1, -0.5)}.items():
    right, wrong = cosine(["", ""], ["", ""], response_token_ids=[[0] * tokens] * 2)
    print(f"{tokens} tokens: right {right:.2f}, wrong {wrong:.2f}")
    assert all(math.isclose(*pair, abs_tol=1e-9) for pair in zip((right, wrong), expected)), "the behaviour has changed"

repetition = rewards["repetition"](settings)
english, chinese, formula = repetition(["Let us compute it again. " * 200, "让我们再算一遍。" * 200, "x=x+1;" * 200])
print(f"200 times: English {english:.3f}, Chinese {chinese}, a formula {formula}")
assert english < -0.98
assert chinese == formula == 0, "the behaviour has changed"
PY
