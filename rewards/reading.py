"""How texts are read: one spelling (spelling.yaml), the grammar (answer.lark), and values."""

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import yaml
from lark import Discard, Lark, Token, Transformer, Tree, v_args
from lark.exceptions import LarkError
from lark.visitors import Interpreter
from mpmath import MPContext

FOLDER = Path(__file__).parent
SPELLING = yaml.safe_load((FOLDER / "spelling.yaml").read_text())
TYPES = ("letter", "word", "date", "time", "code", "range", "number", "formula", "math")
SYMBOLS = str.maketrans(SPELLING["symbols"])
MAX_LENGTH = 600  # characters of an answer block, and of a gold answer; a longer one is wrong
DIGITS = 100  # to which equal values agree
ROUNDS = 4  # sets of made-up values of the symbols; in the last one they are negative
WRITTEN_SMALL = re.compile(  # Paris, It doubles, PARIS; not CO, Aa, AABB
    r"\b(?<!\\)[A-Z][a-z]{2,}\b|^[A-Z][a-z]?(?= +[a-z]{2})"
    r"|\b(?!(?:([A-Z])\1)+\b)[A-Z]{4,}\b(?!.*\d)"
)
MP = MPContext()
MP.dps = DIGITS + 10
LARGEST = MP.mpf(10) ** 2000  # of a value that is raised to a power


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
        text = re.sub(r"\d", lambda digit: str(int(digit[0])), text)
    text = substitute(text, SPELLING["delimiters"])
    macros = SPELLING["macros"]
    text = re.sub(r"\\[A-Za-z]+|\\.", lambda macro: macros.get(macro[0], macro[0]) + " ", text)
    return substitute(text, SPELLING["decoration"])


@lru_cache(maxsize=8192)
def words(text: str) -> tuple[str, ...]:
    """The words, numbers and signs of a text."""
    text = substitute(text, SPELLING["text"])
    text = WRITTEN_SMALL.sub(lambda word: word[0].lower(), text)
    return tuple(re.findall(r"\\?[^\W\d_]+|\d+|[^\s\\]|\\", text))


@cache
def grammar(name: str) -> Lark:
    """The parser of one type; together their tokens would be each other's."""
    rules = normalize("NFKC", (FOLDER / "answer.lark").read_text())
    return Lark(rules, parser="lalr", start=name, maybe_placeholders=False)


@lru_cache(maxsize=8192)
def read(text: str, name: str) -> Any:
    """The value of a spelled text that is wholly a statement of this type, else None."""
    parser = grammar(name)
    try:
        return READERS[name](parser.parse(text))
    except (LarkError, ArithmeticError, ValueError):
        return None


@lru_cache(maxsize=8192)
def gold_type(gold: str) -> str:
    """The type of a gold answer, which decides how answers are compared with it: number, quantity,
    range, letter, word, date, time, code, formula, text; or, of what is compared by its values,
    expression, relation, list, tuple, set, interval, matrix."""
    if len(gold) > MAX_LENGTH:
        return "text"
    gold = spell(gold)
    name, value = gold_reading(gold)
    if isinstance(value, Group):
        matrix = isinstance(value.entries[0], Group) and value.brackets == "[]"
        infinite = value.brackets == "()" and "\\infty" in gold
        if value.joiner == "and" and isinstance(value.entries[0], Relation):
            return "relation"  # 0 < x < 2
        key = "[[" if matrix else "[)" if infinite else value.brackets
        return SPELLING["groups"].get(key, "interval")
    if name == "number" and any(unit != 1 for _, unit in value):
        return "quantity"
    return type(value).__name__.lower() if name == "math" else name


@lru_cache(maxsize=8192)
def gold_reading(gold: str) -> tuple[str, Any]:
    """The first type whose rule reads a spelled gold answer, and its value; text is the last."""
    for name in TYPES:
        value = None if re.search(NO_GOLD.get(name, "^$"), gold) else read(gold, name)
        if value is not None:
            return name, value
    return "text", words(gold)


NO_GOLD = {"letter": r"[^()A-Z]|\w\s*\w", "number": r"=|\d[A-Za-z]$|^\(.*,"}  # is another type


# ---- Numbers and quantities ----------------------------------------------------------------------

