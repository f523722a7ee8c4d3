"""The strict grader: the last closed answer block must state the gold answer; no other text counts.

For a number it must state that number and no other: "18", "\\$18.00", "9 * 2 = 18", "She makes 18
dollars a day". Numbers are compared exactly, words as text, all else by rewards/verifier.py.
"""

import re
from fractions import Fraction

from .tags import last_closed_answer
from .verifier import Pair

MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
MAX_ALGEBRA = 200  # characters of a text for math-verify

SPELLINGS = str.maketrans({
    "π": "\\pi ", "∞": "\\infty ", "∪": "\\cup ", "θ": "\\theta ", "≤": "\\le ", "≥": "\\ge ",
    "°": "", "×": "\\times ", "·": "\\cdot ", "√": "\\sqrt ", "²": "^2", "³": "^3", "−": "-",
    "’": "'",
})  # fmt: skip
BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
THOUSANDS = re.compile(r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s*(?=[0-9]{3})")  # 1{,}000
WRAPPING = re.compile(
    r"(?i)^[*# ]*(?:the )?(?:final )?answer(?: is\b|:):?|(?<!\\)\\[\[\]();:!, ]|\\?[$€£]|\*\*|`"
    r"|\\(?:displaystyle|left|right|quad)(?![a-z])|\^\s*\{?\s*\\circ\s*\}?"
)
TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}(?:\^\{?[23]\}?$)?")
UNIT = re.compile(TEXT.pattern + "$")
FRACTION = re.compile(
    r"\\[tdc]?frac\s*(?:\{ *(-? *[^{}+*/ ]+) *\}|([0-9]))\s*(?:\{ *([^{}+*/ ]+) *\}|([0-9]))"
)
PERCENT = re.compile(r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b")
DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?|\.[0-9]+"
NUMBER = rf"([+-]?)\s*(?:([0-9]+)\s+(?=[0-9]+\s*/))?({DECIMAL})(?:\s*/\s*({DECIMAL}))?"
STATED = (  # one number in a sentence, or with a unit: 18cm, 18 eggs, 18/day
    rf"(?:[A-Za-z(][A-Za-z',:() -]*[ (:])?{NUMBER}"
    r"(?:\s*(?:[cmk]?m|[mk]?g|ft|h|s|mph|[ap]m)\b|\s*[/(](?=[A-Za-z]{2}|[mghs]\b)"
    r"|\s+(?=[A-Za-z]{2}|a ))?"
    r"(?:(?<=[^0-9])[A-Za-z',./() -]*(?:\^[23])?)?"
)
CLAUSE = re.compile(r"[.:]\s|\n|\\\\|,\s(?=[a-z]{2})|\\Rightarrow|\\implies|\b(?:so|then|hence)\b")
TERM = re.compile(r"[0-9][A-Za-z]|(?<![A-Za-z'])[B-HJ-Zb-z](?![A-Za-z'])")  # 2x, x
DENIALS = (
    r"not|cannot|\w+n't|no|never|nor|or|but|isn|reject|discard|ignore|wrong|incorrect|false|except"
    "|excluding"
)
DENYING = re.compile(rf"(?i)(?<![a-z])(?:{DENIALS})(?![a-z])")
CHANGING = re.compile(  # words that deny, change or doubt the number beside them
    rf"(?i)(?<![a-z])(?:{DENIALS}|and|unless|maybe|perhaps|possibly|probably|(?:un)?likely|doubt"
    r"|might|may|could|should|guess|about|around|approx|approximately|roughly|circa|close|almost"
    r"|nearly|over(?=\W*[0-9])|least|most|than|exceeds?|minimum|maximum|another|other|half|halves"
    r"|twice|double|triple|times|thirds?|quarters?|fifths?|(?:four|six|seven|eigh|nin)ths"
    r"|(?:ten|hundred|thousand)(?:th)?s?|dozens?|[mb]illion|trillion|lakh|crore|divided|multiplied"
    r"|modulo|mod|(?:square|cube|power) of|squared|cubed|root|sqrt|sin|cos|tan|log|ln|pi|reciprocal"
    r"|minus|plus|negative|below|under|zero|ago|debt|ow(?:e|es|ed)|loss|short|less|fewer|lower"
    r"|behind|factorial|inverse)(?![a-z])"
)


def decide(completion: str, gold: str) -> bool | Pair:
    """Whether the last answer block states the gold answer; a pair needs computer algebra."""
    answer = last_closed_answer(completion)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer = _tidy(answer)
    gold = _tidy(gold)
    if bool(PERCENT.search(answer)) != bool(PERCENT.search(gold)):
        return False  # a percentage equals only a percentage
    if answer == gold:
        return True
    number = _number(NUMBER, _unitless(gold))
    if number is not None:
        return stated(answer) == number
    words = _words(gold)
    if re.fullmatch("[a-z ]+", words):
        return _words(answer) == words
    if max(len(answer), len(gold)) > MAX_ALGEBRA:
        return False
    if "." in answer and "." not in gold:
        return False  # an approximation
    if re.search("[0-9]_", gold):
        return False  # math-verify takes 52_8, a numeral of base 8, for 52
    if "=" not in gold:
        for equation in re.split(r",|\bor\b|\band\b", answer):
            if not all(map(_names_value, equation.split("=")[:-1])):
                return False
    return _unitless(answer), _unitless(gold)


def stated(text: str) -> Fraction | None:
    """The one number that a text states, behind its last "="; None for two numbers or none."""
    left, _, value = _plain(text).rpartition("=")
    sides = CLAUSE.split(left)[-1].split("=")
    if CHANGING.search(value) or not all(map(_names_value, sides)):
        return None
    return _number(STATED, value)


def _names_value(side: str) -> bool:
    """Whether the side of an equation may name what is asked: x, 9 * 2; not 2x, x^2."""
    side = re.sub(r"_\{?\w+\}?|\^\{?-1\}?(?=\()|(?<=\b[fgh])\([0-9.-]+\)", "", side)  # x_1, f(3)
    side = re.sub(r"(?<=[0-9a-z)]) x (?=[0-9(])", "*", side)
    numbers = re.findall("[0-9.]+", side)
    if len(numbers) > 1:
        return not (TERM.search(side) or DENYING.search(side))
    operator = re.search(r"[*/^|<>!~+]|\\sqrt|(?<![a-z]{2})-|^[0-9. ]+$", side)
    return not (operator or CHANGING.search(side) or (numbers and TERM.search(side)))


def _tidy(text: str) -> str:
    """The text without delimiters and boxes, in one spelling."""
    text = text.translate(SPELLINGS)
    text = THOUSANDS.sub(",", text)
    text = BOXED.sub(r" \1 ", text)
    text = WRAPPING.sub(" ", text)
    text = re.sub(r"(?<![A-Za-z\\])pi(?![a-z])", r"\\pi", text)
    return re.sub(r"\s+", " ", text).strip().rstrip(" .;,")


def _plain(text: str) -> str:
    """With \\text{...} opened, \\frac{a}{b} as a/b, without braces and percent signs."""
    text = TEXT.sub(r" \1 ", text)
    text = FRACTION.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]}", text)
    text = PERCENT.sub(" ", text).replace("{", "").replace("}", "")
    text = text.replace("\\times", "*")
    return re.sub(r"-\s+(?=[0-9])", "-", text).strip()


def _unitless(text: str) -> str:
    """Without the \\text{...} at its end, unless that changes the value, as million does."""
    unit = UNIT.search(text)
    if unit and not CHANGING.search(unit[1]):
        return text[: unit.start()]
    return text


def _words(text: str) -> str:
    return _plain(text).lower().strip("\"'()")


def _number(pattern: str, text: str) -> Fraction | None:
    """The value of a text that fits NUMBER or STATED: sign, whole number, top, bottom."""
    match = re.fullmatch(pattern, _plain(text))
    if match is None:
        return None
    sign, whole, top, bottom = (part and part.replace(",", "") for part in match.groups())
    if bottom and not Fraction(bottom):
        return None
    value = Fraction(whole or 0) + Fraction(top) / Fraction(bottom or 1)
    return -value if sign == "-" else value
