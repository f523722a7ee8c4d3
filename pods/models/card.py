"""What a training takes on a card, from the model's shape: `train.py trial=true card=l40s`. Imports
no torch, reads no weights.

Bytes (2^30 of them are a GiB), for a base of L weights in the layers and V H in the head:

    weights       16 bits: 2 (L + V H); 4 bits: 0.516 L + 2 V H (NF4, and 8 bits for 64 weights)
    adapter       trained weights, gradients and moments: (4 + 4 + 2) A, A = rank times the sum of
                  inputs and outputs of its matrices; moments are 8 A without 8-bit AdamW
    kv_cache      4 layers key_width (rows completion + P prompt): vLLM shares a question's prompt
    logits        18 V for each token of a chunk, of which Unsloth makes 4 a row of a micro-batch
                  (UNSLOTH_GRPO_LOGPROB_RECOMPUTE=1); 6 V for each token elsewhere
    activations   of one layer for each token of a micro-batch: 12 intermediate + 32 hidden, counted
                  as in Korthikanti et al. (arXiv 2205.05198), for a gated MLP; Unsloth keeps the
                  inputs of the layers in the CPU's memory, others keep 2 hidden a layer
    runtime       2 GiB: CUDA, its graphs and the engine's buffers

Seconds of a step:

    generate      longest completion x (bytes read / bandwidth + kernels x 2 us): the weights, keys
                  and values of all rows, the adapter in 16 bits. Above a number of rows
                  bitsandbytes writes 4-bit weights out in 16 bits and reads them again: 4.5 L
    update        operations / (0.21 of what a product reaches): for a token 2 L forward, 2 L in the
                  recomputation, 2 L backward, and 6 V H for a token of a completion
    score         0.5 ms a rollout

0.21 is what an H200 was seen to reach with Unsloth (docs/gpu.md); 37 kernels a layer with 4-bit
weights and 16 with 16-bit ones are counted in the sources of vLLM 0.28. The 2 us of a kernel were
chosen with the published steps in view (docs/gpu.md): an estimate, not a validated model.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.paths import CONFIG_DIR

GIB = 2**30
NF4 = 0.516  # bytes of a weight
UTILISATION = 0.21  # of a product's TFLOP/s, in an update
KERNEL_SECONDS = 2e-6
KERNELS = {True: 37, False: 16}  # of a layer and decode step: with 4-bit weights or not
RUNTIME_GIB = 2.0
SCORE_SECONDS = 0.0005
PROMPT_SHARE = 0.25  # of sampling.max_prompt_length: an assumption for the seconds
REMEDIES = {
    "weights": "take a smaller model, or model.load_in_4bit=true",
    "adapter": "lower lora.rank",
    "kv_cache": "lower max_sequences",
    "logits": "lower micro_batch_size",
    "activations": "lower micro_batch_size",
    "runtime": "take a larger card",
}


@dataclass(frozen=True)
class Card:
    """A card: memory, what a copy and a bfloat16 product reach, and how bitsandbytes 0.50 takes 4
    bits: up to `rows` rows this share of the weights is multiplied without being written out."""

    gib: float
    bandwidth: float  # bytes/s
    operations: float  # /s
    rows: int
    share: float


TABLES = yaml.safe_load((CONFIG_DIR / "_cards.yaml").read_text())
CARDS = {name: Card(**values) for name, values in TABLES["cards"].items()}


@dataclass(frozen=True)
class Shape:
    """The sizes of a dense decoder."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of each matrix of a layer."""
        query = self.num_attention_heads * self.head_dim
        key = self.num_key_value_heads * self.head_dim
        hidden, wide = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (query, hidden),
            "k_proj": (key, hidden),
            "v_proj": (key, hidden),
            "o_proj": (hidden, query),
            "gate_proj": (wide, hidden),
            "up_proj": (wide, hidden),
            "down_proj": (hidden, wide),
        }

    @property
    def layers(self) -> int:
        """The weights of all layers."""
        return self.num_hidden_layers * sum(a * b for a, b in self.matrices.values())

    @property
    def head(self) -> int:
        """The weights of the head."""
        return self.vocab_size * self.hidden_size

    @property
    def embeddings(self) -> int:
        """Head and embedding."""
        return self.head if self.tie_word_embeddings else 2 * self.head

    def adapter(self, rank: int, targets: list[str]) -> int:
        """The weights of a LoRA adapter."""
        widths = [sum(self.matrices[name]) for name in targets if name in self.matrices]
        return self.num_hidden_layers * rank * sum(widths)