PREFIXES = (SPELLING["short_prefixes"], SPELLING["long_prefixes"])
UNITS = {
    prefix + spelling: sign + name
    for spelling, name in SPELLING["metric"].items()
    for prefix, sign in PREFIXES[len(spelling) > 3].items()
} | SPELLING["units"]


@v_args(inline=True)
class Amounts(Transformer):
    """(value, unit) of amounts; a unit is a number, too: the product of a number for each name."""

    def __default__(self, rule: str, children: list, meta: object) -> Any:
        return getattr(operator, rule)(*children)

    def NUMBER(self, token: Token) -> Fraction:
        text = re.sub(r"10\s*\^[\s{]*", "1e", re.sub(r"[,\s}]", "", token.lower()))
        return Fraction(SPELLING["numbers"].get(text.removesuffix("s"), text))

    SPACED = TEN_TO = SCALE = ORDINAL = SPOKEN = TENS = NUMBER
    EXPONENT = int

    def WORD(self, token: Token) -> Fraction:
        """A number for a unit, or for things that are counted, which have a plural's ending."""
        word = substitute(token, SPELLING["in_units"])
        small = word.lower()
        names = [word, word.removesuffix("s"), small, small.removesuffix("s")]
        known = [UNITS[name] for name in names if name in UNITS]
        counted = token.type != "WORD" or re.fullmatch(r"\w{2,}[^\Wsui]s", word)
        if not known and (not counted or word in SPELLING["no_nouns"]):
            raise ValueError(word)
        return Fraction(int.from_bytes([*known, names[-1]][0].encode()))

    SINGLE = SINGULAR = WORD

    def per(self, unit: Fraction) -> Fraction:
        return 1 / unit

    def repeating(self, fixed: Token, repeated: Token) -> Fraction:
        """0.1\\overline{6} is 0.1 and 6/90."""
        decimals = len(fixed.partition(".")[2])
        value = Fraction(int(repeated), 10**decimals * (10 ** len(repeated) - 1))
        return Fraction(fixed + "0") + value

    def amount(self, value: Fraction, unit: Fraction | int = 1) -> tuple:
        return value, unit

    def operand(self, amount: tuple) -> Fraction:
        return amount[0]

    def equation(self, *sides: Fraction) -> Any:
        """16 - 7 = 9 before the last one; a false one is no work."""
        if len({*sides}) > 1:
            raise ValueError("false")
        return Discard

    def number(self, *parts: Any) -> tuple | None:
        """In 9 * 2 = 18 both sides are equal."""
        *sides, amount = parts
        return (amount,) if set(sides) <= {amount[0]} else None

    def power(self, amount: tuple, exponent: int) -> tuple:
        return ((amount[0] ** exponent, amount[1]),)

    def compound(self, *amounts: tuple) -> list | None:
        """1 hour and 15 minutes: every amount has a unit."""
        return sorted(amounts) if all(unit != 1 for _, unit in amounts) else None

    def range(self, *ends: Any) -> tuple:
        return ends

    def VERSION(self, token: Token) -> str:
        return token.replace(" ", "")


# ---- Dates, times, formulas, words ---------------------------------------------------------------


def texts(tree: Tree) -> list[str]:
    """The texts of the tokens, numbers without leading zeros, months as numbers."""
    small = [re.sub(r"\W|^0+(?=\d)", "", token).lower() for token in tree.children]
    return [SPELLING["months"].get(text[:3], text) for text in small]


def date(tree: Tree) -> dict[str, str]:
    return dict(zip([token.type[:5] for token in tree.children], texts(tree), strict=True))


def time(tree: Tree) -> tuple:
    """Hour of the day, minute, second, and whether the half of the day is known."""
    parts = {token.type: token.lower() for token in tree.children}
    hour, minute, second = (int(parts.get(n, 0)) for n in ("HOUR", "MINUTE", "SECOND"))
    half = parts.get("HALF", "pm" if hour >= 12 or "NOON" in parts else "")
    return hour % 12 + 12 * (half[:1] == "p"), minute, second, half > ""


def formula(tree: Tree) -> str:
    tokens = ["*" if token.type == "HYDRATE" else token for token in tree.scan_values(bool)]
    return re.sub(r"[_{}^\s]", "", "".join(tokens))


