"""The one number that a text states, and the words that deny, change or doubt a number."""

import re
from fractions import Fraction

from .spelling import CHANGES, DENIALS, substitute

DENYING = rf"(?:(?i:(?<![a-z])(?:{DENIALS})(?![a-z]))|[不没沒非無无或])"
CHANGING = rf"(?:{DENYING}|(?i:(?<![a-z])(?:{CHANGES}|and)(?![a-z]))|[約约負负半倍百千万萬亿億])"
CLAUSE = re.compile(r"[.:]\s|\n|\\\\|,\s(?=[a-z]{2})|\\Rightarrow|\\implies|\b(?:so|then|hence)\b")
SIDE = re.compile(  # of an equation, if it may name what is asked: x, f(3), 9 * 2; not 2x, x^2, 4
    rf"(?s)(?!.*{DENYING})(?=.*[0-9].*[^0-9.].*[0-9])(?!.*[0-9][A-Za-z])"
    r"(?!.*(?<![A-Za-z'])(?!x ?[$0-9(])[B-HJ-Zb-z](?![A-Za-z'])).*"
    rf"|(?!.*{CHANGING})(?:(?!\\sqrt)[^*/^|<>!~+0-9-]|(?<=[a-z]{{2}})-|_\{{?\w+\}}?"
    r"|\^\{?-1\}?(?=\()|(?<=\b[fgh])\([0-9.-]+\))*"
)
STEPS = (  # from LaTeX to a number
    (
        r"([0-9]*\.([0-9]*))\\(?:overline|bar|dot)\s*\{?([0-9]+)\}?",  # 0.1\overline{6}: 0.1 6/90
        lambda m: f"0{m[1]}0 {m[3]}/{'9' * len(m[3])}{'0' * len(m[2])}",
    ),
    (r"\^\s*\{\s*([+-]?)\s*([0-9]+)\s*\}", r"^\1\2"),
    (
        r"\\[tdc]?frac\s*(?:\{ *(-? *[^{}+*/ ]+) *\}|([0-9]))\s*(?:\{ *([^{}+*/ ]+) *\}|([0-9]))",
        r" \1\2/\3\4",
    ),
    (r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b", "%"),
    (r"[{}]", ""),
    (r"\s*\\(?:times|cdot)\s*", "*"),
    (r"(?<=[0-9]),(?=(?:[0-9]{3},)*[0-9]{3}(?![0-9]))", ""),
    (r"(?<=[0-9])(?:E|\s*\*\s*10\^)(?=[+-]?[0-9])", "e"),
    (r"(?<![0-9.*^])10\^(?=[+-]?[0-9])", "1e"),
    (r"^([0-9.]+) ?: ?(?![0-5][0-9]$)([0-9.]+)$", r"\1/\2"),  # a ratio, not a time
    (r"(-?)\s*([$€£¥])\s*(?=[0-9.])", r" \2 \1"),  # -$5
    (r"-\s+(?=[0-9.])", "-"),
    (r"(?<![\w)])\(\s*([+-]?[0-9./ ]+)\s*\)\s*$", r"\1"),  # (-5)
)
STATEMENT = re.compile(  # words, a number, and its unit or more words: 18cm, 18 eggs, 18/day, 18元
    r"\s*(?:(?:[^\W\d_]|\()(?:[^\W\d_]|[',:() -])*(?:[ :]|(?<![^\W\d_])\(|(?<=[^\x00-\x7f])))?"
    r"([$€£¥]?)\s*([+-]?)\s*(?:([0-9]+(?:\.[0-9]+)?)\s+(?=[0-9]+\s*/))?"
    r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?)"
    r"(?:\s*/\s*((?=[0-9.]*[1-9])(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?))?"
    r"((?:\s*(?:(?:[cmk]?m|[mkμ]?g|ft|in|h|s|min|[mk]?[lL]|mph|[ap]m)\b|[°¢$€£¥)%])"
    r"|\s*[/(](?=[^\W\d_]{2}|[mghs]\b)|\s*(?=[^\x00-\x7f])|(?:,|\s-)?\s+(?=[^\W\d_]{2}|a )"
    r"|\s+(?=[A-Z]\b))(?:[^\W\d_]|[',./() °-]|(?<=[^\W\d_])\^[23])*)?\s*"
)
UNIT_STEPS = (  # feet per second: ft/s; square meters: m^2
    (r"\b(?:square|sq\.?) (\w+)", r"\1^2"),
    (r"\bcubic (\w+)", r"\1^3"),
    (r"\s*(?:/|\bper\b)\s*", "/"),
    (r"\b(c|m|k|)(?:enti|illi|ilo|)(m|g)(?:et(?:er|re)|ram)s?\b", r"\1\2"),
    (r"\b(h|s|min)(?:(?:ou)?rs?|ec(?:ond)?s?|utes?)\b", r"\1"),
    (r"\bf(?:oo|ee)t\b", "ft"),
    (r"\bdegrees?\b", "°"),
    (r"\bdollars?\b", "$"),
    (r"([^\W\d_]{2})s\b", r"\1"),
)


def stated(text: str) -> tuple[Fraction | None, list[str]]:
    """The one number that a text states, exactly, with the words of its unit: 3 1/2, (-5),
    6.63*10^-34, She makes $18; None for two numbers or none."""
    match = STATEMENT.fullmatch(last_side(substitute(text, STEPS)))
    if match is None or re.search(CHANGING, match[0]):
        return None, []
    currency, sign, whole, top, bottom, unit = match.groups("")
    value = Fraction(whole or 0) + Fraction(top) / Fraction(bottom or 1)
    words = re.findall(r"[^\s().,'-]+", substitute(f"{currency} {unit}", UNIT_STEPS))
    return -value if sign == "-" else value, words


def last_side(text: str) -> str:
    """The text behind the last "="; empty if what stands before may be no name of the value."""
    left, _, value = text.rpartition("=")
    sides = CLAUSE.split(left)[-1].split("=")
    return value if all(map(SIDE.fullmatch, sides)) else ""
