#!/usr/bin/env bash
# PEFT 0.21.2: add_weighted_adapter applies the scale of rsLoRA twice. It sets the new adapter's alpha to its rank, for a scale
# of 1, and copies use_rslora, which makes it the square root of the rank. Nothing is reported; its docs exclude no LoRA.
# Guess: one adapter with weight 1 is copied, and "cat", the exact way, gives the weighted sum of the adapters' updates, as
# without rsLoRA. Seen: 4 times the update at rank 16, 8 times at 64, and 5.66 times for "cat" of two of rank 16. A merged
# or copied policy answers badly, and its training is blamed for it. Divide the weights by the root of the new rank.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "peft==0.21.2" "torch==2.13.0" "transformers==5.17.0"
HF_HUB_OFFLINE=1 "$folder/env/bin/python" -W ignore - <<'PY'
import math

import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)


def ratio(rank: int, weights: list[float], kind: str, rslora: bool) -> float:
    """Size of the new adapter's update over that of the weighted sum, which has the same direction."""
    config = LoraConfig(r=rank, lora_alpha=32, target_modules=["0"], use_rslora=rslora, init_lora_weights=False)
    names = [f"policy{i}" for i in range(len(weights))]
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(128, 128)), config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    model.add_weighted_adapter(names, weights, "merged", combination_type=kind)
    layer = model.base_model.model[0]
    wanted = sum(weight * layer.get_delta_weight(name) for name, weight in zip(names, weights))
    merged = layer.get_delta_weight("merged")
    times = float((merged * wanted).sum() / (wanted * wanted).sum())
    assert torch.allclose(merged, times * wanted, atol=1e-4)
    return times


cases = {  # rank, weights, kind: factor with rsLoRA
    (16, (1.0,), "linear"): 4.0,
    (64, (1.0,), "linear"): 8.0,
    (16, (1.0,), "svd"): 4.0,
    (16, (0.5, 0.5), "cat"): math.sqrt(32),
    (16, (1.0, -1.0), "cat"): math.sqrt(32),
}
for (rank, weights, kind), factor in cases.items():
    plain, scaled = (ratio(rank, list(weights), kind, rslora) for rslora in (False, True))
    print(f"rank {rank}, weights {weights}, {kind}: {plain:.3f} of the sum, with rsLoRA {scaled:.3f}")
    assert math.isclose(plain, 1, rel_tol=1e-4)
    assert math.isclose(scaled, factor, rel_tol=1e-4), "the behaviour has changed"
PY
