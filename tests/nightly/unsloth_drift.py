"""One side of the drift check, run by tests/nightly/test_unsloth_drift.py in a process of its own.

    <python of the gpu environment> -m tests.nightly.unsloth_drift plain|unsloth <folder>

Our trainer on a CPU, inside TRL's GRPOTrainer or the one that Unsloth rewrites; the last line on
stdout is the result as JSON. `import unsloth` rewrites nothing without a GPU, so its functions are
called here. Not covered: Unsloth's kernels, a real vLLM, torch.compile, a step in 4 bits.
"""

import importlib.abc
import json
import os
import sys
from pathlib import Path

# The reference pass after a warm-up, three updates a generation, GRPO-GA with a loss per token, a
# second round, and fewer rows than the budget, whose number differs from step to step.
CASES = {
    "kl": ["loss.type=grpo", "loss.beta=0.04", "warm_up=true"],
    "updates": [
        "loss.type=grpo",
        "updates_per_generation=3",
        "loss.epsilon=0.01",
        "loss.epsilon_high=0.02",
        "loss.importance_sampling_level=sequence",
        "loss.mask_truncated_completions=true",
        "loss.top_entropy_quantile=0.3456",
        "sampling.max_completion_length=21",
        "trl={delta: 1.05, entropy_coef: 0.1}",
    ],
    "grpo_ga": [
        "algorithm=grpo_ga",
        "kept_per_prompt=16",
        "micro_batch_size=4",
        "loss.type=dapo",
        "loss.beta=0.0",
    ],
    "dapo": [
        "algorithm=dapo",
        "rollouts_per_prompt=4",
        "algorithm_kwargs.rounds=2",
        "micro_batch_size=2",
    ],
    "filled": [
        "algorithm=thin",
        "rollouts_per_prompt=4",
        "algorithm_kwargs.pool=1",
        "prompts_per_step=4",
        "micro_batch_size=2",
        "loss.type=grpo",
        "loss.beta=0.04",
    ],
}


class NoKernels(importlib.abc.MetaPathFinder):
    """vLLM's compiled modules do not load without a driver; Unsloth would then drop vLLM."""

    def find_spec(self, name, path=None, target=None):
        parent, _, module = name.partition(".")
        if parent == "vllm" and (module.startswith("_C") or module == "cumem_allocator"):
            raise ModuleNotFoundError(name)


def import_rewritten(folder):
    from pods.models.unsloth import ENVIRONMENT  # imports none of what Unsloth rewrites

    os.environ.update(ENVIRONMENT, UNSLOTH_ALLOW_CPU="1", TORCHDYNAMO_DISABLE="1")
    os.environ["UNSLOTH_COMPILE_LOCATION"] = f"{folder}/compiled"  # else the working folder
    os.environ["UNSLOTH_GRPO_PREFIX_GROUPER"] = "0"  # its attention needs a card
    # No autocast: it would give a float32 model fp16 here.
    os.environ.update(ACCELERATE_MIXED_PRECISION="no", UNSLOTH_MIXED_PRECISION="bfloat16")
    sys.meta_path.insert(0, NoKernels())
    import unsloth  # noqa: F401  before trl, transformers and peft
    import unsloth.models.rl as rl
    from transformers import Trainer
    from unsloth.models._utils import patch_gradient_accumulation_fix

    rl.patch_trl_disable_gradient_checkpointing()
    rl._patch_trl_rl_trainers_impl("grpo_trainer")  # the public wrapper swallows errors
    rl.patch_trl_vllm_generation()
    patch_gradient_accumulation_fix(Trainer)  # loading a model does


def main(side, folder):
    if side == "unsloth":
        import_rewritten(folder)
    from tests import filled_steps
    from tests.nightly import gpu_path

    report = gpu_path.classes(folder)
    report["cases"] = {case: gpu_path.case(side, case, Path(folder)) for case in CASES}
    report["filled"] = filled_steps.report(Path(folder))
    if side == "unsloth":
        report |= gpu_path.unsloth_alone(Path(folder))
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
