"""The strict grader: what it credits, what it does not, and that no text can stall or fool it."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

import rewards
from rewards.quantities import quantity, rational
from rewards.scorer import Scorer
from rewards.strict import Doubt, _split, decide
from rewards.symbolic import Verifier
from rewards.tidying import _unboxed, spoken
from tests.conftest import ROOT

RIGHT = [
    # gold, the answer block, why it is right
    ("18", "18", "as written"),
    ("18", "$18$", "mathematics"),
    ("18", "\\[ \\boxed{18} \\]", "boxed"),
    ("18", "The final answer is \\(18\\).", "a label before it"),
    ("18", "**18**", "bold"),
    ("18", "\\$18.00", "currency, exact decimals"),
    ("18", "18.", "a final full stop"),
    ("18", "36/2", "an exact rational"),
    ("18", "18 dollars", "a unit"),
    ("18", "18 dollars every day at the market.", "unit words"),
    ("18", "$18/day", "a rate"),
    ("18", "18\\text{ cm}^2", "a unit in LaTeX"),
    ("18", "18cm", "a unit without a space"),
    ("18", "She makes $18 every day at the market.", "a plain statement with one number"),
    ("70000", "The profit Josh made is $70,000.", "a plain statement with one number"),
    ("18", "9 * 2 = 18", "the right-hand side"),
    ("18", "x + y = 18", "an unknown sum"),
    ("18", "price = 9 eggs * $2/egg = $18 per day", "the last right-hand side"),
    ("1000", "1,000", "thousands"),
    ("1000", "1,\\!000", "thousands in LaTeX"),
    ("5000000", "5 million", "a multiplier"),
    ("0.5", "1/2", "rationals"),
    ("\\frac12", "0.5", "rationals"),
    ("\\frac12", "½", "a vulgar fraction"),
    ("\\frac{7}{2}", "3½", "a mixed number"),
    ("-3", "−3", "a unicode minus"),
    ("-3", "\\(-3\\)", "the sign kept"),
    ("50\\%", "50%", "a percentage against a percentage"),
    ("50\\%", "50 percent", "in words"),
    ("45^\\circ", "45°", "degrees"),
    ("3\\pi", "3π", "unicode"),
    ("\\sqrt{2}", "√2", "a root sign"),
    ("(3, \\frac{\\pi}{2})", "(3, π/2)", "a tuple, element by element"),
    ("\\{1, 2\\}", "{2, 1}", "a set in any order"),
    ("1,-2", "x = -2 or x = 1", "a list of solutions"),
    ("(-\\infty, 2]", "(-∞, 2]", "an interval"),
    ("\\text{Evelyn}", "evelyn.", "words"),
    ("\\text{(E)}", "E", "a letter"),
    ("x^2+3x+2", "$x^2 + 3x + 2$", "symbols as written"),
    ("x = 5", "5", "the value of an unknown"),
    ("f(x) = 2x + 1", "f(x) = \\boxed{2x+1}", "a function"),
    ("23", "x = \\boxed{23}", "boxed behind its name"),
    ("216", "18 dozen", "a multiplier"),
    ("216", "\\boxed{18} dozen", "a multiplier behind the box"),
    ("18", "Therefore, she makes \\boxed{18} dollars a day.", "prose and a unit around the box"),
    ("18", "x^2=324 \\\\ x = \\boxed{18}", "the last row"),
    ("18", "2x = 36, so x = 18", "the last clause"),
    ("18", "2x = 36 \\Rightarrow x = 18", "the last clause"),
    ("18", "the total = 3 x 6 = 18", "prose and arithmetic"),
    ("15", "5cm * 3cm = 15", "units are no unknowns"),
    ("120", "\\angle ABC = 120^\\circ", "the name of an angle"),
    ("5", "\\theta_{\\text{max}} = 5", "an index"),
    ("2x+1", "f^{-1}(x) = 2x + 1", "the name of a function"),
    ("(1,2)", "(x, y) = (1, 2)", "a tuple of names"),
    ("10\\pi\\text{ cm}^2", "10\\pi", "the gold answer's unit"),
]
WRONG = [
    ("18", "", "nothing"),
    ("18", "I do not know, but 18", "the last number of a text"),
    ("18", "18 or 19", "two answers"),
    ("18", "She has 9 and makes 18", "a statement with two numbers"),
    ("18", "It might be 18", "a guess"),
    ("18", "It is about 18", "a guess"),
    ("18", "It is not 18", "a denial"),
    ("18", "He has twice 18", "a multiple"),
    ("18", "The number 18", "no statement"),
    ("18", "after long thought 18", "no statement"),
    ("18", "Is it 18?", "a question"),
    ("18", "It is 18. No, it is 19", "two sentences"),
    ("18", "It is -18", "the sign"),
    ("18", "18 and a half", "more than the number"),
    ("18", "3 18", "two numbers"),
    ("34", "3 4", "numbers are not joined"),
    ("18", "-18", "the sign"),
    ("-18", "18", "the sign"),
    ("18", "18x", "a term"),
    ("18", "18 pi", "a multiple"),
    ("18", "18 million", "a multiplier"),
    ("18", "18 dozen", "a multiplier"),
    ("18", "18 hundreds", "a multiplier"),
    ("18", "18 thousandths", "a divisor"),
    ("18", "18\\text{ half}", "a divisor"),
    ("18", "18 below zero", "the direction"),
    ("18", "\\boxed{18} below zero", "what stands behind a box"),
    ("18", "$\\boxed{18}\\%$", "what stands behind a box"),
    ("18", "\\boxed{18}^2", "what stands behind a box"),
    ("18", "-\\boxed{18}", "what stands before a box"),
    ("18", "half of \\boxed{18}", "what stands before a box"),
    ("18", "x^2 = \\boxed{18}", "what stands before a box"),
    ("18", "x < \\boxed{18}", "what stands before a box"),
    ("18", "18 in debt", "the direction"),
    ("18", "18 short", "the direction"),
    ("18", "18 years ago", "the direction"),
    ("18", "18 negative", "the sign"),
    ("18", "half of 18", "a multiple"),
    ("18", "18 at most", "a bound"),
    ("18", "~18", "about 18"),
    ("18", "18\\text{ 17}", "two numbers"),
    ("0.3", "0.\\overline{3}", "the bar repeats the digit"),
    ("18", "18%", "a percentage is no number"),
    ("18\\%", "18", "a number is no percentage"),
    ("\\sqrt{51}", "\\sqrt{51}\\%", "a percentage is no number"),
    ("5", "2x=5", "a multiple of the unknown"),
    ("5", "-x=5", "its opposite"),
    ("4", "x^2=4", "its square"),
    ("5", "x + 1 = 5", "a sum with a number"),
    ("5", "x/2 = 5", "a part of the unknown"),
    ("5", "|x| = 5", "its size"),
    ("5", "\\sqrt{x} = 5", "its root"),
    ("5", "y = 2x = 5", "a chain through a multiple"),
    ("5", "2 * price = 5", "a multiple in words"),
    ("5", "twice the price = 5", "a multiple in words"),
    ("5", "x! = 5", "a factorial or an inequality"),
    ("5", "4 = 5", "another number"),
    ("5", "x < 9 = 5", "an inequality"),
    ("x=5", "y=5", "another unknown"),
    ("2x=5", "5", "an equation is no value"),
    ("\\pi", "2x=\\pi", "a multiple of the unknown, before computer algebra"),
    ("5", "5 squared", "not a unit"),
    ("5", "x = 3 or x = 5", "one of two solutions"),
    ("5", "x ≥ 5", "an inequality"),
    ("5", "x != 5", "an inequality"),
    ("5", "We reject x = 5", "taken back"),
    ("0.5", "50%", "a percentage is no fraction"),
    ("\\frac12", "50%", "a percentage is no fraction"),
    ("32", "\\binom{3}{2}", "unknown macros do not vanish"),
    ("\\frac{5}{3}", "\\frac{1+2}{3}", "a sum over the bar"),
    ("-\\frac{3}{2}", "-1+1/2", "no arithmetic"),
    ("23", "2**3", "no arithmetic"),
    ("5", "It is not \\boxed{5}", "taken back"),
    ("2x - 3y + 4 = 0", "x + y = 0", "another equation"),
    ("5h", "5", "a variable is no unit"),
    ("\\sqrt{2}", "\\sqrt[3]{2}", "the degree of a root"),
    ("(1,2)", "(2,1)", "order"),
    ("(1,2)", "[1,2]", "brackets"),
    ("\\{1,2\\}", "\\{1,2,3\\}", "length"),
    ("\\{1,1,2\\}", "\\{1,2,2\\}", "multiplicity"),
    ("1,-2", "1, 2", "one element"),
    ("\\pi", "3.14159", "an approximation"),
    ("\\text{Evelyn}", "Eve", "part of a word"),
    ("1000", "1000" + " x" * 500, "an essay"),
]
SYMBOLIC = [
    # gold, given, equal to a computer algebra system
    ("x^2+3x+2", "(x+1)(x+2)", True),
    ("\\frac{\\sqrt{3}}{2}", "\\frac{3}{2\\sqrt{3}}", True),
    ("3 \\pm \\sqrt{2}", "3+\\sqrt{2}, 3-\\sqrt{2}", True),
    ("x^2+3x+2", "(x+1)(x+3)", False),
    ("\\sqrt{2}", "\\sqrt[3]{2}", False),
]
HOSTILE = {
    "power tower": "9^{9^{9^{9^{9}}}}",
    "factorials": "((((9!)!)!)!)!",
    "deep braces": "{" * 500,
    "deep brackets": "(" * 50_000,
    "deep fractions": "\\frac{" * 100,
    "a million digits": "9" * 1_000_000,
    "a million digits of pi": "\\pi + " + "9" * 1_000_000,
    "megabytes of tags": "<think></think><answer></answer>" * 100_000,
    "open answers": "<answer>" * 300_000,
    "closed answers": "</answer>" * 300_000,
    "thousands": "1,000" * 100_000,
    "spaces": " " * 2_000_000,
    "newlines": "\n" * 2_000_000,
    "null bytes": "\x00" * 1_000_000,
    "lone surrogates": "\ud800\udfff" * 100_000,
    "python": "__import__('os').abort()",
    "equals": "=" * 100_000,
    "separators": "1," * 100_000,
    "sets of sets": "\\{" * 250 + "1,2" + "\\}" * 250,
}


def block(answer: str) -> str:
    return f"<think>reasons</think><answer>{answer}</answer>"


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer("strict", workers=2, deadline_seconds=100) as made:  # the machine may be busy
        yield made


@pytest.mark.parametrize(("gold", "answer", "why"), RIGHT)
def test_right(gold: str, answer: str, why: str) -> None:
    assert decide(block(answer), gold) is True, why


@pytest.mark.parametrize(("gold", "answer", "why"), WRONG)
def test_wrong(gold: str, answer: str, why: str, scorer: Scorer) -> None:
    assert scorer.grade([block(answer)], [gold], ["math"]) == [False], why


@pytest.mark.parametrize(
    "completion",
    [
        "18",
        "<answer>18",
        "18</answer>",
        "The answer is 18",
        "<answer></answer>18",
        "<answer>17</answer>18",
    ],
)
def test_only_a_closed_block_counts(completion: str) -> None:
    assert decide(completion, "18") is False


def test_the_last_block_counts() -> None:
    assert decide(block("17") + block("18"), "18") is True
    assert decide(block("18") + block("17"), "18") is False


def test_algebra_is_asked_in_a_worker(scorer: Scorer) -> None:
    completions = [block(given) for _, given, _ in SYMBOLIC]
    doubts = [decide(c, gold) for c, (gold, *_) in zip(completions, SYMBOLIC, strict=True)]
    assert all(isinstance(doubt, Doubt) for doubt in doubts)
    assert scorer.grade(completions, [gold for gold, *_ in SYMBOLIC], ["math"] * 5) == [
        equal for *_, equal in SYMBOLIC
    ]
    assert scorer.timeouts == 0


def test_a_nested_sum_never_reaches_computer_algebra() -> None:
    double = "\\sum_{i=1}^{99}\\sum_{j=1}^{99}\\frac{1}{%s}"
    assert decide(block(double % "i+j"), double % "j+i") is False  # 2 s until it is given up


def test_without_workers_a_doubt_is_wrong() -> None:
    alone = Scorer("strict", workers=0, deadline_seconds=1)
    assert alone.grade([block("(x+1)(x+2)")], ["x^2+3x+2"], ["math"]) == [False]


@pytest.mark.parametrize("version", rewards.VERSIONS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_scores_and_comes_to_an_end(name: str, version: str) -> None:
    text = HOSTILE[name]
    for completion, gold in itertools.product((text, block(text)), ("18", "\\frac{\\pi}{2}")):
        scores = rewards.score([completion], [gold], version=version)
        assert scores["correctness"] == [0.0]
        assert 0.0 <= scores["format"][0] + scores["tags"][0] <= 0.2


def test_a_late_answer_scores_nothing_and_is_counted() -> None:
    with Scorer("strict", workers=1, deadline_seconds=1e-6) as hurried:
        scores = hurried.score([block("(x+1)(x+2)")] * 2, ["x^2+3x+2"] * 2, ["math"] * 2)
        assert scores["correctness"] == [0.0, 0.0]
        assert hurried.timeouts == 2


def test_a_late_verdict_is_asked_again_and_a_settled_one_is_not() -> None:
    class Slow:
        """A verifier that is late the first time."""

        def __init__(self) -> None:
            self.asked: list[list[Doubt]] = []

        def ask(self, doubts: list[Doubt]) -> list[bool | None]:
            self.asked.append(doubts)
            return [None if len(self.asked) == 1 else d.given == "(x+1)(x+2)" for d in doubts]

    scorer = Scorer("strict", workers=0, deadline_seconds=1)
    scorer._verifier = slow = Slow()
    batch = [block("(x+1)(x+2)"), block("(x+1)(x+3)")], ["x^2+3x+2"] * 2, ["math"] * 2
    grades = [scorer.grade(*batch) for _ in range(3)]
    assert grades == [[False, False], [True, False], [True, False]]
    assert [len(doubts) for doubts in slow.asked] == [2, 2, 0]  # right and wrong are both known
    assert scorer.timeouts == 2


def test_a_dead_server_is_replaced() -> None:
    doubt = Doubt("(x+1)(x+2)", "x^2+3x+2")
    with Verifier(workers=1, deadline_seconds=100) as verifier:
        first = verifier._server.pid
        assert verifier.ask([doubt]) == [True]
        assert verifier._server.pid == first  # loading math-verify for every question is slow
        os.kill(first, signal.SIGKILL)
        verifier._server.wait()
        assert verifier.ask([doubt]) == [True]


def test_closing_ends_every_process() -> None:
    verifier = Verifier(workers=1, deadline_seconds=100)
    group = verifier._server.pid
    verifier.close()
    verifier.close()  # twice is harmless
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the server outlived its verifier")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1,234.50", "-2469/2"),
        (".5", "1/2"),
        ("1 1/2", "3/2"),
        ("1.5*10^3", "1500"),
        ("6/4", "3/2"),
    ],
)
def test_rationals_are_exact(text: str, value: str) -> None:
    assert str(rational(text)) == value


@pytest.mark.parametrize("text", ["", "1/0", "1,00", "1e5", "inf", "nan", "1_0", "٣", "--5", "5-5"])
def test_what_is_no_rational(text: str) -> None:
    assert rational(text) is None
    assert quantity(text) is None


def test_a_list_is_split_outside_its_brackets():
    assert _split("(1, 2), 3 and [4;5] or 6") == ["(1, 2)", "3", "[4;5]", "6"]
    assert _split("1,,2") == ["1", "", "2"]
    assert _split(",2") == ["", "2"]


def test_the_server_finds_this_package_from_any_folder_and_takes_no_gpu(monkeypatch):
    started = {}
    monkeypatch.setattr(subprocess, "Popen", lambda command, **given: started.update(given))
    monkeypatch.setenv("PYTHONPATH", "before")
    Verifier(2, 1.5)._server = None
    assert started["env"]["PYTHONPATH"] == f"{ROOT}{os.pathsep}before"
    assert started["env"]["CUDA_VISIBLE_DEVICES"] == ""
    assert started["start_new_session"]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{18}", " 18"),
        ("The answer is \\boxed{18} dollars each day", " 18"),
        ("\\boxed{\\frac{1}{2}} cm", " \\frac{1}{2}"),
        ("\\boxed{\\sqrt{3}} is it, 5 more", " \\sqrt{3} is it"),
    ],
)
def test_a_box_ends_at_its_own_brace(text: str, content: str) -> None:
    assert _unboxed(text) == content


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\\frac{1}{2}", "1/2"),
        ("\\frac{1}{}", "1/"),
        ("\\frac12", "1/2"),
        ("{3}", "3"),
        ("\\text{3 cm}", "3 cm"),
        ("- 5", "-5"),
        ("2 \\times 3", "2 * 3"),
        ("50\\%", "50%"),
    ],
)
def test_a_quantity_as_it_is_spoken(text: str, said: str) -> None:
    assert spoken(text) == said
