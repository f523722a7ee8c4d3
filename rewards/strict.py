"""The strict grader: the answer block behind the reasoning must state the gold answer.

The type of the gold answer decides how: a number must be stated, and no other: "18", "\\$18.00",
"9 * 2 = 18", "She makes 18 dollars a day". Text is compared as text. Only entries of lists,
expressions and relations reach rewards/verifier.py, and only what it can compute in a moment.
"""

import re

from .golds import PATTERNS, GoldType, gold_type, split
from .numerals import CHANGING, LETTER, PERCENT, exact, names_value, stated
from .spelling import spell
from .tags import last_closed_answer
from .verifier import Question

MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
MAX_ALGEBRA = 200  # characters of a text for math-verify

LEAD = re.compile(  # The answer is, Option, 答案是
    rf"(?i)(?:(?:{LETTER}|[',() -])*\b(?:is|are|be|equals)\b|(?:the )?(?:final )?(?:correct )?"
    r"(?:answer|option|choice|solution|result)|答案[是为為]?):?\s+|答案[是为為]?:?"
)
OPTION = re.compile(r"\(?\s*([A-Za-z])\s*(?:[.)]*:(?P<text>.*)|[.)]+(?P<more>\s.*)?)?", re.DOTALL)
ANOTHER = re.compile(r"(?:^|\s)\(?[A-J][.):]\s|^\s*(?:or|and)\b")
UNREADABLE = re.compile(  # macros that are no value, and what sympy computes before it compares
    r"\\(?!(?:[dtc]?frac|sqrt|pi|cdot|times|div|ln|log|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?"
    r"|infty|leq?|geq?|neq?|lt|gt|in|binom|mathbb|alpha|beta|gamma|delta|epsilon|zeta|eta|theta"
    r"|kappa|lambda|mu|nu|xi|rho|sigma|tau|v?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi"
    r"|Psi|Omega|[lr](?:vert|floor|ceil)|mid)(?![A-Za-z]))[A-Za-z]|(?:[({\[][^)}\]]*){9}"
    r"|\*\*|!\s*\)*\s*!|[0-9]{4}\s*\)*!|\\binom[^+]*(?:[0-9]{4}|\^)|[0-9]{31}"
    r"|\^\s*\{?\s*[+-]?[0-9]{3}|[)}|]\s*\^\s*\{?\s*[+-]?[2-9][0-9]|\^\s*\{?\s*\(?[0-9]+\)?\s*\^"
)
UNITS = dict(
    pair.split("=")
    for pair in (
        "centimeter=cm centimetre=cm meter=m metre=m kilometer=km millimeter=mm gram=g kilogram=kg"
        " hour=h hr=h minute=min second=s sec=s foot=ft feet=ft inch=in inche=in degree=° dollar=$"
        " cent=¢ euro=€ pound=£ liter=l litre=l L=l per=/ mile=mi"
    ).split()
)
MEASURED = re.compile(rf"(?<=[^\\A-Za-z])(?:{'|'.join({*UNITS, *UNITS.values()} - set('/$'))})s?(?:\^[23])?$")


def decide(completion: str, gold: str, kind: str = "math") -> bool | Question:
    """Whether the final answer block gives the gold answer; a question needs computer algebra."""
    _, closed, final = completion.partition("</think>")
    if not closed and completion.rstrip().endswith("</answer>"):
        final = completion  # its last block is no guess of the reasoning
    answer = last_closed_answer(final)
    if final.rfind("<answer>") > final.rfind("</answer>") or answer is None:
        return False
    if max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer = spell(answer)
    if kind == "choice" or gold_type(gold) is GoldType.LETTER:
        return _option(answer) == spell(gold).strip("()").upper()
    return _compare(answer, spell(gold))


def _option(answer: str) -> str | None:
    """The letter that an answer names: B, (B), B: text, Option B; not A or B, A cat."""
    match = OPTION.fullmatch(_without_lead(answer))
    if match is None or ANOTHER.search(match["text"] or match["more"] or ""):
        return None
    return match[1].upper()


