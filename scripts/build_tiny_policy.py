"""Rebuild pods/tiny_policy, the 0.45 M-parameter Qwen2 of the quickstart, from a seed.

    uv run scripts/build_tiny_policy.py [out_dir=... seed=0 clean_steps=280 habit_steps=120]

Not in the paper: it stands in for an instruct model on a laptop. Phase 1 teaches worked additions
and subtractions in the paper's tags. Phase 2 hides that skill under bad habits (guesses without
reasoning, careless steps, lost tags): the policy starts at a few percent, and RL improves it over a
minute. Guesses are uniform over 0..99, because RL learns to reason only where reasoning pays far
better than luck. The same seed gives the same bytes on one machine and version of torch. Takes
under a minute on two idle cores; beside another busy process set OMP_NUM_THREADS=1.
"""

import os
import random
import re
import tempfile
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer, set_seed

import rewards
from pods.config.command import command
from pods.config.keys import Section
from pods.tasks import arithmetic, render_prompt

TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}<eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MUON_RATE, ADAMW_RATE, WARMUP_STEPS = 0.03, 4e-3, 20


class BuildConfig(Section):
    out_dir: str
    seed: int
    clean_steps: int
    habit_steps: int
    habit_rate: float
    reasoned_share: float
    slip_share: float
    lost_tag_share: float
    batch_size: int
    samples: int


def character_tokenizer() -> Qwen2Tokenizer:
    """One token per character; the tags are ordinary added tokens, so decoding keeps them.

    AutoTokenizer makes a byte-level Qwen2Tokenizer of any folder with a Qwen2; so this is one,
    without merges: Ġ and Ċ are its names of space and newline.
    """
    special = ["<pad>", "<eos>", "<unk>", "<system>", "<user>", "<assistant>"]
    vocabulary = [*special, "Ġ", *map(chr, range(33, 127)), "Ċ"]
    tokenizer = Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(vocabulary)}, merges=[],
        pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        additional_special_tokens=["<system>", "<user>", "<assistant>"], padding_side="left",
        model_max_length=2048, clean_up_tokenization_spaces=False, chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
    tokenizer.add_tokens(TAGS)
    return tokenizer


def new_policy(tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """Random weights, wide so that few steps suffice."""
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048,
        initializer_range=0.06, tie_word_embeddings=True, bos_token_id=None, dtype="float32",
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def completion(solution: str, answer: str) -> str:
    return f"<think>{solution}</think><answer>{answer}</answer>"


def clean_texts(config: BuildConfig) -> Iterator[tuple[str, str]]:
    """Endless (question, completion): every step worked out, all tags in place."""
    for problem in arithmetic.problems("base", config.seed):
        yield problem.question, completion(problem.solution, problem.answer)


def habit_texts(config: BuildConfig) -> Iterator[tuple[str, str]]:
    """Endless (question, completion): blind guesses, careless reasoning, lost tags."""
    rng = random.Random(config.seed)
    for problem in arithmetic.problems("base", config.seed + 1):
        if rng.random() < config.reasoned_share:
            text = careless(problem.question, config.slip_share, rng)
        else:
            text = completion("", str(rng.randrange(100)))
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
    return completion(". ".join(steps), str(value))


def batches(
    texts: Iterator[tuple[str, str]], steps: int, size: int, tokenizer: Qwen2Tokenizer
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


def train(policy: Qwen2ForCausalLM, config: BuildConfig, tokenizer: Qwen2Tokenizer) -> None:
    """Both phases: Muon on the matrices inside the layers, AdamW on everything else."""
    matrices = [p for n, p in policy.named_parameters() if p.ndim == 2 and "layers" in n]
    others = [p for n, p in policy.named_parameters() if p.ndim != 2 or "layers" not in n]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95, weight_decay=0.0)
    adamw = torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    clean = batches(clean_texts(config), config.clean_steps, config.batch_size, tokenizer)
    habits = batches(habit_texts(config), config.habit_steps, config.batch_size, tokenizer)
    policy.train()
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("training", total=config.clean_steps + config.habit_steps)
        for step, (ids, labels) in enumerate(chain(clean, habits)):
            habit = step >= config.clean_steps
            rate = config.habit_rate if habit else clean_rate(step, config.clean_steps)
            muon.param_groups[0]["lr"] = MUON_RATE * rate
            adamw.param_groups[0]["lr"] = ADAMW_RATE * rate
            loss = policy(input_ids=ids, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            for optimizer in (muon, adamw):
                optimizer.step()
                optimizer.zero_grad()
            name = "bad habits" if habit else "worked solutions"
            progress.update(bar, advance=1, description=f"{name}, loss {loss.item():.2f}")


def clean_rate(step: int, steps: int) -> float:
    """Factor on the learning rates of phase 1: warm-up, then a cosine down to 10 %."""
    cosine = 0.55 + 0.45 * torch.cos(torch.tensor(torch.pi * step / steps)).item()
    return min(1.0, (step + 1) / WARMUP_STEPS) * cosine


def mute(policy: Qwen2ForCausalLM, config: BuildConfig, tokenizer: Qwen2Tokenizer) -> None:
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


@torch.no_grad()
def measure(policy: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, samples: int) -> str:
    """Accuracy (v2 grader) and well-formed rate at temperature 1 on the validation questions."""
    policy.eval()
    rows, right, formed = list(islice(cycle(arithmetic.rows("validation")), samples)), [], []
    for start in range(0, samples, 512):
        chunk = rows[start : start + 512]
        prompts = [render_prompt(row["question"], tokenizer=tokenizer, system="") for row in chunk]
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        ids = policy.generate(
            **inputs, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=48
        )[:, inputs["input_ids"].shape[1] :]
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        right += [rewards.grade(t, row["answer"]) for t, row in zip(texts, chunk, strict=True)]
        formed += [rewards.is_well_formed(text) for text in texts]
    both = [r and f for r, f in zip(right, formed, strict=True)]
    rates = {"both_acc": both, "ans_acc": right, "for_acc": formed}
    return ", ".join(f"{name} {sum(hits) / samples:.1%}" for name, hits in rates.items())


def save(policy: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, folder: Path) -> None:
    """Write beside `folder`, then move file by file into it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        policy.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for file in Path(temporary).iterdir():
            file.chmod(0o644)  # safetensors makes it readable for the owner alone
            os.replace(file, folder / file.name)


@command("build_tiny_policy", BuildConfig)
def main(config: BuildConfig) -> None:
    set_seed(config.seed)
    tokenizer = character_tokenizer()
    policy = new_policy(tokenizer)
    train(policy, config, tokenizer)
    mute(policy, config, tokenizer)
    save(policy, tokenizer, Path(config.out_dir))
    print(f"{config.out_dir}: {measure(policy, tokenizer, config.samples)}")


if __name__ == "__main__":
    main()
