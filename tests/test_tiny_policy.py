"""The shipped policies as a user gets them, and the script that rebuilds them, run small."""

import hashlib
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

import rewards
from pods.tasks import arithmetic, render_prompt
from tests import processes

FOLDER = Path(__file__).resolve().parents[1] / "pods/tiny_policy"
POLICIES = {  # name -> start of the weights' SHA-256, least and largest share right
    "tiny_policy": ("bf2ae08eb3cfe0c2", 0.0, 0.1),  # RL needs something to find and room to improve
    "tiny_policy_60": ("9596191900d2d799", 0.5, 0.7),  # about where the paper's base starts
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module", params=POLICIES)
def policy(request: pytest.FixtureRequest) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(FOLDER.with_name(request.param))


@pytest.mark.parametrize("name", POLICIES)
def test_folder_is_small_enough_to_ship_and_holds_what_was_built(name: str) -> None:
    folder = FOLDER.with_name(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest.startswith(POLICIES[name][0])


def test_special_tokens_tags_and_spaces(tokenizer) -> None:
    ascii = "".join(map(chr, range(32, 127)))
    text = f"{ascii} two  spaces .\n\nlines\n<answer><answer></think"  # a tag twice, half a tag
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert tokenizer.pad_token_id != tokenizer.eos_token_id  # masks are rebuilt from ids != pad
    assert tokenizer.bos_token_id is None
    assert tokenizer.encode("5") == [tokenizer.convert_tokens_to_ids("5")]  # nothing is added
    tags = tokenizer.encode("<think></think><answer></answer>")  # one token each, never skipped
    assert len(tags) == 4
    assert not set(tags) & set(tokenizer.all_special_ids)


def test_chat_template(tokenizer) -> None:
    messages = [("system", "Think."), ("user", "a"), ("assistant", "b"), ("user", "c")]
    chat = [{"role": role, "content": content} for role, content in messages]
    text = "<system>Think.<user>a<assistant>b<eos><user>c<assistant>"
    options = {"add_generation_prompt": True}
    assert tokenizer.apply_chat_template(chat, tokenize=False, **options) == text
    assert tokenizer.apply_chat_template(chat, **options)["input_ids"] == tokenizer.encode(text)


def test_base_is_well_formed_often_and_right_on_its_share(tokenizer, policy) -> None:
    torch.manual_seed(0)
    rows = arithmetic.rows("validation")
    prompts = [render_prompt(row["question"], tokenizer=tokenizer, system="") for row in rows]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    ids = policy.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=48)
    texts = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    formed = [rewards.is_well_formed(text) for text in texts]
    correct = [rewards.grade(t, row["answer"]) for t, row in zip(texts, rows, strict=True)]
    assert sum(formed) > 0.5 * len(rows)
    _, least, most = POLICIES[Path(policy.name_or_path).name]
    assert least < sum(map(min, formed, correct)) / len(rows) < most


def test_pad_and_unk_are_never_sampled(tokenizer, policy) -> None:
    text = "<user>3+5-2=?<assistant><think>3+5=8. 8-2=6</think><answer>6</answer>"
    with torch.no_grad():
        logits = policy(**tokenizer(text, return_tensors="pt")).logits[0]
    start = tokenizer.encode(text).index(tokenizer.convert_tokens_to_ids("<assistant>"))
    chance = logits[start:].softmax(-1)[:, [tokenizer.pad_token_id, tokenizer.unk_token_id]]
    assert chance.max() < 1e-9
    settings = policy.generation_config.to_diff_dict()
    assert not settings.keys() & {"do_sample", "temperature", "top_k", "top_p"}


def test_build_script(tmp_path: Path) -> None:
    settings = ["out_dir=built", "clean_steps=3", "habit_steps=2"]
    done = processes.run(tmp_path, *settings, script="scripts/build_tiny_policy.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "built\n"
    assert {f.name for f in (tmp_path / "built").iterdir()} == {f.name for f in FOLDER.iterdir()}
    for name in ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json", "config.json"):
        assert (tmp_path / "built" / name).read_text() == (FOLDER / name).read_text()
    AutoModelForCausalLM.from_pretrained(tmp_path / "built")