SHAPES = {path: Shape(*sizes) for path, sizes in TABLES["shapes"].items()}  # by hub id


def shape_of(path: str, location: str) -> Shape:
    """The shape of the model `path`: of SHAPES, or of the config.json of a folder or a hub id.

    location: its folder, if there is one, else the hub id. Raises UserError.
    """
    if path in SHAPES:
        return SHAPES[path]
    try:
        file = Path(location) / "config.json"
        if not Path(location).is_dir():
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(location, "config.json"))
        values = json.loads(file.read_text())
        values = values.get("text_config", values)
        if any("experts" in name for name in values):
            raise KeyError("single MLP a layer, but experts")
        heads, hidden = values["num_attention_heads"], values["hidden_size"]
        return Shape(
            hidden,
            values["intermediate_size"],
            values["num_hidden_layers"],
            heads,
            values.get("num_key_value_heads") or heads,
            values.get("head_dim") or hidden // heads,
            values["vocab_size"],
            values.get("tie_word_embeddings", True),
        )
    except KeyError as error:
        raise UserError(
            f"model.path={path}: card= estimates dense decoders, and its config.json has no "
            f"{error}; run trial=true on the card"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"model.path={path}: cannot read its config.json ({reason}); name a model folder or a "
            "hub id that this machine can reach"
        ) from None


def trained_weights(config: TrainConfig, shape: Shape) -> int:
    """The number of weights that are trained."""
    if config.lora.rank is None:
        return shape.layers + shape.embeddings
    return shape.adapter(config.lora.rank, config.lora.target_modules)


def rows_at_once(config: TrainConfig) -> int:
    """The number of completions that are generated at once."""
    rollouts = config.rollouts_per_prompt * config.prompts_per_step
    return min(config.max_sequences or rollouts, rollouts)


def memory(config: TrainConfig, shape: Shape) -> dict[str, float]:
    """Peak GiB by part, of a step at the longest prompts and completions."""
    possible = config.model.dtype == "bfloat16" and config.lora.rank is not None
    unsloth = config.backend == "unsloth" or (config.backend == "auto" and possible)
    width = 4 if config.lora.rank is None or config.model.dtype == "float32" else 2  # bytes
    weights = width * (shape.layers + shape.embeddings)
    if config.model.load_in_4bit:
        weights = NF4 * shape.layers + 2 * shape.embeddings
    if config.engine == "vllm":  # its own copy of the base
        weights *= 2

    trained = trained_weights(config, shape)
    moments = 2 if config.optimizer.name == "auto" or "8bit" in config.optimizer.name else 8
    state = (4 + moments) * trained  # gradients, moments
    if config.lora.rank is not None:
        state += 4 * trained

    prompt, completion = config.sampling.max_prompt_length, config.sampling.max_completion_length
    held = rows_at_once(config) * completion + config.prompts_per_step * prompt  # tokens
    key_width = shape.num_key_value_heads * shape.head_dim

    batch = config.micro_batch_size
    logits = 6 * batch * completion * shape.vocab_size
    if unsloth:
        logits = 18 * completion / 4 * shape.vocab_size
    layer = 12 * shape.intermediate_size + 32 * shape.hidden_size
    kept = 0 if unsloth else 2 * shape.hidden_size * shape.num_hidden_layers
    if not config.gradient_checkpointing:
        kept = layer * (shape.num_hidden_layers - 1)
    return {
        "weights": weights / GIB,
        "adapter": state / GIB,
        "kv_cache": 4 * shape.num_hidden_layers * key_width * held / GIB,
        "logits": logits / GIB,
        "activations": batch * (prompt + completion) * (layer + kept) / GIB,
        "runtime": RUNTIME_GIB,
    }


