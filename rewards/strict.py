"""The strict grader: the answer block behind the reasoning must state the gold answer.

The type of the gold answer decides how: a number must be stated, and no other: "18", "\\$18.00",
"9 * 2 = 18", "She makes 18 dollars a day". Text is compared as text. Only entries of lists,
expressions and relations reach rewards/verifier.py, and only what it can compute in a moment.
"""

import re
from fractions import Fraction

from .reading import DOT, FORMS, TEXTS, gold_type, last_side, spell, split, stated, substitute
from .tags import last_closed_answer
from .verifier import Question

MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong

LETTER_STEPS = (
    (r" is (?:the )?(?:correct|right)(?: (?:answer|option|choice))?$", ""),
    (  # B, (B), B: text, B. text, B (text), B - text; not A or B, A cat, A: water B: salt
        r"^\(?\s*([A-Za-z])\s*(?:(?:[.)]*:|[.)]* (?=[(-])|[.)]+(?=\s|$))"
        r"(?!\W*(?:(?:or|and|not)\b|\(?[A-J](?:[.):]\s|\)?$)))"
        r"(?:(?!\s\(?[A-J][.):]\s)(?s:.))*)?$",
        r"\1",
    ),
)
TEXT_STEPS = (
    (  # (52)_8, 52 (base 8)
        r"^\(?([0-9][0-9A-F]*)\)?(?:_\{?\(?|(?: in)? ?\(?base )([0-9]+)\)?\}?$",
        r"\1_\2",
    ),
    (DOT, "*"),
    (r"[\s{},\"']|^\(|\)$|\.(?![0-9])|(?<=[A-Za-z)\]])_|\^(?=\{?[0-9]*[+-]\}?$)", ""),
)
UNREADABLE = re.compile(  # macros that are no value, and what sympy computes before it compares
    r".{401}|%|^;|;;|;$|^[0-9/;-]*$|[0-9] [0-9]|[^\x00-\x7f°]|(?<![\\A-Za-z])[A-Za-z]{8}"
    r"|(?:=[^=]*){5}|(?:\|[^|]*){7}|(?:\([^()]*\) *){9}|\^ *\{[^}]*\^ *\{[^}]*\^"
    r"|(?:\\(?:sin|cos|tan|exp|ln|log)[^+]*){5}|\\(?!(?:[dtc]?frac|sqrt|pi|cdot|times|div|ln|log"
    r"|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?"
    r"|infty|leq?|geq?|neq?|lt|gt|in|binom|mathbb|alpha|beta|gamma|delta|epsilon|zeta|eta|theta"
    r"|kappa|lambda|mu|nu|xi|rho|sigma|tau|v?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi"
    r"|Psi|Omega|[lr](?:vert|floor|ceil)|mid)(?![A-Za-z]))[A-Za-z]|(?:[({\[][^)}\]]*){9}"
    r"|\*\*|!\s*\)*\s*!|[0-9]{4}\s*\)*!|\\binom[^+]*(?:[0-9]{4}|\^)|[0-9]{31}"
    r"|^(?=.*\\l(?:n|og)).*[0-9]{8}"
    r"|^[0-9/-]+;(?=[^;=]*$).*(?<![\\A-Za-z])[a-df-hj-zA-Z](?![A-Za-z])"  # a number for 2x
    r"|\^\s*\{?\s*[+-]?[0-9]{3}|[)}|]\s*\^\s*\{?\s*[+-]?[2-9][0-9]|\^\s*\{?\s*\(?[0-9]+\)?\s*\^"
)
VARIABLE = r"\\[A-Za-z]+|([A-Za-z])"  # a macro is none
ENTRY_STEPS = (
    (r"(?<![A-Za-z]) | (?![A-Za-z])", ""),
    (r"[0-9]*\.[0-9]+", lambda m: "\\frac{{{}}}{{{}}}".format(*Fraction(m[0]).as_integer_ratio())),
)
MEASURE = re.compile(
    r"(?<![\\A-Za-z])(?:(?:square|cubic) )?(?:(?:centi|milli|kilo)?(?:met(?:er|re)|gram)s?|[cmk]m"
    r"|kg|(?<= )(?:m|m?g)|ft|feet|foot|in|inch(?:es)?|units?|degrees?|radians?|°)(?:\^\{?[23]\}?)?$"
)


def decide(completion: str, gold: str) -> bool | Question:
    """Whether the final answer block gives the gold answer; a question needs computer algebra."""
    final = completion.partition("</think>")[2]
    if not final and completion.rstrip().endswith("</answer>"):
        final = completion  # its last block is no guess of the reasoning
    answer = last_closed_answer(final)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    name = gold_type(gold)
    answer = spell(answer)
    gold = spell(gold)
    if name in TEXTS:
        if name == "letter":
            answer, gold = (substitute(text, LETTER_STEPS) for text in (answer, gold))
        answer, gold = (substitute(text, TEXT_STEPS) for text in (answer, gold))
        return answer == gold or (name != "formula" and answer.casefold() == gold.casefold())
    if name in FORMS:
        return _entries(answer, gold, name)
    value, unit = stated(answer)
    expected, expected_unit = stated(gold)
    same_unit = not unit or unit[: len(expected_unit)] == expected_unit  # or none is expected
    return value == expected and same_unit


def _entries(answer: str, gold: str, name: str) -> bool | Question:
    """Entry by entry: equal, or different numbers, or a question if it can be answered soon."""
    alike = MEASURE.search(answer) and MEASURE.search(gold)
    if not alike and _canonical(answer) != _canonical(gold):
        answer, gold = (MEASURE.sub("", text) for text in (answer, gold))
    ordered = name != "set" or ("=" in gold and "=" not in answer)
    own_brackets, answers = split(answer)
    brackets, golds = split(gold)
    if own_brackets != brackets and ("[" in brackets or (own_brackets and brackets)):
        return False
    if "=" not in gold:
        answers = map(last_side, answers)
    order = list if ordered else sorted
    answers, golds = (tuple(order(map(_canonical, entries))) for entries in (answers, golds))
    if answers == golds:
        return True
    if len(answers) != len(golds) or UNREADABLE.search(";".join(answers + golds)):
        return False
    names, expected = (set(re.findall(VARIABLE, " ".join(texts))) for texts in (answers, golds))
    if names - expected - {""}:
        return False
    return answers, golds, ordered


def _canonical(entry: str) -> str:
    """A number as p/q; else the text without spaces that mean nothing, and with exact decimals."""
    value, unit = stated(entry)
    if value is None or unit or "=" in entry:
        return substitute(entry, ENTRY_STEPS)
    return str(value)