def _without_lead(answer: str) -> str:
    """Without "The answer is" and the like, unless the words deny or doubt."""
    lead = LEAD.match(answer)
    if lead and not CHANGING.search(lead[0]):
        return answer[lead.end() :].lstrip()
    return answer


def _compare(answer: str, gold: str) -> bool | Question:
    """The comparison for the type of the gold answer; both are in the spelling of `spell`."""
    if answer == gold:
        return True
    if bool(PERCENT.search(answer)) != bool(PERCENT.search(gold)):
        return False  # a percentage equals only a percentage
    name = gold_type(gold)
    statement = stated(answer)
    if name in (GoldType.NUMBER, GoldType.PERCENTAGE):
        return statement is not None and statement[0] == exact(gold)
    if name is GoldType.QUANTITY:
        value, unit = stated(gold)
        if statement is None or statement[0] != value:
            return False
        return not _unit(statement[1]) or bool(
            re.match(rf"{re.escape(_unit(unit))}(?! ?[/^]|\w)", _unit(statement[1]))
        )
    answer = _without_lead(answer)
    if name is GoldType.RATIO:
        return exact(answer.replace(":", "/")) == exact(gold.replace(":", "/"))
    if name in (GoldType.TIME, GoldType.DATE, GoldType.FORMULA, GoldType.CODE, GoldType.WORDS):
        dropped = {GoldType.FORMULA: r"[\s{}_]", GoldType.CODE: r"[\s{}()]"}
        texts = [re.sub(dropped.get(name, r"[\s{}(),.\"']"), "", text) for text in (answer, gold)]
        return texts[0] == texts[1] or (
            name is not GoldType.FORMULA and texts[0].casefold() == texts[1].casefold()
        )
    return _algebra(answer, gold, name)


def _unit(words: str) -> str:
    """Centimeters: cm; square feet: ft ^2; km per hour: km / h."""
    words = re.sub(r"\b(?:square|sq\.?) (\w+)", r"\1^2", words)
    words = re.sub(r"\bcubic (\w+)", r"\1^3", words)
    names = re.findall(rf"{LETTER}+|\^[23]|[/°¢$€£¥]", words)
    return " ".join(
        UNITS.get(name) or UNITS.get(name.removesuffix("s"), name.removesuffix("s"))
        for name in names
    )


def _algebra(answer: str, gold: str, name: GoldType) -> bool | Question:
    """Entry by entry, where numbers are equal or not; what else there is becomes a question."""
    if name is GoldType.RELATION:
        label, _, value = gold.partition("=")
        own_label, _, own_value = answer.rpartition("=")
        if value and names_value(label) and own_label.strip() in ("", label.strip()):
            return _compare(own_value.strip(), value.strip())
    if bool(MEASURED.search(answer)) != bool(MEASURED.search(gold)):
        answer, gold = (MEASURED.sub("", text) for text in (answer, gold))
    own_brackets, answers = split(answer)
    brackets, golds = split(gold)
    if own_brackets != brackets and {own_brackets, brackets} - {"", "()", "\\{\\}"}:
        return False
    if not re.fullmatch(PATTERNS[GoldType.RELATION], gold):
        if not all(names_value(side) for entry in answers for side in entry.split("=")[:-1]):
            return False
        answers = [entry.rpartition("=")[2] for entry in answers]
    answers, golds = [*map(_canonical, answers)], [*map(_canonical, golds)]
    ordered = name is not GoldType.SET
    if answers == golds or (not ordered and sorted(answers) == sorted(golds)):
        return True
    texts = answers + golds
    letters = [set(re.findall(r"(?<!\\)\b[A-Za-z]+", " ".join(entries))) for entries in (answers, golds)]
    if (
        len(answers) != len(golds)
        or all(re.fullmatch("[0-9/-]+", text) for text in texts)
        or not letters[0] <= letters[1]
        or any(len(text) > MAX_ALGEBRA or UNREADABLE.search(text) for text in texts)
    ):
        return False
    return tuple(answers), tuple(golds), ordered


def _canonical(entry: str) -> str:
    """A number as p/q; else the text without spaces that mean nothing."""
    value = exact(entry)
    if value is None:
        return re.sub(r"(?<![A-Za-z]) | (?![A-Za-z])", "", entry)
    return str(value)