# ---- Expressions, relations, lists ---------------------------------------------------------------


class Expression(NamedTuple):
    values: tuple[str, ...]  # for each set of values of its symbols; the words of a name
    exact: Any = None  # the same as numbers, (ROUNDS,)
    name: str = ""  # of an expression that is a symbol
    unit: Any = 1


class Relation(NamedTuple):
    values: tuple[str, ...]  # of the difference of its sides, up to a factor
    sign: str  # < \le = \ne \in
    is_solved: bool  # x = 5
    left: Expression
    right: Expression


class Group(NamedTuple):
    brackets: str  # "" for a list without them; also the label of an entry, or \cup
    joiner: str  # and, or; "" for commas
    entries: list


def rounded(values: Any) -> tuple[str, ...]:
    """Texts of values, which are equal if they agree to DIGITS. The branch of a root of a negative
    value is a choice: if the last value is complex, no more is said."""
    *texts, last = [MP.nstr(MP.chop(value, 10.0**-DIGITS), DIGITS) for value in values]
    return (*texts, "complex" if "j" in last else last)


def bounded(values: Any) -> Any:
    """The values, if they are small enough for the next operation."""
    if abs(values).max() > LARGEST:
        raise OverflowError
    return values


CONSTANTS = {"\\pi": +MP.pi, "e": +MP.e, "i": MP.j}


@cache
def values_of(name: str) -> Any:
    """ROUNDS values of a symbol, made up but for the constants."""
    sizes = [Random(f"{name}{turn}").uniform(0.1, 3) for turn in range(ROUNDS - 1)]
    values = [CONSTANTS.get(name, MP.mpf(size)) for size in [*sizes, -sizes[0]]]
    return np.array(values, dtype=object)


def symbol(token: str) -> str:
    return re.sub(r"[{}\s]", "", token)


@v_args(inline=True)
class Values(Transformer):
    """The values of an expression, (ROUNDS,); of one with a \\pm b, (2, ROUNDS). The symbol `moved`
    has other values than elsewhere."""

    def __init__(self, moved: str = "") -> None:
        super().__init__()
        self.moved = moved

    def __default__(self, rule: str, children: list, meta: object) -> Any:
        """add, sub, ... are of the module operator; sqrt, binomial, ... of mpmath."""
        function = getattr(operator, rule, None)
        return function(*children) if function else self.apply(rule, *children)

    def pow(self, base: Any, exponent: Any) -> Any:
        return bounded(bounded(base) ** bounded(exponent))

    def apply(self, name: str, *children: Any) -> Any:
        """A function of mpmath, value by value."""
        function = getattr(MP, name.lstrip("\\").replace("arc", "a"))
        return bounded(np.frompyfunc(function, len(children), 1)(*map(bounded, children)))

    def apply_power(self, name: str, power: Any, x: Any) -> Any:
        """sin^2 x; sin^{-1} x is the inverse function."""
        return self.apply("a" + name, x) if power[0] == -1 else self.pow(self.apply(name, x), power)

    def log(self, base: Any, x: Any) -> Any:
        return self.apply("ln", x) / self.apply("ln", base)

    def root(self, degree: Any, x: Any) -> Any:
        return self.pow(x, 1 / degree)

    def plus_minus(self, *parts: Any) -> Any:
        """a \\pm b, \\pm b"""
        *left, sign, right = parts
        both = [sum(left) + right, sum(left) - right]
        return np.array(both[:: 1 if sign == "\\pm" else -1])

    def expression(self, values: Any) -> Any:
        return values

    def NUMBER(self, token: Token) -> Any:
        if len(token) > 40:
            raise ValueError(token)
        number = Fraction(re.sub(r"[,\s]", "", token))
        return np.full(ROUNDS, MP.mpf(number.numerator) / number.denominator)

    RATIO = NUMBER

    def SYMBOL(self, token: Token) -> Any:
        name = symbol(token)
        return values_of(name + "'moved" if name == self.moved else name)


