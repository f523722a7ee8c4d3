"""The strict grader: the answer block behind the reasoning must state the gold answer.

The type of the gold answer decides how: a number must be stated, and no other: "18", "\\$18.00",
"9 * 2 = 18", "She makes 18 dollars a day". Only entries that are neither numbers nor words go to
rewards/verifier.py, if they are short and small enough to be compared.
"""

import re
from collections import Counter
from functools import lru_cache

from .golds import READERS, RELATION, GoldType, letter, split, type_of
from .numerals import CHANGING, LETTER, PERCENT, exact, names_value, plain, stated
from .spelling import spell
from .tags import last_closed_answer
from .verifier import Question

MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
MAX_ALGEBRA = 200  # characters of a text for math-verify
MAX_DEPTH = 8  # of brackets in it

LEAD = re.compile(  # The answer is, Option, 答案是
    rf"(?i)(?:(?:{LETTER}|[',() -])*\b(?:is|are|be|equals)\b|(?:the )?(?:final )?(?:correct )?"
    r"(?:answer|option|choice|solution|result)|答案[是为為]?):?\s+|答案[是为為]?:?"
)
MACROS = set(
    "frac dfrac tfrac cfrac sqrt pi cdot times div ln log exp sin cos tan cot sec csc arcsin arccos"
    " arctan sinh cosh tanh infty le leq ge geq lt gt ne neq in cup cap emptyset binom mathbb"
    " alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma tau"
    " phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega lvert rvert lfloor"
    " rfloor lceil rceil mid vert quad".split()
)
UNBOUNDED = re.compile(  # sympy computes powers, factorials and binomials before it compares them
    r"\*\*|!\s*\)*\s*!|[0-9]{4}\s*\)*!|\\binom[^+]*[0-9]{4}|[0-9]{31}|\^\s*\{?\s*[+-]?[0-9]{3}"
    r"|[)}|]\s*\^\s*\{?\s*[+-]?[2-9][0-9]|\^\s*\{?\s*\(?[0-9]+\)?\s*\^|\\binom[^+]*\^"
)
RATIONAL = re.compile(r"-?[0-9]+(?:/[0-9]+)?")
BRACKETS = {"()": ("()", ""), "\\{\\}": ("\\{\\}", ""), "": ("", "\\{\\}", "()")}
BARE = (GoldType.TUPLE, GoldType.SET)
UNIT_NAMES = {
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km",
    "millimeter": "mm", "gram": "g", "kilogram": "kg", "hour": "h", "hr": "h", "minute": "min",
    "second": "s", "sec": "s", "foot": "ft", "feet": "ft", "inch": "in", "inche": "in",
    "degree": "°", "dollar": "$", "cent": "¢", "euro": "€", "pound": "£", "liter": "l",
    "litre": "l", "L": "l", "per": "/",
}  # fmt: skip

MEASURED = re.compile(
    rf"(.*[^\\A-Za-z])((?:(?:square|cubic|sq) )?(?:{'|'.join({*UNIT_NAMES, *UNIT_NAMES.values(), 'mm', 'mg'} - {'/'})})s?(?:\^[23])?)"
)


def decide(completion: str, gold: str, kind: str = "math") -> bool | Question:
    """Whether the final answer block gives the gold answer; a question needs computer algebra."""
    answer = _final_answer(completion)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer = spell(answer)
    gold = spell(gold)
    if kind == "choice":
        return (letter(_without_lead(answer)) or "").upper() == gold.upper()
    return answer == gold or _compare(answer, gold)


def _final_answer(completion: str) -> str | None:
    """The last answer block behind the reasoning; None if it is missing or has no end."""
    _, closed, final = completion.partition("</think>")
    if not closed:  # then the block must be the end, or it may be a guess of the reasoning
        final = completion if completion.rstrip().endswith("</answer>") else ""
    if final.rfind("<answer>") > final.rfind("</answer>"):
        return None
    return last_closed_answer(final)


def _compare(answer: str, gold: str) -> bool | Question:
    """The comparison for the type of the gold answer; both are in the spelling of `spell`."""
    if bool(PERCENT.search(answer)) != bool(PERCENT.search(gold)):
        return False  # a percentage equals only a percentage
    name = type_of(gold)
    if name in (GoldType.NUMBER, GoldType.PERCENTAGE, GoldType.QUANTITY):
        return _states(answer, gold)
    answer = _without_lead(answer)
    if answer == gold:
        return True
    if name in READERS:
        value = READERS[name](answer)
        return value is not None and value == READERS[name](gold)
    return _structure(answer, gold, name)


