"""One spelling for a text that can be written in many ways: Unicode, LaTeX, Markdown and CJK."""

import re
from unicodedata import name, normalize

SPELLINGS = str.maketrans({
    "−": "-", "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "’": "'", "‘": "'", "“": '"', "”": '"',
    "。": ".", "、": ",", "【": "(", "】": ")", "「": "(", "」": ")", "『": "(", "』": ")",
    "∞": "\\infty ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "≤": "\\le ", "≥": "\\ge ",
    "≠": "\\ne ", "≈": "~", "×": "\\times ", "·": "\\cdot ", "÷": "/", "±": "\\pm ", "√": "\\sqrt ",
    "∅": "\\emptyset ", "→": "\\to ", "⁄": "/", "∕": "/", "º": "°", "\u200b": "", "\ufeff": "", "\xad": "",
})  # fmt: skip
SUPERSCRIPTS = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
VULGAR_FRACTIONS = re.compile("[¼-¾⅐-⅞]")
GREEK = re.compile("[Α-Ωα-ω]")
THOUSANDS = re.compile(r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s*(?=[0-9]{3})")  # 1{,}000
DEGREES = re.compile(r"\^\s*(?:\\circ(?![a-z])|\{\s*\\circ\s*\})|\\(?:degree|circ)(?![a-z])")
DOLLARS = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)*)\$(?![0-9])")  # a formula, not two prices
NESTED = r"\s*\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}"  # three levels deep
FONTS = re.compile(
    r"\\(?:f?boxed|fbox|text(?:bf|it|rm|normal)?|math(?:bf|rm|it|sf)|[mh]box|bm|boldsymbol"
    r"|operatorname\*?|ce|emph|underline)" + NESTED
)
DELIMITERS = re.compile(
    r"\\f?box(?:ed)?(?![a-z])|(?<!\\)\\[\[\]();:!, ]|\$\$|\*\*|`|^[#>* ]+|(?<=[^\s])~|~(?=[A-Za-z])"
    r"|\\(?:displaystyle|left|right|q?quad|[bB]igg?[lr]?)(?![a-z])"
)
FUNCTIONS = re.compile(r"(?<![A-Za-z\\])(pi|sqrt|sin|cos|tan|log|ln)(?![a-z])")
ROOTS = re.compile(r"\\sqrt\s*\(([^()]*)\)")


def spell(text: str) -> str:
    """The text without delimiters, boxes and fonts, with one character for each symbol."""
    text = SUPERSCRIPTS.sub(lambda match: f"^{{{normalize('NFKC', match[0])}}}", text)
    text = VULGAR_FRACTIONS.sub(lambda match: f" {normalize('NFKC', match[0])}", text)
    text = normalize("NFKC", text.replace("º", "°")).translate(SPELLINGS)
    text = GREEK.sub(lambda match: f"\\{_letter(match[0])} ", text)
    text = THOUSANDS.sub(",", text)
    text = DEGREES.sub("°", text)
    text = DOLLARS.sub(r" \1 ", text.replace("$$", " ")).replace("\\$", "$")
    unopened = None
    while text != unopened:
        unopened = text
        text = FONTS.sub(r" \1 ", text)
    text = DELIMITERS.sub(" ", text)
    text = FUNCTIONS.sub(r"\\\1 ", text)
    text = ROOTS.sub(r"\\sqrt{\1}", text)
    text = re.sub(r"\s+(?=\^)", "", text)
    return re.sub(r"\s+", " ", text).strip().rstrip(" .;,")


def _letter(character: str) -> str:
    """The LaTeX name of a Greek letter, Delta or delta."""
    greek = name(character).split()[-1]
    return greek.title() if character.isupper() else greek.lower()
