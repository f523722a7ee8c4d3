#!/usr/bin/env bash
# PEFT 0.21.2: unmerge_adapter does not restore weights of bfloat16, and the errors add up. TRL 1.16.0 calls merge_adapter and
# unmerge_adapter each time that it hands weights to vLLM, once a step. Guess: the base model stays as it was, but for an
# error of rounding. Seen, for LoRA trained with learning rate 1e-5 as below: after 100 steps the frozen weights have moved by
# about a third of what the adapter adds to them; with float32 by less than a thousandth. Nothing warns of it. The saved
# adapter is then used on a base model with which it was not trained, and the reference of a KL penalty moves, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "peft==0.21.2" "torch==2.13.0" "transformers==5.17.0"
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES="" "$folder/env/bin/python" -W ignore - <<'PY'
import torch
from peft import LoraConfig, get_peft_model

torch.set_num_threads(1)


def moved(dtype: torch.dtype, steps: int) -> float:
    """Norm of the change of the frozen weights over the norm of the adapter's update."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(128, 128, bias=False, dtype=dtype)
    torch.nn.init.normal_(linear.weight, std=0.02)  # as in most language models
    start = linear.weight.detach().double()
    target = start.float() + 0.002 * torch.randn(128, 128)
    model = get_peft_model(torch.nn.Sequential(linear), LoraConfig(r=8, lora_alpha=16, target_modules=["0"]))
    layer = model.base_model.model[0]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    for _ in range(steps):
        inputs = torch.randn(32, 128)
        loss = (model(inputs.to(dtype)).float() - inputs @ target.T).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.merge_adapter()  # here TRL reads the weights
        model.unmerge_adapter()
    update = layer.get_delta_weight("default").double()
    return float((layer.base_layer.weight.detach().double() - start).norm() / update.norm())


for dtype in (torch.float32, torch.bfloat16):
    share = moved(dtype, steps=100)
    print(f"{dtype}: the frozen weights moved by {share:.2g} of the adapter's update")
    expected = share < 1e-3 if dtype == torch.float32 else 0.1 < share < 1
    assert expected, "the behaviour has changed"
PY
