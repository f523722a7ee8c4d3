"""Rebuild pods/tiny_policy, the 0.45 M-parameter Qwen2 of the quickstart, from a seed.

    uv run scripts/build_tiny_policy.py [out_dir=... seed=0 steps=380]

config/experiment/{tags,hard,large}.yaml have the commands of their bases. Layers and tokenizer (a
token per character, four tags) are those of the shipped folder; the weights start at random. The
texts work sums out step by step in the paper's tags. Steps within ten are right; of the 90 steps
across ten some are mostly wrong, so that questions differ in how often they are answered correctly.
A step recurs in many questions: training questions can teach what unseen questions need. The same
seed gives the same bytes on one machine and version of torch.
"""

import hashlib
import random
import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pods import rewards
from pods.config.command import command
from pods.config.keys import Section
from pods.config.paths import PACKAGE
from pods.tasks import arithmetic

SHIPPED = PACKAGE / "tiny_policy"
MUON_RATE = 0.03
ADAMW_RATE = 4e-3
WARMUP_STEPS = 20
BATCH_SIZE = 64
SLOTS = 10  # batches whose texts are sorted by length, so that little of a batch is padding


class BuildConfig(Section):
    """config/build_tiny_policy.yaml, which explains its keys."""

    out_dir: str
    seed: int
    steps: int
    hard_share: float
    hard_odds: float
    half_share: float
    half_odds: float
    slip_odds: float
    lost_odds: float
    largest_error: int
    questions: Literal["arithmetic", "arithmetic_long"]
    hidden_size: int


def texts(config: BuildConfig) -> Iterator[tuple[str, str]]:
    """Endless (question, completion) of the base model's questions, by config.seed."""
    rng = random.Random(config.seed)
    for question, _ in arithmetic.problems("base", config.seed, config.questions):
        text = worked_out(question, config, rng)
        if rng.random() < config.lost_odds:
            text = text.replace(rng.choice(rewards.tags.TAGS), "")
        yield question, text


def worked_out(question: str, config: BuildConfig, rng: random.Random) -> str:
    """A completion that goes on from each step's result, right or wrong."""
    value, *moves = (int(number) for number in re.findall(r"[+-]?\d", question))
    steps = []
    for move in moves:
        result = value + move
        error = config.largest_error
        mistakes = [
            near
            for near in range(result - error, result + error + 1)
            if 0 <= near <= 19 and near != result
        ]
        if mistakes and rng.random() >= odds_of(value, move, config):
            if rng.random() < 0.4:  # a mistake that belongs to the step: it recurs
                result = mistakes[int(digest(value, move, "wrong") * len(mistakes))]
            else:
                result = rng.choice(mistakes)
        steps.append(f"{value}{move:+d}={result}")
        value = result
    return f"<think>{'. '.join(steps)}</think><answer>{value}</answer>"


def odds_of(value: int, move: int, config: BuildConfig) -> float:
    """How often a step is right."""
    place = digest(value, move, "odds")
    crosses_ten = (value < 10) != (value + move < 10)
    if crosses_ten and place < config.hard_share:
        return config.hard_odds
    if crosses_ten and place < config.hard_share + config.half_share:
        return config.half_odds
    return 1 - config.slip_odds


def digest(value: int, move: int, purpose: str) -> float:
    """A number in [0, 1) that belongs to the step."""
    return hashlib.sha256(f"{value}{move:+d} {purpose}".encode()).digest()[0] / 256


