"""One spelling for what can be written in many ways in Unicode, LaTeX, Markdown and CJK."""

import re
from unicodedata import normalize

PUNCTUATION = str.maketrans(
    "−‐‑‒–—’‘“”。、【】「」『』⁄∕≈", "------''\"\".,()()()//~", "\u200b\ufeff\xad"
)
SYMBOLS = "∞∪∩∈≤≥≠×·÷±√∅→αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΣΦΨΩ"
MACROS = (
    "infty cup cap in le ge ne times cdot div pm sqrt emptyset to alpha beta gamma delta epsilon "
    "zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega Gamma"
    " Delta Theta Lambda Sigma Phi Psi Omega"
)
LATEX = {ord(symbol): f"\\{macro} " for symbol, macro in zip(SYMBOLS, MACROS.split(), strict=True)}
DENIALS = (
    r"not|cannot|\w+n't|no|never|n?either|nor|or|but|isn|reject|discard|ignore|wrong|incorrect|false|except"
    "|excluding"
)
CHANGES = (  # words that deny, change or doubt what stands beside them
    DENIALS + "|unless|maybe|perhaps|possibly|probably|(?:un)?likely|doubt|might|may|could|should"
    r"|guess|about|around|approx|approximately|roughly|circa|close|almost|nearly|over(?=\W*[0-9])"
    "|least|most|than|exceeds?|minimum|maximum|another|other|half|halves|twice|double|triple|times"
    "|thirds?|quarters?|fifths?|(?:four|six|seven|eigh|nin)ths|(?:ten|hundred|thousand)(?:th)?s?"
    "|dozens?|[mb]illion|trillion|lakh|crore|divided|multiplied|modulo|mod|(?:square|cube|power) of"
    "|squared|cubed|root|sqrt|sin|cos|tan|log|ln|pi|reciprocal|minus|plus|negative|below|under|zero"
    "|ago|debt|ow(?:e|es|ed)|loss|short|less|fewer|lower|behind|factorial|inverse|unsure|uncertain"
)
UNWRAP = (  # boxes and fonts, which may stand in each other
    r"\\(?:f?boxed|fbox|text(?:bf|it|rm|normal)?|math(?:bf|rm|it|sf)|[mh]box|bm|boldsymbol"
    r"|operatorname\*?|ce|emph|underline)"
    r"\s*\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}",
    r" \1 ",
)
SCRIPTS = (("([⁰¹²³⁴-⁹⁺⁻]+)", r"^{\1}"), ("([¼-¾⅐-⅞])", r" \1"))
STEPS = (  # pattern, replacement
    (r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s*(?=[0-9]{3})", ","),  # thousands: 1{,}000
    (r"\^\s*(?:\\circ(?![a-z])|\{\s*\\circ\s*\})|\\(?:degree|circ)(?![a-z])|º", "°"),
    (r"(?<!\\)\$\$?((?:[^$\\]|\\.)*)\$\$?(?![0-9])", r" \1 "),  # a formula, not two prices
    (r"\\\$", "$"),
    UNWRAP,
    UNWRAP,
    UNWRAP,
    (r"\\(?:f?box(?:ed)?|displaystyle|left|right|q?quad|[bB]igg?[lr]?)(?![a-z])", " "),
    (r"(?<!\\)\\[\[\]();:!, ]|`|^[#* ]+|(?<![0-9])\*\*|\*\*(?![0-9])|(?<=\S)~|~(?=[A-Za-z])", " "),
    (r"(?<![A-Za-z\\])(pi|sqrt|sin|cos|tan|log|ln)(?![a-z])", r"\\\1 "),
    (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\s+(?=[\^_])", ""),
    (
        r"(?i)^\s*(?:(?:so|thus|hence|therefore),? )?(?:(?:the|my|final|correct|exact) +)*"
        r"(?:answer|option|choice|solutions?|result|values?)\b *(?:(?:is|are)\b|(?=[^a-z])) *:?"
        r"|答案[是为為]?:?",
        "",
    ),
    (r"\s*=\s*", "="),
    (r"\s+", " "),
    (  # The polar coordinates for the point (0, 3) are
        rf"(?i)^(?!.*(?<![a-z])(?:{CHANGES})(?![a-z]).* (?:is|are) )"
        r" ?the (?:(?! (?:is|are) )[^=.])* (?:is|are) (?!.*\b(?:is|are)\b)",
        "",
    ),
    (r"^ |[ .;,]+$", ""),
)


def spell(text: str) -> str:
    """The text without delimiters, boxes, fonts and lead-in, with LaTeX's names for symbols."""
    text = normalize("NFKC", substitute(text, SCRIPTS))
    return substitute(text.translate(PUNCTUATION | LATEX), STEPS)


def substitute(text: str, steps: tuple[tuple[str, str], ...]) -> str:
    """The text after every step, in order."""
    for pattern, replacement in steps:
        text = re.sub(pattern, replacement, text)
    return text