def _without_lead(answer: str) -> str:
    """Without "The answer is" and the like, unless the words deny or doubt."""
    lead = LEAD.match(answer)
    if lead and not CHANGING.search(lead[0]):
        return answer[lead.end() :].lstrip()
    return answer


def _states(answer: str, gold: str) -> bool:
    """Whether the answer states the number of the gold answer, and no unit but its unit."""
    value = exact(gold)
    found = stated(answer)
    if value is None:
        value, unit = stated(gold)
        return found is not None and found[0] == value and _same_unit(found[1], unit)
    return found is not None and found[0] == value


def _same_unit(words: str, unit: str) -> bool:
    """Whether the words behind a number begin with the unit of the gold answer, or are none."""
    stated = _unit(words)
    wanted = _unit(unit)
    rest = stated[len(wanted) :]
    return not stated or (stated[: len(wanted)] == wanted and (not rest or rest[0].isalpha()))


def _unit(words: str) -> list[str]:
    """Centimeters, cm; square feet, ft ^2; km per hour, km / h."""
    words = re.sub(r"\b(?:square|sq\.?) (\w+)", r"\1^2", words)
    words = re.sub(r"\bcubic (\w+)", r"\1^3", words)
    names = re.findall(rf"{LETTER}+|\^[23]|[/°¢$€£¥]", words)
    return [UNIT_NAMES.get(name, UNIT_NAMES.get(name.removesuffix("s"), name)) for name in names]


def _structure(answer: str, gold: str, name: GoldType) -> bool | Question:
    """The comparison of expressions and relations, and entry by entry of what has several."""
    if name is GoldType.RELATION:
        label, _, value = gold.partition("=")
        mine, _, rest = answer.rpartition("=")
        if value and names_value(label) and mine.strip() in ("", label.strip()):
            return rest.strip() == value.strip() or _compare(rest.strip(), value.strip())
    if name is GoldType.EXPRESSION:
        answer, unit = _measured(answer)
        gold, wanted = _measured(gold)
        if unit and unit != wanted:
            return False
    brackets, golds = split(gold)
    own_brackets, answers = split(answer)
    if own_brackets not in BRACKETS.get(brackets if name in BARE else None, (brackets,)):
        return False
    if not RELATION.search(gold):
        if not all(names_value(side) for entry in answers for side in entry.split("=")[:-1]):
            return False
        answers = [entry.rpartition("=")[2] for entry in answers]
    return _entries([*map(_canonical, answers)], [*map(_canonical, golds)], name is not GoldType.SET)


def _measured(text: str) -> tuple[str, list[str]]:
    """A text without a known unit at its end, and the unit."""
    match = MEASURED.fullmatch(text)
    return (match[1], _unit(match[2])) if match else (text, [])


def _canonical(entry: str) -> str:
    """Numbers in lowest terms, p/q; else the text without spaces that mean nothing."""
    value = exact(entry)
    if value is not None:
        return str(value)
    return re.sub(r"(?<![A-Za-z]) | (?![A-Za-z])", "", entry)


def _entries(answers: list[str], golds: list[str], ordered: bool) -> bool | Question:
    """Equal entries, decided here if numbers or bounds decide; else a question."""
    if len(answers) != len(golds):
        return False
    if answers == golds or (not ordered and Counter(answers) == Counter(golds)):
        return True
    open_answers = [entry for entry in answers if not RATIONAL.fullmatch(entry)]
    open_golds = [entry for entry in golds if not RATIONAL.fullmatch(entry)]
    if not (open_answers or open_golds):
        return False
    if ordered and any(
        answer != gold and RATIONAL.fullmatch(answer) and RATIONAL.fullmatch(gold)
        for answer, gold in zip(answers, golds, strict=True)
    ):
        return False
    if not _letters("".join(answers)) <= _letters("".join(golds)):
        return False  # a variable, or a word, that the gold answer does not have
    if not all(map(_is_bounded, open_answers + open_golds)):
        return False
    return tuple(answers), tuple(golds), ordered


def _letters(text: str) -> set[str]:
    return set(re.findall("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text)))


def _is_bounded(text: str) -> bool:
    """Whether computer algebra can read the text and compute it in a moment."""
    depth = 0
    for bracket in re.findall(r"[({\[]|[)}\]]", text):
        depth += 1 if bracket in "([{" else -1
        if not 0 <= depth <= MAX_DEPTH:
            return False
    macros = set(re.findall(r"\\([A-Za-z]+)", text))
    return len(text) <= MAX_ALGEBRA and macros <= MACROS and not UNBOUNDED.search(text)
