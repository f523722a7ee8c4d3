"""How texts are read: one spelling, the number that a text states, and the type of a gold answer,
from its text alone, which decides how answers are compared with it."""

import re
from fractions import Fraction
from functools import lru_cache
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
    r"not|cannot|\w+n't|no|never|n?either|nor|or|but|isn|reject|discard|ignore|wrong|incorrect"
    "|false|except|excluding"
)
CHANGES = (  # words that deny, change or doubt what stands beside them
    DENIALS + "|unless|maybe|perhaps|possibly|probably|(?:un)?likely|doubt|might|may|could|should"
    r"|guess|about|around|approx|approximately|roughly|circa|close|almost|nearly"
    r"|(?:over|above|than|times)(?=\W*[0-9])"
    "|least|most|exceeds?|minimum|maximum|another|other|half|halves|twice|double"
    "|thirds?|quarters?|fifths?|(?:four|six|seven|eigh|nin)ths|(?:ten|hundred|thousand)(?:th)?s?"
    "|dozens?|[mb]illion|trillion|lakh|crore|divided|multiplied|modulo|mod|(?:square|cube|power) of"
    "|squared|cubed|root|sqrt|sin|cos|tan|log|ln|pi|reciprocal|minus|plus|negative|below|under"
    "|zero|ago|debt|ow(?:e|es|ed)|loss|short|less|fewer|lower|behind|factorial|inverse|unsure"
    "|uncertain"
)
UNWRAP = (  # boxes and fonts, which may stand in each other
    r"\\(?:f?boxed|fbox|text(?:bf|it|rm|normal)?|math(?:bf|rm|it|sf)|[mh]box|bm|boldsymbol"
    r"|operatorname\*?|ce|emph|underline)"
    r"\s*\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}",
    r" \1 ",
)
SCRIPTS = (
    ("([⁰¹²³⁴-⁹⁺⁻]+)", r"^{\1}"),
    ("([₀-₉]+)", r"_{\1}"),
    ("([¼-¾⅐-⅞])", r" \1"),
    ("º", "°"),
)
SPELLING_STEPS = (  # pattern, replacement
    (r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s*(?=[0-9]{3})", ","),  # thousands: 1{,}000
    (r"\^\s*(?:\\circ(?![a-z])|\{\s*\\circ\s*\})|\\(?:degree|circ)(?![a-z])", "°"),
    (r"(?<!\\)\$\$?((?:[^$\\]|\\.)*)\$\$?(?![0-9])", r" \1 "),  # a formula, not two prices
    (r"\\\$", "$"),
    UNWRAP,
    UNWRAP,
    UNWRAP,
    (
        r"\\(?:f?box(?:ed)?|displaystyle|left|right|q?quad|[bB]igg?[lr]?)(?![a-z])"
        r"|(?<!\\)\\[\[\]();:!, ]|`|^[#* ]+|(?<![0-9])\*\*|\*\*(?![0-9])|(?<=\S)~|~(?=[A-Za-z])",
        " ",
    ),
    (r"(?<![A-Za-z\\])(pi|sqrt|sin|cos|tan|log|ln)(?![a-z])", r"\\\1 "),
    (r"\\sqrt\s*(?:\(([^()]*)\)|([0-9]+))", r"\\sqrt{\1\2}"),  # √13
    (r"\s+(?=[\^_])", ""),
    (r"(?i)^\s*(?:so|thus|hence|therefore),?\s", ""),
    (  # The correct answer is option C; not The value of x is
        r"(?i)^(?:\s*(?:(?:the|my|final|correct|exact|right) +)*(?:answer|option|choice|solutions?"
        r"|result|values?)\b *(?:(?:is|are)\b|(?! *[a-z]{2})) *:?)+|答案[是为為]?:?",
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

DENYING = rf"(?:(?i:(?<![a-z])(?:{DENIALS})(?![a-z]))|[不没沒非無无或])"
CHANGING = rf"(?:{DENYING}|(?i:(?<![a-z])(?:{CHANGES})(?![a-z]))|[約约負负半倍百千万萬亿億])"
CLAUSE = re.compile(r"[.:]\s|\n|\\\\|,\s(?=[a-z]{2})|\\Rightarrow|\\implies|\b(?:so|then|hence)\b")
SIDE = re.compile(  # of an equation, if it may name what is asked: m + n, f(3), 9 * 2; not 2x, x^2
    rf"(?s)(?!.*{DENYING})(?=.*[0-9].*[^0-9.].*[0-9])(?!.*[0-9][A-Za-z])"
    r"(?!.*(?<![A-Za-z'])(?!x ?[$0-9(])[B-HJ-Zb-z](?![A-Za-z'])).*"
    rf"|(?!.*{CHANGING})(?:(?!\\sqrt)[^*/^|<>!~+0-9-]|_\{{?\w+\}}?"
    r"|(?:(?<=[\w)}])|(?<=[\w)}] ))[+-](?= ?[A-Za-z\\(])"
    r"|\^\{?-1\}?(?=\()|(?<=\b[A-Za-z])\([0-9.-]+\))*"
)
NUMBER_STEPS = (  # from LaTeX to a number
    (
        r"([0-9]*\.([0-9]*))\\(?:overline|bar|dot)\s*\{?([0-9]+)\}?",  # 0.1\overline{6}: 0.1 6/90
        lambda m: f"0{m[1]}0 {m[3]}/{'9' * len(m[3])}{'0' * len(m[2])}",
    ),
    (r"\^\s*\{\s*([+-]?)\s*([0-9]+)\s*\}", r"^\1\2"),  # 10^{ - 3 }
    (
        r"\\[tdc]?frac\s*(?:\{ *(-? *[^{}+*/ ]+) *\}|([0-9]))\s*(?:\{ *([^{}+*/ ]+) *\}|([0-9]))",
        r" \1\2/\3\4",
    ),
    (r"\\?%|\b(?:per\s?cent(?:age)?|pct)\b", "%"),
    (r"[{}]", ""),
    (r"\s*\\(?:times|cdot)\s*", "*"),
    (r"(?<=[0-9]),(?=(?:[0-9]{3},)*[0-9]{3}(?![0-9]))", ""),
    (r"(?<=[0-9])(?:E|\s*[*x]\s*10\^)(?=[+-]?[0-9])", "e"),
    (r"(?<![0-9.*^])10\^(?=[+-]?[0-9])", "1e"),
    (r"^([0-9.]+) ?: ?(?![0-5][0-9]$)([0-9.]+)$", r"\1/\2"),  # a ratio, not a time
    (r"(-?)\s*([$€£¥])\s*(?=[0-9.])", r" \2 \1"),  # -$5
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
    (r"\binch(?:es)?\b", "in"),
    (r"(?:\bdegrees?\b|°)(?: ?([CF])(?:elsius|ahrenheit)?\b)?", r"°\1"),
    (r"\bdollars?\b", "$"),
    (r"([^\W\d_]{2})s\b", r"\1"),
)

ATOM = (
    r"[(\[]*(?:A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?"
    "|Kr?|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    r"|U|V|W|Xe|Yb?|Z[nr])_?\{?[0-9]*\}?(?:[)\]]_?\{?[0-9]*\}?)*"
)
DOT = r" ?(?:\\cdot|[.*]) ?(?=[0-9]* ?H_?\{?2\}?O$)"  # of a hydrate: CuSO4 · 5H2O
MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
TEXTS = {  # compared as text
    "letter": r"\(?[A-Z]\)?",
    "time": r"[0-9]{1,2}:[0-5][0-9](?::[0-5][0-9])?(?: ?[AaPp]\.? ?[Mm]\.?)?",
    "date": r"(?i)[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}"
    r"|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{2}){1,2}"
    rf"|(?:{MONTH} )?[0-9]{{1,2}}(?:st|nd|rd|th)?(?: (?:of )?{MONTH})?(?:,? [0-9]{{4}})?",
    "formula": r"(?=.*[0-9+]|.*[a-z][A-Z]|.*[A-Z]{2}[a-z])"
    rf"(?:[0-9]* ?{ATOM}(?:{ATOM})+|{ATOM})(?:\^?\{{?[0-9]*[+-]\}}?)?"
    rf"(?:{DOT}[0-9]* ?H_?\{{?2\}}?O)?",
    "code": r"0[xX][0-9A-Fa-f]+|\(?[0-9A-F]+\)?_\{?[0-9]+\}?|[0-9]+(?: ?- ?[0-9]+)+"
    r"|[0-9]+(?:[./][0-9]+){2,}|[0-9]+(?: ?: ?[0-9]+)+",
    "words": r"[^\W\d_]{2,}(?:[\s',.\-/()\"!?&:;]+[^\W\d_]+)*[\"')!?]*"
    r"|(?!\\begin).*(?<![\\A-Za-z])[^\W\d_]{4,}.*",
}
FORMS = {  # compared entry by entry; … is a text with balanced brackets
    "matrix": r"\\begin\{[pb]?matrix\}.*",
    "interval": r".*\\cup.*|(?:[a-z] ?\\in ?)?"
    r"(?:\[…,…[)\]]|\((?:…,…\]|…,.*\\infty ?\)|-\\infty.*\)))",
    "tuple": r"\(…,…\)",
    "set": r"\\?\{.*\}|.*(?:\\pm|(?:,|;|\bor\b|\band\b)(?![^({\[]*[)}\]])).*",
    "relation": r".*(?:[=<>]|\\(?:leq?|geq?|neq?|lt|gt|in|to|equiv)(?![a-z])).*",
    "expression": r".*",
}
BALANCED = r"(?:[^()\[\]]|[(\[][^()\[\]]*[)\]])*"
ENCLOSED = rf"\s*([(\[{{])({BALANCED})([)\]}}])\s*(?:\\cup|$)"
LIST_STEPS = (  # x \in [0, 1], (x, y) = (1, 2); \{1, 2\}; the rows of a matrix as a union
    (
        r"^[a-z] ?\\in(?![a-z])"
        r"|^(?:[A-Za-z]|\([A-Za-z, \\]+\))=(?=[(\[].*,.*[)\]]$|\\\{.*\}$|\\begin)",
        "",
    ),
    (r"\\([{}])", r"\1"),
    (r"\\begin\{[pb]?matrix\}", "["),
    (r"(?:\\\\ *)?\\end\{[pb]?matrix\}", "]"),
    (r"\\\\", r"]\\cup["),
    (r"&", ","),
)


