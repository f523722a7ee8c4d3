"""The type of a gold answer, from its text: it decides how answers are compared with it.

The types of READERS are read as values, compared exactly. The others are for rewards/strict.py,
and only expressions, relations and entries may reach computer algebra.
"""

import re
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from .numerals import CHANGING, DECIMAL, LETTER, PERCENT, exact, stated
from .spelling import spell

ELEMENTS = (
    "A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?"
    "|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    "|U|V|W|Xe|Yb?|Z[nr]"
)
FORMULA = re.compile(rf"([0-9]*)((?:(?:{ELEMENTS})[0-9]*|[()\[\]][0-9]*)+)(\^?[0-9]*[+-])?")
CODE = re.compile(r"0x[0-9a-f]+|[0-9a-f]+_[0-9]+|[0-9]+(?:-[0-9]+)+|[0-9]+(?:[./][0-9]+){2,}")
TIME = re.compile(r"([0-9]{1,2}):([0-5][0-9])(?::([0-5][0-9]))?\s*(?:([AaPp])\.? ?[Mm]\.?)?")
DATES = ("%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%B %d %Y", "%d %B %Y", "%b %d %Y", "%d %b %Y")
OPTION = re.compile(r"\(?\s*([A-Za-z])\s*(?:[.)]*:(?P<text>.*)|[.)]+(?P<more>\s.*)?)?", re.DOTALL)
ANOTHER = re.compile(r"(?:^|\s)\(?[A-J][.):]\s|^\s*(?:or|and)\b")
PROSE = re.compile(rf"{LETTER}{{2,}}(?:[\s',.\-/()\"!?&:;]+{LETTER}+)*[\"')!?]*")
LIST = re.compile(r"\\pm\b|\b(?:or|and)\b")
RELATION = re.compile(r"[=<>]|\\(?:leq?|geq?|neq?|lt|gt|in|to|equiv)(?![a-z])")


class GoldType(StrEnum):
    """How a gold answer is compared."""

    LETTER = "letter"
    TIME = "time"
    DATE = "date"
    NUMBER = "number"
    PERCENTAGE = "percentage"
    FORMULA = "formula"
    CODE = "code"
    QUANTITY = "quantity"
    RATIO = "ratio"
    MATRIX = "matrix"
    INTERVAL = "interval"
    TUPLE = "tuple"
    SET = "set"
    RELATION = "relation"
    EXPRESSION = "expression"
    WORDS = "words"


def gold_type(gold: str, kind: str = "math") -> GoldType:
    """The type of a gold answer. kind=choice: a letter, or words, which no answer can meet."""
    gold = spell(gold)
    if kind == "choice":
        return GoldType.WORDS if letter(gold) is None else GoldType.LETTER
    return type_of(gold)


@lru_cache(maxsize=8192)
def type_of(gold: str) -> GoldType:
    """The type of a gold answer in the spelling of `spell`."""
    if re.fullmatch(r"\(?[A-Z]\)?", gold):
        return GoldType.LETTER
    for name in (GoldType.TIME, GoldType.DATE):
        if READERS[name](gold) is not None:
            return name
    if exact(gold) is not None:
        return GoldType.PERCENTAGE if PERCENT.search(gold) else GoldType.NUMBER
    for name in (GoldType.FORMULA, GoldType.CODE, GoldType.RATIO):
        if READERS[name](gold) is not None:
            return name
    if re.match(r"[$€£¥.0-9\\-]", gold) and not RELATION.search(gold) and stated(gold):
        return GoldType.PERCENTAGE if PERCENT.search(gold) else GoldType.QUANTITY
    if PROSE.fullmatch(gold):
        return GoldType.WORDS
    return _structure(gold)


def _structure(gold: str) -> GoldType:
    """The type of what is neither one value nor words."""
    brackets, entries = split(gold)
    if gold.startswith("\\begin{"):
        return GoldType.MATRIX
    if len(entries) > 1:
        if "[" in brackets or "]" in brackets or "\\infty" in gold:
            return GoldType.INTERVAL
        return GoldType.TUPLE if "(" in brackets else GoldType.SET
    if "\\{" in brackets:
        return GoldType.SET
    if RELATION.search(gold):
        return GoldType.RELATION
    words = re.findall(rf"(?<!\\){LETTER}{{3,}}", gold)
    return GoldType.WORDS if words else GoldType.EXPRESSION


