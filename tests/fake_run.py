"""A run as train.py leaves it, without training: random adapters on the tiny policy. Only its
functions with weights import torch."""

import json
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

from pods.config.command import compose, typed
from pods.config.keys import TrainConfig
from pods.runs import checkpoints

TINY = Path(__file__).resolve().parents[1] / "pods" / "tiny_policy"
QWEN_3B = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "layer_types": ["full_attention"] * 36,
}


def quickstart_config(*overrides):
    return typed(TrainConfig, compose("train", list(overrides)))


def make_run(output_dir, run="fake", steps=(2, 4), scale=0.02, **changes):
    """checkpoints/<run> with an adapter per step; `scale`: how far from the base to the base."""
    folder = output_dir / run
    config = quickstart_config(f"run={run}", *(f"{k}={v}" for k, v in changes.items()))
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(OmegaConf.to_yaml(config.model_dump()))
    for step in steps:
        add_checkpoint(folder, step, scale)
    return folder


def edit_config(path, **keys):
    """Set keys, `__` for a dot, in a saved config."""
    config = OmegaConf.load(path)
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value, merge=False, force_add=True)
    OmegaConf.save(config, path)


def edit_json(path, **keys):
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def add_checkpoint(folder, step, scale=0.02, full=False):
    """One checkpoint, complete with its meta.json; full: all weights instead of an adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path, generator = folder / f"checkpoint-{step}", torch.Generator().manual_seed(step)
    model = AutoModelForCausalLM.from_pretrained(TINY)
    if not full:
        lora = LoraConfig(r=32, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if full or "lora_" in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(scale * noise) if full else parameter.copy_(scale * noise)
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(TINY).save_pretrained(path)
    meta = {"step": step, "train_seconds": 2.5 * step, "tokens_generated": 100 * step}
    checkpoints.seal(path, meta)
    return path


def logps_of(model, prompt, ids, temperature):
    """(len(ids),) log-probabilities of a completion by a whole forward pass."""
    import torch

    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]


def live_model(checkpoint):
    """A policy as it is in training: its adapter is trainable, with dropout."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    options = {"is_trainable": True, "autocast_adapter_dtype": False}
    model = PeftModel.from_pretrained(base, checkpoint, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    return model.train()


class Faulty:
    """An engine whose log-probabilities are off, or that serves the base in place of the policy."""

    def __init__(self, engine, base=False, offset=0.0):
        self.engine, self.base, self.offset, self.asked = engine, base, offset, []

    def generate(self, works, *, logprobs=False):
        self.asked.append(logprobs)
        for work in works:
            served = replace(work, weights=None) if self.base else work
            for _, groups in self.engine.generate([served], logprobs=logprobs):
                yield work, [[self.shifted(c) for c in group] for group in groups]

    def shifted(self, completion):
        logprobs = completion.logprobs and [p + self.offset for p in completion.logprobs]
        return replace(completion, logprobs=logprobs)
