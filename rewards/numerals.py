"""The exact value of a text that is a number, and of a sentence that states one number."""

import re
from fractions import Fraction

from .spelling import substitute

LETTER = r"[^\W\d_]"
PERCENT = re.compile(r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b")
DECIMAL = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?"
NUMBER = (
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>[0-9]+(?:\.[0-9]+)?)\s+(?=[0-9]+\s*/))?"
    rf"(?P<top>{DECIMAL})(?:\s*/\s*(?P<bottom>(?=[0-9.]*[1-9]){DECIMAL}))?"
)
STEPS = (  # from LaTeX to NUMBER
    (
        r"([0-9]*\.([0-9]*))\\(?:overline|bar|dot)\s*\{?([0-9]+)\}?",  # 0.1\overline{6}: 0.1 6/90
        lambda m: f"0{m[1]}0 {m[3]}/{'9' * len(m[3])}{'0' * len(m[2])}",
    ),
    (r"\^\s*\{\s*([+-]?)\s*([0-9]+)\s*\}", r"^\1\2"),
    (
        r"\\[tdc]?frac\s*(?:\{ *(-? *[^{}+*/ ]+) *\}|([0-9]))\s*(?:\{ *([^{}+*/ ]+) *\}|([0-9]))",
        r" \1\2/\3\4",
    ),
    (PERCENT.pattern, " "),
    (r"[{}]", ""),
    (r"\s*\\(?:times|cdot)\s*", "*"),
    (r"(?<=[0-9]),(?=(?:[0-9]{3},)*[0-9]{3}(?![0-9]))", ""),
    (r"(?<=[0-9])(?:E|\s*\*\s*10\^)(?=[+-]?[0-9])", "e"),
    (r"(?<![0-9.*^])10\^(?=[+-]?[0-9])", "1e"),
    (r"(-?)\s*([$€£¥])\s*(?=[0-9.])", r" \2 \1"),  # -$5
    (r"-\s+(?=[0-9.])", "-"),
    (r"(?<![\w)])\(\s*([+-]?[0-9./ ]+)\s*\)\s*$", r"\1"),  # (-5)
)
STATEMENT = re.compile(  # words, a number, and its unit or more words: 18cm, 18 eggs, 18/day, 18元
    rf"\s*(?:(?:{LETTER}|\()(?:{LETTER}|[',:() -])*(?:[ (:]|(?<=[^\x00-\x7f])))?"
    rf"(?P<currency>[$€£¥]?)\s*{NUMBER}"
    r"(?P<unit>(?:\s*(?:(?:[cmk]?m|[mkμ]?g|ft|in|h|s|min|[mk]?[lL]|mph|[ap]m)\b|[°¢$€£¥)])"
    rf"|\s*[/(](?={LETTER}{{2}}|[mghs]\b)|\s*(?=[^\x00-\x7f])|(?:,|\s-)?\s+(?={LETTER}{{2}}|a )"
    rf"|\s+(?=[A-Z]\b))(?:{LETTER}|[',./() °-]|(?<={LETTER})\^[23])*)?\s*"
)
CLAUSE = re.compile(r"[.:]\s|\n|\\\\|,\s(?=[a-z]{2})|\\Rightarrow|\\implies|\b(?:so|then|hence)\b")
DENIALS = (
    r"not|cannot|\w+n't|no|never|nor|or|but|isn|reject|discard|ignore|wrong|incorrect|false|except"
    "|excluding"
)
CHANGES = (  # words that deny, change or doubt the number beside them
    DENIALS + "|unless|maybe|perhaps|possibly|probably|(?:un)?likely|doubt|might|may|could|should"
    r"|guess|about|around|approx|approximately|roughly|circa|close|almost|nearly|over(?=\W*[0-9])"
    "|least|most|than|exceeds?|minimum|maximum|another|other|half|halves|twice|double|triple|times"
    "|thirds?|quarters?|fifths?|(?:four|six|seven|eigh|nin)ths|(?:ten|hundred|thousand)(?:th)?s?"
    "|dozens?|[mb]illion|trillion|lakh|crore|divided|multiplied|modulo|mod|(?:square|cube|power) of"
    "|squared|cubed|root|sqrt|sin|cos|tan|log|ln|pi|reciprocal|minus|plus|negative|below|under|zero"
    "|ago|debt|ow(?:e|es|ed)|loss|short|less|fewer|lower|behind|factorial|inverse|unsure|uncertain"
)
DENYING = rf"(?:(?i:(?<![a-z])(?:{DENIALS})(?![a-z]))|[不没沒非無无或])"
CHANGING = rf"(?:(?i:(?<![a-z])(?:{CHANGES}|and)(?![a-z]))|[不没沒非無无或約约負负半倍百千万萬亿億])"
SIDE = re.compile(  # of an equation, if it may name what is asked: x, f(3), 9 * 2; not 2x, x^2, 4
    rf"(?s)(?!.*{DENYING})(?=.*[0-9].*[^0-9.].*[0-9])(?!.*[0-9][A-Za-z])"
    r"(?!.*(?<![A-Za-z'])(?!x ?[$0-9(])[B-HJ-Zb-z](?![A-Za-z'])).*"
    rf"|(?!.*{CHANGING})(?:[^*/^|<>!~+0-9-]|(?<=[a-z]{{2}})-|_\{{?\w+\}}?|\^\{{?-1\}}?(?=\()"
    r"|(?<=\b[fgh])\([0-9.-]+\))*"
)
LEAD = re.compile(  # The polar coordinates for the point (0, 3) are
    rf"(?i)^(?!.*(?<![a-z])(?:{CHANGES})(?![a-z]))the [^=.]*? (?:is|are) (?!.*\b(?:is|are)\b)"
)


def stated(text: str) -> tuple[Fraction | None, str]:
    """The one number that a text states, exactly, with the unit or words behind it: 3 1/2, (-5),
    6.63*10^-34, She makes $18; None for two numbers or none."""
    match = STATEMENT.fullmatch(last_side(substitute(text, STEPS)))
    if match is None or re.search(CHANGING, match[0]):
        return None, ""
    value = Fraction(match["whole"] or 0) + Fraction(match["top"]) / Fraction(match["bottom"] or 1)
    return -value if match["sign"] == "-" else value, match["currency"] + (match["unit"] or "")


def last_side(text: str) -> str:
    """The text behind the last "="; empty if what stands before may be no name of the value."""
    left, _, value = text.rpartition("=")
    sides = CLAUSE.split(left)[-1].split("=")
    return value if all(map(SIDE.fullmatch, sides)) else ""