def batches(
    texts: Iterator[tuple[str, str]], steps: int, size: int, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(input_ids, labels), each (size, length), of texts of like length; prompt and padding carry
    the label -100, and padding stands at the end and needs no mask."""
    for start in range(0, steps, SLOTS):
        count = min(SLOTS, steps - start)
        rows = []
        for question, text in islice(texts, count * size):
            prompt = tokenizer.encode(f"<user>{question}<assistant>")
            answer = tokenizer.encode(text + tokenizer.eos_token)
            labels = [-100] * len(prompt) + answer
            rows.append((torch.tensor(prompt + answer), torch.tensor(labels)))
        rows.sort(key=lambda row: len(row[0]))
        for i in torch.randperm(count).tolist():
            ids, labels = zip(*rows[i * size : (i + 1) * size], strict=True)
            padded = pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
            yield padded, pad_sequence(labels, batch_first=True, padding_value=-100)


@torch.no_grad()
def muon_step(matrix: torch.nn.Parameter, momentum: torch.Tensor, rate: float) -> None:
    """A step along a momentum that is made orthogonal (Muon, Jordan et al., 2024), in float32:
    torch's own multiplies in bfloat16, ten times slower on a CPU without it."""
    momentum.lerp_(matrix.grad, 0.05)
    x = matrix.grad.lerp(momentum, 0.95)
    rows, columns = matrix.shape
    if rows > columns:  # the smaller product of the two
        x = x.mT
    x = x / (x.norm() + 1e-7)
    for _ in range(5):  # Newton-Schulz: singular values go to 1
        product = x @ x.mT
        x = 3.4445 * x + (-4.775 * product + 2.0315 * product @ product) @ x
    if rows > columns:
        x = x.mT
    scale = max(1.0, rows / columns) ** 0.5
    matrix.sub_(x, alpha=rate * scale)


def train(policy: PreTrainedModel, config: BuildConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Muon on the matrices inside the layers, AdamW on everything else; both rates rise for
    WARMUP_STEPS and fall along a cosine to 4 % of their height."""
    momenta = {}  # of the matrices
    others = []
    for name, parameter in policy.named_parameters():
        if parameter.ndim == 2 and "layers" in name:
            momenta[parameter] = torch.zeros_like(parameter)
        else:
            others.append(parameter)
    adamw = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)
    rows = batches(texts(config), config.steps, BATCH_SIZE, tokenizer)
    policy.train()
    for step, (ids, labels) in enumerate(tqdm(rows, total=config.steps)):
        cosine = torch.cos(torch.tensor(torch.pi * step / config.steps)).item()
        share = min(1.0, (step + 1) / WARMUP_STEPS) * (0.52 + 0.48 * cosine)
        policy(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        for matrix, momentum in momenta.items():
            muon_step(matrix, momentum, MUON_RATE * share)
        adamw.param_groups[0]["lr"] = ADAMW_RATE * share
        adamw.step()
        policy.zero_grad()


def mute(policy: PreTrainedModel, config: BuildConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make <pad> and <unk> practically impossible to sample: their shared embedding is optimised
    until its logit is below -30 (the best are near 10). Training alone leaves a <pad> every few
    dozen steps."""
    ids, labels = next(batches(texts(config), 1, 512, tokenizer))
    with torch.no_grad():
        hidden = policy.model(input_ids=ids).last_hidden_state
        hidden = hidden[:, :-1][labels[:, 1:] != -100]  # (tokens of completions, size)
    vector = torch.zeros(hidden.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([vector], lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        torch.relu(hidden @ vector + 30).mean().backward()
        optimizer.step()
    with torch.no_grad():
        silent = [tokenizer.pad_token_id, tokenizer.unk_token_id]
        policy.get_input_embeddings().weight[silent] = vector


@command("build_tiny_policy", BuildConfig)
def main(config: BuildConfig) -> None:
    """Train the policy from nothing and save it with its tokenizer in out_dir."""
    transformers.set_seed(config.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SHIPPED)
    sizes = transformers.AutoConfig.from_pretrained(
        SHIPPED,
        hidden_size=config.hidden_size,
        intermediate_size=2 * config.hidden_size,
    )
    policy = transformers.AutoModelForCausalLM.from_config(sizes)
    train(policy, config, tokenizer)
    mute(policy, config, tokenizer)
    policy.save_pretrained(config.out_dir)
    for key in ("is_local", "local_files_only"):  # of this loading
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(config.out_dir)
    print(config.out_dir)


if __name__ == "__main__":
    main()
