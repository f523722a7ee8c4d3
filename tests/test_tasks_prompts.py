"""Prompts: equal to the published ones where those are given, one BOS, a counted length filter."""

import hashlib
import json
from pathlib import Path

import pytest
from datasets import Dataset

from pods.config.errors import UserError
from pods.config.keys import Task
from pods.tasks import TASKS, encode_prompt, encode_prompts, render_prompt, system_texts
from pods.tasks.prompts import within_length
from tests.tokenizers_like import like

TASK = Task.model_construct(name="gsm8k", style="instruct", system=None, date="26 Jul 2024")


@pytest.mark.parametrize("family", ["qwen", "llama"])
def test_rendered_prompts_equal_the_published_ones(family: str, shared: Path) -> None:
    lines = (shared / "reference" / "golden_prompts.jsonl").read_text().split("\n")
    rows = [json.loads(line) for line in lines if line]
    rows = [row for row in rows if row["fam"] == family]
    between = {
        "qwen": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant"),
        "llama": ("user<|end_header_id|>\n\n", "<|eot_id|><|start_header_id|>assistant"),
    }[family]
    for row in rows:
        question = row["prompt"].split(between[0])[1].split(between[1])[0]
        date = row["prompt"].split("Today Date: ")[-1][:11] if family == "llama" else None
        assert render_prompt(question, tokenizer=like(family), date=date) == row["prompt"]
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("family", "digest"), [("qwen", "26020c1825b89cf7"), ("llama", "212662bbd21c2d39")]
)
def test_every_character_of_a_published_prompt_counts(family: str, digest: str) -> None:
    """Without ../shared: the digest of a prompt from the code that the test above passed."""
    prompt = render_prompt("1+1?", tokenizer=like(family), date="26 Jul 2024")
    assert hashlib.sha256(prompt.encode()).hexdigest()[:16] == digest


def test_a_date_is_printed_only_where_the_template_asks_for_it() -> None:
    prompt = render_prompt("How many?", tokenizer=like("llama"), date="26 Jul 2024")
    assert "Today Date: 26 Jul 2024\n" in prompt
    assert prompt.startswith("<|begin_of_text|><|start_header_id|>system")
    assert "2024" not in render_prompt("How many?", tokenizer=like("qwen"), date="26 Jul 2024")


def test_system_texts() -> None:
    qwen = like("qwen")
    assert "<|im_start|>system\nBe brief.<|im_end|>" in render_prompt(
        "1+1", tokenizer=qwen, system="Be brief."
    )
    bare = render_prompt("1+1", tokenizer=qwen, system="")
    assert "A default." in bare  # no system message: the template's own affair
    assert "<think>" not in bare


def test_base_style_is_one_block() -> None:
    prompt = render_prompt("1+1", tokenizer=like("qwen"), style="base")
    assert prompt.endswith("Problem: 1+1\nSolution: ")
    assert all(tag in prompt for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    assert "<|im_start|>" not in prompt
    assert render_prompt("1+1", tokenizer=like("qwen"), style="base", system="") == (
        "Problem: 1+1\nSolution: "
    )


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(UserError, match=r"task.style=chat: unknown; one of instruct, base"):
        render_prompt("1+1", tokenizer=like("qwen"), style="chat")


def test_a_tokenizer_without_a_template_is_refused() -> None:
    tokenizer = like("qwen")
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"^task.style=instruct: .* use task.style=base$"):
        render_prompt("1+1", tokenizer=tokenizer)


@pytest.mark.parametrize("style", ["instruct", "base"])
def test_the_bos_stands_there_once(style: str) -> None:
    llama = like("llama")
    prompt = render_prompt("How many?", tokenizer=llama, style=style, date="26 Jul 2024")
    ids = encode_prompt(prompt, llama)
    assert ids[0] == llama.bos_token_id
    assert ids.count(llama.bos_token_id) == 1
    assert llama.decode(ids).replace(llama.bos_token, "") == prompt.replace(llama.bos_token, "")
    assert encode_prompts([prompt, "7", prompt], llama) == [ids, encode_prompt("7", llama), ids]
    assert encode_prompts([], llama) == []
    if style == "instruct":  # what a plain call of the tokenizer does, and the published code did
        assert llama(prompt)["input_ids"].count(llama.bos_token_id) == 2


def test_without_a_bos_nothing_is_added() -> None:
    qwen = like("qwen")
    assert encode_prompt("ab", qwen) == [ord("a"), ord("b")]


def test_long_prompts_are_left_out_and_counted() -> None:
    qwen, questions = like("qwen"), ["x" * 90, "1st", "x" * 99, "2nd", "3rd one", "x" * 80, "4th"]
    columns = {"id": list("abcdefg"), "question": questions, "answer": [f"={q}" for q in questions]}
    dataset = Dataset.from_dict(columns)
    limit = len(encode_prompt(render_prompt("3rd one", tokenizer=qwen), qwen))
    kept, dropped = within_length(dataset, qwen, limit, TASK)
    assert (kept["id"][:], dropped) == (list("bdeg"), 3)
    for row in kept:  # a prompt stands beside its own question and gold answer
        assert row["prompt"] == render_prompt(row["question"], tokenizer=qwen)
        assert row["answer"] == "=" + row["question"]
    assert within_length(dataset, qwen, 1, TASK)[1] == 7


def test_a_question_gets_the_system_text_of_its_task() -> None:
    dataset = Dataset.from_dict({"question": ["Which?"], "kind": ["choice"], "extra": [{"a": 1}]})
    chemistry = Task.model_construct(name="chemistry", style="instruct", system=None, date=None)
    kept, _ = within_length(dataset, like("qwen"), 10_000, chemistry)
    assert TASKS["chemistry"].system["instruct"] in kept["prompt"][0]
    assert kept["extra"][0] == {"a": 1}
    own = Task.model_construct(name="chemistry", style="instruct", system="Choose.", date=None)
    kept, _ = within_length(dataset, like("qwen"), 10_000, own)
    assert "<|im_start|>system\nChoose.<|im_end|>" in kept["prompt"][0]


@pytest.mark.parametrize(("kind", "like_task"), [("math", "gsm8k"), ("choice", "chemistry")])
def test_task_own_gets_the_text_of_its_kind(kind: str, like_task: str) -> None:
    assert system_texts(Task.model_construct(name="own", kind=kind)) == TASKS[like_task].system


def test_the_published_text_is_unchanged() -> None:
    """Without ../shared: the rendered prompt of one question, to the byte."""
    assert TASKS["gsm8k"].system["instruct"] == (
        "\nYou will be given a math question.\n"
        "Reason about the question and correct your own mistakes if you make any.\n\n"
        "Respond in the following format:\n<think>\n"
        "Reason here. Decide to answer when you are confident as your response length is limited.\n"
        "</think>\n<answer>\nAnswer here.\n</answer>\n"
    )
