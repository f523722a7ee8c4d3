"""What 16-bit weights keep of an adapter that is added to them, as vllm.merged_rollouts=true does;
docs/gpu.md has the same table of SmolLM2 (tests/nightly/test_smollm2.py)."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear

from pods.models.policy import load_tokenizer, load_transformers
from tests.configs import compose

STEP = 5e-6  # what Adam's first update makes in an entry of lora_B, at the published learning rate


def with_adapter(*overrides: str) -> tuple[PeftModel, torch.Tensor]:
    """A model in bfloat16's numbers with the published adapter, and the tokens of a text."""
    config = compose("lora.rank=64", "model.dtype=float32", *overrides)
    tokenizer = load_tokenizer(config.model.path)
    policy = load_transformers(config, tokenizer)
    policy.model.bfloat16().float()
    torch.manual_seed(0)
    keys = config.lora.model_dump(by_alias=True)
    text = "Natalia sold 48 clips in April and 24 in May: 48+24=72"
    ids = tokenizer(text, return_tensors="pt").input_ids
    return get_peft_model(policy.model, LoraConfig(**keys)), ids


def kept(model: PeftModel, ids: torch.Tensor, updates: int) -> tuple[float, float, float]:
    """Of an adapter after `updates` equal updates: the share that the merged weights keep, the mean
    gap of their log-probabilities, which the guard would see, and that of the base without it."""
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    generator = torch.Generator().manual_seed(0)
    for layer in layers:
        B = layer.lora_B["default"].weight
        signs = torch.randint(0, 2, B.shape, generator=generator) * 2 - 1
        B.data = signs * STEP * updates

    @torch.no_grad()
    def logprobs() -> torch.Tensor:
        values = model(ids).logits.log_softmax(-1)[:, :-1]
        return values.gather(2, ids[:, 1:, None])

    exact = logprobs()
    found = total = 0.0
    with model.disable_adapter():
        base = logprobs()
        weights = [layer.weight.data for layer in layers]
        for layer, weight in zip(layers, weights, strict=True):
            change = layer.get_delta_weight("default").detach()
            layer.weight.data = (weight + change).bfloat16().float()
            found += ((layer.weight.data - weight) * change).sum().item()
            total += (change * change).sum().item()
        merged = logprobs()
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.data = weight
    gap, without = ((other - exact).abs().mean().item() for other in (merged, base))
    return found / total, gap, without


@pytest.fixture(scope="module")
def tiny():
    return with_adapter()


@pytest.mark.parametrize(
    ("updates", "share"), [(1, 0.008), (10, 0.081), (50, 0.38), (200, 0.9), (1000, 1.0)]
)
def test_a_merge_loses_the_first_updates_and_the_guard_does_not_see_it(tiny, updates, share):
    of_weights, gap, without = kept(*tiny, updates)
    assert of_weights == pytest.approx(share, rel=0.05)
    assert gap < compose().guard.max_logprob_gap / 5
    if updates == 1:  # rollouts of the merged weights are the base's
        assert gap == pytest.approx(without, rel=0.5)
    if updates == 1000:
        assert gap < without / 5
