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
                "+18",
                "(18)",
                "{18}",
                "1.8e1",
                "36/2",
                "x=18",
                "18°",
                "18\\text{ sq. ft}",
                "18 \\mathrm{~cm}",
                "18~\\text{cm}",
                "**Answer:** 18",
                "Answer = 18",
                "The total cost is $18.",
                "18, which is right",
                "18个",
                "答案是18。",
                "The difference between 30 and 12 is 18",
                "\\frac{18}{1}",
                "\\boxed{\\text{18 dollars}}",
                "$$18$$",
                "# 18",
                "18h",
                "18 N",
                "18:1",
                "= 18",
                "18\\cdot10^0",
                "$18$",
                "\\[ \\boxed{18} \\]",
                "The final answer is \\(18\\).",
                "**18**",
                "\\$18.00",
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
            ],
            [
                "eighteen",
                "1 8",
                "18,000",
                "--18",
                "-(-18)",
                "18!",
                "18^2",
                "18_8",
                "18%",
                "18 or 19",
                "18:00",
                "18/0",
                "\\sqrt{324}",
                "x ≈ 18",
                "at least 18",
                "18+",
                "18?",
                "18 if x>0",
                "18i",
                "18x",
                "18\\pi",
                "18·10³",
                "答案不是18",
                "约18",
                "17.999999999",
                "The answer is 18 and not 19",
                "18 (but it could be 20)",
                "It is definitely not the case that it is 18",
                "The answer cannot be 18",
                "The answer isn't 18",
                "The square of the number is 18",
                "The double of the answer is 18",
                "The negative of the answer is 18",
                "The first is 5 and the second is 18",
                "The wrong answer is 18",
                "The sum is 18 and the product is 77",
                "The sum is 18, the product 77",
                "The value is 18 less than 20",
                "Sum = 18; product = 77",
                "a = 5, b = 18",
                "19\n18",
                "\\boxed{18}\\text{ or }\\boxed{19}",
                "18‰",
                "0x18",
                "f(18)",
                "1/18",
                "(18, 0)",
                "18 =",
                "\\pm 18",
                "18 per 100",
                "I do not know, but 18",
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
                "I doubt 18",
                "over 18",
                "the reciprocal of 18",
                "the square of 18",
                "-f(3) = 18",
                "2f(3) = 18",
                "18 divided by two",
                "18 mod five",
                "\\frac{18}{}",
                "$\\boxed{18}\\%$",
                "\\boxed{18}^2",
                "x^2 = \\boxed{18}",
                "x < \\boxed{18}",
                "~18",
                "18</answer><answer>17",
                "18" + " x" * 500,
            ],
        ),
        "-5": (["−5", "–5", "(-5)"], []),
        "5": (
            [
                "\\boxed 5",
                "\\boxed{\\boxed{5}}",
                "**5**",
                "$\\mathbf{5}$",
                "**$5$**",
                "The number of divisors is 5.",
            ],
            [
                "five",
                "\\frac{3 4}{2}",
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
        ),
        "300000000": (["3 \\times 10^8"], []),
        "3 \\times 10^8": (["300000000"], []),
        "0.\\overline{3}": (["\\frac13"], []),
        "\\frac13": (["0.\\overline{3}"], []),
        "-3": (["-3°C", "-3^\\circ\\text{C}", "−3", "\\(-3\\)"], []),
        "1,234": (["1234"], ["1.234"]),
        "3 1/2": (["3.5"], []),
        "3½": (["3.5"], []),
        "1000": (["1,000", "1,\\!000", "1e3", "1.0e+3 eggs"], ["1.000"]),
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
        "0.5": (["1/2", "\\frac12"], ["50%"]),
        "100": (["1e2", "10^2"], []),
        "1/2": (
            [".5", "1/2 of the cake", "0.50"],
            ["one half", "2^{-1}", "\\frac{1}{2}x", "-1/2", "1/20"],
        ),
        "2.5": (["2 1/2"], ["21/2", "2,5"]),
        "0.001": (["10^{-3}", "1e-3", "10^{ - 3 }", "10^ {-3}"], ["-10^3"]),
        "10^{100}": (["1e100"], ["1e101"]),
        "6.02 \\times 10^{23}": (
            ["6.02*10^23", "6.02×10²³", "6.02E23"],
            ["6.02 \\times 10^{22}", "6.02"],
        ),
        "0.\\overline{9}": (["1"], []),
        "0.\\bar{3}": (["1/3"], []),
        "-0.\\overline{3}": (["-1/3"], []),
        "1.5e-3": (["0.0015"], []),
        "\\frac{7}{2}": (["3\\frac{1}{2}"], []),
        "0.3": ([], ["0.\\overline{3}"]),
        "34": ([], ["3 4"]),
        "32": ([], ["\\binom{3}{2}"]),
    },
    "percentage": {
        "50\\%": (["50 percent", "\\(50\\%\\)", "50%"], []),
        "50%": (["50 percent of the total"], ["0.5", "50", "-50%"]),
        "25%": (["25.0%", "The percentage is 25%"], ["1/4", "0.25%", "between 20% and 25%"]),
        "18\\%": ([], ["18"]),
    },
    "quantity": {
        "12 cm": (
            ["12 \\text{ cm}", "12 centimeters", "12 cm long", "The length is 12 cm.", "x = 12 cm"],
            ["12 inches", "12 cm²", "12%", "about 12 cm"],
        ),
        "30 km/h": (["30\\,\\text{km/h}", "30 km per hour"], ["30 km", "30 mph"]),
        "18 dollars": (["$18"], ["18 euros", "€18"]),
        "\\$18": (["18 dollars"], []),
        "-3°C": (["-3", "-3 °C"], ["3°C", "-3°F"]),
        "12 cm^2": (["12 square cm", "12\\,\\text{cm}^2"], ["12 cm"]),
        "12 \\text{ cm}^2": (["12cm²"], []),
        "5 apples": (["5"], ["5 oranges", "5 apples and 3 pears"]),
        "45^\\circ": (["45 degrees", "45°"], ["45 radians"]),
        "3 hours": (["3 hrs"], ["3 minutes"]),
        "5 kg": (["5 kilograms"], ["5 g"]),
        "10 m/s": (["10 meters per second"], ["10 m/s^2"]),
        "10 m/s^2": ([], ["10 m/s"]),
        "100 m^2": (["100 square meters"], ["100 m"]),
        "100 m": ([], ["100 m^2"]),
        "5 ft": (["5 feet", "5 ft tall", "5.0 ft"], ["5 in", "6 ft", "not 5 ft"]),
        "$5": (["$5.00"], ["£5"]),
        "5 cents": ([], ["$5"]),
        "2 hours": (["2 h"], ["2 hours ago", "2 hours 30 minutes"]),
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
        "7:05": ([], ["7:5"]),
        "9:30 am": (["9:30 a.m.", "The time is 9:30 am"], ["9:30 pm"]),
    },
    "date": {
        "2024-03-05": ([], ["2016"]),
        "March 5, 2024": (["March 5 2024"], ["5", "March 6, 2024"]),
        "3/5/2024": (["3/5/2024"], ["0.000296"]),
        "July 4": ([], ["4"]),
    },
    "code": {
        "3-5": (["3–5"], ["-2", "2"]),
        "0xFF": (["0xff"], ["0", "255", "FF"]),
        "555-1234": ([], ["-679", "5551234", "555 1234"]),
        "52_8": (["52_{8}"], ["52", "528", "42"]),
    },
    "formula": {
        "CO2": (
            ["CO_2", "\\mathrm{CO_2}", "\\ce{CO2}", "The answer is CO2."],
            ["2CO", "C + O2", "CO_3", "CO^2"],
        ),
        "2CO": ([], ["CO2"]),
        "H_2O": (["$\\text{H}_2\\text{O}$"], []),
        "Ca(OH)2": (["Ca(OH)_2"], ["CaOH2"]),
        "SO4^{2-}": (["SO_4^{2-}"], ["SO4"]),
        "2H2O": (["2 H2O"], ["H2O"]),
        "O2": ([], ["2O", "O"]),
        "Na2CO3": (["Na_2CO_3"], ["Na2CO4"]),
    },
    "words": {
        "Paris, France": (["paris, france"], []),
        "\\text{Evelyn}": (["The answer is Evelyn.", "evelyn."], ["Eve", "-Evelyn"]),
        "\\text{east}": (["East", "The direction is east."], ["west", "not east", "east or west"]),
        "Yes": (["yes."], ["No"]),
        "no": (["No"], []),
        "Apollo 11": (["Apollo 11"], ["11", "Apollo 12"]),
        "undefined": (["undefined"], ["0"]),
        "5 or more": ([], ["5"]),
        "São Paulo": (["São Paulo"], []),
        "no solution": (["No solution"], []),
        "east": ([], ["northeast"]),
        "Alice": (["The winner is Alice."], ["The winner is not Alice"]),
        "5\\text{ or more}": ([], ["5"]),
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
        "(-\\infty,0]": (["(−∞, 0]"], ["(-\\infty,0)"]),
        "[0,\\pi]": ([], ["[0,3.14159265]"]),
        "[\\frac12,1]": (["[0.5,1]"], []),
        "(1,2)\\cup(3,4)": ([], ["(1,2),(3,4)"]),
        "[1,2]": ([], ["1 \\leq x \\leq 3", "[1,2,3]", "[2,1]"]),
        "(-\\infty, 2]": (["(-∞, 2]"], []),
    },
    "tuple": {
        "(1,2)": (
            ["(1, 2)", "1,2", "(1.0,\\frac{4}{2})", "x=1, y=2", "The point is (1,2)"],
            ["(2,1)", "[1,2]", "\\{1,2\\}", "(1,2,3)", "(1,2) or (2,1)", "(1,-2)"],
        ),
        "(\\frac12,\\sqrt{3})": (["(0.5,\\sqrt{3})"], ["(0.5,1.732)"]),
        "(\\sqrt{2},\\sqrt{8})": (["(\\sqrt{2},2\\sqrt{2})"], ["(2\\sqrt{2},\\sqrt{2})"]),
        "(0.1,0.2)": (["(\\frac{1}{10},\\frac{1}{5})"], ["(0.1,0.20000001)"]),
        "(3, \\frac{\\pi}{2})": (["(3, π/2)", "r = 3, \\theta = \\frac{\\pi}{2}"], []),
    },
    "set": {
        "\\{1,2\\}": (["\\{2,1\\}"], ["\\{1,2,3\\}"]),
        "1,2": (["2 and 1"], []),
        "(1,2),(3,4)": (["(3,4),(1,2)"], ["(1,2),(4,3)"]),
        "\\{(1,2),(3,4)\\}": (["\\{(3,4),(1,2)\\}"], []),
        "1,-2": (
            [
                "-2, 1",
                "x=1 \\text{ or } x=-2",
                "1 and -2",
                "x = -2 or x = 1",
                "**Final answer:** 1, -2",
            ],
            ["1", "1,2", "-1,2"],
        ),
        "1 \\pm \\sqrt{19}": (["1+\\sqrt{19}, 1-\\sqrt{19}"], ["1 + \\sqrt{19}"]),
        "\\pm 2": (["2,-2"], ["2"]),
        "2,-2": (["\\pm 2"], []),
        "a,b": (["b,a"], ["a,c"]),
        "\\{-1,0,1\\}": (["\\{ 0, \\pm 1\\}"], []),
        "x=1,y=2": (["y=2,x=1"], ["x=2,y=1", "(2,1)"]),
        "5\\text{ or }6": (["5 or 6"], ["56"]),
        "3 \\pm \\sqrt{2}": (["3+\\sqrt{2}, 3-\\sqrt{2}"], []),
    },
    "relation": {
        "x = 5": (["x=5", "5"], []),
        "y = 2x+3": (["2x+3", "y=3+2x", "2x - y + 3 = 0"], ["y=2x-3", "3x+2"]),
        "x=5": (["5", "x = 5.0"], ["y=5", "x=6", "x=-5", "x \\ne 5"]),
        "x > 3": (["3 < x"], ["x \\ge 3", "x < 3"]),
        "x \\ge 3": (["x ≥ 3"], ["(3,\\infty)"]),
        "5x - 7y + 11z + 4 = 0": (["10x-14y+22z+8=0"], []),
        "x=0.1234567": ([], ["x=0.1234568"]),
        "1 < x < 3": (["1<x<3"], ["1<x<4"]),
        "f(x) = 2x + 1": (["f(x) = \\boxed{2x+1}"], []),
        "2x=5": ([], ["5"]),
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
            [
                "1.41421356237309504880168872420969807856967187537694807317667973799",
                "\\sqrt{3}",
                "\\sqrt[3]{2}",
            ],
        ),
        "2k+2": (["2(k+1)"], ["2k+3", "2K+2"]),
        "x^2-1": (["(x-1)(x+1)"], ["(x-1)^2"]),
        "\\frac{x}{2}": (["0.5x", "x/2"], ["x/3"]),
        "x+0.1234567": ([], ["x+0.1234568"]),
        "3+4i": (["4i+3"], ["3-4i"]),
        "\\log_2 3": (["\\frac{\\ln 3}{\\ln 2}"], []),
        "\\sin x": ([], ["\\cos x"]),
        "2^{1000}": ([], ["2^{999}"]),
        "\\frac{\\sqrt{3}}{3}": (["\\frac{1}{\\sqrt{3}}"], []),
        "10\\pi\\text{ cm}^2": (["10\\pi\\text{ cm}^2", "10\\pi"], []),
        "p - q": (["-q+p"], ["q-p"]),
        "|x|": ([], ["x"]),
        "11\\sqrt2": (["11\\sqrt{2}"], []),
        "1+2\\sqrt{3}": (
            ["2\\sqrt{3}+1", "y = 1+2\\sqrt{3}", "The area is $1+2\\sqrt{3}$."],
            ["The area is not $1+2\\sqrt{3}$."],
        ),
        "x^2": (["x^{2}", "x²"], ["2x", "x2"]),
        "2x+1": (["y=2x+1", "1+x+x"], ["2x+1=0", "2x=1", "2x+1, x>0"]),
        "\\sin^2 x": (["1-\\cos^2 x"], ["\\sin x^2"]),
        "e": ([], ["2.718281828"]),
        "\\infty": (["∞"], ["-\\infty"]),
        "\\pi r^2": (["r^2 \\pi"], ["\\pi r"]),
        "n!": ([], ["n"]),
        "(x-1)(x+2)": (["x^2+x-2"], []),
        "\\frac{1}{x+1}": (["(x+1)^{-1}"], []),
        "1+i": (["i+1"], ["1-i"]),
        "\\frac{1+i}{2}": (["0.5+0.5i"], []),
        "0.5x": (["\\frac{x}{2}"], []),
        "10^{-20}x": ([], ["2 \\cdot 10^{-20}x"]),
        "\\pi": (
            [],
            [
                "\\pi + 10^{-30}",
                "2x=\\pi",
                "3.141593",
                "-\\pi",
                "\\pi\\%",
                "It is not \\pi",
                "\\pi\\text{ million}",
                "\\pi\\text{ is wrong}",
            ],
        ),
        "\\sqrt{2}+\\sqrt{3}": (["\\sqrt{5+2\\sqrt{6}}"], []),
        "x^2+3x+2": (["$x^2 + 3x + 2$", "(x+1)(x+2)"], ["(x+1)(x+3)"]),
        "5h": ([], ["5"]),
        "2\\sqrt{3}": ([], ["2√", "-2\\sqrt{3}"]),
    },
}

