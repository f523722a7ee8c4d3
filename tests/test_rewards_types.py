"""The types of gold answers, and what the strict grader credits for each type."""

from contextlib import closing

import pytest

import rewards
from rewards import Scorer

VERDICTS = {  # type: {gold: (answers that give it, answers that do not)}
    "number": {
        "3:2": (["6:4", "6 : 4"], ["2:3"]),
        "6.63 \\times 10^{-34}": (
            ["6.63e-34"],
            ["1.05 \\times 10^{-34}", "-6.63 \\times 10^{-34}"],
        ),
        "72": (
            ["７２", "72。", "72, in total", "The answer is 72, which is the total."],
            ["The answer is not 72", "maybe 72", "不是72", "72万"],
        ),
        "18": (
            [
                "18元",
                "答案：18",
                "【18】",
                "\\fbox{18}",
                "18.0",
                "18.00 dollars",
                "018",
                "18.000",
                "+18",
                "(18)",
                "{18}",
                "1.8e1",
                "1.8 \\times 10^1",
                "18e0",
                "18/1",
                "36/2",
                "\\dfrac{36}{2}",
                "x=18",
                "x = 18.",
                "18°",
                "18°C",
                "18 km²",
                "18\\text{ sq. ft}",
                "18 \\mathrm{~cm}",
                "18~\\text{cm}",
                "$18.$",
                "\\(18\\) eggs",
                "**Answer:** 18",
                "**Answer: 18**",
                "Answer = 18",
                "The total cost is $18.",
                "Total: 18",
                "Total: $18",
                "It equals 18",
                "18 (eighteen)",
                "18, which is right",
                "18 — the total",
                "18个",
                "共18元",
                "答案是18。",
            ],
            [
                "eighteen",
                "1 8",
                "18,000",
                "18 × 1",
                "--18",
                "-(-18)",
                "18!",
                "18^2",
                "18²",
                "18_8",
                "18%",
                "18 percent",
                "18 or 19",
                "18-19",
                "18 - 19",
                "17+1",
                "9*2",
                "20-2",
                "18:00",
                "18/0",
                "\\sqrt{324}",
                "x ≈ 18",
                "x < 18",
                "\\approx 18",
                "at least 18",
                "18+",
                "18?",
                "18 if x>0",
                "18i",
                "18x",
                "18\\pi",
                "18π",
                "18 is not the answer",
                "not equal to 18",
                "18 minus 2",
                "minus 18",
                "negative 18",
                "18 dozen",
                "18 thousand",
                "18e3",
                "18·10³",
                "答案不是18",
                "约18",
                "18万元",
                "18.5",
                "17.999999999",
                "18.0000001",
            ],
        ),
        "-5": (["−5", "–5", "(-5)"], []),
        "5": (["\\boxed 5", "\\boxed{\\boxed{5}}", "**5**", "$\\mathbf{5}$", "**$5$**"], []),
        "300000000": (["3 \\times 10^8"], []),
        "3 \\times 10^8": (["300000000"], []),
        "0.\\overline{3}": (["\\frac13"], []),
        "\\frac13": (["0.\\overline{3}"], []),
        "1/6": (["0.1\\overline{6}"], []),
        "-3": (["-3°C", "-3^\\circ\\text{C}"], []),
        "1,234": (["1234"], []),
        "3 1/2": (["3.5"], []),
        "3½": (["3.5"], []),
        "1000": ([], ["1.000"]),
        "0.1": ([".1"], ["0.1000001"]),
        "0.333": ([], ["1/3"]),
        "1/3": ([], ["0.333", "0.3333333333333333"]),
        "-18": (["-18 degrees", "−18", "- 18", "\\(-18\\)"], ["18"]),
        "0": (["-0"], []),
        "\\frac{3}{4}": (["0.75", "\\frac{6}{8}"], ["75%"]),
        "\\frac34": (["3/4"], []),
        "-\\frac{3}{4}": (["\\frac{-3}{4}"], []),
        "2\\frac{1}{3}": (["7/3"], ["2/3"]),
        "10,\\!080": (["10080"], ["10.080"]),
        "1e6": (["1,000,000"], []),
        "12345678901234567890": ([], ["12345678901234567891"]),
        "0.5": (["1/2"], []),
        "100": (["1e2", "10^2"], []),
        "3.0": (["3"], []),
        "025": (["25"], []),
        "25": (["025"], []),
    },
    "percentage": {
        "50\\%": (["50 percent", "\\(50\\%\\)"], []),
        "50%": (
            ["50 %", "50 percent of the total"],
            ["0.5", "50", "fifty percent", "1/2", "500%", "-50%"],
        ),
        "12.5%": (["12.50\\%"], []),
        "50 percent": (["50%"], []),
    },
    "quantity": {
        "12 cm": (
            [
                "12 \\text{ cm}",
                "12",
                "12 centimeters",
                "12 cm long",
                "The length is 12 cm.",
                "x = 12 cm",
            ],
            ["-12 cm", "12 inches", "12 cm²", "12 mm", "12%", "about 12 cm"],
        ),
        "30 km/h": (["30\\,\\text{km/h}", "30 km per hour"], ["30 km", "30 mph"]),
        "12\\text{ cm}": ([], ["12 m"]),
        "18 dollars": (["$18"], ["18 euros", "€18"]),
        "$18": (["18 dollars"], ["€18", "18 cents"]),
        "\\$18": (["18 dollars"], []),
        "-3°C": (["-3", "-3 °C"], ["3°C", "-3°F"]),
        "12 cm^2": (["12 square cm", "12\\,\\text{cm}^2"], ["12 cm"]),
        "12 \\text{ cm}^2": (["12cm²"], []),
        "30 km": ([], ["30 km/h"]),
        "$18.50": (["18.5 dollars"], []),
        "5 apples": (["5"], ["5 oranges", "5 apples and 3 pears"]),
        "45^\\circ": (["45 degrees"], ["45 radians"]),
        "45°": ([], ["45°C"]),
        "3 hours": (["3 hrs"], ["3 minutes"]),
        "5 kg": (["5 kilograms"], ["5 g"]),
        "5 m": (["5 meters", "5"], []),
        "10 m/s": (["10 meters per second"], ["10 m/s^2"]),
        "10 m/s^2": ([], ["10 m/s"]),
    },
    "letter": {
        "\\text{(E)}": (["(E)", "E"], ["(D)"]),
        "C": (["The answer is (C)."], ["A", "C or D", "Carbon"]),
        "(C)": (["C) 22"], []),
    },
    "time": {
        "2:30": (["2:30"], ["1:15", "2.5", "2/30"]),
        "2:30 PM": (["The answer is 2:30 p.m."], ["2:30 AM"]),
        "10:15": ([], ["2:3"]),
    },
    "date": {
        "2024-03-05": ([], ["2016"]),
        "March 5, 2024": (["March 5 2024"], ["5", "March 6, 2024"]),
        "3/5/2024": (["3/5/2024"], ["0.000296"]),
        "July 4": ([], ["4"]),
        "1.2.3": (["1.2.3"], ["123", "1.23"]),
    },
    "code": {
        "3-5": (["3–5"], ["-2", "2"]),
        "0xFF": (["0xff"], ["0", "255", "FF"]),
        "555-1234": ([], ["-679", "5551234", "555 1234"]),
        "52_8": (["52_{8}"], ["52", "528", "42"]),
        "1010_2": (["1010_{2}"], ["10"]),
    },
    "formula": {
        "CO2": (["CO_2", "\\mathrm{CO_2}", "\\ce{CO2}", "The answer is CO2."], ["2CO", "C + O2"]),
        "2CO": ([], ["CO2"]),
        "\\mathrm{CO_2}": (["CO₂"], []),
        "H_2O": (["$\\text{H}_2\\text{O}$"], []),
        "H2O": (["H_2O"], ["HO2", "H20"]),
        "Ca(OH)2": (["Ca(OH)_2"], ["CaOH2"]),
        "C6H12O6": (["C_6H_{12}O_6"], ["C6H12O7"]),
        "SO4^{2-}": (["SO_4^{2-}"], ["SO4"]),
        "2H2O": (["2 H2O"], ["H2O"]),
        "Fe2O3": (["Fe_2O_3"], []),
    },
    "words": {
        "Paris, France": (["paris, france"], []),
        "\\text{Evelyn}": (["The answer is Evelyn."], []),
        "\\text{east}": (["East", "The direction is east."], ["west", "not east", "east or west"]),
        "Yes": (["yes."], ["No"]),
        "no": (["No"], []),
        "Apollo 11": (["Apollo 11"], ["11", "Apollo 12"]),
        "undefined": (["undefined"], ["0"]),
        "5 or more": ([], ["5"]),
        "true": (["True"], []),
        "New York": (["new york"], []),
        "São Paulo": (["São Paulo"], []),
        "no solution": (["No solution"], []),
    },
    "matrix": {
        "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}": (
            ["\\begin{bmatrix}1&2\\\\3&\\frac{8}{2}\\end{bmatrix}"],
            [],
        ),
        "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}": (
            ["\\begin{bmatrix} 1 \\\\ 2 \\end{bmatrix}"],
            ["\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 2 \\\\ 1 \\end{pmatrix}"],
        ),
        "\\begin{pmatrix} 1/5 \\\\ -18/5 \\end{pmatrix}": (
            ["\\begin{pmatrix} 0.2 \\\\ -\\frac{18}{5} \\end{pmatrix}"],
            [],
        ),
        "\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}": (
            [],
            [
                "\\begin{pmatrix} 1 & 0 & 0 & 1 \\end{pmatrix}",
                "\\begin{vmatrix} 1 & 0 \\\\ 0 & 1 \\end{vmatrix}",
                "1,0,0,1",
            ],
        ),
        "\\begin{pmatrix} x \\\\ 2 \\end{pmatrix}": (
            ["\\begin{pmatrix} x \\\\ 2 \\\\ \\end{pmatrix}"],
            [],
        ),
    },
    "interval": {
        "[0.1234567, 1]": (["[0.1234567,1]", "[0.123456700,1.0]"], ["[0.1234568, 1]"]),
        "(-\\infty,2)\\cup(3,\\infty)": (["(-∞, 2) ∪ (3, ∞)"], []),
        "x\\in[-2,7]": (["[-2,7]"], []),
        "[0,1]": (["[0, 1]", "x \\in [0,1]"], ["(0,1)", "[0,1)", "0,1"]),
        "[0,1)": (["[0,1)"], []),
        "(0,\\infty)": (["(0, ∞)"], []),
        "(-\\infty,0]": (["(−∞, 0]"], ["(-\\infty,0)"]),
        "[0,\\pi]": ([], ["[0,3.14159265]"]),
        "[\\frac12,1]": (["[0.5,1]"], []),
        "x \\in [0,1]": (["[0,1]"], []),
        "(1,2)\\cup(3,4)": ([], ["(1,2),(3,4)"]),
        "[1,2]": ([], ["1 \\leq x \\leq 3"]),
    },
    "tuple": {
        "(1,2)": (
            ["(1, 2)", "1,2", "(1.0,\\frac{4}{2})", "x=1, y=2", "The point is (1,2)"],
            ["(2,1)", "[1,2]", "\\{1,2\\}", "(1,2,3)", "(1,2) or (2,1)", "(1,-2)"],
        ),
        "(\\frac12,\\sqrt{3})": (["(0.5,\\sqrt{3})"], ["(0.5,1.732)"]),
        "(\\sqrt{2},\\sqrt{8})": (["(\\sqrt{2},2\\sqrt{2})"], ["(2\\sqrt{2},\\sqrt{2})"]),
    },
    "set": {
        "\\{1,2\\}": (["\\{2,1\\}"], []),
        "1,2": (["2 and 1"], []),
        "(1,2),(3,4)": (["(3,4),(1,2)"], ["(1,2),(4,3)"]),
        "\\{(1,2),(3,4)\\}": (["\\{(3,4),(1,2)\\}"], []),
        "\\{1,2,3\\}": (["\\{3,2,1\\}", "1,2,3"], ["\\{1,2\\}", "(1,2,3)"]),
        "1,-2": (["-2, 1", "x=1 \\text{ or } x=-2", "1 and -2"], ["1", "1,2", "-1,2"]),
        "3, 5, 7": (["7,5,3"], ["357"]),
        "1 \\pm \\sqrt{19}": (["1+\\sqrt{19}, 1-\\sqrt{19}"], ["1 + \\sqrt{19}"]),
        "\\pm 2": (["2,-2"], ["2"]),
        "2,-2": (["\\pm 2"], []),
        "a,b": (["b,a"], ["a,c"]),
    },
    "relation": {
        "x = 5": (["x=5"], []),
        "y = 2x+3": (["2x+3", "y=3+2x", "2x - y + 3 = 0"], ["y=2x-3", "3x+2"]),
        "y=2x+3": (["y = 3 + 2x"], []),
        "x=5": (["5", "x = 5.0"], ["y=5", "x=6", "x=-5", "x \\ne 5"]),
        "x > 3": (["3 < x"], ["x \\ge 3", "x < 3"]),
        "x \\ge 3": (["x ≥ 3", "[3,\\infty)"], ["(3,\\infty)"]),
        "5x - 7y + 11z + 4 = 0": (["10x-14y+22z+8=0"], []),
        "x=0.1234567": ([], ["x=0.1234568"]),
        "1 < x < 3": (["1<x<3"], ["1<x<4"]),
    },
    "expression": {
        "\\frac{1}{2^{99}}": (["2^{-99}"], ["\\frac{1}{2^{98}}"]),
        "\\pi \\times 10^{-34}": ([], ["-\\pi \\times 10^{-34}"]),
        "\\pi+\\frac{1}{2^{99}}": ([], ["\\pi+\\frac{1}{2^{98}}"]),
        "(-5)": (["-5"], []),
        "2^{10}": (["1024"], []),
        "(x+1)^2": (["x^2+2x+1"], []),
        "\\sqrt{12}": (["2\\sqrt{3}"], []),
        "\\emptyset": (["∅"], ["0"]),
        "2\\pi": (
            ["2π", "2 pi", "\\pi 2", "2\\pi \\text{ cm}"],
            ["6.283185307179586", "6.28", "\\pi", "-2\\pi"],
        ),
        "2\\pi \\text{ cm}": ([], ["2\\pi \\text{ m}"]),
        "\\sqrt{2}": (
            ["\\frac{2}{\\sqrt{2}}", "sqrt(2)", "√2", "2^{1/2}"],
            ["1.41421356237309504880168872420969807856967187537694807317667973799", "\\sqrt{3}"],
        ),
        "2k+2": (["2(k+1)"], ["2k+3", "2K+2"]),
        "x^2-1": (["(x-1)(x+1)"], ["(x-1)^2"]),
        "\\frac{x}{2}": (["0.5x", "x/2"], ["x/3"]),
        "x+0.1234567": ([], ["x+0.1234568"]),
        "3+4i": (["4i+3"], ["3-4i"]),
        "e^{x}": (["e^x"], []),
        "\\log_2 3": (["\\frac{\\ln 3}{\\ln 2}"], []),
        "\\sin x": ([], ["\\cos x"]),
        "2^{1000}": ([], ["2^{999}"]),
        "\\frac{\\sqrt{3}}{3}": (["\\frac{1}{\\sqrt{3}}"], []),
        "10\\pi\\text{ cm}^2": (["10\\pi\\text{ cm}^2"], []),
        "p - q": (["-q+p"], ["q-p"]),
        "3xy": (["3yx"], []),
        "|x|": ([], ["x"]),
        "x": ([], ["-x"]),
        "11\\sqrt2": (["11\\sqrt{2}"], []),
        "1+2\\sqrt{3}": (
            ["2\\sqrt{3}+1", "y = 1+2\\sqrt{3}", "The area is $1+2\\sqrt{3}$."],
            ["The area is not $1+2\\sqrt{3}$."],
        ),
    },
}

