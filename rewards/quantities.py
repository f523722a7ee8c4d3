"""Exact numbers in short text: 0.5 is 1/2, 1,000 is 1000, "27 miles" is 27. Never floats."""

import contextlib
import re
from fractions import Fraction

DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
FRACTION = re.compile(rf"([+-]?)\s*({DECIMAL})\s*/\s*([+-]?)\s*({DECIMAL})")
MIXED = re.compile(r"([+-]?)\s*([0-9]+)(?:\s+|\s*and\s*)([0-9]+)\s*/\s*([0-9]+)")
SCIENTIFIC = re.compile(rf"([+-]?)\s*({DECIMAL})\s*\*\s*10\s*\^\s*([+-]?[0-9]{{1,2}})")
PLAIN = re.compile(rf"([+-]?)\s*({DECIMAL})\.?")
QUANTITY = re.compile(
    rf"(?P<number>[+-]?\s*(?:{DECIMAL})(?:\s*/\s*[0-9]+)?)(?P<gap>\s*)(?P<unit>[A-Za-z%°(/][^0-9=<>+*]*)"
    r"(?P<power>\^\s*[23])?\.?"
)
PERCENT = re.compile(r"%|\b(?:per\s?cent(?:age)?|pct)\b")
MULTIPLIERS = {"dozen": 12, "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "million": 10**6}
MULTIPLIERS |= {"crore": 10**7, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# First words after which the number is not a count of units.
NO_UNIT = _words("""
pi sqrt root sin cos tan cot sec csc log ln exp mod over squared cubed times plus minus divided e i
theta alpha beta infinity inf is
""")
# Words that change, turn, bound, doubt or withdraw a number. 18 in debt may be right to a question
# "how deep in debt", but the grader does not see the question, so only the bare number is credited.
NO_QUANTITY = _words("""
or and not no nor but isn minus plus times half halves third thirds quarter quarters fourth fourths
fifths sixths eighths tenth tenths hundredth hundredths thousandth thousandths millionths fold th
than wrong incorrect false unless maybe perhaps if zero one two three four five six seven eight nine
ten tens eleven twelve twenty thirty forty fifty sixty seventy eighty ninety dozen hundred thousand
lakh million crore billion trillion quadrillion zillion bn mn mil score gross basis between versus
negative below under beneath debt debts owe owes owed owing deficit overdrawn short shortage shy
behind loss lost missing down less fewer lower decrease red ago earlier bc bce root factorial
inverse reciprocal doubled doubles tripled halved squares cubes twice double triple thrice base
about around approximately approx almost nearly roughly might may could would should think guess
suppose assume unknown cannot least most maximum minimum max min too another other never discard
reject ignore whether arrears opposite subtracted underground permille mille ppm
""")
LETTER_UNITS = frozenset("mgshLlWVNJKCFA")
ATTACHED_UNITS = _words("""
cm mm km dm m ft in yd mi kg g mg lb lbs oz ml mL L l s sec min h hr hrs hours mph kph am pm % °
""")
MAX_UNIT_WORDS = 12
VERBS = (
    "is|are|was|were|be|equals?|makes?|made|earns?|earned|needs?|costs?|has|have|had|gets?|got"
    "|sells?|sold|takes?|took|gives?|gave|pays?|paid|spends?|spent|uses?|used|requires?|meet|left"
)
STATEMENT = re.compile(
    rf"[A-Z][A-Za-z',\s-]*\b(?:{VERBS})(?:\s+[A-Za-z']+){{0,5}}\s+(?P<number>-?(?:{DECIMAL}))"
    r"(?:[%°]|\s+[A-Za-z',\s-]*)?"
)
MAX_STATEMENT = 200  # characters


def rational(text: str) -> Fraction | None:
    """The exact value of a text that is one number; None for any other text."""
    text = text.strip()
    with contextlib.suppress(ZeroDivisionError):
        if match := PLAIN.fullmatch(text):
            return _signed(match[1], match[2])
        if match := FRACTION.fullmatch(text):
            return _signed(match[1], match[2]) / _signed(match[3], match[4])
        if match := MIXED.fullmatch(text):
            sign, whole, top, bottom = match.groups()
            return _signed(sign, whole) + _signed(sign, top) / int(bottom)
        if match := SCIENTIFIC.fullmatch(text):
            return _signed(match[1], match[2]) * Fraction(10) ** int(match[3])
    return None


def quantity(text: str) -> Fraction | None:
    """The number of "27 miles from City A", "18 dollars.", "5 million"; None with two numbers."""
    match = QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    number, words = rational(match["number"]), re.findall(r"[A-Za-z%°]+", match["unit"])
    if number is None or not words or len(words) > MAX_UNIT_WORDS:
        return None
    if match["gap"] and (factor := MULTIPLIERS.get(words[0].lower().removesuffix("s"))):
        number, words = number * factor, words[1:] or ["units"]
    first, lower = words[0], [word.lower() for word in words]
    if not match["gap"] and first not in ATTACHED_UNITS and match["unit"][0] not in "(/":
        return None  # 3x, 2pi
    if lower[0] in NO_UNIT or not NO_QUANTITY.isdisjoint(lower):
        return None
    if len(first) == 1 and first.isalpha() and first not in LETTER_UNITS:
        return None  # 3 x
    return number


def stated(text: str) -> Fraction | None:
    """The number of "She makes 18 every day": one plain sentence with a verb and one number."""
    match = STATEMENT.fullmatch(text.strip()) if len(text) <= MAX_STATEMENT else None
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", text)}
    if match is None or words & NO_QUANTITY:
        return None
    return rational(match["number"])


def _signed(sign: str, decimal: str) -> Fraction:
    value = Fraction(decimal.replace(",", ""))
    return -value if sign == "-" else value
