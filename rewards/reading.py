"""How texts are read: one spelling (spelling.yaml), the grammar (answer.lark), and values."""

import operator
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unicodedata import normalize

import yaml
from lark import Discard, Lark, Token, Transformer, Tree, v_args
from lark.visitors import Interpreter
from mpmath import MPContext

FOLDER = Path(__file__).parent
SPELLING = yaml.safe_load((FOLDER / "spelling.yaml").read_text())
SYMBOLS = str.maketrans(SPELLING["symbols"])
SPOKEN = SPELLING["numbers"] | SPELLING["ordinals"]
MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
DIGITS = 100  # to which equal values agree
ROUNDS = 5  # sets of made-up values of the symbols; those of the last two are large
WRITTEN_SMALL = re.compile(  # Paris, It doubles, PARIS; not CO, Aa, AABB
    r"\b(?<!\\)[A-Z][a-z]{2,}\b|^[A-Z][a-z]?(?= +[a-z]{2})"
    r"|\b(?!(?:([A-Z])\1)+\b)[A-Z]{4,}\b(?!.*\d)"
)
MP = MPContext()
MP.dps = 110  # some more than DIGITS
LARGEST = MP.mpf("1e100")  # of a value: a larger one would not be exact


def substitute(text: str, steps: list) -> str:
    """The text after every step, a pattern and its replacement (see re.sub)."""
    for pattern, replacement in steps:
        text = re.sub(pattern, replacement, text)
    return text


@lru_cache(maxsize=8192)
def spell(text: str) -> str:
    """The text without delimiters, boxes, fonts and decoration, with one spelling of a symbol."""
    if not text.isascii():
        text = normalize("NFKC", substitute(text, SPELLING["scripts"])).translate(SYMBOLS)
    text = substitute(text, SPELLING["delimiters"])
    text = re.sub(r"\\[A-Za-z]+|\\.", lambda m: SPELLING["macros"].get(m[0], m[0]) + " ", text)
    return substitute(text, SPELLING["decoration"])


@lru_cache(maxsize=8192)
def words(text: str) -> tuple[str, ...]:
    """The words, numbers and signs of a text."""
    text = substitute(text, SPELLING["text"])
    text = WRITTEN_SMALL.sub(lambda word: word[0].lower(), text)
    found = re.findall(r"\d+(?:st|nd|rd|th)\b|\\?[^\W\d_]+|\d+|[^\s\\]|\\", text)
    return tuple(SPOKEN.get(word, word) if len(word) > 2 else word for word in found)


@cache
def grammar() -> Lark:
    """The parser of all types."""
    rules = normalize("NFKC", (FOLDER / "answer.lark").read_text())
    return Lark(rules, parser="lalr", start=[*SPELLING["types"], "text"], maybe_placeholders=False)


@lru_cache(maxsize=8192)
def read(text: str, name: str) -> "Reading | None":
    """What a spelled text says that is wholly a statement of this type, else None."""
    parser = grammar()  # outside of try: an error of its own is shown
    try:
        return Reader().visit(parser.parse(text, name))
    except Exception:  # of any kind: no text that a policy writes may end its training
        return None


class Reading(NamedTuple):
    """What a text says. A gold answer is given by an answer with the same value or with one of its
    other forms, and by one that has the gold answer's value among its own forms."""

    value: tuple  # its type and what is compared
    forms: tuple = ()  # of 5 cm and of x = 5, 5
    meant: tuple = ()  # forms of answers only: of 25%, 1/4; of 2, 3 the pair
    name: str = ""  # of a symbol, of the left side of a relation, or of a label
    exact: Sequence = ()  # values of an expression, for each turn


def gold_type(gold: str) -> str:
    """The type of a gold answer, which decides how answers are compared with it: number, quantity,
    letter, word, date, time, code, formula, text; or, of what is compared by values, expression,
    relation, list, tuple, set, interval, matrix."""
    if len(gold) > MAX_LENGTH:
        return "text"
    kind, *rest = gold_reading(spell(gold))[1].value
    if kind == "number" and rest[1] != 1:
        return "quantity"
    if kind == "()" and not {*rest}.isdisjoint(INFINITE.values()):
        return "interval"
    return str(SPELLING["groups"].get(kind, kind))  # a rule's name is a lark.Token


@lru_cache(maxsize=8192)
def gold_reading(gold: str) -> tuple[str, Reading]:
    """The first rule that reads a spelled gold answer, and what it says; text is the last."""
    for name, no_gold in SPELLING["types"].items():
        reading = None if re.search(no_gold, gold) else read(gold, name)
        if reading is not None:
            return name, reading
    return "text", Reading(("text", *words(gold)))


# ---- Numbers and quantities ----------------------------------------------------------------------