TYPES = {  # more golds of a type; the keys of VERDICTS are of their type too
    "number": [
        "7",
        "-2",
        "1,000",
        "1e6",
        ".5",
        "3 1/2",
        "\\frac{3}{4}",
        "70000",
        "10,\\!080",
        "3:2",
    ],
    "percentage": ["50%", "12.5\\%", "50 percent"],
    "quantity": ["864 \\mbox{ inches}^2", "\\$18.90", "106^\\circ", "5.4 \\text{ cents}", "18元"],
    "letter": ["C", "\\text{(E)}"],
    "time": ["2:30", "10:15 am", "23:59:59"],
    "date": ["2024-03-05", "3/5/2024", "March 5, 2024", "5 March 2024"],
    "code": ["0xFF", "555-1234", "3-5", "52_8", "1.2.3", "1:2:3"],
    "formula": ["CO2", "\\mathrm{CO_2}", "2CO", "C_6H_{12}O_6", "NaCl", "SO4^{2-}"],
    "words": ["\\text{Evelyn}", "Paris, France", "5 or more", "Apollo 11", "no"],
    "matrix": ["\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"],
    "interval": ["[0,1]", "(3,4]", "(2,\\infty)", "(0,9) \\cup (9,36)", "x \\in [-2,7]"],
    "tuple": ["(1,2)", "\\left( 3, \\frac{\\pi}{2} \\right)"],
    "set": ["1,-2", "\\{1\\pm\\sqrt{5},-2\\}", "5\\text{ or }6", "(1,2),(3,4)"],
    "relation": ["x=5", "5x - 7y + 11z + 4 = 0", "x \\ge 3"],
    "expression": ["2k+2", "\\pi", "5h", "\\frac{\\sqrt{3}}{3}", "x^2+3x+2", "(a+5)(b+2)"],
}
GUESSES = [  # an answer block inside the reasoning is a guess
    ("<think>guess <answer>18</answer> but then", False),
    ("<think>guess <answer>18</answer></think><answer>1", False),
    ("<think>I guess <answer>18</answer></think>", False),
    ("guess <answer>18</answer>, no: 9 * 2", False),
    ("<think>a</think><answer>17</answer><answer>18</answer>", True),
    ("<answer>18</answer>", True),
]
LETTERS = {
    True: [
        "\\boxed{E}",
        "**E**",
        "$E$",
        "The answer is E",
        "Option E",
        "(E)",
        "答案：E",
        "Answer: E",
    ],
    False: ["E or F", "D, not E", "\\Delta E", "not E", "The answer is not E", "E and F", "Eve"],
}


