"""chat.py on the tiny policy: which policies answer, the verdicts, and text that is no markup."""

import io
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pods.config import command
from pods.engines import Completion
from pods.engines import evaluation as engines
from pods.evaluation.config import check_one
from pods.models.policy import load_tokenizer
from scripts import chat
from tests.fake_run import TINY, make_run

QUESTION = "12+5-3=?"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), steps=(2, 4), scale=0.05)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """(drawn, work) of everything that the real engine is asked."""
    seen, build = [], engines.build

    def watched(*arguments: Any) -> Any:
        engine = build(*arguments)
        generate = engine.generate

        def noted(works: list) -> Any:
            seen.extend((arguments[3], work) for work in works)
            return generate(works)

        engine.generate = noted
        return engine

    monkeypatch.setattr(engines, "build", watched)
    return seen


def say(monkeypatch: pytest.MonkeyPatch, text: str, *overrides: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    composed = command.compose(
        "chat", chat.ChatConfig, ["run=fake", *overrides], command.CONFIG_DIR / "checkpoint"
    )
    config = command.typed(chat.ChatConfig, composed)
    check_one(config)
    chat.chat(config, "transformers", "a test")


def test_base_and_checkpoint_get_the_same_prompt_and_seed(
    run: Path, asked: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    say(monkeypatch, f"\n{QUESTION}\n{QUESTION}", "checkpoint=2", "temperature=0", "max_tokens=9")
    assert [work.weights for _, work in asked] == [None, run / "checkpoint-2"] * 2
    requests = [work.requests for _, work in asked]
    assert requests[0] == requests[1]
    assert requests[2] == requests[3] != requests[0]  # asked again, another seed
    prompt = load_tokenizer(str(TINY)).decode(requests[0][0].prompt)
    assert prompt == f"<user>{QUESTION}<assistant>"
    assert (asked[0][0].temperature, asked[0][0].max_tokens) == (0, 9)
    shown = capsys.readouterr().out
    assert shown.count(QUESTION) == 2
    assert shown.count("checkpoint-2") == 2


def answering(monkeypatch: pytest.MonkeyPatch, *completions: str) -> None:
    """An engine that gives these texts, one to each policy."""
    tokenizer = load_tokenizer(str(TINY))
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in completions]

    def generate(works: list) -> Any:
        return [(w, [[Completion(i, clipped=False)]]) for w, i in zip(works, ids, strict=True)]

    engine = nullcontext(SimpleNamespace(generate=generate))
    monkeypatch.setattr(engines, "build", lambda *_: engine)


def test_a_gold_answer_is_graded_for_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    right = "<think>12+5=17</think><answer>14</answer>"
    answering(monkeypatch, "<answer>15</answer>", right)
    say(monkeypatch, f"{QUESTION} => 14")
    shown = capsys.readouterr().out
    assert "wrong, not 14, 4 tokens, not well formed" in shown
    assert "right, 13 tokens, well formed" in shown
    say(monkeypatch, QUESTION)
    without = capsys.readouterr().out
    assert "right" not in without
    assert "wrong" not in without


def test_text_is_never_markup_nor_control_characters() -> None:
    table = chat.side_by_side("[red]q[/red]\x1b[2J", {"base": ("[bold]a\x07", "[i]wrong")})
    console = chat.Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(table)
    shown = console.file.getvalue()
    assert "[red]q[/red]�[2J" in shown
    assert "[bold]a�" in shown
    assert "[i]wrong" in shown


def test_a_prompt_over_the_runs_limit_is_named_and_the_next_line_answered(
    asked: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    say(monkeypatch, f"{'1+' * 300}1=?\n{QUESTION}\n", "max_tokens=4")
    assert "tokens, over 512 as in training" in capsys.readouterr().err
    assert len(asked) == 2
