"""Checks of the GPU path without a GPU, in the process of tests/unsloth_drift.py.

Each runs the pinned Unsloth and vLLM up to the first kernel: which arguments reach the engine, how
the live adapter reaches it, and three steps of training on an engine that samples under exactly the
tensors that it was handed. Called in the gpu environment by tests/test_unsloth_drift.py.
"""

import copy
import functools
import importlib.abc
import json
import os
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

GIB = 2**30
SETTINGS = [  # rank 32: smaller matrices keep 32-bit moments in adamw_8bit
    "rollouts_per_prompt=8", "kept_per_prompt=4", "prompts_per_step=2", "max_steps=3",
    "engine=unsloth", "optimizer.name=adamw_8bit", "sampling.temperature=0.9",
    "sampling.max_completion_length=16", "sampling.max_prompt_length=32",
]  # fmt: skip

SAID = {  # by vLLM 0.28
    "no_room": "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "too_long": "(0.14 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(0.02 GiB).",
    "full": "CUDA out of memory. Tried to allocate 2.00 GiB",
    "not_free": "Free memory on device cuda:0 (10.2/44.5 GiB) on startup is less than desired GPU "
    "memory utilization (0.5, 22.3 GiB).",
    "race": "Error in memory profiling. Initial free memory 10 GiB, current free memory 20 GiB.",
    "unknown": "Unsupported LoRA layer",
}


class NoKernels(importlib.abc.MetaPathFinder):
    """vLLM's compiled modules do not load without a driver; Unsloth would then drop vLLM."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        parent, _, module = name.partition(".")
        if parent == "vllm" and (module.startswith("_C") or module == "cumem_allocator"):
            raise ModuleNotFoundError(name)


def hide_kernels() -> None:
    sys.meta_path.insert(0, NoKernels())


def load_engine(folder: Path, **changes: Any) -> Any:
    """Unsloth's loader of vLLM for Qwen2.5-3B-Instruct on a card of 44 GiB."""
    import torch
    from transformers import AutoConfig
    from unsloth_zoo.vllm_utils import load_vllm

    shapes = Path(__file__).parent / "fixtures"
    shape = json.loads((shapes / "qwen2.5-3b-instruct.json").read_text())
    config = AutoConfig.for_model(**shape)
    config.save_pretrained(folder)  # EngineArgs reads it
    card = {"mem_get_info": (44 * GIB, 44.5 * GIB), "get_device_capability": (8, 9)}
    settings = {"gpu_memory_utilization": 0.5, "max_seq_length": 1024, "dtype": torch.bfloat16,
                "enable_lora": True, "max_lora_rank": 64, "max_num_seqs": 64,
                "use_bitsandbytes": True}  # fmt: skip
    with mock.patch.multiple(torch.cuda, **{k: lambda *_, v=v: v for k, v in card.items()}):
        return load_vllm(model_name=str(folder), config=config, **settings | changes)


def engine_arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    """What Unsloth would build vLLM with."""
    from vllm.engine.arg_utils import EngineArgs

    given = load_engine(folder, return_args=True, **changes)
    EngineArgs(**given)  # raises on a name that this vLLM does not know
    kept = ("max_num_seqs", "max_lora_rank", "quantization", "enable_lora", "max_model_len")
    return {name: given.get(name) for name in kept}


def raised_by_unsloth(folder: Path, said: str) -> list[str]:
    """Type and text of what Unsloth raises where vLLM raises ValueError(said)."""
    with mock.patch("vllm.LLM", side_effect=ValueError(said)):
        try:
            load_engine(folder)
        except Exception as error:
            return [type(error).__name__, str(error)]
    raise AssertionError("nothing was raised")


class Engine:
    """In place of Unsloth's vLLM: samples under the adapter in the request, and notes the calls."""

    shared_weights = True  # as Unsloth marks its engine

    def __init__(self, model: Any, config: Any, tokenizer: Any) -> None:
        from pods.engines import Limits
        from pods.engines.choose import sampling
        from pods.engines.transformers import TransformersEngine

        self.copy = copy.deepcopy(model)
        self.engine = TransformersEngine(config, tokenizer, sampling(config), Limits())
        self.calls: list[Any] = []

    def generate(self, prompts: list, sampling_params: Any, use_tqdm: bool, lora_request: Any):
        import torch
        from vllm.logprobs import Logprob

        from pods.engines import LivePolicy, Request, Work

        self.calls.append(SimpleNamespace(params=sampling_params, lora=lora_request))
        handed = {k.replace(".weight", ".default.weight"): v
                  for k, v in lora_request.lora_tensors.items()}  # fmt: skip
        assert not self.copy.load_state_dict(handed, strict=False).unexpected_keys
        seeds = torch.randint(2**62, (len(prompts),)).tolist()
        asked = [Request(p["prompt_token_ids"], [s]) for p, s in zip(prompts, seeds, strict=True)]
        work = Work(asked, LivePolicy(self.copy, len(self.calls)), None, sampling_params.ignore_eos)
        ((_, done),) = self.engine.generate([work], logprobs=True)
        return [
            SimpleNamespace(
                prompt_token_ids=request.prompt,
                outputs=[
                    SimpleNamespace(
                        token_ids=c.token_ids,
                        logprobs=[
                            {t: Logprob(p, 1, None)}
                            for t, p in zip(c.token_ids, c.logprobs, strict=True)
                        ],
                    )
                ],
            )
            for request, (c,) in zip(asked, done, strict=True)
        ]


def trainer_on_the_engine(folder: Path, *overrides: str) -> tuple[Any, Engine]:
    """Our trainer in Unsloth's, with the engine above where Unsloth puts vLLM."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from unsloth_zoo import vllm_utils

    from pods.clock import Clock
    from pods.models import unsloth
    from pods.training.build import build_trainer
    from pods.training.warm_up import warm_up
    from tests.configs import compose
    from tests.unsloth_drift import letters, policy_as_unsloth_loads_it

    config = compose(*SETTINGS, f"output_dir={folder}", *overrides)
    config.backend.name = "unsloth"
    policy = policy_as_unsloth_loads_it(config)
    policy.model.vllm_engine = engine = Engine(policy.model, config, policy.tokenizer)
    policy.model.load_lora = functools.partial(vllm_utils.load_lora, policy.model)
    unsloth.use_temporary_folder(policy.model)
    rows = [
        {"id": str(i), "prompt": f"<user>{i}+{i % 7}=?<assistant>", "answer": "1", "kind": "math"}
        for i in range(8)
    ]

    class Loop(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            sampling = config.sampling
            warm_up(trainer, sampling.max_prompt_length, sampling.max_completion_length)

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            found.append(dict(trainer.sampler.engine.metrics))
            if state.global_step == 2 and not list(folder.glob("checkpoint-2")):
                from pods.runs import checkpoints

                checkpoints.write(trainer, folder, {})

    found: list[dict[str, float]] = []
    trainer = build_trainer(config, policy, Dataset.from_list(rows), letters(), None, Clock())
    trainer.add_callback(Loop())
    trainer.found = found
    return trainer, engine


def adapter_of(trainer: Any) -> dict[str, Any]:
    return {k: v.clone() for k, v in trainer.model.state_dict().items() if "lora_" in k}


def training(folder: Path, correction: bool) -> dict[str, Any]:
    """Three steps; then the third again from the checkpoint of the second."""
    import torch

    folder.mkdir()
    setting = f"engine.importance_sampling_correction={correction}"
    with chdir(folder):  # where Unsloth would leave its folder
        trainer, engine = trainer_on_the_engine(folder, setting)
        fresh = adapter_of(trainer)
        trainer.train()
        resumed, _ = trainer_on_the_engine(folder, setting)
        resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    whole, again = adapter_of(trainer), adapter_of(resumed)
    moments = [state for state in trainer.optimizer.state.values() if "state1" in state]
    return {
        "guard": trainer.found,
        "losses": [line["loss"] for line in trainer.state.log_history if "loss" in line],
        "moved": max((whole[k] - fresh[k]).abs().max().item() for k in whole),
        "resumed_differs_by": max((whole[k] - again[k]).abs().max().item() for k in whole),
        "moment_types": sorted({str(state["state1"].dtype) for state in moments}),
        "packing": trainer.packing(),
        "lora_ids": [call.lora.lora_int_id for call in engine.calls],
        "lora_shape": [engine.calls[0].lora.lora_config[k] for k in ("r", "lora_alpha")],
        "full_length_calls": [call.params.ignore_eos for call in engine.calls],
        "params": {
            name: getattr(engine.calls[-1].params, name)
            for name in ("n", "temperature", "max_tokens", "top_k", "logprobs", "stop_token_ids")
        },
        "left_in_the_working_folder": sorted(os.listdir(folder)),
        "read_by_vllm": loaded_by_vllm(engine.calls[-1].lora, folder / "checkpoint-2"),
        "finite": all(torch.isfinite(v).all().item() for v in whole.values()),
    }


def loaded_by_vllm(request: Any, checkpoint: Path) -> dict[str, Any]:
    """The request's tensors and a checkpoint's adapter, through the loaders of Unsloth and vLLM."""
    import torch
    from unsloth_zoo.vllm_lora_worker_manager import WorkerLoRAManager
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
    supported = [*packed, "o_proj", "down_proj"]
    expected = {part for name in supported for part in packed.get(name, [name])}
    manager = object.__new__(WorkerLoRAManager)
    manager._adapter_manager = SimpleNamespace(
        model=SimpleNamespace(hf_to_vllm_mapper=None),
        supported_lora_modules=supported,
        packed_modules_mapping=packed,
    )
    manager.max_position_embeddings, manager.vocab_size = 1024, 64
    manager.lora_config = SimpleNamespace(
        lora_dtype=torch.bfloat16, max_lora_rank=32, bias_enabled=False
    )
    manager._lora_model_cls = LoRAModel
    live = manager._load_adapter(request)
    helper = PEFTHelper.from_local_dir(str(checkpoint), max_position_embeddings=1024)
    with mock.patch("vllm.lora.lora_model.PIN_MEMORY", False):  # it needs a driver
        saved = LoRAModel.from_local_checkpoint(
            str(checkpoint), expected, peft_helper=helper, lora_model_id=1, device="cpu"
        )
    return {"live": [live.rank, len(live.loras)], "saved": [saved.rank, len(saved.loras)],
            "same_modules": sorted(live.loras) == sorted(saved.loras)}  # fmt: skip


def checks(folder: Path) -> dict[str, Any]:
    """Every result, for tests/test_unsloth_drift.py."""
    from trl.generation import vllm_generation
    from unsloth_zoo.vllm_utils import patch_vllm

    patch_vllm(debug=False)
    vllm_generation.DistributedBackend = lambda accelerator: None
    shape = folder / "shape"
    return {
        "slots": {n: engine_arguments(shape, max_num_seqs=n) for n in (16, 64, 257, 512)},
        "sixteen_bit": engine_arguments(shape, use_bitsandbytes=False),
        "errors": {name: raised_by_unsloth(shape, said) for name, said in SAID.items()},
        "training": {
            name: training(folder / name, correction)
            for name, correction in (("uncorrected", False), ("corrected", True))
        },
    }
