"""The shipped policy as a user gets it."""

import hashlib

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rewards
from pods import files
from pods.tasks import arithmetic, render_prompt
from tests.conftest import ROOT

FOLDER = ROOT / "pods" / "tiny_policy"
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER)


def stored_base(world, split):
    """What the embedded policy of a world scored before training."""
    rows = files.read_lines(ROOT / "benchmarks" / "results" / "bases.jsonl")
    return next(row for row in rows if (row["world"], row["split"]) == (world, split))


@pytest.fixture(scope="module")
def policy():
    return AutoModelForCausalLM.from_pretrained(FOLDER)


def test_special_tokens_tags_and_spaces():
    ascii = "".join(map(chr, range(32, 127)))
    text = f"{ascii} two  spaces .\n\nlines\n<answer><answer></think"  # a tag twice, half a tag
    assert TOKENIZER.decode(TOKENIZER.encode(text), skip_special_tokens=True) == text
    assert TOKENIZER.pad_token_id != TOKENIZER.eos_token_id  # masks are rebuilt from ids != pad
    assert TOKENIZER.bos_token_id is None
    assert TOKENIZER.encode("5") == [TOKENIZER.convert_tokens_to_ids("5")]  # nothing is added
    tags = TOKENIZER.encode("<think></think><answer></answer>")  # one token each, never skipped
    assert len(tags) == 4
    assert not set(tags) & set(TOKENIZER.all_special_ids)


def test_chat_template():
    messages = [("system", "Think."), ("user", "a"), ("assistant", "b"), ("user", "c")]
    chat = [{"role": role, "content": content} for role, content in messages]
    text = "<system>Think.<user>a<assistant>b<eos><user>c<assistant>"
    options = {"add_generation_prompt": True}
    assert TOKENIZER.apply_chat_template(chat, tokenize=False, **options) == text
    assert TOKENIZER.apply_chat_template(chat, **options)["input_ids"] == TOKENIZER.encode(text)


def test_base_is_well_formed_and_correct_on_about_half(policy):
    rows = arithmetic.rows("validation")
    prompts = [render_prompt(row["question"], tokenizer=TOKENIZER, system="") for row in rows]
    inputs = TOKENIZER(prompts, return_tensors="pt", padding=True)
    ids = policy.generate(**inputs, do_sample=False, max_new_tokens=48)
    texts = TOKENIZER.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    formed = [rewards.is_well_formed(text) for text in texts]
    correct = [rewards.grade(t, row["answer"]) for t, row in zip(texts, rows, strict=True)]
    assert sum(formed) > 0.95 * len(rows)
    assert 0.45 < sum(map(min, formed, correct)) / len(rows) < 0.65


def test_the_weights_are_those_that_were_measured():
    """benchmarks/results/bases.jsonl has their accuracy."""
    digest = hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert digest == stored_base("sums", "test")["sha256"]
    assert digest in (FOLDER / "README.md").read_text()
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000  # small enough to ship


def test_pad_and_unk_are_never_sampled(policy):
    text = "<user>3+5-2=?<assistant><think>3+5=8. 8-2=6</think><answer>6</answer>"
    with torch.no_grad():
        logits = policy(**TOKENIZER(text, return_tensors="pt")).logits[0]
    start = TOKENIZER.encode(text).index(TOKENIZER.convert_tokens_to_ids("<assistant>"))
    chance = logits[start:].softmax(-1)[:, [TOKENIZER.pad_token_id, TOKENIZER.unk_token_id]]
    assert chance.max() < 1e-9
    settings = policy.generation_config.to_diff_dict()
    assert not settings.keys() & {"do_sample", "temperature", "top_k", "top_p"}
