"""One spelling for the many of models: unicode, math delimiters, \\boxed, spacing macros."""

import re
import unicodedata
from itertools import accumulate

from rewards.quantities import NO_QUANTITY, PERCENT, quantity

UNICODE = {
    "π": "\\pi ", "∞": "\\infty ", "∪": "\\cup ", "∩": "\\cap ", "∅": "\\emptyset ", "∈": "\\in ",
    "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "÷": "/", "⁄": "/", "∕": "/",
    "±": "\\pm ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "θ": "\\theta ",
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
    "°": "^\\circ ", "º": "^\\circ ", "∘": "\\circ ", "％": "%",
    "\xa0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "", "\ufeff": "", "\u2061": "",
    "²": "^2", "³": "^3", "⁴": "^4", "₂": "_2", "₁": "_1", "€": "$", "£": "$", "¥": "$",
    "“": '"', "”": '"', "’": "'", "‘": "'", "，": ",", "．": ".", "（": "(", "）": ")",
}  # fmt: skip
for character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞":
    UNICODE[character] = " " + unicodedata.normalize("NFKC", character).replace("⁄", "/")
UNICODE_TABLE = str.maketrans(UNICODE)

ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|([0-9]+|[A-Za-z]))")
DELIMITERS = re.compile(
    r"(?<!\\)\\[()\[\]]|\\?\$|(?<![0-9A-Za-z)])\*\*|\*\*(?![0-9A-Za-z(])|`|\\displaystyle|\\(?:left|right)(?![a-zA-Z])"
)
SPACING = re.compile(r"(?<!\\)\\[,;: !]|\\q?quad(?![a-zA-Z])|(?<=\S)~|\s+")
THOUSANDS = re.compile(r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s*(?=[0-9]{3}(?![0-9]))")
TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mbox|textit|operatorname)\s*\{([^{}]*)\}")
DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")
TAKEN_BACK = re.compile(
    r"\b(?:(?:not|never|no|nor|or|but)\b|discard|reject|exclud|ignor|impossible|extraneous|wrong"
    r"|incorrect)",
    re.IGNORECASE,
)
BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
CLAUSE_END = re.compile(r"[.,;:](?:\s|$)|\n|\\\\")
PROSE_END = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}$")
LABEL = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is\b|:|=)\s*:?",
    re.IGNORECASE,
)
PART = r"\{(\s*-?[^{}+*/=-]*)\}"  # no sums: a slash would bind tighter than the bar
FRACTION = re.compile(rf"\\[tdc]?frac\s*(?:{PART}|([0-9]))\s*(?:{PART}|([0-9a-zA-Z]))")


def tidy(text: str) -> str:
    """The answer without its wrapping, in one spelling."""
    text = text.translate(UNICODE_TABLE)
    text = ROOT.sub(lambda m: f"\\sqrt{{{m[1] or m[2] or m[3] or ''}}}", text)
    text = _unboxed(THOUSANDS.sub(",", text).replace(",,", ","))
    text = DEGREES.sub("", DELIMITERS.sub("", text))
    text = SPACING.sub(" ", text).strip()
    text = LABEL.sub("", text, count=1).strip() if LABEL.match(text) else text
    return text.rstrip(" .;,").strip() if len(text) > 1 else text


def spoken(text: str) -> str:
    """With \\text{...} opened, \\frac{a}{b} of plain parts as a/b and \\times as *: for numbers."""
    text = TEXT.sub(r" \1", text).replace("\\%", "%").replace("\\times", "*").replace("\\cdot", "*")
    text = FRACTION.sub(lambda m: f" {m[1] or m[2] or ''}/{m[3] or m[4] or ''}", text)
    return re.sub(r"-\s+", "-", text.replace("{", "").replace("}", "")).strip()


def _unboxed(text: str) -> str:
    """The content of the only \\boxed{...} with what changes it, unless a word withdraws it.

    Prose before the box and a unit after it go; "2x = ", a sign, "half of" and "dozen" stay.
    """
    boxes = list(BOXED.finditer(text))
    if len(boxes) != 1 or TAKEN_BACK.search(text):
        return text
    inside = text[boxes[0].end() :]
    depths = [*accumulate(((c == "{") - (c == "}") for c in inside), initial=1)]
    end = depths.index(0) - 1 if 0 in depths else None
    before, after = (DELIMITERS.sub("", t) for t in (text[: boxes[0].start()], inside[end:][1:]))
    head, tail = CLAUSE_END.split(before)[-1].rstrip(), CLAUSE_END.split(after)[0].strip()
    if PROSE_END.search(head) and NO_QUANTITY.isdisjoint(head.lower().split()[-2:]):
        head = ""
    if not end or (quantity(f"1 {spoken(tail)}") == 1 and not PERCENT.search(tail)):
        tail = ""
    return f"{head} {inside[:end]}{tail and ' '}{tail}"
