"""One side of the drift check, run by tests/test_unsloth_drift.py in a process of its own.

    <python of the gpu environment> -m tests.unsloth_drift plain|unsloth <folder>

Three steps of our trainer on a CPU, inside TRL's own GRPOTrainer or inside the one that Unsloth
rewrites; the last line on stdout is what happened, as JSON. `import unsloth` skips the rewrite on a
machine without a GPU, so the functions that perform it are called here. Not covered:
FastLanguageModel's kernels, a real vLLM engine, torch.compile, 4-bit weights.
"""

import inspect
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import gpu_path

# A loss that is not 0 at the first step, the reference pass, three updates a generation, GRPO-GA.
CASES = {
    "per_token": ["loss.type=dapo", "loss.beta=0.0"],
    "kl": ["loss.type=grpo", "loss.beta=0.04"],
    "updates": ["loss.type=grpo", "updates_per_generation=3", "loss.epsilon=0.01",
                "loss.epsilon_high=0.02", "loss.importance_sampling_level=sequence",
                "loss.mask_truncated_completions=true", "loss.top_entropy_quantile=0.4567",
                "sampling.max_completion_length=7", "trl={delta: 1.05, entropy_coef: 0.1}"],
    "grpo_ga": ["algorithm=grpo_ga", "kept_per_prompt=16", "micro_batch_size=4"],
    "dapo": ["algorithm=dapo", "rollouts_per_prompt=4", "algorithm.params.rounds=2"],
}  # fmt: skip
METHODS = (
    "_generate_and_score_completions", "_generate", "_calculate_rewards", "_generate_single_turn",
    "_get_train_sampler",
)  # fmt: skip


def import_rewritten(folder: str) -> None:
    os.environ.update(
        UNSLOTH_ALLOW_CPU="1",
        UNSLOTH_COMPILE_DISABLE="1",
        TORCHDYNAMO_DISABLE="1",
        ACCELERATE_MIXED_PRECISION="no",
        UNSLOTH_MIXED_PRECISION="bfloat16",  # no autocast: it would give a float32 model fp16 here
        UNSLOTH_COMPILE_LOCATION=f"{folder}/compiled",  # else the working folder
    )
    gpu_path.hide_kernels()
    import unsloth  # noqa: F401  before trl, transformers and peft
    import unsloth.models.rl as rl
    from transformers import Trainer
    from unsloth.models._utils import patch_gradient_accumulation_fix

    rl.patch_trl_disable_gradient_checkpointing()
    rl._patch_trl_rl_trainers_impl("grpo_trainer")  # the public wrapper swallows errors
    rl.patch_trl_vllm_generation()
    patch_gradient_accumulation_fix(Trainer)  # loading a model does


def letters() -> Any:
    """Rewards that differ between completions, so that a mix-up of rows changes the loss."""

    def letters(completions: list[str], **_: Any) -> list[float]:
        return [float(sum(map(ord, text)) % 17) for text in completions]

    def length(completions: list[str], **_: Any) -> list[float]:
        return [-0.01 * len(text) for text in completions]

    weights = {"letters": 1.0, "length": 0.5}
    return SimpleNamespace(functions=[letters, length], weights=weights, grader=None)


def policy_as_unsloth_loads_it(config: Any) -> Any:
    """What load_unsloth returns on a GPU: the adapter applied, two methods on the model."""
    from peft import get_peft_model
    from transformers import set_seed

    from pods.models.policy import load_tokenizer, load_transformers

    tokenizer = load_tokenizer(config.model.path)
    policy = load_transformers(config, tokenizer)
    set_seed(config.seed)
    policy.model = get_peft_model(policy.model, policy.peft_config)
    policy.model.for_training = lambda *_, **__: policy.model.train()
    policy.model.for_inference = lambda *_, **__: policy.model.eval()
    policy.model.max_seq_length = 512
    policy.model._unsloth_gradient_checkpointing = False
    policy.peft_config, policy.backend = None, config.backend.name
    return policy


