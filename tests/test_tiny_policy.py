"""The shipped policies as a user gets them, and the script that rebuilds them, run small."""

import hashlib
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rewards
from pods.tasks import arithmetic, render_prompt
from tests import processes
from tests.conftest import ROOT

FOLDER = ROOT / "pods" / "tiny_policy"
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER)
POLICIES = {  # name -> start of the weights' SHA-256, least and largest share right
    "tiny_policy": ("bf2ae08eb3cfe0c2", 0.0, 0.1),  # RL needs something to find and room to improve
    "tiny_policy_60": ("9596191900d2d799", 0.5, 0.7),  # about where the paper's base starts
}


@pytest.fixture(scope="module", params=POLICIES)
def policy(request):
    return AutoModelForCausalLM.from_pretrained(FOLDER.with_name(request.param))


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


def test_base_is_well_formed_often_and_right_on_its_share(policy):
    torch.manual_seed(0)
    rows = arithmetic.rows("validation")
    prompts = [render_prompt(row["question"], tokenizer=TOKENIZER, system="") for row in rows]
    inputs = TOKENIZER(prompts, return_tensors="pt", padding=True)
    ids = policy.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=48)
    texts = TOKENIZER.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    formed = [rewards.is_well_formed(text) for text in texts]
    correct = [rewards.grade(t, row["answer"]) for t, row in zip(texts, rows, strict=True)]
    assert sum(formed) > 0.5 * len(rows)
    digest, least, most = POLICIES[(folder := Path(policy.name_or_path)).name]
    assert least < sum(map(min, formed, correct)) / len(rows) < most
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:16] == digest
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000  # small enough to ship


def test_pad_and_unk_are_never_sampled(policy):
    text = "<user>3+5-2=?<assistant><think>3+5=8. 8-2=6</think><answer>6</answer>"
    with torch.no_grad():
        logits = policy(**TOKENIZER(text, return_tensors="pt")).logits[0]
    start = TOKENIZER.encode(text).index(TOKENIZER.convert_tokens_to_ids("<assistant>"))
    chance = logits[start:].softmax(-1)[:, [TOKENIZER.pad_token_id, TOKENIZER.unk_token_id]]
    assert chance.max() < 1e-9
    settings = policy.generation_config.to_diff_dict()
    assert not settings.keys() & {"do_sample", "temperature", "top_k", "top_p"}


def test_build_script(tmp_path):
    settings = ["out_dir=built", "clean_steps=3", "habit_steps=2"]
    done = processes.run(tmp_path, *settings, script="scripts/build_tiny_policy.py")
    assert (done.returncode, done.stdout) == (0, "built\n"), done.stderr
    assert {f.name for f in (tmp_path / "built").iterdir()} == {f.name for f in FOLDER.iterdir()}
    for name in ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json", "config.json"):
        assert (tmp_path / "built" / name).read_text() == (FOLDER / name).read_text()
    AutoModelForCausalLM.from_pretrained(tmp_path / "built")
