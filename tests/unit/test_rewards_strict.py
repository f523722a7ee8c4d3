"""The strict grader: what it credits, what it does not, and that no text can stall or fool it."""

import json
from collections import Counter

import pytest

import rewards
from tests.conftest import ROOT

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
    "(x+1)^{19}(x+2)^{19}(x+3)^{19}",
    "(((x+1)!+1)!+1)!",
    "e^{e^{e^{e^{e^{e^x}}}}}",
    "2^{2^{2^{2^{2^{2}}}}}",
    "\\sin(10^{999})",
    "\\binom{x}{9^{99}}",
    "\\binom{\\binom{\\binom{\\binom{x}{2}}{3}}{4}}{5}",
    "\\binom{9^{99}}{\\binom{9^{98}}{9^{97}}}",
    "\\sqrt[999999999]{2}",
    "\\sqrt[0]{2}",
    "0^{-1}",
    "1/0",
    "x" + "+x" * 290,
    "(" * 290 + "x" + ")" * 290,
    "+".join("abcdfghjklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "\\pm 1," * 80 + "1",
    "5 m" + "/s" * 270,
    "the value of " + "a " * 270 + "is",
    "\\begin{pmatrix}" + "1&" * 200 + "1\\end{pmatrix}",
    "1e999",
]

REFUSED = {  # right answers in strict_pairs.jsonl that the grammar does not read yet
    "[0,1]\\cup[2,3]\\cup[4,9]",
    "Yes, since there is no remainder",
    "True, because no prime divides it",
    "x_1 = 1+\\sqrt{19}, x_2 = 1-\\sqrt{19}",
    "from 20 to 30 min",
    "20–30 min",
    "20 - 30 mins",
    "18 more",
    "Vince is now 9.",
    "a right angle, 90°",
    "20\\text{--}30 minutes",
    "07:30",
    "half past seven in the morning",
    "sulfuric acid (H2SO4)",
    "glucose, C6H12O6",
    "Part (a): 12. Part (b): 30.",
    "1-\\left(\\frac{5}{6}\\right)^2=\\frac{11}{36}",
    "120 degrees (obtuse)",
    "1358_{10} = 2516_8",
    "18 (not 20)",
    "Friday 1 March 2024",
    "18 rather than 20",
    "18, not 20",
    "2 times the square root of 5",
    "P(8, -2)",
    "eleven thirty-sixths",
    "from -2 to 7, inclusive",
    "m = 9, n = 16, giving m + n = 25",
    "\\frac15\\begin{pmatrix}1\\\\-18\\end{pmatrix}",
}


GOLDS = ["18", "x+\\frac{\\pi}{2}", "(1,2)", "x=5", "5 cm", "Paris", "1,2,3", "B", "CO2", "9:30"]


def block(answer: str) -> str:
    return f"<think>reasons</think><answer>{answer}</answer>"


@pytest.mark.parametrize("completion", ["18", "<answer>18", "18</answer>"])
def test_what_is_no_closed_block_is_no_answer(completion):
    assert rewards.grade(completion, "18", "strict") is False


@pytest.mark.parametrize("gold", ["18", "x+\\frac{\\pi}{2}"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_hostile_text_scores_and_comes_to_an_end(version, gold):
    texts = [form for text in HOSTILE for form in (text, block(text))]
    assert_no_credit(rewards.score(texts, [gold] * len(texts), version=version))


@pytest.mark.parametrize("gold", GOLDS)
def test_hostile_text_is_no_answer_of_strict(gold):
    texts = [form for text in HOSTILE for form in (text, block(text))]
    assert_no_credit(rewards.score(texts, [gold] * len(texts), version="strict"))


def assert_no_credit(scores: dict[str, list[float]]) -> None:
    assert set(scores["correctness"]) == {0.0}
    bonus = [sum(pair) for pair in zip(scores["format"], scores["tags"], strict=True)]
    assert 0.0 <= min(bonus) <= max(bonus) <= 0.2


@pytest.mark.parametrize("gold", HOSTILE)
def test_any_text_may_be_a_gold_answer(gold):
    assert rewards.grade(block("7 B x"), gold, "strict") is False
    assert rewards.grade(block("B"), gold, "v1", kind="choice") is False
    assert isinstance(rewards.gold_type(gold), str)


@pytest.mark.parametrize(
    "area", ["\\text{ sq.}~\\text{cm}", "\\ \\text{sq}\\ \\text{cm}", " square  cm"]
)
def test_spaces_of_latex_do_not_hide_the_unit_of_an_expression(area):
    answer = block("36\\pi" + area)
    golds = {"36\\pi": True, "36\\pi\\text{ cm}^2": True, "36\\pi\\text{ cm}": False}
    assert {gold: rewards.grade(answer, gold, "strict") for gold in golds} == golds


@pytest.mark.parametrize("error", [AttributeError, RecursionError, TypeError])
def test_no_error_of_the_reader_ends_a_training(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(rewards.reading.Reader, "math", fail)
    rewards.reading.read.cache_clear()
    rewards.reading.gold_reading.cache_clear()
    assert rewards.grade(block("\\sqrt{2}+1"), "1+\\sqrt{2}", "strict") is False
    assert rewards.grade(block("1+\\sqrt{2}"), "1+\\sqrt{2}", "strict") is True
    rewards.reading.read.cache_clear()
    rewards.reading.gold_reading.cache_clear()


def test_the_shared_pairs(shared):
    """No wrong answer is credited, and of the right ones at least 97 % are accepted."""
    rows = (shared / "reference" / "grade_pairs3.jsonl").read_text().splitlines()
    counts = Counter()
    credited = []
    for row in map(json.loads, rows):
        verdict = rewards.grade(row["completion"], row["gold"], "strict", row["kind"])
        counts[row["right"], verdict] += 1
        if verdict and not row["right"]:
            credited.append(row)
    assert credited == []
    assert counts[True, True] / (counts[True, True] + counts[True, False]) > 0.97


def test_the_pairs_of_everyday_answers():
    """strict_pairs.jsonl: written after the grammar, by kinds of answers. No wrong one is credited;
    of the right ones those in REFUSED stay refused."""
    rows = (ROOT / "tests" / "unit" / "strict_pairs.jsonl").read_text().splitlines()
    mistakes = [
        (answer, row["gold"], verdict)
        for row in map(json.loads, rows)
        for verdict, answers in ((True, row["right"]), (False, row["wrong"]))
        for answer in answers
        if rewards.grade(block(answer), row["gold"], "strict") is not verdict
    ]
    assert [mistake for mistake in mistakes if not mistake[2]] == []
    assert {answer for answer, _, _ in mistakes} == REFUSED


def test_the_page_of_answers_shows_verdicts():
    """docs/answers.md: three right and three wrong answers for a gold of each type."""
    lines = (ROOT / "docs" / "answers.md").read_text().splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| `")]
    types = set()
    for name, gold, *answers in rows:
        gold, name = gold.strip(" `"), name.strip(" `")
        types.add(name)
        assert rewards.gold_type(gold) == name
        for verdict, texts in zip((True, False), answers, strict=True):
            texts = texts.strip().strip("`").split("`, `")
            assert len(texts) >= 3
            kind = "choice" if name == "letter" else "math"
            graded = {t: rewards.grade(block(t), gold, "strict", kind) for t in texts}
            assert graded == dict.fromkeys(texts, verdict), gold
    assert len(types) == 16
