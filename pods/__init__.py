"""PODS: down-sampled rollouts for GRPO (arXiv 2504.13818).

    from pods import PodsConfig, PodsTrainer          # in place of TRL's GRPOConfig, GRPOTrainer
    args = PodsConfig("out", rollouts_per_prompt=32, num_generations=8)      # n and m
    PodsTrainer("Qwen/Qwen2.5-0.5B", reward_function, args, dataset).train()
    # With sampler=pods.FastSampler the suite's decoding loop generates in place of TRL's.
    from pods.rules import select                     # needs only numpy
    select("max_variance", [0.0, 1.0, 0.2, 0.9], m=2)

Unsloth, if used, must be imported before PodsTrainer: it rewrites the class that this one extends.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

SCRIPT = Path(sys.argv[0] if sys.argv else "").resolve()
OURS = SCRIPT.parent == Path(__file__).resolve().parents[1]  # of this clone
if OURS and SCRIPT.name in ("train.py", "evaluate_run.py") and find_spec("hydra") is None:
    sys.exit(f"{SCRIPT.name}: this Python has no hydra; type: uv run {SCRIPT.name}")

if TYPE_CHECKING:
    from pods.trainer import PodsConfig, PodsTrainer

MODULES = {
    "FastSampler": "pods.engines.fast_sampler",
    "PodsConfig": "pods.trainer",
    "PodsTrainer": "pods.trainer",
}
__all__ = ["FastSampler", "PodsConfig", "PodsTrainer"]


def __getattr__(name: str) -> type:
    if name not in MODULES:
        raise AttributeError(f"module 'pods' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)  # TRL and torch are loaded only now


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
