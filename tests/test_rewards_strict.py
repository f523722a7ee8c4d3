"""The strict grader: what it credits, what it does not, and that no text can stall or fool it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import psutil
import pytest

import rewards
from rewards import Scorer, verifier
from tests.conftest import ROOT

CORRECT = {  # gold: answers
    "18": [
        "$18$",
        "\\[ \\boxed{18} \\]",
        "The final answer is \\(18\\).",
        "**18**",
        "\\$18.00",
        "18.",
        "36/2",
        "\\frac{36}{2}",
        "18 dollars every day.",
        "$18/day",
        "18\\text{ cm}^2",
        "18cm",
        "She makes $18 every day.",
        "9 * 2 = 18",
        "9 eggs * $2/egg = $18 per day",
        "x = \\boxed{18}",
        "2x = 36, so x = 18",
        "x^2=324 \\\\ x = \\boxed{18}",
        "the total = 3 x 6 = 18",
        "f(3) = 18",
        "18 cm³",
        "17</answer><answer>18",
    ],  # the last closed block counts
    "1000": ["1,000", "1,\\!000", "1e3", "1.0e+3 eggs"],
    "1.5e-3": ["0.0015"],
    "0.5": ["1/2", "\\frac12"],
    "\\frac{7}{2}": ["3\\frac{1}{2}"],
    "-3": ["−3", "\\(-3\\)"],
    "50\\%": ["50%", "50 percent"],
    "45^\\circ": ["45°"],
    "x = 5": ["5"],
    "\\text{Evelyn}": ["evelyn."],
    "\\text{(E)}": ["E"],
    "(3, \\frac{\\pi}{2})": ["(3, π/2)", "r = 3, \\theta = \\frac{\\pi}{2}"],
    "1,-2": ["x = -2 or x = 1", "**Final answer:** 1, -2"],
    "5\\text{ or }6": ["5 or 6"],
    "(-\\infty, 2]": ["(-∞, 2]"],
    "10\\pi\\text{ cm}^2": ["10\\pi"],
    "x^2+3x+2": ["$x^2 + 3x + 2$", "(x+1)(x+2)"],
    "3 \\pm \\sqrt{2}": ["3+\\sqrt{2}, 3-\\sqrt{2}"],
    "f(x) = 2x + 1": ["f(x) = \\boxed{2x+1}"],
}
WRONG = {
    "18": [
        "I do not know, but 18",
        "18 or 19",
        "She has 9 and makes 18",
        "It is not 18",
        "It is 18. No, 19",
        "It might be 18",
        "Is it 18?",
        "3 18",
        "18 and a half",
        "half of \\boxed{18}",
        "18 pi",
        "-18",
        "It is -18",
        "-\\boxed{18}",
        "18 below zero",
        "18 in debt",
        "It cannot be 18",
        "It doesn't equal 18",
        "18 is false",
        "anything except 18",
        "roughly 18",
        "probably 18",
        "unlikely 18",
        "I doubt 18",
        "approx 18",
        "over 18",
        "18 sevenths",
        "18 crore",
        "the reciprocal of 18",
        "the square of 18",
        "-f(3) = 18",
        "2f(3) = 18",
        "18x",
        "18/x",
        "18(x)",
        "18 million",
        "18 trillion",
        "18 divided by two",
        "18 mod five",
        "\\frac{18}{}",
        "18%",
        "$\\boxed{18}\\%$",
        "\\boxed{18}^2",
        "x^2 = \\boxed{18}",
        "x < \\boxed{18}",
        "~18",
        "18</answer><answer>17",
        "18" + " x" * 500,
    ],
    "5": [
        "\\frac{3 4}{2}",  # 17, not three and four halves
        "5e",
        "5e1",
        "2x=5",
        "-x=5",
        "x + 1 = 5",
        "|x| = 5",
        "\\sqrt{x} = 5",
        "y = 2x = 5",
        "2 * price = 5",
        "x = 3 or x = 5",
        "x ≥ 5",
        "We reject x = 5",
        "4 = 5",
        "3 = 4 = 5",
    ],
    "0.5": ["50%"],
    "0.3": ["0.\\overline{3}"],
    "18\\%": ["18"],
    "-18": ["18"],
    "34": ["3 4"],
    "32": ["\\binom{3}{2}"],
    "x=5": ["y=5"],
    "2x=5": ["5"],
    "5h": ["5"],  # math-verify takes h for a unit unless it is told not to
    "52_8": ["52"],
    "\\pi": [
        "2x=\\pi",
        "3.141593",
        "-\\pi",
        "\\pi\\%",
        "It is not \\pi",
        "\\pi\\text{ million}",
        "\\pi\\text{ is wrong}",
    ],
    "5\\text{ or }6": ["56"],
    "5\\text{ or more}": ["5"],
    "2\\sqrt{3}": ["2√", "-2\\sqrt{3}"],
    "\\sqrt{2}": ["\\sqrt[3]{2}"],
    "(1,2)": ["(2,1)", "[1,2]"],
    "\\{1,2\\}": ["\\{1,2,3\\}"],
    "\\text{Evelyn}": ["Eve", "-Evelyn"],
    "x^2+3x+2": ["(x+1)(x+3)"],
}
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


def test_answers():
    with closing(Scorer("strict", workers=2, deadline_seconds=20)) as scorer:
        rows = [
            (block(answer), gold, table is CORRECT)
            for table in (CORRECT, WRONG)
            for gold, answers in table.items()
            for answer in answers
        ]
        completions, golds, _ = zip(*rows, strict=True)
        grades = scorer.grade(completions, golds, ["math"] * len(rows))
        assert [*zip(completions, golds, grades, strict=True)] == rows
        unclosed = ["18", "<answer>18", "18</answer>"]
        assert scorer.grade(unclosed, ["18"] * 3, ["math"] * 3) == [False] * 3
        assert scorer.timeouts == 0


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
        scorer.close()  # twice is harmless
    wait_until_gone([scorer._verifier._server.pid])
    with closing(Scorer("strict", workers=0, deadline_seconds=1)) as scorer:
        assert scorer.grade(*batch) == [False, False]  # without computer algebra
        assert scorer.timeouts == 0


def busy() -> None:
    """Keep a core busy until killed, as another user's process does."""
    while True:
        pass


