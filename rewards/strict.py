"""The strict grader: the answer block behind the reasoning must state the gold answer.

The type of the gold answer decides how: a number must be stated, and no other: "18", "\\$18.00",
"9 * 2 = 18", "She makes 18 dollars a day". Text is compared as text. Only entries of lists,
expressions and relations reach rewards/verifier.py, and only what it can compute in a moment.
"""

import re

from .golds import PATTERNS, GoldType, gold_type, split
from .numerals import LEAD, LETTER, PERCENT, SIDE, last_side, stated
from .spelling import spell, substitute
from .tags import last_closed_answer
from .verifier import Question

MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
MAX_ALGEBRA = 200  # characters of a text for math-verify

OPTION = re.compile(  # B, (B), B: text, B. text; not A or B, A cat, A: water B: salt
    r"\(?\s*([A-Za-z])\s*(?:(?:[.)]*:|[.)]+(?=\s|$))\s*(?!(?:or|and)\b|\(?[A-J][.):]\s)"
    r"(?:(?!\s\(?[A-J][.):]\s).)*)?",
    re.DOTALL,
)
UNREADABLE = re.compile(  # macros that are no value, and what sympy computes before it compares
    r"\\(?!(?:[dtc]?frac|sqrt|pi|cdot|times|div|ln|log|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?"
    r"|infty|leq?|geq?|neq?|lt|gt|in|binom|mathbb|alpha|beta|gamma|delta|epsilon|zeta|eta|theta"
    r"|kappa|lambda|mu|nu|xi|rho|sigma|tau|v?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi"
    r"|Psi|Omega|[lr](?:vert|floor|ceil)|mid)(?![A-Za-z]))[A-Za-z]|(?:[({\[][^)}\]]*){9}"
    r"|\*\*|!\s*\)*\s*!|[0-9]{4}\s*\)*!|\\binom[^+]*(?:[0-9]{4}|\^)|[0-9]{31}"
    r"|\^\s*\{?\s*[+-]?[0-9]{3}|[)}|]\s*\^\s*\{?\s*[+-]?[2-9][0-9]|\^\s*\{?\s*\(?[0-9]+\)?\s*\^"
)
VARIABLE = r"(?<![\\A-Za-z])[A-Za-z]+"
MEASURE = re.compile(
    r"(?<![\\A-Za-z])(?:(?:square|cubic) )?(?:(?:centi|milli|kilo)?(?:met(?:er|re)|gram)s?|[cmk]?m"
    r"|[mk]?g|ft|feet|foot|in|inch(?:es)?|units?|degrees?|°)(?:\^[23])?$"
)
UNIT_STEPS = (
    (r"\b(?:square|sq\.?) (\w+)", r"\1^2"),
    (r"\bcubic (\w+)", r"\1^3"),
    (r"\s*(?:/|\bper\b)\s*", "/"),
    (r"(?i)\b(c|m|k|)(?:enti|illi|ilo|)(m|g)(?:et(?:er|re)|ram)s?\b", r"\1\2"),
    (r"\b(h|s|min)(?:(?:ou)?rs?|ec(?:ond)?s?|utes?)\b", r"\1"),
    (r"\bf(?:oo|ee)t\b", "ft"),
    (r"\binch(?:es)?\b", "in"),
    (r"\bdegrees?\b", "°"),
    (r"\bdollars?\b", "$"),
    (r"\bcents?\b", "¢"),
    (rf"({LETTER}{{2}})s\b", r"\1"),
)


def decide(completion: str, gold: str, kind: str = "math") -> bool | Question:
    """Whether the final answer block gives the gold answer; a question needs computer algebra."""
    _, closed, final = completion.partition("</think>")
    if not closed and completion.rstrip().endswith("</answer>"):
        final = completion  # its last block is no guess of the reasoning
    answer = last_closed_answer(final)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer = LEAD.sub("", spell(answer))
    if gold_type(gold, kind) is GoldType.LETTER:
        option = OPTION.fullmatch(answer)
        return option is not None and option[1].upper() == spell(gold).strip("()").upper()
    return kind == "math" and _compare(answer, spell(gold))


def _compare(answer: str, gold: str) -> bool | Question:
    """The comparison for the type of the gold answer; both are in the spelling of `spell`."""
    if answer == gold:
        return True
    if bool(PERCENT.search(answer)) != bool(PERCENT.search(gold)):
        return False  # a percentage equals only a percentage
    name = gold_type(gold)
    if name in (GoldType.NUMBER, GoldType.PERCENTAGE, GoldType.QUANTITY):
        value, unit = stated(answer)
        expected, expected_unit = stated(gold)
        return value == expected and (not unit or _starts_with(unit, expected_unit))
    if name is GoldType.RATIO:
        return stated(answer.replace(":", "/")) == stated(gold.replace(":", "/"))
    if name is GoldType.FORMULA:
        return re.sub(r"[\s{}_]", "", answer) == re.sub(r"[\s{}_]", "", gold)
    if name in (GoldType.TIME, GoldType.DATE, GoldType.CODE, GoldType.WORDS):
        noise = r"[\s{}(),\"']|\.(?![0-9])"
        return re.sub(noise, "", answer).casefold() == re.sub(noise, "", gold).casefold()
    label, _, value = gold.partition("=")
    own_label, _, own_value = answer.rpartition("=")
    if name is GoldType.RELATION and own_label.strip() in ("", label.strip()):
        if value and SIDE.fullmatch(label):
            return _compare(own_value.strip(), value.strip())
    return _entries(answer, gold, name)


def _starts_with(words: str, unit: str) -> bool:
    """Whether the words behind a number begin with the unit of the gold answer."""
    own, expected = (
        re.findall(r"[^\s().,'-]+", substitute(text, UNIT_STEPS)) for text in (words, unit)
    )
    return own[: len(expected)] == expected


def _entries(answer: str, gold: str, name: GoldType) -> bool | Question:
    """Entry by entry: equal, or different numbers, or a question if it can be answered soon."""
    if bool(MEASURE.search(answer)) != bool(MEASURE.search(gold)):
        answer, gold = (MEASURE.sub("", text) for text in (answer, gold))
    own_brackets, answers = split(answer)
    brackets, golds = split(gold)
    if own_brackets != brackets and {own_brackets, brackets} - {"", "()", "{}"}:
        return False
    if not re.fullmatch(PATTERNS[GoldType.RELATION], gold):
        answers = map(last_side, answers)
    answers, golds = ([*map(_canonical, entries)] for entries in (answers, golds))
    if answers == golds or (name is GoldType.SET and sorted(answers) == sorted(golds)):
        return True
    letters, expected = (set(re.findall(VARIABLE, " ".join(texts))) for texts in (answers, golds))
    texts = answers + golds
    if len(answers) != len(golds) or not letters <= expected or max(map(len, texts)) > MAX_ALGEBRA:
        return False
    if all(re.fullmatch("[0-9/-]+", text) for text in texts) or any(map(UNREADABLE.search, texts)):
        return False
    return tuple(answers), tuple(golds), name is not GoldType.SET


def _canonical(entry: str) -> str:
    """A number as p/q; else the text without spaces that mean nothing."""
    value, unit = stated(entry)
    if value is None or unit:
        return re.sub(r"(?<![A-Za-z]) | (?![A-Za-z])", "", entry)
    return str(value)
