"""The exact value of a text that is a number, and of a sentence that states one number."""

import re
from fractions import Fraction

DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
POWER = rf"(?:[0-9]{{1,3}}\^[+-]?[0-9]{{1,3}}|{DECIMAL})"
NUMBER = (  # sign, whole part of a mixed number, numerator, power of ten (two forms), denominator
    rf"([+-]?)\s*(?:([0-9]+)\s+(?=[0-9]+\s*/))?({POWER})"
    rf"(?:\s*\*\s*10\^([+-]?[0-9]{{1,3}})|[eE]([+-]?[0-9]{{1,3}}))?(?:\s*/\s*({POWER}))?"
)
FRACTION = re.compile(
    r"\\[tdc]?frac\s*(?:\{ *(-? *[^{}+*/ ]+) *\}|([0-9]))\s*(?:\{ *([^{}+*/ ]+) *\}|([0-9]))"
)
REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\(?:overline|bar|dot)\s*(?:\{([0-9]+)\}|([0-9]))")
PERCENT = re.compile(r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b")
LETTER = r"[^\W\d_]"
STATEMENT = re.compile(  # words, a number, and its unit or more words: 18cm, 18 eggs, 18/day, 18元
    rf"(?:(?:{LETTER}|\()(?:{LETTER}|[',:() -])*(?:[ (:]|(?<=[^\x00-\x7f])))?"
    rf"(?P<currency>[$€£¥]?)\s*{NUMBER}"
    r"(?P<unit>(?:\s*(?:(?:[cmk]?m|[mkμ]?g|ft|in|h|s|min|[mk]?[lL]|mph|[ap]m)\b|[°¢$€£¥)])"
    rf"|\s*[/(](?={LETTER}{{2}}|[mghs]\b)|\s*(?=[^\x00-\x7f])|(?:,|\s-)?\s+(?={LETTER}{{2}}|a )"
    rf"|\s+(?=[A-Z]\b))(?:{LETTER}|[',./() °-]|(?<={LETTER})\^[23])*)?"
)
CLAUSE = re.compile(r"[.:]\s|\n|\\\\|,\s(?=[a-z]{2})|\\Rightarrow|\\implies|\b(?:so|then|hence)\b")
TERM = re.compile(r"[0-9][A-Za-z]|(?<![A-Za-z'])[B-HJ-Zb-z](?![A-Za-z'])")  # 2x, x
DENIALS = (
    r"not|cannot|\w+n't|no|never|nor|or|but|isn|reject|discard|ignore|wrong|incorrect|false|except"
    "|excluding"
)
DENYING = re.compile(rf"(?i)(?<![a-z])(?:{DENIALS})(?![a-z])|[不没沒非無无或]")
CHANGING = re.compile(  # words that deny, change or doubt the number beside them
    rf"(?i)(?<![a-z])(?:{DENIALS}|and|unless|maybe|perhaps|possibly|probably|(?:un)?likely|doubt"
    r"|might|may|could|should|guess|about|around|approx|approximately|roughly|circa|close|almost"
    r"|nearly|over(?=\W*[0-9])|least|most|than|exceeds?|minimum|maximum|another|other|half|halves"
    r"|twice|double|triple|times|thirds?|quarters?|fifths?|(?:four|six|seven|eigh|nin)ths"
    r"|(?:ten|hundred|thousand)(?:th)?s?|dozens?|[mb]illion|trillion|lakh|crore|divided|multiplied"
    r"|modulo|mod|(?:square|cube|power) of|squared|cubed|root|sqrt|sin|cos|tan|log|ln|pi|reciprocal"
    r"|minus|plus|negative|below|under|zero|ago|debt|ow(?:e|es|ed)|loss|short|less|fewer|lower"
    r"|behind|factorial|inverse|unsure|uncertain)(?![a-z])"
    r"|[不没沒非無无或约約负負半倍百千万萬亿億]"
)


def exact(text: str) -> Fraction | None:
    """The value of a text that is one number: 1,000, 3 1/2, 2^10, 6.63*10^-34, 0.\\overline{3}."""
    text = plain(text)
    if bracketed := re.fullmatch(r"([+-]?) *\(([^()]*)\)", text):
        text = "".join(bracketed.groups())
    match = re.fullmatch(NUMBER, text.strip())
    return match and _value(*match.groups())


def stated(text: str) -> tuple[Fraction, str] | None:
    """The one number that a text states behind its last "=", with its unit and more words; None for
    two numbers or none."""
    left, _, statement = plain(text).rpartition("=")
    value = exact(statement)
    if value is not None:
        statement, unit = "", ""
    elif match := STATEMENT.fullmatch(statement.strip()):
        currency, *number, unit = match.groups(default="")
        value = _value(*number)
        unit = currency + unit
    sides = CLAUSE.split(left)[-1].split("=")
    if value is None or CHANGING.search(statement) or not all(map(names_value, sides)):
        return None
    return value, unit


def names_value(side: str) -> bool:
    """Whether the side of an equation may name what is asked: x, 9 * 2; not 2x, x^2."""
    side = re.sub(r"_\{?\w+\}?|\^\{?-1\}?(?=\()|(?<=\b[fgh])\([0-9.-]+\)", "", side)  # x_1, f(3)
    side = re.sub(r"(?<=[0-9a-z)]) x (?=[$0-9(])", "*", side)
    numbers = re.findall("[0-9.]+", side)
    if len(numbers) > 1:
        return not (TERM.search(side) or DENYING.search(side))
    operator = re.search(r"[*/^|<>!~+]|\\sqrt|(?<![a-z]{2})-|^[$0-9. ]+$", side)
    return not (operator or CHANGING.search(side) or (numbers and TERM.search(side)))


def plain(text: str) -> str:
    """Without LaTeX where a number may be: \\frac{a}{b} as a/b, 2^{10} as 2^10, no percent sign."""
    text = REPEATING.sub(_repeating, text)
    text = re.sub(r"\^\s*\{\s*([+-]?)\s*([0-9]+)\s*\}", r"^\1\2", text)
    text = FRACTION.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]}", text)
    text = PERCENT.sub(" ", text).replace("{", "").replace("}", "")
    text = re.sub(r"\s*\\(?:times|cdot)\s*", "*", text)
    text = re.sub(r"(-?)\s*([$€£¥])\s*(?=[0-9.])", r" \2 \1", text)
    return re.sub(r"-\s+(?=[0-9])", "-", text).strip()


def _repeating(match: re.Match) -> str:
    """0.1\\overline{6} as (16 - 1)/90."""
    whole, start, *periods = match.groups(default="")
    period = "".join(periods)
    number = int(whole + start + period) - int(whole + start or "0")
    return f"{number}/{'9' * len(period)}{'0' * len(start)}"


def _value(sign: str, whole: str, top: str, *rest: str) -> Fraction | None:
    """The value of the groups of NUMBER."""
    exponent, other, bottom = rest
    denominator = _power(bottom or "1")
    if not denominator:
        return None
    value = _power(top) * Fraction(10) ** int(exponent or other or 0) / denominator
    value += Fraction(whole or 0)
    return -value if sign == "-" else value


def _power(text: str) -> Fraction:
    base, _, exponent = text.replace(",", "").partition("^")
    return Fraction(base) ** int(exponent or 1)
