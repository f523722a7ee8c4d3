"""The strict grader: what it credits, what it does not, and that no text can stall or fool it."""

import os
import signal
import time
from contextlib import closing

import psutil
import pytest

import rewards
from rewards import Scorer, verifier

SLOW = "(x+1)^{19}(x+2)^{19}(x+3)^{19}"  # computer algebra takes long to compare it
HOSTILE = [
    "9^{9^{9^{9^{9}}}}",
    "9**9**9",
    "10^10^10",
    "((((9!)!)!)!)!",
    "x+99999999!",
    "(x+y+z+1)^{300}",
    "\\binom{10^9}{5\\cdot 10^8}",
    "\\sum_{i=1}^{10^{12}} i^{50}",
    "\\int \\int e^{x^2 y^2} dx dy",
    "\\pi + " + "9" * 180,
    "{" * 90 + "x" + "}" * 90,
    "\\frac{" * 30 + "x" + "}{2}" * 30,
    "(" * 100_000,
    "9" * 1_000_000,
    "1,000" * 100_000,
    " " * 2_000_000,
    "\x00" * 1_000_000,
    "<think></think><answer></answer>" * 100_000,
    "<answer>" * 300_000,
    "</answer>" * 300_000,
    "\ud800\udfff" * 90,
    "__import__('os').abort()",
    "x=" * 90 + "1",
    "\\boxed{" * 80,
    "She makes " * 59 + "17!",
]


def block(answer: str) -> str:
    return f"<think>reasons</think><answer>{answer}</answer>"


@pytest.mark.parametrize("completion", ["18", "<answer>18", "18</answer>"])
def test_what_is_no_closed_block_is_no_answer(completion):
    assert rewards.grade(completion, "18", "strict") is False


@pytest.mark.parametrize("gold", ["18", "x+\\frac{\\pi}{2}"])
@pytest.mark.parametrize("version", ["v1", "v2", "strict"])
def test_hostile_text_scores_and_comes_to_an_end(version, gold):
    texts = [form for text in HOSTILE for form in (text, block(text))]
    scores = rewards.score(texts, [gold] * len(texts), version=version)
    assert scores["correctness"] == [0.0] * len(texts)
    bonus = [sum(pair) for pair in zip(scores["format"], scores["tags"], strict=True)]
    assert 0.0 <= min(bonus) <= max(bonus) <= 0.2


def wait_until_gone(pids: list[int]) -> None:
    """Fails unless every process ends (a zombie counts as ended) within 60 s."""
    for _ in range(600):
        alive = [process for process in psutil.process_iter(["status"]) if process.pid in pids]
        if all(process.info["status"] == psutil.STATUS_ZOMBIE for process in alive):
            return
        time.sleep(0.1)
    pytest.fail(f"processes {alive} outlived their scorer")


def test_a_late_answer_scores_nothing_has_no_verdict_and_is_counted():
    batch = [block(SLOW)] * 2, ["x+1"] * 2, ["math"] * 2  # slow
    with closing(Scorer("strict", workers=1, deadline_seconds=0.05)) as scorer:
        assert scorer.score(*batch, [""] * 2)["correctness"] == [0.0, 0.0]
        assert scorer.timeouts == 2
        os.kill(scorer._verifier._server.pid, signal.SIGKILL)  # a dead server is replaced
        assert scorer.grade(*batch) == [None, None]
        assert scorer.timeouts == 4
        server = scorer._verifier._server
        scorer.close()  # twice is harmless
    wait_until_gone([server.pid])
    with closing(Scorer("strict", workers=0, deadline_seconds=1)) as scorer:
        assert scorer.grade(*batch) == [False, False]  # without computer algebra
        assert scorer.timeouts == 0


def test_a_comparison_that_waits_without_using_the_processor_ends_too(monkeypatch):
    """In a child of the test: the verifier's own child, whose comparison sleeps."""
    monkeypatch.setattr(verifier, "WALL_SECONDS", 0.2)

    def wait(*pair: str) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the test runner may have a handler
        time.sleep(60)

    monkeypatch.setattr(verifier, "equal", wait)
    assert verifier._verdict(verifier._fork(("1", "1"), deadline_seconds=30)) is None


@pytest.mark.parametrize("gold", ["9" * 5000, "1." + "0" * 5000, "9" * 5000 + "x"])
def test_a_gold_answer_of_any_length_is_graded(gold):
    assert rewards.grades([block("9"), block("x")], [gold, gold], "strict") == [False, False]


def test_a_batch_leaves_out_and_prints_what_has_no_verdict(capsys):
    pairs = [("(x+1)(x+2)", "x^2+3x+2"), ("18", "18"), ("17", "18")]
    completions = [block(answer) for answer, _ in pairs]
    golds = [gold for _, gold in pairs]
    assert rewards.grades(completions, golds, "strict") == [True, True, False]
    assert capsys.readouterr().err == ""
    completions[0], golds[0] = block(SLOW), "x+1"  # slow
    verdicts = rewards.grades(completions, golds, "strict", deadline_seconds=0.05)
    assert verdicts == [None, True, False]
    assert capsys.readouterr().err == (
        "rewards=strict: 1 of 3 completions without a verdict: their comparison took more than "
        "0.05 s of processor time; raise deadline_seconds\n"
    )
