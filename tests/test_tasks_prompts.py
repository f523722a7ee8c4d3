"""Prompts: equal to the published ones where those are given, one BOS, a counted length filter."""

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset

from pods import tasks
from pods.config.errors import UserError
from pods.config.keys import Task
from pods.tasks import encode_prompt, encode_prompts, read_prompts, render_prompt
from pods.tasks.prompts import SYSTEM
from tests.tokenizers_like import like

QWEN, LLAMA, DATE = like("qwen"), like("llama"), "26 Jul 2024"
TASK = Task.model_construct(name="gsm8k", style="instruct", system=None, date=DATE, kind=None)


def test_rendered_prompts_equal_the_published_ones(shared: Path) -> None:
    lines = (shared / "reference" / "golden_prompts.jsonl").read_text().strip().split("\n")
    asked = re.compile(r"user(?:<\|end_header_id\|>\n)?\n(.*?)<\|(?:im_end|eot_id)\|>", re.DOTALL)
    for row in map(json.loads, lines):
        prompt, family = row["prompt"], row["fam"]
        date = prompt.split("Today Date: ")[-1][:11] if family == "llama" else None
        question = asked.search(prompt)[1]
        assert render_prompt(question, tokenizer=like(family), date=date) == prompt
    assert len(lines) == 10


def test_every_character_of_a_published_prompt_counts() -> None:
    """Without ../shared: digests of prompts from the code that the test above passed."""
    for tokenizer, digest in ((QWEN, "26020c1825b89cf7"), (LLAMA, "212662bbd21c2d39")):
        prompt = render_prompt("1+1?", tokenizer=tokenizer, date=DATE)
        assert hashlib.sha256(prompt.encode()).hexdigest()[:16] == digest


def test_system_texts_and_base_style() -> None:
    brief = render_prompt("1+1", tokenizer=QWEN, system="Be brief.")
    assert "<|im_start|>system\nBe brief.<|im_end|>" in brief
    bare = render_prompt("1+1", tokenizer=QWEN, system="")
    assert "A default." in bare  # the template's, without a system message
    assert "<think>" not in bare
    prompt = render_prompt("1+1", tokenizer=QWEN, style="base")
    assert prompt == SYSTEM["math"]["base"] + "Problem: 1+1\nSolution: "
    bare = render_prompt("1+1", tokenizer=QWEN, style="base", system="")
    assert bare == "Problem: 1+1\nSolution: "


def test_what_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(UserError, match=r"task.style=chat: unknown; one of instruct, base"):
        render_prompt("1+1", tokenizer=QWEN, style="chat")
    (tokenizer := like("qwen")).chat_template = None
    with pytest.raises(UserError, match=r"^task.style=instruct: .* use task.style=base$"):
        render_prompt("1+1", tokenizer=tokenizer)


@pytest.mark.parametrize("style", ["instruct", "base"])
def test_the_bos_stands_there_once(style: str) -> None:
    prompt = render_prompt("How many?", tokenizer=LLAMA, style=style, date=DATE)
    ids = encode_prompt(prompt, LLAMA)
    assert ids[0] == LLAMA.bos_token_id
    assert ids.count(LLAMA.bos_token_id) == 1
    assert LLAMA.decode(ids).replace(LLAMA.bos_token, "") == prompt.replace(LLAMA.bos_token, "")
    assert encode_prompts([prompt, "7", prompt], LLAMA) == [ids, encode_prompt("7", LLAMA), ids]
    assert encode_prompts([], LLAMA) == []
    assert encode_prompt("ab", QWEN) == [ord("a"), ord("b")]  # which has no BOS


def test_long_prompts_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = ["x" * 90, "1st", "x" * 99, "2nd", "3rd one", "x" * 80, "4th"]
    columns = {"id": list("abcdefg"), "question": questions, "answer": [f"={q}" for q in questions]}
    monkeypatch.setattr(tasks, "load_for", lambda *_: Dataset.from_dict(columns))
    limit = len(encode_prompt(render_prompt("3rd one", tokenizer=QWEN), QWEN))
    sampling = SimpleNamespace(max_prompt_length=limit)
    config = SimpleNamespace(data_dir=None, sampling=sampling)
    rows, dropped = read_prompts(config, TASK, "train", QWEN)
    assert (rows["id"][:], dropped) == (list("bdeg"), 3)
    for row in rows:  # a prompt stands beside its own question and gold answer
        assert row["prompt"] == render_prompt(row["question"], tokenizer=QWEN)
        assert row["answer"] == "=" + row["question"]


def test_a_question_gets_the_system_text_of_its_task() -> None:
    math, choice = SYSTEM["math"]["instruct"], SYSTEM["choice"]["instruct"]
    for changes, text in (
        ({"name": "gsm8k"}, math),
        ({"name": "chemistry"}, choice),
        ({"name": "chemistry", "system": "Choose."}, "Choose."),
        ({"name": "own", "kind": "math"}, math),
        ({"name": "own", "kind": "choice"}, choice),
    ):
        prompt = tasks.rendered("Which?", QWEN, TASK.model_copy(update=changes))
        assert prompt == render_prompt("Which?", tokenizer=QWEN, system=text, date=DATE)
