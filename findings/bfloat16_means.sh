#!/usr/bin/env bash
# ml-dtypes 0.6.0 with NumPy 2.3.5: mean, var and std of a bfloat16 array add up in bfloat16, which has eight significant
# bits, so that a sum of ones stops at 256. For its own float16 NumPy takes float32 in between, as the docs of mean say.
# Guess: right to bfloat16's two or three digits. Seen: 2000 rewards of which 1188 are 1 have mean 0.128, not 0.594; 4000
# log-probabilities near -0.7 have mean -0.066; a million weights of deviation 0.02 have deviation 0.0015. This is what the
# tensors of a bfloat16 model are in NumPy: their statistics are wrong by a factor that depends on how many there are, and
# nothing warns. Give mean, var and std dtype=np.float32, which is right below.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "ml-dtypes==0.6.0" "numpy==2.3.5"
"$folder/env/bin/python" - <<'PY'
import ml_dtypes
import numpy as np

random = np.random.default_rng(0)
cases = {  # values, statistic, what bfloat16 makes of it
    "mean of 1000 ones": (np.ones(1000), np.mean, 0.2559),
    "variance of 1000 ones": (np.ones(1000), np.var, 0.2559),
    "mean of 2000 rewards": ((np.arange(2000) < 1188) * 1.0, np.mean, 0.1279),
    "mean of 4000 log-probabilities": (random.normal(-0.7, 0.1, 4000), np.mean, -0.0659),
    "deviation of a million weights": (random.normal(0, 0.02, 1_000_000), np.std, 0.00146),
}
for name, (values, statistic, expected) in cases.items():
    half, brain = values.astype(np.float16), values.astype(ml_dtypes.bfloat16)
    right, seen = statistic(values), float(statistic(brain))
    print(f"{name}: {right:.4g}, float16 {statistic(half):.4g}, bfloat16 {seen:.3g}")
    for near in (statistic(half), statistic(brain, dtype=np.float32)):
        assert np.isclose(float(near), right, rtol=5e-3, atol=1e-3)
    assert np.isclose(seen, expected, rtol=2e-2), "the behaviour has changed"
PY
