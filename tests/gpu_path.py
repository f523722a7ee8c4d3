"""What tests/unsloth_drift.py does on both sides, imported after Unsloth, which must come first.

The engine of engine=unsloth is replaced by one that samples under exactly the tensors that it is
handed.
"""

import copy
import functools
import inspect
import os
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from datasets import Dataset
from peft import get_peft_model
from transformers import TrainerCallback, set_seed
from trl.generation import vllm_generation

from pods.clock import Clock
from pods.config.keys import TrainConfig
from pods.engines import Limits, LivePolicy, Request, Work
from pods.engines.choose import sampling
from pods.engines.transformers import TransformersEngine
from pods.models.policy import Policy, load_tokenizer, load_transformers
from pods.runs import checkpoints
from pods.trainer import PodsConfig
from pods.training.build import build_trainer, refuse_changes, trl_arguments
from pods.training.warm_up import warm_up
from tests.configs import compose
from tests.unsloth_drift import CASES

torch.set_num_threads(1)
METHODS = ("_generate_and_score_completions", "_generate_single_turn", "_get_train_sampler")
PARAMS = (
    "n", "temperature", "max_tokens", "top_k", "logprobs", "stop_token_ids", "ignore_eos",
)  # fmt: skip
SIZES = ["kept_per_prompt=4", "prompts_per_step=2", "max_steps=3", "sampling.temperature=0.9"]


def classes(folder: str) -> dict[str, Any]:
    """The trainer's class and methods; also passes the arguments of a run with a vLLM engine
    through the config class as it is now."""
    config = compose("experiment=gsm8k_qwen", "engine=unsloth", f"output_dir={folder}")
    policy = Policy(None, None, None, "unsloth", "cpu", "float32", [1])  # bfloat16 needs a GPU
    wanted = trl_arguments(config, policy)
    refuse_changes(PodsConfig(**wanted), wanted)  # raises
    methods = {name: inspect.signature(getattr(trl.GRPOTrainer, name)) for name in METHODS}
    generate = vllm_generation.VLLMGeneration.generate
    return {
        "class": trl.GRPOTrainer.__name__,
        "signatures": {name: list(signature.parameters) for name, signature in methods.items()},
        # Unsloth injects the adapter in this method; where its patch fails it only logs.
        "adapter_injected": hasattr(generate, "__wrapped__"),
    }


def rewards() -> Any:
    """They differ between completions, so that a mix-up of rows changes the loss."""

    def letters(completions: list[str], **_: Any) -> list[float]:
        return [float(sum(map(ord, text)) % 17) for text in completions]

    def length(completions: list[str], **_: Any) -> list[float]:
        return [-0.01 * len(text) for text in completions]

    weights = {"letters": 1.0, "length": 0.5}
    return SimpleNamespace(functions=[letters, length], weights=weights, grader=None)


def policy_as_unsloth_loads_it(config: TrainConfig) -> Policy:
    """What load_unsloth returns on a GPU: the adapter applied, two methods on the model."""
    policy = load_transformers(config, load_tokenizer(config.model.path))
    set_seed(config.seed)
    policy.model = get_peft_model(policy.model, policy.peft_config)
    policy.model.for_training = lambda *_, **__: policy.model.train()
    policy.model.for_inference = lambda *_, **__: policy.model.eval()
    policy.model.max_seq_length = 512
    policy.model._unsloth_gradient_checkpointing = False
    policy.peft_config, policy.backend = None, config.backend.name
    return policy


def trainer_of(config: TrainConfig, policy: Policy, folder: Path) -> tuple[Any, list[dict]]:
    """A trainer with train.py's warm-up, and what each of its steps will have kept and checked."""
    steps: list[dict] = []

    class Loop(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            limits = config.sampling
            warm_up(trainer, limits.max_prompt_length, limits.max_completion_length)

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            guarded = getattr(trainer.sampler.engine, "metrics", {})
            steps.append({"kept": trainer.newest.selection.kept.tolist(), **guarded})
            if state.global_step == 2 and not (folder / "checkpoint-2").is_dir():
                checkpoints.write(trainer, folder, {})

    rows = [{"id": str(i), "prompt": f"<user>{i}+{i % 7}=?<assistant>"} for i in range(8)]
    data = Dataset.from_list([row | {"answer": "1", "kind": "math"} for row in rows])
    trainer = build_trainer(config, policy, data, rewards(), None, Clock())
    trainer.add_callback(Loop())
    return trainer, steps


def adapter_of(trainer: Any) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trainer.model.state_dict().items() if "lora_" in k}


def losses(trainer: Any, name: str = "loss") -> list[float]:
    return [line[name] for line in trainer.state.log_history if "loss" in line]


def case(side: str, name: str, folder: Path) -> dict[str, Any]:
    """Three steps of a case, generated by transformers."""
    folder = folder / name / side
    folder.mkdir(parents=True)
    sizes = ["rollouts_per_prompt=16", "sampling.max_completion_length=24", "engine=trl"]
    config = compose(*SIZES, *sizes, f"output_dir={folder}", *CASES[name])
    config.backend.name = "unsloth" if side == "unsloth" else "transformers"
    policy = policy_as_unsloth_loads_it(config)
    trainer, steps = trainer_of(config, policy, folder)
    # A sampled pad would leave Unsloth's loss (masks are rebuilt as ids != pad), not TRL's.
    trainer.generation_config.suppress_tokens = [policy.tokenizer.pad_token_id]
    generated, generate = [], trainer._generate_single_turn

    def spy(prompt_ids: list, *rest: Any) -> Any:
        generated.append(len(prompt_ids))
        return generate(prompt_ids, *rest)

    trainer._generate_single_turn = spy
    logprobs = trainer.token_logprobs([22, 17, 23, 35], [23, 6, 24, 25, 1]).tolist()
    before = adapter_of(trainer)
    trainer.train()
    after = adapter_of(trainer)
    return {
        "generated": generated,
        "kept": [step["kept"] for step in steps],
        "logprobs": logprobs,
        "loss": losses(trainer),
        "grad_norm": losses(trainer, "grad_norm"),
        "moved": sum((after[k] - v).abs().sum().item() for k, v in before.items()),
        "saved": sorted(path.name for path in folder.glob("checkpoint-2/adapter_*")),
        "arguments": {key: repr(value) for key, value in trainer.args.to_dict().items()},
    }


