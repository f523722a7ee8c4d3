"""Our grader: the last closed answer block must state the gold answer; no other text counts.

Departs from both published versions: the whole text and the last number do not count, the sign
does, a final full stop does not, and 0.5 equals 1/2. `decide` is exact and has bounded work; where
only computer algebra can decide it returns a Doubt, for the child processes of `rewards.symbolic`.
"""

import re
from dataclasses import dataclass
from itertools import accumulate

from rewards import latex, published
from rewards.quantities import ATTACHED_UNITS, PERCENT, quantity, rational, stated
from rewards.tags import last_closed_answer
from rewards.tidying import TAKEN_BACK, TEXT, spoken, tidy

MAX_LENGTH = 600  # characters of an answer block; a longer one is wrong
MAX_SYMBOLIC_LENGTH = 120  # characters of a text for the computer algebra system
MAX_SYMBOLIC_BRACES = 12

MACRO = re.compile(r"\\([a-zA-Z]+)")
EQUALS = re.compile(r"(?<![<>!=:~\\])=+(?![<>=])")
UNKNOWN = re.compile(r"(?:\bor\b|\band\b|[,;])\s*\\?[A-Za-z][A-Za-z_0-9']*(?:\([a-z]\))?\s*$")
NAME = r"[A-Za-z]'?(?:\^\{?-1\}?(?=\())?(?:_(?:\{\w*\}|\w))?(?:\([^()]*\))?"  # x, a_1, f'(x)
NAMES = re.compile(rf"{NAME}(?:[+-]?{NAME})*|\({NAME}(?:,{NAME})*\)")  # also a+b, AB, (x,y)
GREEK = re.compile(
    r"\\(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron"
    r"|rho|sigma|tau|upsilon|phi|chi|psi|omega)(?![a-z])",
    re.IGNORECASE,
)
FIGURE = re.compile(r"\\(?:measured)?(?:angle|triangle|overline)(?![a-z])")
TIMES = re.compile(r"(?<=[0-9])x(?=[0-9])|(?<=[0-9a-z)]) x (?=[0-9(])")  # 9 eggs x 2
LONG_UNITS = "|".join(unit for unit in ATTACHED_UNITS if unit.isalpha() and len(unit) > 1)
PROSE = re.compile(
    r"(?<![A-Za-z\\0-9])(?![A-Z]+(?![A-Za-z]))[A-Za-z]{2,}(?:['/-][A-Za-z]+)*|\b[aAI](?= [a-z]{2})"
    rf"|(?<=[0-9])(?:{LONG_UNITS})(?![A-Za-z])"
)
MULTIPLE = re.compile(
    r"\b(?:half|twice|double|triple|minus|negative|square|root|sqrt|sin|cos|tan|log|ln)\b"
)
CLAUSE = re.compile(
    r"[.;:]\s|,\s(?![^()]*\))|\\(?:Rightarrow|implies|therefore|iff)(?![a-z])|\\\\"
    r"|[⇒→]|=>|\b(?:so|thus|hence|then|gives)\b"
)
UNIT = re.compile(r"\\text\{ ([^{}]*)\}(?:\s*\^\s*\{?[23]\}?\s*$)?(.*)")
SEPARATOR = re.compile(r"\s*(?:,|;|\bor\b|\band\b)\s*")
DIGIT_GAP = re.compile(r"[0-9]\s+[0-9]")
UNIT_WORD = re.compile(r"[A-Za-z]{2}")  # of a gold answer; in 5h the h is a variable
SYMBOL = re.compile(r"[A-Za-z^_]")
WORD = re.compile(r"(?<!\\)\b[A-Za-z]{3,}\b")
FUNCTIONS = frozenset({"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "arctan"})
FUNCTIONS |= {"arcsin", "arccos", "pmatrix", "bmatrix", "vmatrix", "matrix", "cases"}
BASE = re.compile(r"[0-9]_")
LARGE_POWER = r"\^\s*\{?\s*-?\s*[0-9]{3,}"
TOWER = r"\^\s*[{(]?\s*[0-9]+\s*\^"
SERIES = r"\\(?:sum|prod|int|lim)(?![a-z])"  # summed term by term for seconds
HOSTILE = re.compile(rf"{LARGE_POWER}|{TOWER}|{SERIES}|[0-9]{{16,}}|!.*!")
BRACKETS = {"(": ")", "[": "]", "{": "}"}
KNOWN_MACROS = latex.SYMBOLS | {"text", "textrm", "textbf", "mathrm", "left", "right"}
KNOWN_MACROS |= {"frac", "dfrac", "tfrac", "sqrt"}


@dataclass(frozen=True)
class Doubt:
    """Two expressions that only a computer algebra system can compare."""

    given: str
    gold: str


def decide(completion: str, gold: str) -> bool | Doubt:
    """Whether the last closed, non-empty answer block states the gold answer."""
    answer = last_closed_answer(completion)
    if answer is None or len(answer) > MAX_LENGTH or len(gold) > MAX_LENGTH:
        return False
    given, gold = tidy(answer), tidy(gold)
    if bool(PERCENT.search(given)) != bool(PERCENT.search(gold)):
        return False  # a percentage equals only a percentage
    if same(given, gold):
        return True
    return Doubt(given, gold) if _worth_asking(given, gold) else False


def same(given: str, gold: str) -> bool:
    """Equal as written, as exact numbers, element by element, or as words."""
    if given == gold or not given or not gold:
        return given == gold
    if _published_equal(given, gold) or _same_number(given, gold):
        return True
    said, meant = _value(given), _named_value(gold, given)
    if said and meant and (said, meant) != (given, gold) and same(said, meant):
        return True
    return _same_elements(given, gold) or _same_words(given, gold)


def _published_equal(given: str, gold: str) -> bool:
    """Equal in a published normal form that drops nothing of importance."""
    if DIGIT_GAP.search(given) and not DIGIT_GAP.search(gold):
        return False  # they join "3 4" to 34
    given, gold = given.replace("=", "≡"), gold.replace("=", "≡")  # they read 2x=5 and y=5 as 5
    for text in (given, gold):
        if (cut := UNIT.search(text)) and (cut[2] or quantity(f"1 {cut[1]}") != 1):
            return False  # they cut everything behind "\text{ "; only a unit may go
    if published.first_form(given) == published.first_form(gold):
        return True
    for text in (given, gold):
        if "\\sqrt[" in text or not KNOWN_MACROS.issuperset(MACRO.findall(text)):
            return False  # they drop unknown macros and the degree of a root
    return published.equal(given, gold)


def _same_number(given: str, gold: str) -> bool:
    """Equal as exact rationals; of two percentages the numbers before the signs."""
    given, gold = (PERCENT.sub("", spoken(text), count=1) for text in (given, gold))
    value = rational(gold)
    if value is None and UNIT_WORD.search(gold):
        value = quantity(gold)
    return value is not None and _number(given) == value


def _number(text: str) -> object:
    readings = (reading(text) for reading in (rational, quantity, stated))
    return next((number for number in readings if number is not None), None)


def _value(text: str) -> str | None:
    """The text after the last "=", or all of it.

    None for a list of unknowns ("x = 3 or x = 5") and where a left side is none that has the value.
    """
    signs = list(EQUALS.finditer(text))
    if not signs:
        return text
    left, value = text[: signs[-1].start()], text[signs[-1].end() :].strip()
    if len(signs) > 1 and UNKNOWN.search(left[signs[-2].end() :]):
        return None
    if TAKEN_BACK.search(re.split(r"[.]\s", left)[-1]):
        return None
    sides = EQUALS.split(CLAUSE.split(left)[-1])
    return value if all(_names_value(side, value) for side in sides) else None


def _names_value(left: str, value: str) -> bool:
    """Whether `left` may stand for an asked value: symbols, arithmetic, prose; not 2x, -x, x^2."""
    if (number := rational(spoken(left))) is not None:
        return number == rational(spoken(value))
    if MULTIPLE.search(left) and not re.search("[0-9]", left):
        return False
    left = GREEK.sub("x", FIGURE.sub("", TIMES.sub("*", TEXT.sub(r" \1", left))))
    rest = MACRO.sub(r"\\", PROSE.sub(" ", left)).replace(" ", "")
    if re.search("[A-Za-z]", rest):
        return NAMES.fullmatch(rest) is not None
    numbers = len(re.findall("[0-9.]+", rest))
    if numbers > 1 or not PROSE.search(left):
        return numbers > 0
    if numbers:  # 2 * price
        return not re.search(r"[-+*/^\\]", rest)
    return not rest.startswith(("-", "\\"))


def _named_value(gold: str, given: str) -> str | None:
    """The 5 of a gold "x = 5", if the answer names x or nothing; None for an equation."""
    name, sign, value = gold.partition("=")
    if not sign:
        return gold
    names = given.partition("=")[0].replace(" ", ""), name.replace(" ", "")
    same_name = "=" not in given or names[0] == names[1]
    return value.strip() if same_name and "=" not in value and NAMES.fullmatch(names[1]) else None


def _same_elements(given: str, gold: str) -> bool:
    """Equal elements: in order for tuples and intervals, in any order for sets and bare lists."""
    ours, theirs = _elements(given), _elements(gold)
    if ours is None or theirs is None or ours[0] != theirs[0] or len(ours[1]) != len(theirs[1]):
        return False
    if ours[0] in ("()", "[]", "(]", "[)"):
        return all(same(a, b) for a, b in zip(ours[1], theirs[1], strict=True))
    rest = list(ours[1])
    for element in theirs[1]:
        found = next((other for other in rest if same(other, element)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _elements(text: str) -> tuple[str, list[str]] | None:
    """Brackets and elements of a list of two or more; None for any other text."""
    for macro, brace in (("\\{", "{"), ("\\}", "}"), ("\\lbrace", "{"), ("\\rbrace", "}")):
        text = text.replace(macro, brace)
    brackets = ""
    if text[:1] in BRACKETS and text[-1:] in BRACKETS.values():
        if [*_depths(text), 0].index(0) != len(text) - 1:  # the first is closed before the end
            return None
        brackets, text = text[0] + text[-1], text[1:-1]
    elif rational(text) is not None:
        return None  # 1,000
    parts = _split(text)
    return (brackets, parts) if len(parts) > 1 and all(parts) and len(parts) <= 20 else None


def _depths(text: str) -> list[int]:
    """How many brackets are open after each character."""
    return list(accumulate((c in "([{") - (c in ")]}") for c in text))


def _split(text: str) -> list[str]:
    """The parts of a text between separators outside brackets."""
    parts, start = [], 0
    for position, depth in enumerate(_depths(text)):
        if depth == 0 and position >= start and (found := SEPARATOR.match(text, position)):
            parts.append(text[start:position])
            start = found.end()
    return [*parts, text[start:]]


def _same_words(given: str, gold: str) -> bool:
    """Equal text answers, without case, quotes and spacing; (E) equals E."""
    ours, theirs = _words(given), _words(gold)
    return ours == theirs and theirs.replace(" ", "").isalpha()


def _words(text: str) -> str:
    text = TEXT.sub(r" \1", text).strip("\"' .")
    if len(text) == 3 and text[0] == "(" and text[-1] == ")":
        text = text[1]
    return " ".join(text.lower().split())


def _only_values(text: str) -> bool:
    """Whether every equation of "r = 3, s = 4" gives an asked value."""
    clauses = (EQUALS.split(clause) for clause in CLAUSE.split(text))
    return all(_names_value(side, sides[-1]) for sides in clauses for side in sides[:-1])


def _worth_asking(given: str, gold: str) -> bool:
    """Whether both are short, harmless expressions and the gold one is not a number or a word."""
    if max(len(given), len(gold)) > MAX_SYMBOLIC_LENGTH or not SYMBOL.search(gold):
        return False
    if rational(spoken(gold)) is not None or quantity(spoken(gold)) is not None:
        return False
    if "=" in given and "=" not in gold and not _only_values(given):
        return False
    if ("." in given and "." not in gold) or BASE.search(gold):
        return False  # an approximation is not the exact value; 52_8 is a numeral, not algebra
    return _harmless(given) and _harmless(gold)


def _harmless(text: str) -> bool:
    if text.count("{") > MAX_SYMBOLIC_BRACES or HOSTILE.search(text):
        return False
    return FUNCTIONS.issuperset(WORD.findall(TEXT.sub(r"\1", text)))
