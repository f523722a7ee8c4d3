"""How much of each card one training step takes: an estimate from the config and the model's shape.

Weights, adapter, optimiser and KV cache are counted exactly; activations and logits are formulae
(each beside its term), good to some 20 %; the engine's own overhead is a constant. Compare with the
metrics peak_memory_gib/* of a run. Read by `uv run scripts/doctor.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pods.cli import UserError
from pods.config import TrainConfig
from pods.policy import ROOT, locate, trl_engine

GIB = 2**30
SHAPES = ROOT / "benchmarks" / "shapes"  # config.json of models that are not on this machine
NF4_BYTES = 0.5 + 4 / 64  # per weight: 4 bits and a float32 scale for each block of 64
ENGINE_OVERHEAD = 1.5 * GIB  # vLLM's workspaces and CUDA graphs
CONTEXT = 0.5 * GIB  # the CUDA context
LOGIT_BYTES = 10  # per logit in an update: bfloat16, scaled float32 and its gradient
CARDS = {"RTX 4090": 24.0, "L40S": 44.5, "A6000": 47.5, "A100-80GB": 79.3}  # GiB a process sees


@dataclass
class Term:
    """One row of the table: what takes the bytes, in which phase, and what lowers them."""

    name: str
    bytes: float
    phase: str  # always | generate | update
    remedy: str  # keys of the config as a rule; "-": nothing but another engine


@dataclass
class Shape:
    """What the formulae need of a model."""

    linear: int  # weights of the linear layers inside the blocks: quantised in 4-bit
    rest: int  # embeddings, norms, an untied output layer: always 16-bit (float32 where so set)
    adapter: int  # weights of the LoRA adapter
    layers: int
    hidden: int
    intermediate: int
    kv_width: int  # key-value heads x head size
    vocabulary: int

    @property
    def parameters(self) -> int:
        return self.linear + self.rest


def model_config(config: TrainConfig) -> Any:
    """The model's architecture: its config.json where it is, else benchmarks/shapes/<model.name>.

    Raises UserError where neither is there.
    """
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(locate(config.model.path), trust_remote_code=False)
    except (OSError, ValueError, UserError):
        pass
    shape = SHAPES / f"{config.model.name}.json"
    if not shape.is_file():
        raise UserError(f"model.path={config.model.path}: cannot be read, and {shape} is not there")
    return shape_config(shape)


def shape_config(path: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**json.loads(path.read_text()))


def shape_of(architecture: Any, config: TrainConfig) -> Shape:
    """Counts from the real modules, built without memory on torch's meta device."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architecture)
    total = sum(parameter.numel() for parameter in model.parameters())  # tied ones once
    linear = adapter = 0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            linear += module.weight.numel()
            if config.lora.rank and name.rsplit(".", 1)[-1] in config.lora.target_modules:
                adapter += config.lora.rank * (module.in_features + module.out_features)
    heads = architecture.num_attention_heads
    head = getattr(architecture, "head_dim", None) or architecture.hidden_size // heads
    return Shape(
        linear=linear,
        rest=total - linear,
        adapter=adapter,
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        intermediate=architecture.intermediate_size,
        kv_width=architecture.num_key_value_heads * head,
        vocabulary=architecture.vocab_size,
    )


def estimate(
    config: TrainConfig, shape: Shape, backend: str, ranks: int = 1, zero: int = 0
) -> list[Term]:
    """The terms of one step on `backend` (transformers | unsloth), in bytes on each card.

    ranks: processes, a card each; zero: the stage of DeepSpeed's ZeRO, what it divides among them.
    """
    wide = 4 if config.model.dtype == "float32" else 2
    trained = shape.adapter or shape.parameters
    gradients = 8 * shape.adapter or wide * shape.parameters  # an adapter is float32, and new
    state = 2 if config.optimizer.name == "adamw_8bit" else 8  # two moments, of 1 or 4 bytes
    if zero and wide == 2:
        state += 4  # DeepSpeed's float32 master weights
    lower_weights = "a smaller model" if config.model.load_in_4bit else "model.load_in_4bit=true"
    lower_gradients, lower_state = "lora.rank", "optimizer.name=adamw_8bit, lora.rank"
    if not shape.adapter:
        lower_weights = "more processes (config/accelerate/zero3.yaml)"
        lower_gradients = lower_state = "more processes (config/accelerate/zero2.yaml)"
    linear = shape.linear * (NF4_BYTES if config.model.load_in_4bit else wide)
    base = linear + shape.rest * wide
    of_state, of_gradients, of_weights = (ranks if zero >= stage else 1 for stage in (1, 2, 3))
    terms = [
        Term("base weights", base / of_weights, "always", lower_weights),
        Term("trained weights and gradients", gradients / of_gradients, "always", lower_gradients),
        Term("optimiser", state * trained / of_state, "always", lower_state),
    ]
    return [
        *terms,
        *generate_terms(config, shape, backend, ranks, wide),
        *update_terms(config, shape, backend, wide),
    ]