UNITS = {
    prefix + spelling: sign + name
    for spelling, name in SPELLING["metric"].items()
    for prefix, sign in SPELLING["prefixes"].items()
} | SPELLING["units"]
PERCENT = ord("%")
NO_DIGITS = str.maketrans("", "", ",{} \t\n")


def fraction(text: str) -> Fraction:
    """1,234.5, 3/4, 2 1/4, 10^6 or twelve."""
    text = text.lower().translate(NO_DIGITS).replace("10^", "1e")
    return Fraction(SPELLING["numbers"].get(text.removesuffix("s"), text))


@v_args(inline=True)
class Amounts(Transformer):
    """(value, unit) of amounts; a unit is a number, too: the product of a number for each name."""

    def __default__(self, rule: str, children: list, meta: object) -> Any:
        return getattr(operator, rule)(*children)

    NUMBER = SPACED = TEN_TO = SCALE = ORDINAL = SPOKEN = TENS = staticmethod(fraction)
    EXPONENT = int

    def WORD(self, token: Token) -> Fraction:
        """A number for a unit; other words have a plural's ending, or stand where a noun does."""
        word = token.translate(NO_DIGITS).rstrip(".")
        stem = (word if len(word) == 1 else word.lower()).removesuffix("s")
        name = UNITS.get(word) or UNITS.get(stem)
        if name is None and token.type == "WORD":
            raise ValueError(word)
        return Fraction(int.from_bytes((name or stem).encode()))

    PLURAL = SINGLE = SINGULAR = WORD

    def per(self, unit: Fraction) -> Fraction:
        return 1 / unit

    def repeating(self, fixed: Token, repeated: Token) -> Fraction:
        """0.1\\overline{6} is 1/6."""
        return fraction(fixed + repeated * DIGITS).limit_denominator(1_000_000_000)

    def amount(self, value: Fraction, unit: Fraction | int = 1) -> tuple:
        return value, unit

    def operand(self, amount: tuple) -> Fraction:
        return amount[0]

    def equation(self, *sides: Fraction) -> Any:
        """16 - 7 = 9 before the last one; a false one is no work."""
        if len({*sides}) > 1:
            raise ValueError("false")
        return Discard

    def number(self, *parts: Any) -> Reading:
        """In 9 * 2 = 18 both sides are equal. 60% may be called 60, and 25% be meant as 1/4."""
        *sides, (value, unit) = parts
        self.equation(value, *sides)
        alone = PERCENT if unit == PERCENT and value % 1 else 1
        meant = {PERCENT: (value / 100, 1), 1: (value, PERCENT)}.get(unit, (value, unit))
        return Reading(("number", value, unit), (("number", value, alone),), (("number", *meant),))

    def compound(self, *amounts: tuple) -> Reading:
        """1 hour and 15 minutes."""
        return Reading(("quantity", *sorted(amounts)))


# ---- Expressions, relations, lists ---------------------------------------------------------------

INFINITY = MP.mpf(2) ** 320
INTERVALS = {"()", "(]", "[)", "[]"}
INFINITE = {side: ("expression", *[side * INFINITY] * ROUNDS) for side in (-1, 1)}
CONSTANTS = {"\\pi": +MP.pi, "e": +MP.e, "i": MP.j, "\\infty": INFINITY}


@cache
def value_of(name: str, turn: int) -> Any:
    """Constants have theirs; another symbol has made-up values. Of the large ones one is negative,
    of next letters in other turns, so that |a + b| is not |a| + |b|."""
    scale = 10 * (-1) ** (ord(name[-1]) + turn) if turn > 2 else 1
    return CONSTANTS.get(name, MP.mpf(Random(f"{name}{turn}").uniform(0.1, 3) * scale))


FUNCTIONS = vars(operator) | {
    "log": lambda base, x: MP.log(x, base),
    "power_of": lambda function, power, x: function(x) ** power,  # sin^2 x
}


@v_args(inline=True)
class Values(Transformer):
    """The values of an expression, one for each turn: the number of a set of made-up values, and a
    symbol that has another one there. `sign` is that of \\pm."""

    def __init__(self, turns: list, sign: int) -> None:
        super().__init__()
        self.turns, self.sign = turns, sign

    def __default__(self, rule: str, children: list, meta: object) -> list:
        """A function of FUNCTIONS or of mpmath, if its values are of limited size."""
        values = list(map(FUNCTIONS.get(rule) or getattr(MP, rule), *children))
        if not all(abs(value) <= LARGEST for value in values):
            raise OverflowError
        return values

    def FUNCTION(self, token: Token) -> list:
        return [getattr(MP, token)] * len(self.turns)

    def PLUS_MINUS(self, token: Token) -> list:
        return [self.sign] * len(self.turns)

    def NUMBER(self, token: Token) -> list:
        return [MP.mpf(1) * fraction(token)] * len(self.turns)

    RATIO = NUMBER

    def SYMBOL(self, token: Token) -> list:
        name = token.translate(NO_DIGITS)
        return [value_of(name + "'moved" * (name == moved), turn) for turn, moved in self.turns]