class Entries(Interpreter):
    """The values of an entry in a list, as a list: two for one with \\pm."""

    def expression(self, tree: Tree) -> list:
        tokens = list(tree.scan_values(lambda token: token.type != "PLUS_MINUS"))
        names = {symbol(token) for token in tokens if token.type == "SYMBOL"} - {*CONSTANTS}
        name = "".join(names).strip("\\") if len(tokens) == 1 else ""
        if len(tokens) * len(names) > 1000:
            raise ValueError("too long")
        exact = np.atleast_2d(Values().transform(tree))
        # What cancels out stood for something that does not commute: AB - BA, P^{-1}AP
        for other in names:
            if rounded(np.ravel(Values(other).transform(tree))[:1]) == rounded(exact[0][:1]):
                raise ValueError("a symbol without effect")
        rounds = ROUNDS if names else 2
        return [Expression(rounded(values[:rounds]), values, name) for values in exact]

    def __default__(self, tree: Tree) -> list:
        """A list; a set, tuple, interval with its brackets; a matrix as [[1, 2], [3, 4]]; a union;
        a labelled entry."""
        if len(tree.children) > 200:
            raise ValueError("too long")
        signs = [t for t in tree.children if isinstance(t, Token) and t.type != "NAME"]
        entries = [
            value for child in tree.children if child not in signs for value in self.values(child)
        ]
        joiner = " ".join(sign for sign in signs if sign.type == "SEPARATOR").strip(",; ")
        brackets = "".join(sign for sign in signs if sign.type != "SEPARATOR")
        label = re.sub(r"\W", "", brackets).lower()
        empty = "" if tree.data == "list" else "[]"
        return [Group(label or brackets.replace("\\", "") or empty, joiner, entries)]

    def values(self, child: Tree | Token) -> list:
        return self.visit(child) if isinstance(child, Tree) else [Expression(words(child))]

    def scaled(self, tree: Tree) -> list:
        """-A, 2A of a matrix A, entry by entry."""
        *factors, matrix = tree.children
        for entry in list(matrix.find_data("expression")):
            for factor in reversed(factors):
                pair = Tree("mul", [factor, *entry.children])
                entry.children = [Tree("neg", entry.children) if factor == "-" else pair]
        return self.visit(matrix)

    def relation(self, tree: Tree) -> list:
        """A relation; for 0 < x < 2 a group of two; of S = {1, 2} and x \\in [0, 1] the value."""
        sides = list(map(self.visit, tree.children[::2]))
        signs = tree.children[1::2]
        if {*signs} == {"="}:
            sides, signs = [sides[0], sides[-1]], signs[:1]
        relations = [
            related(left, SPELLING["relations"].get(sign, sign), right)
            for lefts, sign, rights in zip(sides, signs, sides[1:], strict=False)
            for left in lefts
            for right in rights
        ]
        return [Group("", "and", relations)] if len(signs) > 1 else relations

    def math(self, tree: Tree) -> Any:
        entries = self.values(tree.children[0])
        value = entries[0] if len(entries) == 1 else Group("", "", entries)
        if isinstance(value, Expression) and len(tree.children) > 1:
            ((_, unit),) = read(f"1 {tree.children[1].strip()}", "number")
            return value._replace(unit=unit)
        return value if isinstance(tree.children[0], Tree) else None  # a name is text


def related(left: Any, sign: str, right: Any) -> Any:
    if sign in ("=", "\\in") and isinstance(right, Group):
        return right
    if not isinstance(left, Expression) or not isinstance(right, Expression):
        raise ValueError(sign)
    if sign in (">", "\\ge"):
        return related(right, {">": "<", "\\ge": "\\le"}[sign], left)
    difference = left.exact - right.exact
    scale = difference[0] if sign in ("=", "\\ne") else abs(difference[0])
    is_solved = any(a.name and len({*b.values}) == 1 for a, b in ((left, right), (right, left)))
    return Relation(rounded(difference / scale), sign, is_solved, left, right)


READERS: dict[str, Callable[[Tree], Any]] = {
    "letter": texts,
    "word": lambda tree: tree.children[0].type,
    "date": date,
    "time": time,
    "code": lambda tree: [SPELLING["numbers"].get(text, text) for text in texts(tree)],
    "range": Amounts().transform,
    "number": Amounts().transform,
    "formula": formula,
    "math": Entries().visit,
    "text": lambda tree: words(tree.children[0]),
}
