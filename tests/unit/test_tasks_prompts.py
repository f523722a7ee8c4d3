"""Prompts: equal to the published ones where those are given, one BOS, a counted length filter."""

import hashlib
import json
import re

import pytest
from datasets import Dataset

from pods import tasks
from pods.config.errors import UserError
from pods.config.keys import ModelKeys, TaskKeys
from pods.tasks import encode_prompts, read_prompts, render_for, render_prompt
from pods.tasks.prompts import SYSTEM
from pods.training.rewards import Rewards
from rewards import is_well_formed, opened
from tests.configs import compose
from tests.tokenizers_like import like

QWEN, LLAMA, DATE = like("qwen"), like("llama"), "26 Jul 2024"
TASK = TaskKeys.model_construct(name="gsm8k", style="instruct", system=None, date=DATE, kind=None)
NO_THINKING = {"enable_thinking": False}
MODEL = ModelKeys(name="m", path="m", dtype="float32", load_in_4bit=False)


def test_rendered_prompts_equal_the_published_ones(shared):
    lines = (shared / "reference" / "golden_prompts.jsonl").read_text().strip().split("\n")
    asked = re.compile(r"user(?:<\|end_header_id\|>\n)?\n(.*?)<\|(?:im_end|eot_id)\|>", re.DOTALL)
    rendered, published = {}, {}
    for row in map(json.loads, lines):
        prompt, family = row["prompt"], row["fam"]
        date = prompt.split("Today Date: ")[-1][:11] if family == "llama" else None
        question = asked.search(prompt)[1]
        rendered[family, question] = render_prompt(question, tokenizer=like(family), date=date)
        published[family, question] = prompt
    assert rendered == published
    assert len(published) == 10


@pytest.mark.parametrize(
    ("tokenizer", "digest"),
    [(QWEN, "26020c1825b89cf7"), (LLAMA, "212662bbd21c2d39")],
    ids=["qwen", "llama"],
)
def test_every_character_of_a_published_prompt_counts_without_the_shared_data(tokenizer, digest):
    prompt = render_prompt("1+1?", tokenizer=tokenizer, date_string=DATE)
    assert hashlib.sha256(prompt.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("system", "text"), [("Be brief.", "Be brief."), ("", "A default.")], ids=["own", "template's"]
)
def test_the_system_text_of_a_chat(system, text):
    prompt = render_prompt("1+1", tokenizer=QWEN, system=system)
    assert prompt.startswith(f"<|im_start|>system\n{text}<|im_end|>")
    assert "<think>" not in prompt


@pytest.mark.parametrize(
    ("system", "text"), [(None, SYSTEM["math"]["base"]), ("", "")], ids=["default", "none"]
)
def test_the_system_text_of_a_base_model(system, text):
    prompt = render_prompt("1+1", tokenizer=QWEN, style="base", system=system)
    assert prompt == text + "Problem: 1+1\nSolution: "


def test_what_cannot_be_rendered_is_refused():
    (tokenizer := like("qwen")).chat_template = None
    with pytest.raises(UserError, match=r"^task.style=instruct: .* use task.style=base$"):
        render_prompt("1+1", tokenizer=tokenizer)


@pytest.mark.parametrize("style", ["instruct", "base"])
def test_the_bos_stands_there_once(style):
    prompt = render_prompt("How many?", tokenizer=LLAMA, style=style, date_string=DATE)
    (ids,) = encode_prompts([prompt], LLAMA)
    assert LLAMA.decode(ids) == LLAMA.bos_token + prompt.removeprefix(LLAMA.bos_token)
    assert encode_prompts([prompt, "7", prompt], LLAMA) == [ids, *encode_prompts(["7"], LLAMA), ids]
    assert encode_prompts([], LLAMA) == []
    assert encode_prompts(["ab"], QWEN) == [[ord("a"), ord("b")]]  # which has no BOS


def test_long_prompts_are_left_out_and_counted(monkeypatch):
    questions = ["x" * 90, "1st", "x" * 99, "2nd", "3rd one", "x" * 80, "4th"]
    columns = {"id": list("abcdefg"), "question": questions, "answer": [f"={q}" for q in questions]}
    monkeypatch.setattr(tasks.splits, "load_for", lambda *_: Dataset.from_dict(columns))
    monkeypatch.setattr(tasks.splits, "BATCH", 3)
    (longest,) = encode_prompts([render_prompt("3rd one", tokenizer=QWEN)], QWEN)
    limit = len(longest)
    config = compose("model=tiny", f"sampling.max_prompt_length={limit}")
    rows, dropped = read_prompts(config, TASK, "train", QWEN)
    assert (rows["id"][:], dropped) == (list("bdeg"), 3)
    # A prompt stands beside its own question and gold answer.
    assert rows["prompt"][:] == [render_prompt(q, tokenizer=QWEN) for q in rows["question"]]
    assert rows["prompt_ids"][:] == encode_prompts(rows["prompt"][:], QWEN)
    assert rows.features["prompt_ids"].feature.dtype == "int32"  # a million prompts fit
    assert rows["answer"][:] == ["=" + question for question in rows["question"]]