def rounded(values: Iterable) -> tuple:
    """Values are equal if they agree to DIGITS. The branch of a root of a negative value is a
    choice: of a complex value of the last two, no more is said."""
    with MP.workdps(DIGITS):
        numbers = [+MP.chop(value, 1e-100) for value in values]
    numbers[3:] = ["complex" if isinstance(number, MP.mpc) else number for number in numbers[3:]]
    return tuple(numbers)


def unordered(values: Iterable) -> tuple:
    return tuple(sorted(values, key=repr))


class Reader(Interpreter):
    """The readings of the types of answers, and of what lists hold; numbers are read by Amounts."""

    def __default__(self, tree: Tree) -> Reading:
        """The texts of the tokens, numbers without leading zeros, months as numbers."""
        small = [re.sub(r"\W|^0+(?=\d)", "", token).lower() for token in tree.children]
        return Reading((tree.data, *[SPELLING["short"].get(text[:3], text) for text in small]))

    def text(self, tree: Tree) -> Reading:
        return Reading(("text", *words(tree.children[0])))

    name = text

    def number(self, tree: Tree) -> Reading:
        return Amounts().transform(tree)

    compound = number

    def date(self, tree: Tree) -> Reading:
        _, *parts = self.__default__(tree).value
        kinds = [token.type[:5] for token in tree.children]
        return Reading(("date", *unordered(zip(kinds, parts, strict=True))))

    def time(self, tree: Tree) -> Reading:
        """Hour of the day, minute, second, and whether the half of the day is known."""
        hour, minute, second, *_ = [*map(int, tree.children), 0, 0]
        if tree.data == "time":
            return Reading(("time", hour, minute, second, not 0 < hour < 12))
        return Reading(("time", hour % 12 + 12 * (tree.data == "pm"), minute, second, True))

    am = pm = time

    def formula(self, tree: Tree) -> Reading:
        """Molecules and ions with their numbers, in any order on each side; a form of it says
        nothing of their states."""
        values = []
        for left_out in ("", "STATE"):
            sides = [
                unordered(self.species(part, left_out) for part in side.children)
                for side in tree.children
            ]
            values.append((tree.data, *sides))
        return Reading(values[0], (values[1],))

    equilibrium = formula

    def species(self, tree: Tree, left_out: str) -> str:
        tokens = tree.scan_values(lambda token: token.type != left_out)
        return substitute("".join(tokens), SPELLING["formula"])

    def expression(self, tree: Tree) -> Reading:
        """Its values for made-up values of its symbols, in ROUNDS turns; a list with \\pm."""
        tokens = list(tree.scan_values(bool))
        names = {token.translate(NO_DIGITS) for token in tokens if token.type == "SYMBOL"} - {
            *CONSTANTS
        }
        if len(names) > 12:
            raise ValueError("too long")
        turns = [(0, name) for name in names] + [(turn, "") for turn in range(ROUNDS)]
        name = "".join(names).strip("\\") if isinstance(tree.children[0], Token) else ""
        readings = []
        for sign in (1, -1)[: 1 + ("\\pm" in tokens)]:
            values = Values(turns, sign).transform(Tree("pos", tree.children))
            moved, exact = rounded(values[: len(names)]), values[len(names) :]
            shown = rounded(exact)
            # What cancels out stood for something that does not commute: AB - BA, P^{-1}AP
            if shown[0] in moved:
                raise ValueError("a symbol without effect")
            readings.append(Reading(("expression", *shown), (), (), name, exact))
        return together(readings, "")

    def entries(self, tree: Tree) -> list[Reading]:
        """The readings of what stands between marks."""
        return [child for child in self.visit_children(tree) if isinstance(child, Reading)]

    def row(self, tree: Tree) -> Reading:
        return Reading((tree.data, *[reading.value for reading in self.entries(tree)]))

    matrix = row

    def group(self, tree: Tree) -> Reading:
        """A set, a tuple, an interval; a tuple may be a column."""
        kind = tree.children[0][-1] + tree.children[-1][-1]
        values = [reading.value for reading in self.entries(tree)]
        if kind == "{}":
            return Reading((kind, *unordered(values)))
        column = ("matrix", *[("row", value) for value in values])
        return Reading((kind, *values), (column,) if kind in ("()", "[]") else ())

    def cup(self, tree: Tree) -> Reading:
        """The union, intersection or difference of sets."""
        first, second = [reading.value for reading in self.entries(tree)]
        if tree.data == "setminus":
            return Reading((tree.data, first, second))
        sets = first[1:] if first[0] == tree.data else (first,)
        return Reading((tree.data, *unordered((*sets, second))))

    cap = setminus = cup

    def labelled(self, tree: Tree) -> Reading:
        """(a) 3: as a = 3 a name and a value."""
        (reading,) = self.entries(tree)
        name = re.sub(r"\W|^the |is$", "", tree.children[0].lower())
        return Reading(("label", name, reading.value), (reading.value,), name=name)

    def relation(self, tree: Tree) -> Reading:
        """A relation; two for 0 < x < 2; of S = {1, 2} and x \\in [0, 1] the value."""
        signs = [SPELLING["relations"].get(sign, str(sign)) for sign in tree.children[1::2]]
        sides = self.entries(tree)
        is_named = sides[0].name or not sides[0].exact  # not -P = (2, 3)
        if is_named and not sides[-1].exact and {*signs} <= {"=", "\\in"}:
            return sides[-1]
        if {*signs} == {"="}:
            sides = [sides[0], sides[-1]]
            if sides[0].value == sides[1].value:  # work: \\sqrt{20} = 2\\sqrt{5}
                return sides[1]
        return together(list(map(related, sides, signs, sides[1:])), "and")

    def entry_list(self, tree: Tree) -> Reading:
        joiner = max(separator.strip(",; \n") for separator in tree.children[1::2])
        return together(self.entries(tree), joiner)

    def math(self, tree: Tree) -> Reading:
        """An entry or a list, which may have a unit."""
        first, *measure = tree.children
        reading = self.visit(first)
        if measure:
            unit = Amounts().transform(grammar().parse("1 " + measure[0], "number")).value[-1]
            return Reading((*reading.value, unit), (reading.value,))
        return reading