@pytest.mark.parametrize(("name", "golds"), TYPES.items())
def test_the_type_of_a_gold(name, golds):
    golds = [*golds, *VERDICTS.get(name, [])]
    assert {gold: rewards.gold_type(gold).value for gold in golds} == dict.fromkeys(golds, name)


def test_the_type_of_a_choice_is_a_letter_or_not():
    letters = {
        gold: rewards.gold_type(gold, "choice") == "letter" for gold in ("b", "C", "(D)", "AB", "5")
    }
    assert letters == {"b": True, "C": True, "(D)": True, "AB": False, "5": False}


def test_verdicts_of_every_type_and_every_gold_equals_itself():
    rows = [
        (f"<think>reasons</think><answer>{answer}</answer>", gold, verdict)
        for table in VERDICTS.values()
        for gold, (right, wrong) in table.items()
        for answers, verdict in (([gold, *right], True), (wrong, False))
        for answer in answers
    ]
    completions, golds, _ = zip(*rows, strict=True)
    with closing(Scorer("strict", workers=2, deadline_seconds=20)) as scorer:
        grades = scorer.grade(completions, golds, ["math"] * len(rows))
    assert [*zip(completions, golds, grades, strict=True)] == rows


def test_a_guess_inside_the_reasoning_is_no_answer():
    assert [(text, rewards.grade(text, "18", "strict")) for text, _ in GUESSES] == GUESSES


@pytest.mark.parametrize("verdict", [True, False])
def test_letters_of_a_choice(verdict):
    texts = [f"<answer>{answer}</answer>" for answer in LETTERS[verdict]]
    grades = {text: rewards.grade(text, "E", "strict", "choice") for text in texts}
    assert grades == dict.fromkeys(texts, verdict)
