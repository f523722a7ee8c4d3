"""The type of a gold answer, from its text alone: it decides how answers are compared with it."""

import re
from enum import StrEnum
from functools import lru_cache

from .numerals import LETTER, PERCENT, stated
from .spelling import spell, substitute

GoldType = StrEnum(
    "GoldType",
    "NUMBER PERCENTAGE QUANTITY LETTER TIME DATE CODE FORMULA RATIO WORDS MATRIX INTERVAL TUPLE SET"
    " RELATION EXPRESSION",
)

BALANCED = r"(?:[^()\[\]]|[(\[][^()\[\]]*[)\]])*"
SEPARATOR = r"(?:,|;|\bor\b|\band\b)(?![^({\[]*[)}\]])"  # outside brackets
ELEMENT = (
    "(?:A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?"
    "|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    "|U|V|W|Xe|Yb?|Z[nr])"
)
COUNT = r"_?\{?[0-9]*\}?"
ATOMS = rf"[(\[]?{ELEMENT}{COUNT}(?:[)\]]{COUNT})?"
MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
PATTERNS = {  # the first that fits the whole text, after numbers and quantities
    GoldType.LETTER: r"\(?[A-Z]\)?",
    GoldType.TIME: r"[0-9]{1,2}:[0-5][0-9](?::[0-5][0-9])?(?: ?[AaPp]\.? ?[Mm]\.?)?",
    GoldType.DATE: rf"(?i)[0-9]{{1,4}}([-/.])[0-9]{{1,2}}\1[0-9]{{1,4}}"
    rf"|(?:{MONTH} )?[0-9]{{1,2}}(?:st|nd|rd|th)?(?: (?:of )?{MONTH})?(?:,? [0-9]{{4}})?",
    GoldType.FORMULA: rf"(?=.*[0-9+]|.*[a-z][A-Z]|.*[A-Z]{{2}}[a-z])"
    rf"(?:[0-9]* ?{ATOMS}(?:{ATOMS})+|{ATOMS})(?:\^?\{{?[0-9]*[+-]\}}?)?",
    GoldType.CODE: r"0[xX][0-9A-Fa-f]+|\(?[0-9A-F]+\)?_\{?[0-9]+\}?|[0-9]+(?: ?- ?[0-9]+)+"
    r"|[0-9]+(?:[./][0-9]+){2,}|[0-9]+(?: ?: ?[0-9]+){2,}",
    GoldType.RATIO: r"[0-9.]+ ?: ?[0-9.]+",
    GoldType.MATRIX: r"\\begin\{[pb]?matrix\}.*",
    GoldType.WORDS: rf"{LETTER}{{2,}}(?:[\s',.\-/()\"!?&:;]+{LETTER}+)*[\"')!?]*"
    rf"|.*(?<![\\A-Za-z]){LETTER}{{4,}}.*",
    GoldType.INTERVAL: rf".*\\cup.*|(?:[a-z] ?\\in ?)?(?:\[{BALANCED},{BALANCED}[)\]]"
    rf"|\({BALANCED},(?:{BALANCED}\]|.*\\infty ?\))|\(-\\infty.*\))",
    GoldType.TUPLE: rf"\({BALANCED},{BALANCED}\)",
    GoldType.SET: rf"\\?\{{.*\}}|.*(?:\\pm|{SEPARATOR}).*",
    GoldType.RELATION: r".*(?:[=<>]|\\(?:leq?|geq?|neq?|lt|gt|in|to|equiv)(?![a-z])).*",
    GoldType.EXPRESSION: r".*",
}


LIST_STEPS = (  # x \in [0, 1]; the rows of a matrix as a union
    (r"^[a-z] ?\\in(?![a-z])", ""),
    (r"\\([{}])", r"\1"),
    (r"\\begin\{[pb]?matrix\}", "["),
    (r"(?:\\\\ *)?\\end\{[pb]?matrix\}", "]"),
    (r"\\\\", r"]\\cup["),
    (r"&", ","),
)


@lru_cache(maxsize=8192)
def gold_type(gold: str, kind: str = "math") -> GoldType:
    """The type of a gold answer. kind=choice: a letter, or words, which no answer can meet."""
    gold = spell(gold)
    value, unit = stated(gold)
    if kind == "choice":
        return GoldType.LETTER if re.fullmatch(r"\(?[A-Za-z]\)?", gold) else GoldType.WORDS
    if value is None or re.match(rf"{LETTER}|\(\D|.*=|.*[0-9][A-Za-z]$", gold):
        return next(name for name, form in PATTERNS.items() if re.fullmatch(form, gold, re.DOTALL))
    if PERCENT.search(gold):
        return GoldType.PERCENTAGE
    return GoldType.QUANTITY if unit else GoldType.NUMBER


def split(text: str) -> tuple[str, list[str]]:
    """The brackets and the entries of a tuple, a set, a union of intervals or the rows of a matrix;
    a text without them is one entry. a \\pm b is two entries."""
    text = substitute(text, LIST_STEPS)
    brackets = ""
    enclosed = rf"\s*([(\[{{])({BALANCED})([)\]}}])\s*"
    pieces = [re.fullmatch(enclosed, piece) for piece in text.split("\\cup")]
    if all(pieces):
        brackets = "".join(piece[1] + piece[3] for piece in pieces)
        text = ",".join(piece[2] for piece in pieces)
    text = re.sub(r"([^,;]*)\\pm([^,;]*)", r"\1+\2,\1-\2", text)
    return brackets, [entry.strip() for entry in re.split(SEPARATOR, text) if entry.strip()]