def related(left: Reading, sign: str, right: Reading) -> Reading:
    """A relation of two expressions; its form is what a symbol equals, or the interval that it is
    in."""
    if right.name > left.name == "":  # 3 < x
        left, sign, right = right, SPELLING["turned"].get(sign, sign), left
    forms = ()
    if left.name and sign == "=":
        forms = (right.value,)
    elif left.name and sign in SPELLING["half_lines"]:
        forms = (half_line(sign, right.value),)
    elif left.name and sign == "\\ne":
        forms = (interval("or", [half_line(side, right.value) for side in "<>"]),)
    difference = [a - b for a, b in zip(left.exact, right.exact, strict=True)]
    if difference[0].real < 0:
        sign = SPELLING["turned"].get(sign, sign)
    scaled = rounded([value / difference[0] for value in difference])
    return Reading(("relation", sign, *scaled), forms, name=left.name)


def half_line(sign: str, end: tuple) -> tuple:
    """The interval of x < end, or of another relation."""
    kind, side = SPELLING["half_lines"][sign]
    return (kind, INFINITE[-1], end) if side < 0 else (kind, end, INFINITE[1])


def interval(joiner: str, half_lines: list[tuple]) -> tuple:
    """The union of half-lines ("or"), or the interval that is in both of two."""
    if joiner == "or":
        return ("cup", *unordered(half_lines))
    above, below = sorted(half_lines, key=lambda line: line[1] == INFINITE[-1])
    if (below[1], above[2]) != (INFINITE[-1], INFINITE[1]):
        raise ValueError("x < 1 and x < 2")
    return (above[0][0] + below[0][1], above[1], below[2])


def together(readings: list[Reading], joiner: str) -> Reading:
    """A list. Its forms: the set; 2, 3 of x = 2, x = 3; the pair of x = 2, y = 3."""
    if len(readings) == 1:
        return readings[0]
    kinds = {reading.value[0] for reading in readings}
    pairs = [(r.name, r.forms[0]) if r.name and r.forms else ("", r.value) for r in readings]
    names = {name for name, _ in pairs}
    values = [value for _, value in pairs]
    if "" not in names and len(names) == 1 and {value[0] for value in values} <= INTERVALS:
        common = interval(joiner, values)
        return Reading(("relation", *names, common), (common,), name=pairs[0][0])
    meant = (("()", *values),) if names == {""} and joiner != "or" else ()
    if len(names - {""}) == 1 and "label" not in kinds:
        pairs, joiner, names = [("", value) for value in values], "", {""}
    # of texts that repeat, as in true, false, true, the order counts
    repeats = kinds == {"text"} and len({*values}) < len(values)
    entries = tuple(pairs) if repeats else unordered(pairs)
    forms = [("list", "", *entries)]
    if joiner == "or" and (kinds & {"text", "label"} or any(r.name for r in readings)):
        forms = []
    elif names == {""}:
        forms.append(("{}", *unordered(values)))
    elif len(names) < len(pairs):
        raise ValueError("x = 1, y = 2 or x = 2, y = 1")
    elif kinds == {"relation"}:  # x = 2, y = 3
        forms.append(("()", *[value for _, value in sorted(pairs)]))
    return Reading(("list", joiner, *entries), tuple(forms), meant)
