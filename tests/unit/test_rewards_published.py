"""v1 and v2 as published: our own cases for every rule, and the shared sample to the bit."""

import json

import numpy as np
import pytest

import rewards
from rewards import published

EQUAL = {  # gold: texts that equal it
    "42": [
        " 42 ",
        "$42$",
        "\\$42",
        "42\\%",
        "\\[ 42 \\]",
        "\\text{42}",
        "42 minutes",
        "42 meters^2",
        "42.",
        "x=42",
        "x = 42",
        "AB=42",
        "42\\text{ apples}",
        "\\boxed{42}",
    ],  # an unknown macro vanishes, its content stays
    "x = 42": ["42"],
    "4200": ["4,200", "4,\\!200"],
    "1200": ["1.2e3"],
    "60^\\circ": ["60"],
    "\\frac{3}{7}": ["3/7", "\\frac37", "\\dfrac{3}{7}"],
    "2\\frac{3}{7}": ["2 3/7"],
    "\\frac{1}{2}": ["0.5", ".5"],  # the one decimal that is known
    "\\sqrt{3}": ["\\sqrt3"],
    "\\left( 2, 5 \\right)": ["(2,5)"],
    "2,7": ["2 and 7"],
    "\\text{North}": ["north"],
    "3/7": ["(3/7)"],  # one element in brackets, the same fraction
    "2,000/7": ["2000/7"],  # fractions whose thousands are written differently
    "3\\pi": ["3 π\\,"],  # unicode beside LaTeX
    "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}": ["\\begin{pmatrix}1\\\\2\\end{pmatrix}"],
}
UNEQUAL = {
    "42": [
        "-42",
        "42,",
        "42 apples",
        "",
        "\\frac",
        "5\\text{ a}\\text{ b}",
        "x = y = 42",
        "6 * 7 = 42",
        "AB = 42",  # more than two characters before the equals sign
        "0" * 400 + "42",
    ],  # longer than any answer
    "27": ["27\n\\end{answer>", "27 \\item", "27 \\blacksquare", "27\\^"],
    "\\frac{1}{2}": ["2/4"],  # fractions match as written
    "0.25": ["1/4"],
    "(1,2)": ["[1,2]", "(2,1)", "(1,2,3)"],
    "(1/2,3/4)": ["(1/2,3/4]", "[1/2,3/4)"],
    "x+1": ["1+x"],
    "x": ["\\mathsf{x}"],  # a macro that the converter drops with its argument
    "3\\pi": ["3π"],  # unicode is not read without LaTeX
    "\\begin{pmatrix} 1 & 2 \\end{pmatrix}": ["\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"],
}
FIRST_FORMS = {
    "\\left[1,2\\right]": "[1,2]",
    "60^\\circ": "60",
    "60^{\\circ}": "60",
    "4,\\!200": "4,200",
    "1\\\\2": "1\\2",
    "\\$5\\%": "5",
    "\\tfrac12": "\\frac{1}{2}",
    "\\dfrac{3}{4}": "\\frac{3}{4}",
    "about .5": "about0.5",
    "{.5}": "{0.5}",
    "5\\%%": "5%",
    "5\\\\\\%%": "5",  # the macro stands there once the first one is gone
    "1\n2": "12",
    "5\\text{ cm}": "5",
    "5\\text{ a}\\text{ b}": "5\\text{ a}\\text{ b}",  # two units
    "\\text{ ab }": "ab",
    "k =5": "5",
    "abc=5": "abc=5",
    "1=2=3": "1=2=3",
    "\\sqrt2+\\sqrt{3}": "\\sqrt{2}+\\sqrt{3}",
    "\\frac12x": "\\frac{1}{2}x",
    "\\frac1{72}": "\\frac{1}{72}",
    "\\frac{1}2": "\\frac{1}2",
    "\\frac1": "\\frac1",
    "\\sqrt": "\\sqrt",
    "-3 /4": "\\frac{-3}{4}",
    "3/04": "3/04",
}
SECOND_FORMS = {
    "2 million or 3 billion": "2*10^6,3*10^9",
    "4 trillion and 5": "4*10^12,5",
    "5 inches": "5",
    "6 days": "6",
    "5 feet^2": "5",
    "90 ^ \\circ": "90",
    "{5}": "5",
    "{5": "5",
    "4,\\! 200": "4200",
    "- 5 x": "-5x",
    "2 1/2": "2+1/2",
    "1,234,567": "1234567",
    "1,23": "1,23",
    "1,000.0": "1000",
    "5.00000001": "5",
    "5.0001": "5.0001",
    "1e400": "1e400",
    "\\$7\\%": "7",
    "$7%": "7",
    "\\text{Two}": "two",
    "X_{1}": "x_1",
    "√2": "√2",  # is read only beside LaTeX
    "\\tfrac{3}{7}": "3/7",
    "\\dfrac{3}{7}": "3/7",
    "7\\tfrac34": "7+3/4",
    "2\\cdot3\\times4": "2*3*4",
    "\\sqrt{5}\\pi": "sqrt(5)pi",
    "(-\\infty, 1)\\cup(2, 3)": "(-inf,1)u(2,3)",
}
ROWS = [  # completion, gold, correct in v1, correct in v2, well-formed
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


def pairs(table):
    return [(given, gold) for gold, texts in table.items() for given in texts]


@pytest.fixture(autouse=True)
def forget():
    """mutmut tests in forks of a process that has run these tests, with what it has cached; and it
    asks which tests call a function, which a cached result hides."""
    published.first_form.cache_clear()
    published.second_form.cache_clear()


@pytest.mark.parametrize(("given", "gold"), pairs(EQUAL))
def test_equal_pairs(given, gold):
    assert published.equal(given, gold) is True


@pytest.mark.parametrize(("given", "gold"), pairs(UNEQUAL))
def test_unequal_pairs(given, gold):
    assert published.equal(given, gold) is False


@pytest.mark.parametrize(("completion", "gold", "v1", "v2", "formed"), ROWS)
def test_rows(completion, gold, v1, v2, formed):
    grades = [rewards.grade(completion, gold, name) for name in ("v1", "v1-correctness", "v2")]
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
def test_what_the_converter_cannot_read_within_its_bounds_stays_as_it_is(source):
    assert published.latex_as_text(source) is None
    assert not published.equal(source, "5")


@pytest.mark.parametrize(("text", "form"), FIRST_FORMS.items())
def test_the_first_form_has_no_noise(text, form):
    assert published.first_form(text) == form


@pytest.mark.parametrize(("text", "form"), SECOND_FORMS.items())
def test_the_second_form_writes_latex_as_text(text, form):
    assert published.second_form(text) == form


def test_the_shared_pairs(shared):
    lines = (shared / "reference" / "grade_pairs.jsonl").read_text().splitlines()
    pairs = map(json.loads, lines)
    assert [p for p in pairs if published.equal(p["given"], p["gold"]) != p["equal"]] == []


@pytest.fixture(scope="module")
def sample(shared):
    """Rows with completion, answer, and their published scores: c1, f1, x1 by v1, ..."""
    lines = (shared / "reference" / "grading_sample.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_scores_of_the_shared_sample(sample, version):
    completions = [row["completion"] for row in sample]
    scores = rewards.score(completions, [row["answer"] for row in sample], version=version)
    number = version[1]
    expected = {
        "correctness": [row[f"c{number}"] for row in sample],
        "format": [row[f"f{number}"] for row in sample],
        "tags": [row[f"x{number}"] for row in sample],
    }
    assert scores.keys() == expected.keys()
    table = [scores[name] for name in expected]
    np.testing.assert_allclose(table, [*expected.values()], rtol=1e-6, atol=1e-9)
    grades = [value == 1 for value in scores["correctness"]]
    assert grades == [row[f"correct_{version}"] for row in sample]


def test_what_is_well_formed_of_the_shared_sample(sample):
    formed = [rewards.is_well_formed(row["completion"]) for row in sample]
    assert formed == [row["format_ok"] for row in sample]