class Engine:
    """In place of Unsloth's vLLM: samples under the adapter in the request, and notes the calls."""

    shared_weights = True  # as Unsloth marks its engine

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        self.copy = copy.deepcopy(policy.model)
        self.engine = TransformersEngine(config, policy.tokenizer, sampling(config), Limits())
        self.calls: list[Any] = []

    def generate(self, prompts: list, sampling_params: Any, use_tqdm: bool, lora_request: Any):
        self.calls.append(SimpleNamespace(params=sampling_params, lora=lora_request))
        tensors = lora_request.lora_tensors.items()
        adapter = {name.replace(".weight", ".default.weight"): value for name, value in tensors}
        assert not self.copy.load_state_dict(adapter, strict=False).unexpected_keys
        seeds = torch.randint(2**62, (len(prompts),)).tolist()
        asked = [Request(p["prompt_token_ids"], [s]) for p, s in zip(prompts, seeds, strict=True)]
        live = LivePolicy(self.copy, len(self.calls))
        work = Work(asked, live, None, sampling_params.ignore_eos)
        ((_, groups),) = self.engine.generate([work], logprobs=True)
        return [self._output(r, c) for r, (c,) in zip(asked, groups, strict=True)]

    def _output(self, request: Request, completion: Any) -> Any:
        from vllm.logprobs import Logprob

        pairs = zip(completion.token_ids, completion.logprobs, strict=True)
        logprobs = [{token: Logprob(value, 1, None)} for token, value in pairs]
        output = SimpleNamespace(token_ids=completion.token_ids, logprobs=logprobs)
        return SimpleNamespace(prompt_token_ids=request.prompt, outputs=[output])


def on_the_engine(folder: Path, *overrides: str) -> tuple[Any, Engine, list[dict]]:
    """Our trainer in Unsloth's, with the engine above where Unsloth puts vLLM."""
    from unsloth_zoo import vllm_utils

    from pods.models import unsloth

    config = compose(
        *SIZES, "rollouts_per_prompt=8", "engine=unsloth", f"output_dir={folder}",
        "sampling.max_completion_length=16", "sampling.max_prompt_length=32",
        "optimizer.name=adamw_8bit", *overrides,
    )  # fmt: skip
    config.backend.name = "unsloth"
    policy = policy_as_unsloth_loads_it(config)
    policy.model.vllm_engine = engine = Engine(policy, config)
    policy.model.load_lora = functools.partial(vllm_utils.load_lora, policy.model)
    unsloth.use_temporary_folder(policy.model)
    trainer, steps = trainer_of(config, policy, folder)
    return trainer, engine, steps


def training(folder: Path, correction: bool) -> dict[str, Any]:
    """Three steps; uncorrected, the third again from the checkpoint of the second."""
    folder.mkdir()
    setting = f"engine.importance_sampling_correction={correction}"
    with chdir(folder):  # where Unsloth would leave its folder
        trainer, engine, steps = on_the_engine(folder, setting)
        fresh = adapter_of(trainer)
        trainer.train()
        again = whole = adapter_of(trainer)
        if not correction:
            resumed, *_ = on_the_engine(folder, setting)
            resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
            again = adapter_of(resumed)
    moments = [state for state in trainer.optimizer.state.values() if "state1" in state]
    return {
        "steps": steps,
        "losses": losses(trainer),
        "moved": max((whole[k] - fresh[k]).abs().max().item() for k in whole),
        "resumed_differs_by": max((whole[k] - again[k]).abs().max().item() for k in whole),
        "moment_types": sorted({str(state["state1"].dtype) for state in moments}),
        "packing": trainer.packing(),
        "lora_ids": [call.lora.lora_int_id for call in engine.calls],
        "lora_shape": [engine.calls[0].lora.lora_config[k] for k in ("r", "lora_alpha")],
        "params": {name: getattr(engine.calls[-1].params, name) for name in PARAMS},
        "left_in_the_working_folder": sorted(os.listdir(folder)),
    }


def unsloth_alone(folder: Path) -> dict[str, Any]:
    """What only Unsloth's side has: its loaders, and training on its engine."""
    from unsloth import FastLanguageModel
    from unsloth_zoo.vllm_utils import load_vllm, patch_vllm

    patch_vllm(debug=False)
    vllm_generation.DistributedBackend = lambda accelerator: None
    loaders = (FastLanguageModel.from_pretrained, FastLanguageModel.get_peft_model, load_vllm)
    return {
        "loader": {f.__name__: list(inspect.signature(f).parameters) for f in loaders},
        "default_sequences": inspect.signature(load_vllm).parameters["max_num_seqs"].default,
        "training": {
            "uncorrected": training(folder / "uncorrected", False),
            "corrected": training(folder / "corrected", True),
        },
    }
