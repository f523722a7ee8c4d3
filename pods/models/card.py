"""What a training takes on a card, from the model's shape: `train.py trial=true card=l40s`. Imports
no torch, reads no weights.

Bytes (2^30 of them are a GiB), for a base of L weights in the layers and V H in the head:

    weights       16 bits: 2 (L + V H); 4 bits: 0.516 L + 2 V H (NF4, and 8 bits for 64 weights)
    adapter       trained weights, gradients and moments: (4 + 4 + 2) A, A = rank times the sum of
                  inputs and outputs of a layer's seven matrices, also if lora.target_modules names
                  fewer; moments are 8 A without 8-bit AdamW
    kv_cache      4 layers key_width (rows completion + P prompt): vLLM shares a question's prompt
    logits        18 V for each token of a chunk, of which Unsloth makes 4 a row of a micro-batch;
                  6 V for each token elsewhere
    activations   of one layer for each token of a micro-batch: 12 intermediate + 32 hidden, counted
                  as in Korthikanti et al. (arXiv 2205.05198), for a gated MLP; Unsloth keeps the
                  inputs of the layers in the CPU's memory, others keep 2 hidden a layer
    runtime       2 GiB: CUDA, its graphs and the engine's buffers

Seconds of a step whose completions all have max_completion_length tokens:

    generate      tokens x bytes read / (0.6 of what a copy reaches): the weights, and the keys and
                  values of all rows. bitsandbytes writes 4-bit weights out in 16 bits and reads
                  them again: 4.5 L
    update        operations / (0.21 of what a product reaches): for a weight and a token 2 forward,
                  2 in the recomputation, 2 backward
    score         0.5 ms a rollout

They are not validated. The published steps on an L40S took 0.6 and 0.9 of the middle, a step on a
busy H200 2.2 times as long (docs/gpu.md): the range is a factor of 2.5 to both sides. The 0.6 were
chosen with both in view; 0.21 is what the H200 reached with Unsloth.
"""

import json
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import ConfigDict, Field
from pydantic_core import from_json

from pods.config.errors import UserError, one_line
from pods.config.keys import Section, TrainConfig
from pods.config.mistakes import validated
from pods.config.paths import CONFIG_DIR

GIB = 2**30
NF4 = 0.516  # bytes of a weight
PRODUCTS = 0.21  # of what a product reaches, in an update
READ = 0.6  # of what a copy reaches, in a decode step
SCORE_SECONDS = 0.0005
SPREAD = 2.5  # of the seconds, to both sides
REMEDIES = {
    "weights": "take a smaller model, or model.load_in_4bit=true",
    "adapter": "lower lora.rank",
    "kv_cache": "lower max_sequences",
    "logits": "lower micro_batch_size",
    "activations": "lower micro_batch_size",
}
ASSUMPTIONS = [
    "the seconds are not validated: no run on a card of its own was compared with them",
    "all completions have sampling.max_completion_length tokens: real steps are shorter",
    "memory is of one card, at the longest prompts and completions, with gradient checkpointing",
    "vLLM generates with CUDA graphs; formulas and sources: pods/models/card.py",
]

Size = Annotated[int, Field(gt=0, lt=2**31)]


class Shape(Section):
    """The sizes of a dense decoder, under the names of its config.json."""

    model_config = ConfigDict(extra="ignore")

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    num_key_value_heads: Size = 0
    head_dim: Size = 0
    tie_word_embeddings: bool = True

    def model_post_init(self, _: object) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        self.head_dim = self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def widths(self) -> int:
        """The widths of a layer's seven matrices, without their hidden sides."""
        heads = self.num_attention_heads + self.num_key_value_heads  # q and o, k and v
        return 2 * heads * self.head_dim + 3 * self.intermediate_size

    @property
    def layers(self) -> int:
        """The weights of all layers."""
        return self.num_hidden_layers * self.hidden_size * self.widths

    @property
    def head(self) -> int:
        """The weights of the head."""
        return self.vocab_size * self.hidden_size

    @property
    def weights(self) -> int:
        """All weights: the layers', the head's and the embedding's."""
        return self.layers + self.head * (1 if self.tie_word_embeddings else 2)

    @property
    def cache(self) -> int:
        """Bytes of the keys and values of a token, in 16 bits."""
        return 4 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    def adapter(self, rank: int) -> int:
        """The weights of a LoRA adapter of every matrix of the layers."""
        return self.num_hidden_layers * rank * (self.widths + 7 * self.hidden_size)


TABLES = yaml.safe_load((CONFIG_DIR / "_cards.yaml").read_text())
CARDS: dict[str, dict[str, float]] = TABLES["cards"]
SHAPES = {path: Shape(**sizes) for path, sizes in TABLES["shapes"].items()}  # by hub id


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
        keys = from_json(file.read_bytes())
        inner = keys.get("text_config", keys)  # of a model that reads images, too
        # Also such a model says here whether its head is its embedding.
        tied = keys.get("tie_word_embeddings") is not False
        sizes = {name: value for name, value in inner.items() if value is not None}
    except (OSError, ValueError, AttributeError) as error:  # the last: no keys in it
        raise UserError(
            f"model.path={path}: cannot read its config.json ({one_line(error)}); name a model "
            "folder or a hub id that this machine can reach"
        ) from None
    for name in sizes:
        if "experts" in name or name == "kv_lora_rank":
            raise UserError(
                f"model.path={path}: card= estimates dense decoders, and its config.json has "
                f"{name}; run trial=true on the card"
            )
    if not tied:
        sizes["tie_word_embeddings"] = False
    return validated(Shape, sizes, f"model.path={path}: in its config.json, ")