def spell(text: str) -> str:
    """The text without delimiters, boxes, fonts and lead-in, with LaTeX's names for symbols."""
    text = normalize("NFKC", substitute(text, SCRIPTS))
    return substitute(text.translate(PUNCTUATION | LATEX), SPELLING_STEPS)


def substitute(text: str, steps: tuple) -> str:
    """The text after every step, a pattern and its replacement (see re.sub)."""
    for pattern, replacement in steps:
        text = re.sub(pattern, replacement, text)
    return text


def stated(text: str) -> tuple[Fraction | None, list[str]]:
    """The one number that a text states, exactly, with the words of its unit: 3 1/2, (-5),
    6.63*10^-34, She makes $18; None for two numbers or none."""
    match = STATEMENT.fullmatch(last_side(substitute(text, NUMBER_STEPS)))
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


@lru_cache(maxsize=8192)
def gold_type(gold: str) -> str:
    """The type of a gold answer: number, quantity, or a name in TEXTS or FORMS."""
    gold = spell(gold)
    value, unit = stated(gold)
    if value is None or re.match(r"[^\W\d_]|\(\D|.*=|.*[0-9][A-Za-z]$", gold):
        for name, form in (TEXTS | FORMS).items():
            if re.fullmatch(form.replace("…", BALANCED), gold):
                return name
    return "quantity" if unit else "number"


def split(text: str) -> tuple[str, list[str]]:
    """The brackets and the entries of a tuple, a set, a union of intervals or the rows of a matrix;
    a text without them is one entry. a \\pm b is two entries."""
    text = substitute(text, LIST_STEPS)
    brackets, inside = (re.sub(ENCLOSED, part, text) for part in (r"\1\3", r"\2,"))
    if re.search(r"[^()\[\]{}]", brackets):
        brackets, inside = "", text
    text = re.sub(r"([^,;]*)\\pm([^,;]*)", r"\1+\2,\1-\2", inside)
    entries = re.split(r"(?:,|;|\bor\b|\band\b)(?![^({\[]*[)}\]])", text)
    return brackets, [*filter(str.strip, entries)]