TYPES = {  # more golds of a type; the keys of VERDICTS are of their type too
    "number": ["7", "-2", "1,000", ".5", "70000"],
    "percentage": ["12.5\\%", "50 percent"],
    "quantity": ["864 \\mbox{ inches}^2", "\\$18.90", "106^\\circ", "5.4 \\text{ cents}", "18元"],
    "time": ["10:15 am", "23:59:59"],
    "date": ["5 March 2024"],
    "code": ["1.2.3", "1:2:3"],
    "formula": ["\\mathrm{CO_2}", "C_6H_{12}O_6", "NaCl"],
    "interval": ["(3,4]", "(2,\\infty)", "(0,9) \\cup (9,36)", "x \\in [-2,7]"],
    "tuple": ["\\left( 3, \\frac{\\pi}{2} \\right)"],
    "set": ["\\{1\\pm\\sqrt{5},-2\\}"],
    "expression": ["(a+5)(b+2)"],
}
SPELLINGS = {  # type: a gold, answers that give it, answers that do not; k is 3, ..., 52
    "number": ("{k}.5", ["The answer is {k}.50", "{k} 1/2"], ["-{k}.5", "{k}", "{k}.5000001"]),
    "percentage": ("{k}\\%", ["{k}.0 percent"], ["{k}", "0.{k}", "1{k}%"]),
    "quantity": ("{k} \\text{{ cm}}", ["{k}cm", "{k}"], ["{k} m", "-{k} cm", "1{k} cm"]),
    "letter": ("{letter}", ["**({letter})**", "\\boxed{{{letter}}}"], ["not {letter}", "{k}"]),
    "time": ("4:{k:02}", ["**4:{k:02}**"], ["5:{k:02}", "-4:{k:02}", "4 {k:02}"]),
    "date": ("20{k:02}-03-05", ["$20{k:02}-03-05$"], ["21{k:02}-03-05", "20{k:02}-03"]),
    "code": ("0x{k:02X}A", ["0x{k:02x}a"], ["{k}", "0x{k:02X}B", "{k:02X}A"]),
    "formula": ("C{k}H7", ["C_{{{k}}}H_7", "\\mathrm{{C_{{{k}}}H_7}}"], ["{k}CH7", "C{k}H8"]),
    "words": ("Apollo {k}", ["**apollo {k}.**"], ["{k}", "Apollo 1{k}", "not Apollo {k}"]),
    "matrix": (
        "\\begin{{pmatrix}} {k} \\\\ 2 \\end{{pmatrix}}",
        ["A = \\begin{{bmatrix}}{k}.0\\\\\\frac{{4}}{{2}}\\end{{bmatrix}}"],
        ["\\begin{{pmatrix}} 2 \\\\ {k} \\end{{pmatrix}}", "({k}, 2)"],
    ),
    "interval": (
        "[{k}, \\infty)",
        ["x \\in [{k}.0, ∞)", "x = [{k}, \\infty)"],
        ["({k}, \\infty)", "[1{k}, \\infty)"],
    ),
    "tuple": (
        "({k}, \\frac12)",
        ["({k}.0,0.5)", "x={k}, y=1/2", "(x, y) = ({k}, 0.5)"],
        ["(0.5, {k})", "[{k}, 0.5]"],
    ),
    "set": ("\\{{{k},-1\\}}", ["-1 and {k}", "S = \\{{-1, {k}.0\\}}"], ["{k}, 1", "{k}"]),
    "relation": ("y = {k}x", ["y={k} x"], ["z={k}x", "y={k}x+z", "x={k}y and z"]),
    "expression": ("x+{k}\\pi", ["$x + {k}π$", "{k}\\pi+x"], ["y+{k}\\pi", "x+{k}\\pi y"]),
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


@pytest.mark.parametrize("name", VERDICTS)
def test_the_type_of_a_gold(name):
    golds = [*VERDICTS[name], *TYPES.get(name, [])]
    assert {gold: rewards.gold_type(gold).value for gold in golds} == dict.fromkeys(golds, name)


def test_the_type_of_a_choice_is_a_letter_or_not():
    golds = {"b": True, "C": True, "(D)": True, "AB": False, "5": False}
    grades = {g: rewards.grade(f"<answer>{g}</answer>", g, kind="choice") for g in golds}
    assert grades == golds


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


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_hundred_pairs_of_each_type(name):
    gold, right, wrong = SPELLINGS[name]
    rows = [
        (
            text.format(k=k, letter=chr(64 + k // 2)),
            gold.format(k=k, letter=chr(64 + k // 2)),
            text in right,
        )
        for k in range(3, 53)
        for text in (*right, *wrong)
    ]
    assert {rewards.gold_type(gold).value for _, gold, _ in rows} == {name}
    completions = [f"<answer>{answer}</answer>" for answer, _, _ in rows]
    verdicts = rewards.grades(completions, [gold for _, gold, _ in rows], "strict")
    assert [(*row[:2], verdict) for row, verdict in zip(rows, verdicts, strict=True)] == rows


def test_a_guess_inside_the_reasoning_is_no_answer():
    assert [(text, rewards.grade(text, "18", "strict")) for text, _ in GUESSES] == GUESSES


@pytest.mark.parametrize("verdict", [True, False])
def test_letters_of_a_choice(verdict):
    texts = [f"<answer>{answer}</answer>" for answer in LETTERS[verdict]]
    grades = {text: rewards.grade(text, "E", "strict", "choice") for text in texts}
    assert grades == dict.fromkeys(texts, verdict)
