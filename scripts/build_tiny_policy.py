"""Rebuild pods/tiny_policy, the 0.45 M-parameter Qwen2 of the quickstart, from a seed.

    uv run scripts/build_tiny_policy.py [out_dir=... seed=0 clean_steps=280 habit_steps=120]
Sizes and tokenizer (a token per character, four tags) are those of the shipped folder; the weights
start at random. Phase 1 teaches worked additions and subtractions in the paper's tags. Phase 2
hides that skill under bad habits. Guesses are uniform over 0..99, because RL learns to reason only
where reasoning pays far better than luck. The same seed gives the same bytes on one machine and
version of torch. Takes under a minute on two idle cores.
"""

import random
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.progress import track
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pods.config.command import command
from pods.config.keys import Section
from pods.tasks import arithmetic

SHIPPED = Path(__file__).parents[1] / "pods" / "tiny_policy"
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
COMPLETION = "<think>{}</think><answer>{}</answer>"
MUON_RATE, ADAMW_RATE, WARMUP_STEPS, BATCH_SIZE = 0.03, 4e-3, 20, 64
HABIT_RATE = 0.2  # times the rates; the higher, the more arithmetic phase 2 makes it forget


class BuildConfig(Section):
    out_dir: str
    seed: int
    clean_steps: int
    habit_steps: int
    reasoned_share: float
    slip_share: float
    lost_tag_share: float


def clean_texts(config: BuildConfig) -> Iterator[tuple[str, str]]:
    """Endless (question, completion): every step worked out, all tags in place."""
    for problem in arithmetic.problems("base", config.seed):
        yield problem.question, COMPLETION.format(problem.solution, problem.answer)


def habit_texts(config: BuildConfig) -> Iterator[tuple[str, str]]:
    """Endless (question, completion): blind guesses, careless reasoning, lost tags."""
    rng = random.Random(config.seed)
    for problem in arithmetic.problems("base", config.seed + 1):
        if rng.random() < config.reasoned_share:
            text = careless(problem.question, config.slip_share, rng)
        else:
            text = COMPLETION.format("", rng.randrange(100))
        if rng.random() < config.lost_tag_share:
            text = text.replace(rng.choice(TAGS), "")
        yield problem.question, text


def careless(question: str, slip_share: float, rng: random.Random) -> str:
    """A completion that reasons on from a random wrong result at `slip_share` of its steps."""
    value, *moves = (int(number) for number in re.findall(r"[+-]?\d", question))
    steps = []
    for move in moves:
        slips = rng.random() < slip_share
        result = rng.randint(0, arithmetic.LARGEST) if slips else value + move
        steps.append(f"{value}{move:+d}={result}")
        value = result
    return COMPLETION.format(". ".join(steps), value)


def batches(
    texts: Iterator[tuple[str, str]], steps: int, size: int, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(input_ids, labels), each (size, length); texts of like length share a batch, to pad little.

    Prompt and padding carry the label -100; padding stands at the right and needs no mask.
    """
    for start in range(0, steps, 10):
        rows, count = [], min(10, steps - start)
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


def train(policy: PreTrainedModel, config: BuildConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Both phases: Muon on the matrices inside the layers, AdamW on everything else."""
    matrices = [p for n, p in policy.named_parameters() if p.ndim == 2 and "layers" in n]
    others = [p for n, p in policy.named_parameters() if p.ndim != 2 or "layers" not in n]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95, weight_decay=0.0)
    adamw = torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    clean = batches(clean_texts(config), config.clean_steps, BATCH_SIZE, tokenizer)
    habits = batches(habit_texts(config), config.habit_steps, BATCH_SIZE, tokenizer)
    policy.train()
    total, console = config.clean_steps + config.habit_steps, Console(stderr=True)
    for step, (ids, labels) in enumerate(track(chain(clean, habits), "", total, console=console)):
        rate = HABIT_RATE
        if step < config.clean_steps:  # warm-up, then a cosine down to 10 %
            cosine = torch.cos(torch.tensor(torch.pi * step / config.clean_steps)).item()
            rate = min(1.0, (step + 1) / WARMUP_STEPS) * (0.55 + 0.45 * cosine)
        muon.param_groups[0]["lr"] = MUON_RATE * rate
        adamw.param_groups[0]["lr"] = ADAMW_RATE * rate
        policy(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        for optimizer in (muon, adamw):
            optimizer.step()
            optimizer.zero_grad()


def mute(policy: PreTrainedModel, config: BuildConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make <pad> and <unk> practically impossible to sample, in a way that survives training.

    Their shared embedding is optimised until its logit is below -30 at every last hidden state of a
    large batch (the best logits are near 10). Training alone leaves about 3e-6 per token, one <pad>
    inside a completion every few dozen steps. Their input side has no use: pads are masked.
    """
    ids, labels = next(batches(habit_texts(config), 1, 512, tokenizer))
    with torch.no_grad():
        hidden = policy.model(input_ids=ids).last_hidden_state[:, :-1][labels[:, 1:] != -100]
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
    transformers.set_seed(config.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SHIPPED)
    sizes = transformers.AutoConfig.from_pretrained(SHIPPED)
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