def test_a_verdict_does_not_depend_on_the_load_of_the_machine():
    """Four busy processes on the one core that the comparisons may use: they wait, and count only
    the processor's time that they use themselves."""
    count = 4
    golds = [f"(3,\\frac{{{k}\\pi}}{{2}})" for k in range(1, count + 1)]
    answers = [block(f"(3,\\frac{{{2 * k}\\pi}}{{4}})") for k in range(1, count + 1)]
    context = multiprocessing.get_context("fork")  # an interpreter of its own takes a second
    cores = os.sched_getaffinity(0)
    neighbours = [context.Process(target=busy) for _ in range(4)]
    os.sched_setaffinity(0, {min(cores)})  # inherited by every process that is started here
    try:
        for neighbour in neighbours:
            neighbour.start()
        with closing(Scorer("strict", workers=2, deadline_seconds=0.5)) as scorer:
            assert scorer.grade(answers, golds, ["math"] * count) == [True] * count
            assert scorer.timeouts == 0
    finally:
        os.sched_setaffinity(0, cores)
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.join()


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


def test_a_script_without_a_main_guard_is_run_once_and_no_process_outlives_it():
    """The server never imports the caller's main module, which may start training."""
    code = (
        "import sys; from rewards import Scorer\n"
        "scorer = Scorer('strict', workers=2, deadline_seconds=3)\n"
        "grades = scorer.grade(['<answer>(x+1)(x+2)</answer>'], ['x^2+3x+2'], ['math'])\n"
        "print(scorer._verifier._server.pid, grades, 'torch' in sys.modules, flush=True)\n"
        f"scorer.grade(['<answer>{SLOW}</answer>'], ['x+1'], ['math'])\n"
    )
    command = [sys.executable, "-c", code]
    trainer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid, line = trainer.stdout.readline().split(maxsplit=1)
    assert line == "[True] False\n"
    server = psutil.Process(int(pid))
    while not server.children():
        time.sleep(0.05)  # until the comparison runs
    pids = [server.pid, *(child.pid for child in server.children())]
    trainer.kill()
    trainer.communicate()
    wait_until_gone(pids)