def test_the_prompts_of_a_large_data_set_are_rendered_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    questions = [f"{i}+{'1' * i}=?" for i in range(5)]
    columns = {"id": list("abcde"), "question": questions, "answer": list("12345")}
    monkeypatch.setattr(tasks.splits, "load_for", lambda *_: Dataset.from_dict(columns))
    monkeypatch.setattr(tasks.splits, "BATCH", 2)
    limit = len(encode_prompts([render_prompt(questions[3], tokenizer=QWEN)], QWEN)[0])
    config = compose("model=tiny", f"sampling.max_prompt_length={limit}")
    (expected, dropped) = read_prompts(config, TASK, "train", QWEN)
    assert (dropped, [*tmp_path.glob("pods/*")]) == (1, [])
    monkeypatch.setattr(tasks.splits, "CACHED_FROM", 5)
    stored, _ = read_prompts(config, TASK, "train", QWEN)
    other = TASK.model_copy(update={"system": "Be brief."})
    assert read_prompts(config, other, "train", QWEN)[0]["prompt"][:] != expected["prompt"][:]
    assert len([*tmp_path.glob("pods/prompts-*.arrow")]) == 2
    monkeypatch.setattr(tasks.splits, "render_for", lambda *_, **__: pytest.fail("rendered again"))
    again, dropped = read_prompts(config, TASK, "train", QWEN)
    assert dropped == 1
    assert again.to_list() == stored.to_list() == expected.to_list()


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [(512, "set at most 2, or give more questions"), (1, "raise sampling.max_prompt_length=1")],
)
def test_too_few_questions_are_blamed_on_the_limit_only_if_it_drops_any(monkeypatch, limit, remedy):
    columns = {"id": ["a", "b"], "question": ["1st", "2nd"], "answer": ["1", "2"]}
    monkeypatch.setattr(tasks.splits, "load_for", lambda *_: Dataset.from_dict(columns))
    config = compose("model=tiny", f"sampling.max_prompt_length={limit}", "prompts_per_step=4")
    with pytest.raises(UserError, match=rf"^prompts_per_step=4: .* questions; {remedy}$"):
        tasks.splits.load_prompts(config, QWEN)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "gsm8k"}, SYSTEM["math"]["instruct"]),
        ({"name": "own", "kind": "math"}, SYSTEM["math"]["instruct"]),
        ({"name": "chemistry"}, SYSTEM["choice"]["instruct"]),
        ({"name": "own", "kind": "choice"}, SYSTEM["choice"]["instruct"]),
        ({"name": "chemistry", "system": "Choose."}, "Choose."),
    ],
    ids=["math", "own math", "choice", "own choice", "the task's own text"],
)
def test_a_question_gets_the_system_text_of_its_task(changes, text):
    prompt = render_for("Which?", QWEN, TASK.model_copy(update=changes), MODEL)
    assert prompt == render_prompt("Which?", tokenizer=QWEN, system=text, date_string=DATE)


def with_template(name, **changes):
    """The prompt of a question by a template of tests/templates."""
    task = TASK.model_copy(update={"system": changes.pop("system", "S")})
    return render_for("1+1?", like("qwen", name), task, MODEL.model_copy(update=changes))


@pytest.mark.parametrize(
    ("name", "variables", "end", "think", "well_formed", "tags"),  # think: the completion's own
    [
        pytest.param("opens", {}, "<think>", "", True, 0.1, id="opened"),
        pytest.param("opens", {}, "<think>", "<think>", True, 0.075, id="opened twice"),
        pytest.param("closes", {}, "[assistant]", "", False, 0.075, id="not opened"),
        pytest.param("closes", {}, "[assistant]", "<think>", True, 0.1, id="its own"),
        pytest.param("closes", NO_THINKING, "</think>", "", False, 0.075, id="closed, not opened"),
        pytest.param("closes", NO_THINKING, "</think>", "<think>", True, 0.1, id="closed, its own"),
    ],
)
def test_format_and_tags_count_the_think_that_a_template_opens(
    name, variables, end, think, well_formed, tags
):
    prompt = with_template(name, chat_template_kwargs=variables)
    assert prompt.endswith(end)
    text = f"{think}1</think><answer>2</answer>"
    assert is_well_formed(opened(prompt) + text) == well_formed
    row = {"prompts": [prompt], "completions": [text], "answer": ["2"], "kind": ["math"]}
    rewards = Rewards(compose("rewards=v2").rewards)
    values = {reward.__name__: reward(**row)[0] for reward in rewards.functions}
    assert values["tags"] == pytest.approx(tags)


def test_a_model_brings_its_system_text_and_mistakes_are_named():
    model = MODEL.model_copy(update={"system": "Think: on"})
    prompt = render_for("1+1?", QWEN, TASK.model_copy(update={"system": "S"}), model)
    assert prompt.startswith("<|im_start|>system\nThink: on\nS<|im_end|>")
    with pytest.raises(UserError, match=r"^task.system: .* \(a system message comes first\); set"):
        with_template("needs_system", system="")
    with pytest.raises(UserError, match=r"^model.chat_template_kwargs=.* of m has no thinking;"):
        with_template("opens", chat_template_kwargs={"thinking": True})