def build(folder: str, overrides: list[str], side: str) -> tuple[Any, list[list[int]]]:
    from datasets import Dataset
    from transformers import TrainerCallback

    from pods.clock import Clock
    from pods.training.build import build_trainer
    from pods.training.warm_up import warm_up
    from tests.configs import compose

    sizes = ["rollouts_per_prompt=16", "kept_per_prompt=4", "prompts_per_step=2", "max_steps=3"]
    config = compose(*sizes, "sampling.max_completion_length=24", "sampling.temperature=0.9",
                     "engine=trl", f"output_dir={folder}", *overrides)  # fmt: skip
    config.backend.name = "unsloth" if side == "unsloth" else "transformers"
    rows = [
        {"id": str(i), "prompt": f"<user>{i}+{i % 7}=?<assistant>", "answer": "1", "kind": "math"}
        for i in range(8)
    ]
    policy = policy_as_unsloth_loads_it(config)
    kept: list[list[int]] = []

    sampling = config.sampling

    class Spy(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            warm_up(trainer, sampling.max_prompt_length, sampling.max_completion_length)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            kept.append(trainer.newest.selection.kept.tolist())

    trainer = build_trainer(config, policy, Dataset.from_list(rows), letters(), None, Clock())
    trainer.add_callback(Spy())
    # A sampled pad would leave Unsloth's loss (masks are rebuilt as ids != pad), not TRL's.
    trainer.generation_config.suppress_tokens = [policy.tokenizer.pad_token_id]
    return trainer, kept


def run(side: str, case: str, folder: str) -> dict[str, Any]:
    trainer, kept = build(folder, CASES[case], side)
    generated, generate = [], trainer._generate_single_turn

    def spy(prompt_ids: list, *rest: Any) -> Any:
        generated.append(len(prompt_ids))
        return generate(prompt_ids, *rest)

    trainer._generate_single_turn = spy
    prompt, completion = [22, 17, 23, 35], [23, 6, 24, 25, 1]
    logprobs = trainer.token_logprobs(prompt, completion).tolist()
    before = {k: v.clone() for k, v in trainer.model.state_dict().items() if "lora_B" in k}
    trainer.train()
    history = [line for line in trainer.state.log_history if "loss" in line]
    after = trainer.model.state_dict()
    saved = Path(folder) / case / side
    trainer.save_model(str(saved), _internal_call=True)
    return {
        "generated": generated,
        "kept": kept,
        "logprobs": logprobs,
        "loss": [line["loss"] for line in history],
        "grad_norm": [line["grad_norm"] for line in history],
        "moved": sum((after[k] - v).abs().sum().item() for k, v in before.items()),
        "saved": sorted(path.name for path in saved.glob("adapter_*")),
        "arguments": {key: repr(value) for key, value in trainer.args.to_dict().items()},
    }


def loader_signatures() -> dict[str, Any]:
    """Parameters of the functions that load_unsloth calls, and vLLM's default that it avoids."""
    from unsloth import FastLanguageModel
    from unsloth_zoo.vllm_utils import load_vllm

    engine = inspect.signature(load_vllm).parameters
    return {
        "from_pretrained": list(inspect.signature(FastLanguageModel.from_pretrained).parameters),
        "get_peft_model": list(inspect.signature(FastLanguageModel.get_peft_model).parameters),
        "load_vllm": list(engine),
        "default_sequences": engine["max_num_seqs"].default,
    }


def engine_arguments_survive(folder: str) -> bool:
    """The arguments of a run with a vLLM engine, passed through the config class as it is now."""
    from pods.models.policy import Policy
    from pods.trainer import PodsConfig
    from pods.training.build import refuse_changes, trl_arguments
    from tests.configs import compose

    config = compose("experiment=gsm8k_qwen", "engine=unsloth", f"output_dir={folder}")
    policy = Policy(None, None, None, "unsloth", "cpu", "float32", [1])  # bfloat16 needs a GPU
    wanted = trl_arguments(config, policy)
    refuse_changes(PodsConfig(**wanted), wanted)  # raises
    return True


def main(side: str, folder: str) -> None:
    if side == "unsloth":
        import_rewritten(folder)
    import torch
    import trl
    from trl.generation.vllm_generation import VLLMGeneration

    torch.set_num_threads(1)
    result = {
        "class": trl.GRPOTrainer.__name__,
        "signatures": {
            name: list(inspect.signature(getattr(trl.GRPOTrainer, name)).parameters)
            for name in METHODS
        },
        # Unsloth injects the adapter in this method; where its patch fails it only logs.
        "adapter_injected": hasattr(VLLMGeneration.generate, "__wrapped__"),
        "loader": loader_signatures() if side == "unsloth" else None,
        "engine_arguments_survive": engine_arguments_survive(folder),
        "cases": {case: run(side, case, folder) for case in CASES},
    }
    if side == "unsloth":
        result["gpu_path"] = gpu_path.checks(Path(folder))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