def seconds(
    config: TrainConfig, shape: Shape, card: Card, prompt: float, mean: float, longest: float
) -> dict[str, float]:
    """Seconds of a step by phase; prompt, mean, longest: tokens of a prompt, of a mean completion
    and of the longest one of a step."""
    # What a decode step reads and writes, in the middle of a generation.
    rollouts = config.rollouts_per_prompt * config.prompts_per_step
    at_once = rows_at_once(config)
    weights = 2 * shape.layers
    if config.model.load_in_4bit:
        packed = card.share if at_once <= card.rows else 0.0
        weights = shape.layers * (NF4 + 4 * (1 - packed))
    active = at_once * mean / longest
    context = active * (prompt + longest / 2)
    key_width = shape.num_key_value_heads * shape.head_dim
    cache = 4 * shape.num_hidden_layers * key_width * context
    adapter = 2 * trained_weights(config, shape) if config.lora.rank else 0
    kernels = KERNELS[config.model.load_in_4bit] * shape.num_hidden_layers
    bytes_moved = weights + 2 * shape.head + cache + adapter
    decode = bytes_moved / card.bandwidth + KERNEL_SECONDS * kernels

    rows = config.kept_per_prompt * config.prompts_per_step
    passes = 2 + config.gradient_checkpointing  # forward, backward, recomputation
    if config.lora.rank is None:
        passes += 1  # the gradients of the weights
    if config.loss.beta:
        passes += 1  # the reference
    in_layers = 2 * passes * shape.layers * rows * (prompt + mean)
    in_head = 6 * shape.head * rows * mean
    updates = config.updates_per_generation * (in_layers + in_head)
    return {
        "generate": math.ceil(rollouts / at_once) * longest * decode,
        "score": SCORE_SECONDS * rollouts,
        "update": updates / (UTILISATION * card.operations),
    }


def problem(config: TrainConfig, parts: dict[str, float], card: Card) -> str:
    """Why the training does not fit, and what to set; "" if it does."""
    needed = sum(parts.values())
    if needed > card.gib:
        largest = max(parts, key=lambda name: parts[name])
        return f"{needed:.1f} GiB are needed, the card has {card.gib:g}: {REMEDIES[largest]}"
    share = config.vllm.gpu_memory_utilization
    base = parts["weights"] / (2 if config.engine == "vllm" else 1)
    others = needed - base - parts["kv_cache"]
    if config.lora.rank is None or config.model.dtype == "float32":
        return ""  # transformers generates
    key = f"vllm.gpu_memory_utilization={share:g}"
    if share * card.gib < base:
        return f"{key}: the base alone has {base:.1f} GiB; set {base / card.gib + 0.1:.2f} or more"
    if share * card.gib + others > card.gib:
        return f"{key}: {others:.1f} GiB are needed beside it; set {1 - others / card.gib:.2f}"
    return ""


def estimate(config: TrainConfig, location: str) -> dict[str, Any]:
    """What `json=true` prints; location: of the model. Raises UserError for an unknown shape."""
    card = CARDS[str(config.card)]
    shape = shape_of(config.model.path, location)
    limit = config.sampling.max_completion_length
    prompt = PROMPT_SHARE * config.sampling.max_prompt_length
    parts = memory(config, shape)
    phases = seconds(config, shape, card, prompt, mean=limit, longest=limit)
    reason = problem(config, parts, card)
    return {
        "card": config.card,
        "fits": not reason,
        "problem": reason,
        "peak_gib": round(sum(parts.values()), 2),
        "parts_gib": {name: round(value, 2) for name, value in parts.items()},
        "seconds_per_step": round(sum(phases.values()), 2),
        "phases": {name: round(value, 3) for name, value in phases.items()},
        "assumptions": [
            f"all completions have {limit} tokens, prompts {prompt:.0f}: real steps are shorter",
            "memory at the longest prompts and completions, one card, one round of generation",
            "vLLM generates with CUDA graphs, and nothing else runs on the card",
            f"an update reaches {UTILISATION:.0%} of {card.operations / 1e12:g} TFLOP/s, a decode "
            f"step reads {card.bandwidth / 1e12:g} TB/s; estimates, see pods/models/card.py",
        ],
    }


def report(config: TrainConfig, location: str) -> str:
    """An estimate as one JSON object with json=true, else as lines."""
    result = estimate(config, location)
    if config.as_json:
        return json.dumps(result)
    lines = [f"{config.card}: {'fits' if result['fits'] else result['problem']}"]
    lines.append(f"peak {result['peak_gib']:.1f} GiB of {CARDS[result['card']].gib:g}")
    lines += [f"  {name:12}{value:7.2f}" for name, value in result["parts_gib"].items()]
    lines.append(f"{result['seconds_per_step']:.1f} seconds a step")
    lines += [f"  {name:12}{value:7.2f}" for name, value in result["phases"].items()]
    lines += [f"assumed: {assumption}" for assumption in result["assumptions"]]
    return "\n".join(lines)