def split(text: str) -> tuple[str, list[str]]:
    """The brackets of a tuple, interval, set or matrix, and its entries; of a union all of them.

    a \\pm b is two entries; what is not a list is one entry without brackets.
    """
    matrix = re.fullmatch(r"\\begin\{[pbB]?matrix\}(.*)\\end\{[pbB]?matrix\}", text)
    if matrix:
        rows = [row.split("&") for row in re.sub(r"\\\\\s*$", "", matrix[1]).split("\\\\")]
        return str([*map(len, rows)]), [cell.strip() for row in rows for cell in row]
    brackets = ""
    entries = []
    for piece in _parts(re.sub(r"^[a-z] ?\\in(?![a-z])", "", text), "\\cup"):
        enclosed = re.fullmatch(r"(\\\{|[(\[])(.*)(\\\}|[)\]])", piece)
        inner = _parts(enclosed[2], ",") if enclosed else []
        if len(inner) > 1 or piece.startswith("\\{") and inner:
            brackets += enclosed[1] + enclosed[3]
            entries += inner
        else:
            entries += _parts(piece, ",", "or", "and")
    signs = [("+", "-") if "\\pm" in entry else ("",) for entry in entries]
    return brackets, [
        entry.replace("\\pm", sign)
        for entry, both in zip(entries, signs, strict=True)
        for sign in both
    ]


def _parts(text: str, *separators: str) -> list[str]:
    """The parts between separators outside brackets; none if a bracket closes that never opened."""
    parts = [""]
    depth = 0
    for token in re.findall(r"\\[A-Za-z]+|\\.|\b(?:or|and)\b|.", text):
        depth += (token[-1] in "([{") - (token[-1] in ")]}")
        if depth < 0:
            return []
        if depth == 0 and token in separators:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def letter(text: str) -> str | None:
    """The option that a text names: B, (B), B: text, B. text; not A or B, A cat."""
    match = OPTION.fullmatch(text)
    if match is None or ANOTHER.search(match["text"] or match["more"] or ""):
        return None
    return match[1]


def _time(text: str) -> tuple[int, ...] | None:
    """Hour of the day, minute, second; without am or pm the hour stays as it is."""
    match = TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if match[4]:
        hour = hour % 12 + 12 * (match[4] in "Pp")
    return hour, minute, second


def _date(text: str) -> datetime | None:
    text = re.sub(r"(?<=[0-9])(?:st|nd|rd|th)\b|,", "", text)
    for form in DATES:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    return None


def _formula(text: str) -> str | None:
    """CO_2 as CO2. One element, or capitals alone, are a formula only with a number or a charge."""
    text = re.sub(r"[\s{}_]", "", text)
    match = FORMULA.fullmatch(text)
    if match is None:
        return None
    count, atoms, charge = match.groups(default="")
    elements = re.findall(ELEMENTS, atoms)
    if len(elements) < (2 if count else 1):
        return None
    camel = re.search("[a-z][A-Z]|[A-Z]{2}[a-z]", atoms)
    return text if camel or charge or re.search("[0-9]", text) else None


def _code(text: str) -> str | None:
    text = re.sub(r"[\s{}()]", "", text).lower()
    return text if CODE.fullmatch(text) else None


def _ratio(text: str) -> list[Fraction] | None:
    parts = text.split(":")
    if len(parts) < 2 or not all(re.fullmatch(rf"\s*(?:{DECIMAL})\s*", part) for part in parts):
        return None
    values = [Fraction(part.strip().replace(",", "")) for part in parts]
    return [value / sum(values) for value in values] if sum(values) else None


def _words(text: str) -> str:
    return text.casefold().strip("\"'() ")


READERS: dict[GoldType, Callable[[str], object]] = {
    GoldType.LETTER: letter,
    GoldType.TIME: _time,
    GoldType.DATE: _date,
    GoldType.FORMULA: _formula,
    GoldType.CODE: _code,
    GoldType.RATIO: _ratio,
    GoldType.WORDS: _words,
}
