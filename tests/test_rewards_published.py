"""v1 and v2 as published: our own cases for every rule, and the shared sample to the bit."""

import json
from pathlib import Path

import pytest

import rewards
from rewards import published

EQUAL = [
    ("3\\pi", "3 π\\,", "unicode beside LaTeX"),
    # gold, given, why they are equal
    ("42", " 42 ", "outer spaces"),
    ("42", "$42$", "dollar signs"),
    ("42", "\\$42", "currency"),
    ("42", "42\\%", "per cent"),
    ("42", "\\boxed{42}", "an unknown macro vanishes, its content stays"),
    ("42", "\\[ 42 \\]", "display mathematics"),
    ("42", "\\text{42}", "text"),
    ("42", "42 minutes", "a unit of the list"),
    ("42", "42 meters^2", "a unit with its power"),
    ("42", "42.", "a float that is an integer"),
    ("42", "x=42", "a short left-hand side"),
    ("42", "x = 42", "a short left-hand side of one letter and a space"),
    ("x = 42", "42", "the same in the gold answer"),
    ("42", "AB=42", "a short left-hand side of two letters"),
    ("42", "42\\text{ apples}", "a unit in \\text"),
    ("4200", "4,200", "thousands"),
    ("4200", "4,\\!200", "thousands with a negative space"),
    ("1200", "1.2e3", "a float"),
    ("\\frac{3}{7}", "3/7", "a slash"),
    ("\\frac{3}{7}", "\\frac37", "no braces"),
    ("\\frac{3}{7}", "\\dfrac{3}{7}", "display style"),
    ("\\frac{1}{2}", "0.5", "the one decimal that is known"),
    ("\\frac{1}{2}", ".5", "a leading zero"),
    ("2\\frac{3}{7}", "2 3/7", "a mixed number"),
    ("\\sqrt{3}", "\\sqrt3", "a root without braces"),
    ("\\left( 2, 5 \\right)", "(2,5)", "sized brackets"),
    ("60^\\circ", "60", "degrees"),
    ("\\text{North}", "north", "case"),
    ("2,7", "2 and 7", "a list in words"),
    ("3/7", "(3/7)", "one element in brackets, the same written fraction"),
    ("2,000/7", "2000/7", "fractions whose thousands are written differently"),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "spacing"),
]
UNEQUAL = [
    ("3\\pi", "3π", "unicode is not read where there is no LaTeX"),
    ("42", "-42", "the sign"),
    ("42", "42,", "a comma is kept"),
    ("42", "42 apples", "not a unit of the list"),
    ("42", "6 * 7 = 42", "a long left-hand side"),
    ("42", "AB = 42", "a left-hand side of two letters and a space: three characters"),
    ("42", "x = y = 42", "two equals signs"),
    ("\\frac{1}{2}", "2/4", "fractions match as written"),
    ("0.25", "1/4", "only one half is known"),
    ("(1,2)", "[1,2]", "brackets"),
    ("(1,2)", "(2,1)", "order"),
    ("(1,2)", "(1,2,3)", "length"),
    ("42", "", "nothing"),
    ("42", "0" * 400 + "42", "longer than any answer"),
    ("x+1", "1+x", "no algebra"),
    ("42", "\\frac", "a macro without anything"),
    ("42", "5\\text{ a}\\text{ b}", "two units"),
    ("27", "27\n\\end{answer>", "a broken end stays as it is"),
    ("27", "27 \\item", "a list's bullet"),
    ("27", "27 \\blacksquare", "a character"),
    ("x", "\\mathsf{x}", "a macro that the converter drops with its argument"),
    ("\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "a row"),
    ("27", "27\\^", "an accent on nothing"),
]
ROWS = [
    # completion, gold, correct in v1, correct in v2, well-formed
    ("<think>a</think><answer>27</answer>", "27", True, True, True),
    ("It is 27 miles.", "27", True, False, False),  # v2 reads "27" and then "." as the number
    ("It costs 1,200", "1200", False, True, False),  # v1 reads 200
    ("I do not know, but 27", "27", True, True, False),
    ("minus -5", "5", True, True, False),  # both lose the sign
    ("<answer>5</answer> of 27", "27", True, True, False),
    ("<answer>27</answer><answer>5</answer>", "27", False, False, False),
    ("nothing here", "-1", True, True, False),  # no number reads as -1
    ("٣", "3", True, True, False),  # any decimal digits
]


@pytest.mark.parametrize(("table", "equal"), [(EQUAL, True), (UNEQUAL, False)])
def test_pairs(table: list[tuple[str, str, str]], equal: bool) -> None:
    assert [row for row in table if published.equal(row[1], row[0]) is not equal] == []


@pytest.mark.parametrize(("completion", "gold", "v1", "v2", "formed"), ROWS)
def test_rows(completion: str, gold: str, v1: bool, v2: bool, formed: bool) -> None:
    grades = [
        rewards.grade(completion, gold, version) for version in ("v1", "v1-correctness", "v2")
    ]
    assert [*grades, rewards.is_well_formed(completion)] == [v1, v1, v2, formed]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("\\sqrt", id="a root of nothing"),
        pytest.param("\\sqrt[" * 50, id="optional arguments without an end"),
        pytest.param("}\\frac{\\(}}" * 30, id="formulas without an end in arguments"),
        pytest.param("\\begin{pmatrix}&&" * 17, id="tables in tables"),
        pytest.param("\\title{\\maketitle\\maketitle}" * 9, id="titles in titles"),
    ],
)
def test_what_the_converter_cannot_read_within_its_bounds_stays_as_it_is(source: str) -> None:
    assert published.latex_as_text(source) is None
    assert not published.equal(source, "5")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("\\tfrac{3}{7}", "3/7"),
        ("\\dfrac{3}{7}", "3/7"),
        ("7\\tfrac34", "7+3/4"),
        ("2\\cdot3\\times4", "2*3*4"),
        ("\\sqrt{5}\\pi", "sqrt(5)pi"),
        ("(-\\infty, 1)\\cup(2, 3)", "(-inf,1)u(2,3)"),
    ],
)
def test_the_second_form_writes_latex_as_text(text: str, form: str) -> None:
    assert published.second_form(text) == form


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_shared_pairs(shared: Path) -> None:
    pairs = read(shared / "reference" / "grade_pairs.jsonl")
    assert len(pairs) > 1000
    assert [p for p in pairs if published.equal(p["given"], p["gold"]) != p["equal"]] == []


def test_the_shared_sample(shared: Path) -> None:
    rows = read(shared / "reference" / "grading_sample.jsonl")
    completions, answers = [r["completion"] for r in rows], [r["answer"] for r in rows]
    for version in ("v1", "v2"):
        scores = rewards.score(completions, answers, version=version)
        for name, column in (("correctness", "c"), ("format", "f"), ("tags", "x")):
            expected = [row[column + version[1]] for row in rows]
            assert scores[name] == pytest.approx(expected, abs=1e-9), (version, name)
        assert [value == 1 for value in scores["correctness"]] == [
            row[f"correct_{version}"] for row in rows
        ]
    assert [rewards.is_well_formed(c) for c in completions] == [r["format_ok"] for r in rows]