def engine(config: TrainConfig, backend: str) -> str | None:
    """Whose weights a vLLM on the trainer's card reads: the trainer's own ("shared", Unsloth), a
    "copy" (TRL), or None without one."""
    if backend == "unsloth":
        return None if config.backend.engine == "generate" else "shared"
    return "copy" if trl_engine(config) == "vllm" else None


def generate_terms(
    config: TrainConfig, shape: Shape, backend: str, ranks: int, wide: int
) -> list[Term]:
    """Cache of a rank's share of the rollouts, and its engine; none where a server generates."""
    if backend != "unsloth" and trl_engine(config) == "vllm_server":
        return []
    prompt, completion = config.sampling.max_prompt_length, config.sampling.max_completion_length
    n, prompts = config.rollouts_per_prompt, config.prompts_per_step / ranks
    vllm = engine(config, backend)
    # Keys and values of every layer; with vLLM the n rollouts of a prompt share its prefix.
    tokens = prompts * (prompt + n * completion) if vllm else prompts * n * (prompt + completion)
    cache = 2 * shape.layers * shape.kv_width * wide * tokens
    terms = [Term("KV cache of n rollouts", cache, "generate", "rollouts_per_prompt")]
    if vllm == "copy":
        terms.append(Term("engine's weights", wide * shape.parameters, "generate", "-"))
    if vllm:
        copy = 2 * shape.adapter  # the engine's bfloat16 copy
        terms.append(Term("engine", ENGINE_OVERHEAD + copy, "generate", "-"))
    return terms


def update_terms(config: TrainConfig, shape: Shape, backend: str, wide: int) -> list[Term]:
    """Activations and logits of a micro-batch. One layer holds, per token, about 6 tensors of the
    hidden width and 4 of the intermediate one, and half as much again of their gradients."""
    sampling, size = config.sampling, config.micro_batch_size
    tokens = size * (sampling.max_prompt_length + sampling.max_completion_length)
    layer = 1.5 * tokens * (6 * shape.hidden + 4 * shape.intermediate) * wide
    if config.backend.gradient_checkpointing:
        # Only each layer's input is kept, with Unsloth in the host's memory.
        kept = 0 if backend == "unsloth" else shape.layers * tokens * shape.hidden * wide
    else:
        kept = (shape.layers - 1) * layer / 1.5
    # Unsloth takes the logits of one sequence at a time, TRL those of the micro-batch.
    rows = 1 if backend == "unsloth" else size
    logits = LOGIT_BYTES * rows * (sampling.max_completion_length + 1) * shape.vocabulary
    return [
        Term("activations of a micro-batch", layer + kept, "update", "micro_batch_size"),
        Term("logits", logits, "update", "micro_batch_size"),
    ]


def peak_reader() -> Callable[[], float] | None:
    """What Clock.peak wants: GiB at most in use since the last call; None without a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        return None

    def read() -> float:
        most = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return most

    return read


def phases(terms: list[Term]) -> dict[str, float]:
    """Bytes at the peak of each phase: what is always there, and the phase's own."""
    always = sum(term.bytes for term in terms if term.phase == "always") + CONTEXT
    return {
        phase: always + sum(term.bytes for term in terms if term.phase == phase)
        for phase in ("generate", "update")
    }


def advice(config: TrainConfig, terms: list[Term], card: float, backend: str) -> str | None:
    """What to change so that a step fits a card of `card` bytes, or None where it does."""
    vllm = engine(config, backend)
    if vllm and not config.backend.standby:
        # vLLM reserves its share for good: weights and engine must fit into it (rollouts whose
        # cache does not fit wait their turn), the rest of training beside it.
        share = config.backend.gpu_memory_utilization * card
        size = {term.name: term.bytes for term in terms}
        weights = size["base weights" if vllm == "shared" else "engine's weights"]
        of_engine = weights + size["engine"]
        beside = phases(terms)["update"] - (weights if vllm == "shared" else 0)
        if of_engine >= share:
            return (
                f"vLLM needs {of_engine / GIB:.1f} GiB before any cache and gets "
                f"{share / GIB:.1f}: raise backend.gpu_memory_utilization"
            )
        if beside > card - share:
            return (
                f"training needs {beside / GIB:.1f} GiB, vLLM leaves {(card - share) / GIB:.1f}; "
                "lower micro_batch_size, then backend.gpu_memory_utilization"
            )
        return None
    phase, most = max(phases(terms).items(), key=lambda item: item[1])
    if most <= card:
        return None
    there = [t for t in terms if t.phase in ("always", phase) and t.remedy != "-"]
    largest = max(there, key=lambda term: term.bytes)
    return (
        f"{phase} needs {most / GIB:.1f} GiB of {card / GIB:.1f}, {largest.name} takes "
        f"{largest.bytes / GIB:.1f}; lower it with {largest.remedy}"
    )
