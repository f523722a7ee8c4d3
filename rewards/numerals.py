"""The exact value of a text that is a number, and of a sentence that states one number."""

import re
from fractions import Fraction

from .spelling import substitute

LETTER = r"[^\W\d_]"
PERCENT = re.compile(r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b")
DECIMAL = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?"
NUMBER = (
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>[0-9]+(?:\.[0-9]+)?)\s+(?=[0-9]+\s*/))?"
    rf"(?P<top>{DECIMAL})(?:\s*/\s*(?P<bottom>{DECIMAL}))?"
)
STEPS = (  # from LaTeX to NUMBER
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
TERM = re.compile(r"[0-9][A-Za-z]|(?<![A-Za-z'])[B-HJ-Zb-z](?![A-Za-z'])")  # 2x, x
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
DENYING = re.compile(rf"(?i)(?<![a-z])(?:{DENIALS})(?![a-z])|[不没沒非無无或]")
CHANGING = re.compile(rf"(?i)(?<![a-z])(?:{CHANGES}|and)(?![a-z])|[不没沒非無无或约約负負半倍百千万萬亿億]")
LEAD = re.compile(  # The polar coordinates for the point (0, 3) are
    rf"(?i)^(?!.*(?<![a-z])(?:{CHANGES})(?![a-z]))the [^=.]*? (?:is|are) (?!.*\b(?:is|are)\b)"
)


def exact(text: str) -> Fraction | None:
    """The value of a text that is one number: 1,000, 3 1/2, (-5), 6.63*10^-34, 0.\\overline{3}."""
    return _value(re.fullmatch(rf"\s*{NUMBER}\s*", plain(text)))


def stated(text: str) -> tuple[Fraction | None, str]:
    """The one number that a text states behind its last "=", and the unit and words beside it; None
    for two numbers or none."""
    left, _, statement = plain(text).rpartition("=")
    match = STATEMENT.fullmatch(statement)
    sides = CLAUSE.split(left)[-1].split("=")
    if match is None or CHANGING.search(statement) or not all(map(names_value, sides)):
        return None, ""
    return _value(match), match["currency"] + (match["unit"] or "")


def names_value(side: str) -> bool:
    """Whether the side of an equation may name what is asked: x, 9 * 2; not 2x, x^2."""
    side = re.sub(r"_\{?\w+\}?|\^\{?-1\}?(?=\()|(?<=\b[fgh])\([0-9.-]+\)", "", side)  # x_1, f(3)
    side = re.sub(r"(?<=[0-9a-z)]) x (?=[$0-9( ])", "*", side)
    numbers = re.findall("[0-9.]+", side)
    if len(numbers) > 1:
        return not (TERM.search(side) or DENYING.search(side))
    operator = re.search(r"[*/^|<>!~+]|\\sqrt|(?<![a-z]{2})-|^[$0-9. ]+$", side)
    return not (operator or CHANGING.search(side) or (numbers and TERM.search(side)))


def plain(text: str) -> str:
    """Numbers without LaTeX: \\frac{a}{b} as a/b, 0.1\\overline{6} as 0.1 6/90; no percent sign."""
    repeating = r"([0-9]*\.([0-9]*))\\(?:overline|bar|dot)\s*\{?([0-9]+)\}?"
    text = re.sub(
        repeating, lambda m: f"0{m[1]}0 {m[3]}/{'9' * len(m[3])}{'0' * len(m[2])}", text
    )
    return substitute(text, STEPS)


def _value(number: re.Match | None) -> Fraction | None:
    """The value of a match of NUMBER; None if it divides by 0."""
    if number is None or (bottom := Fraction(number["bottom"] or 1)) == 0:
        return None
    value = Fraction(number["whole"] or 0) + Fraction(number["top"]) / bottom
    return -value if number["sign"] == "-" else value
