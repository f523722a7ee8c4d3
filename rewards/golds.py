"""The type of a gold answer, from its text alone: it decides how answers are compared with it."""

import re
from enum import StrEnum
from functools import lru_cache

from .numerals import stated
from .spelling import spell, substitute

GoldType = StrEnum(
    "GoldType",
    "NUMBER PERCENTAGE QUANTITY LETTER TIME DATE CODE FORMULA WORDS MATRIX INTERVAL TUPLE SET"
    " RELATION EXPRESSION",
)

ATOM = (
    r"[(\[]?(?:A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?"
    "|Kr?|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    r"|U|V|W|Xe|Yb?|Z[nr])_?\{?[0-9]*\}?(?:[)\]]_?\{?[0-9]*\}?)?"
)
MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
TEXTS = {  # compared as text
    GoldType.LETTER: r"\(?[A-Z]\)?",
    GoldType.TIME: r"[0-9]{1,2}:[0-5][0-9](?::[0-5][0-9])?(?: ?[AaPp]\.? ?[Mm]\.?)?",
    GoldType.DATE: r"(?i)[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}"
    r"|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{2}){1,2}"
    rf"|(?:{MONTH} )?[0-9]{{1,2}}(?:st|nd|rd|th)?(?: (?:of )?{MONTH})?(?:,? [0-9]{{4}})?",
    GoldType.FORMULA: r"(?=.*[0-9+]|.*[a-z][A-Z]|.*[A-Z]{2}[a-z])"
    rf"(?:[0-9]* ?{ATOM}(?:{ATOM})+|{ATOM})(?:\^?\{{?[0-9]*[+-]\}}?)?",
    GoldType.CODE: r"0[xX][0-9A-Fa-f]+|\(?[0-9A-F]+\)?_\{?[0-9]+\}?|[0-9]+(?: ?- ?[0-9]+)+"
    r"|[0-9]+(?:[./][0-9]+){2,}|[0-9]+(?: ?: ?[0-9]+)+",
    GoldType.WORDS: r"[^\W\d_]{2,}(?:[\s',.\-/()\"!?&:;]+[^\W\d_]+)*[\"')!?]*"
    r"|(?!\\begin).*(?<![\\A-Za-z])[^\W\d_]{4,}.*",
}
FORMS = {  # compared entry by entry; … is a text with balanced brackets
    GoldType.MATRIX: r"\\begin\{[pb]?matrix\}.*",
    GoldType.INTERVAL: r".*\\cup.*|(?:[a-z] ?\\in ?)?"
    r"(?:\[…,…[)\]]|\((?:…,…\]|…,.*\\infty ?\)|-\\infty.*\)))",
    GoldType.TUPLE: r"\(…,…\)",
    GoldType.SET: r"\\?\{.*\}|.*(?:\\pm|(?:,|;|\bor\b|\band\b)(?![^({\[]*[)}\]])).*",
    GoldType.RELATION: r".*(?:[=<>]|\\(?:leq?|geq?|neq?|lt|gt|in|to|equiv)(?![a-z])).*",
    GoldType.EXPRESSION: r".*",
}
BALANCED = r"(?:[^()\[\]]|[(\[][^()\[\]]*[)\]])*"
ENCLOSED = rf"\s*([(\[{{])({BALANCED})([)\]}}])\s*"
LIST_STEPS = (  # x \in [0, 1], (x, y) = (1, 2); \{1, 2\}; the rows of a matrix as a union
    (r"^[a-z] ?\\in(?![a-z])", ""),
    (r"^(?:[A-Za-z]|\([A-Za-z, ]+\))=(?=[(\[].*,.*[)\]]$|\\\{.*\}$|\\begin)", ""),
    (r"\\([{}])", r"\1"),
    (r"\\begin\{[pb]?matrix\}", "["),
    (r"(?:\\\\ *)?\\end\{[pb]?matrix\}", "]"),
    (r"\\\\", r"]\\cup["),
    (r"&", ","),
)


@lru_cache(maxsize=8192)
def gold_type(gold: str, kind: str = "math") -> GoldType:
    """The type of a gold answer; kind=choice: b is a letter too."""
    gold = spell(gold.upper() if kind == "choice" else gold)
    value, unit = stated(gold)
    if value is None or re.match(r"[^\W\d_]|\(\D|.*=|.*[0-9][A-Za-z]$", gold):
        for name, form in (TEXTS | FORMS).items():
            if re.fullmatch(form.replace("…", BALANCED), gold, re.DOTALL):
                return name
    if "%" in unit:
        return GoldType.PERCENTAGE
    return GoldType.QUANTITY if unit else GoldType.NUMBER


def split(text: str) -> tuple[str, list[str]]:
    """The brackets and the entries of a tuple, a set, a union of intervals or the rows of a matrix;
    a text without them is one entry. a \\pm b is two entries."""
    text = substitute(text, LIST_STEPS)
    pieces = [re.fullmatch(ENCLOSED, piece) for piece in text.split("\\cup")]
    brackets = ""
    if all(pieces):
        brackets = "".join(piece[1] + piece[3] for piece in pieces)
        text = ",".join(piece[2] for piece in pieces)
    text = re.sub(r"([^,;]*)\\pm([^,;]*)", r"\1+\2,\1-\2", text)
    entries = re.split(r"(?:,|;|\bor\b|\band\b)(?![^({\[]*[)}\]])", text)
    return brackets, [entry.strip() for entry in entries if entry.strip()]