def memory(config: TrainConfig, shape: Shape) -> dict[str, float]:
    """Peak GiB by part, of a step at the longest prompts and completions."""
    half = config.model.dtype == "bfloat16" and config.lora.rank is not None  # else 32 bits
    unsloth = half and config.backend != "transformers"
    base = (2 if half else 4) * shape.weights
    if config.model.load_in_4bit:
        base = NF4 * shape.layers + 2 * (shape.weights - shape.layers)
    if config.engine == "vllm":  # its own copy of the base
        base *= 2

    moments = 2 if config.optimizer.name == "auto" or "8bit" in config.optimizer.name else 8
    trained = (4 + moments) * shape.weights
    if config.lora.rank is not None:
        trained = (4 + 4 + moments) * shape.adapter(config.lora.rank)

    prompt, completion = config.sampling.max_prompt_length, config.sampling.max_completion_length
    rows = config.rollouts_per_prompt * config.prompts_per_step
    rows = min(config.max_sequences or rows, rows)  # that are generated at once
    tokens = rows * completion + config.prompts_per_step * prompt
    batch = config.micro_batch_size
    layer = 12 * shape.intermediate_size + 32 * shape.hidden_size
    if unsloth:
        logits = 18 * completion / 4 * shape.vocab_size
    else:
        logits = 6 * batch * completion * shape.vocab_size
        layer += 2 * shape.hidden_size * shape.num_hidden_layers
    parts = {
        "weights": base,
        "adapter": trained,
        "kv_cache": shape.cache * tokens,
        "logits": logits,
        "activations": batch * (prompt + completion) * layer,
        "runtime": 2 * GIB,
    }
    return {name: round(size / GIB, 2) for name, size in parts.items()}


def seconds(config: TrainConfig, shape: Shape, card: dict[str, float]) -> dict[str, float]:
    """Seconds of a step by phase, the middle of their range."""
    rollouts = config.rollouts_per_prompt * config.prompts_per_step
    length = config.sampling.max_completion_length
    width = 4.5 if config.model.load_in_4bit else 2
    cache = shape.cache * rollouts * length / 2  # in the middle of a generation
    bytes_read = width * shape.layers + 2 * shape.head + cache
    passes = 3 if config.lora.rank else 4  # the fourth: gradients of the weights
    tokens = length * config.kept_per_prompt * config.prompts_per_step
    operations = 2 * passes * (shape.layers + shape.head) * tokens * config.updates_per_generation
    return {
        "generate": round(length * bytes_read / (READ * card["bandwidth"]), 3),
        "score": SCORE_SECONDS * rollouts,
        "update": round(operations / (PRODUCTS * card["operations"]), 3),
    }


def ratio_range(config: TrainConfig, shape: Shape, card: dict[str, float]) -> list[float]:
    """c, the seconds of a step over those of GRPO's on the m trained rollouts: [if decoding is
    bound by the memory's bandwidth alone, if its seconds are in proportion to the rollouts]. The
    published steps on an L40S lie between (1.3)."""
    own = seconds(config, shape, card)
    fewer = {"rollouts_per_prompt": config.kept_per_prompt}
    grpo = seconds(config.model_copy(update=fewer), shape, card)
    shared = own["generate"] * config.kept_per_prompt / config.rollouts_per_prompt
    in_proportion = {**grpo, "generate": shared}
    total = sum(own.values())
    return [round(total / sum(phases.values()), 2) for phases in (grpo, in_proportion)]


def report(config: TrainConfig, location: str) -> str:
    """The estimate, with json=true as one JSON object; location: of the model. Raises UserError for
    a model of another kind."""
    card = CARDS[str(config.card)]
    shape = shape_of(config.model.path, location)
    parts = memory(config, shape)
    phases = seconds(config, shape, card)
    peak, middle = sum(parts.values()), sum(phases.values())
    problem = ""
    if peak > card["gib"]:
        largest = max(parts, key=lambda name: parts[name])
        problem = f"{peak:.1f} GiB are needed, the card has {card['gib']:g}: {REMEDIES[largest]}"
    result = {
        "card": config.card,
        "fits": not problem,
        "problem": problem,
        "peak_gib": round(peak, 2),
        "parts_gib": parts,
        "seconds_per_step": round(middle, 2),
        "seconds_range": [round(middle / SPREAD, 2), round(middle * SPREAD, 2)],
        "phases": phases,
        "c_range": ratio_range(config, shape, card),
        "assumptions": ASSUMPTIONS,
    }
    if config.as_json:
        return json.dumps(result)
    return yaml.safe_dump(result, sort_keys=False, width=200)
