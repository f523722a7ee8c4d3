"""The graders of the two published versions, with their mistakes: two texts are equal if their
Hendrycks or their PRM800K forms are, or if all their elements are the same written fractions."""

import contextlib
import logging
import re
from functools import lru_cache
from typing import Any

try:
    from pylatexenc.latex2text import LatexNodes2Text
    from pylatexenc.latexwalker import LatexWalker
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "rewards: the graders need pylatexenc and math-verify; install pods-rl[suite]",
        name=error.name,
    ) from error

from . import tags

MAX_LENGTH = 300  # characters; a longer text is taken for wrong: none of the data sets equals it
MAX_TOKENS = 1500  # of LaTeX in one text; the longest answers that were seen take 240
MAX_ENVIRONMENTS = 3  # a table within a table is padded to its width in every cell

UNITS = (  # removed in this order
    "degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week",
    "month", "year", "foot", "feet", "inch", "yard",
)  # fmt: skip
WHOLE_TEXT_MACRO = re.compile(r"^\\text\{(.+?)\}$")
THOUSANDS = re.compile(r"(?<=\d),(?=\d\d\d($|\D))")
WRITTEN_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
SLASH_FRACTION = re.compile(r"\A(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)\Z")
CONVERTER = LatexNodes2Text()
logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # its remarks on broken LaTeX


def is_correct(completion: str, gold: str, version: str) -> bool:
    """Whether the answer block, the last number or the whole text equals the gold answer."""
    pattern = r"[\d.,]+" if version == "v2" else r"\d+"
    return (
        equal(tags.published_answer(completion), gold)
        or equal(tags.last_number(completion, pattern), gold)
        or equal(completion, gold)
    )


def equal(answer: str, gold: str) -> bool:
    """Whether the published graders accept the answer for `gold`."""
    if len(answer) > MAX_LENGTH:
        answer = answer.strip()
        if len(answer) > MAX_LENGTH:
            return False
    if first_form(answer) == first_form(gold):
        return True
    answer = second_form(answer)
    gold = second_form(gold)
    if answer == gold:
        return True
    return bool(answer and gold) and _same_fractions(answer, gold)


def _same_fractions(answer: str, gold: str) -> bool:
    """Tuples and intervals element by element: only fractions, and only as they are written."""
    elements = _elements(gold)
    if len(elements) > 1 and (answer[0] != gold[0] or answer[-1] != gold[-1]):
        return False  # (1/2,3) is not [1/2,3]
    if _elements(answer) != elements:
        return False
    return all(WRITTEN_FRACTION.search(element) for element in elements)


def _elements(form: str) -> list[str]:
    """What stands between brackets and commas; a text without brackets is one element."""
    form = THOUSANDS.sub("", form)
    match = re.fullmatch(r"[()\[\]]([^()\[\]]+)[()\[\]]", form)
    if match is None:
        return [form]
    return [element.strip() for element in match[1].split(",")]


@lru_cache(maxsize=8192)
def first_form(text: str) -> str:
    """The Hendrycks form: spacing, units, degrees removed; fractions and roots braced."""
    text = WHOLE_TEXT_MACRO.sub(r"\1", text.strip()).strip()
    with contextlib.suppress(IndexError, ValueError):  # as published: then compared as it is
        return _first_form(text)
    return text


def _first_form(text: str) -> str:
    """The steps of the release, in its order; ValueError and IndexError as it raised them."""
    text = text.replace("\n", "").replace("\\!", "").replace("\\\\", "\\")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    for noise in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"):
        text = text.replace(noise, "")
    if "\\text{ " in text:  # a unit on the right
        text, _unit = text.split("\\text{ ")  # two units: ValueError
    text = text.replace("\\%", "").replace("\\%", "")  # twice, as published: \\%% goes too
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:  # "x=5"
        text = sides[1]
    text = _braced(text, "\\sqrt", 1).replace(" ", "")
    text = _braced(text, "\\frac", 2)
    if text == "0.5":  # the one decimal that the release knows
        return "\\frac{1}{2}"
    return SLASH_FRACTION.sub(r"\\frac{\1}{\2}", text)


def _braced(text: str, macro: str, count: int) -> str:
    """\\sqrt2 -> \\sqrt{2}, \\frac12 -> \\frac{1}{2}. IndexError if nothing follows a macro."""
    head, *tails = text.split(macro)
    pieces = [head]
    for tail in tails:
        if tail[0] != "{":
            if len(tail) < count:
                return text
            second = tail[1:count]
            if second not in ("", "{"):
                second = f"{{{second}}}"
            tail = f"{{{tail[0]}}}{second}{tail[count:]}"
        pieces.append(tail)
    return macro.join(pieces)


@lru_cache(maxsize=8192)
def second_form(text: str) -> str:
    """The PRM800K form: LaTeX as text, lower case, without units, spaces and braces."""
    match = WHOLE_TEXT_MACRO.search(text)
    if match:
        text = match[1]
    for noise in ("\\%", "\\$", "$", "%"):
        text = text.replace(noise, "")
    text = text.replace(" or ", " , ").replace(" and ", " , ")
    for word, power in (("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12")):
        text = text.replace(word, power)
    for unit in UNITS:
        text = re.sub(unit + r"(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    text = _whole(text, text) or text
    if "\\" in text:
        text = _plain(text)
    text = re.sub("- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)  # a mixed number
    text = text.replace(" ", "").replace("{", "").replace("}", "").lower()
    return _whole(THOUSANDS.sub("", text), text.replace(",", ""), int) or text


def _plain(text: str) -> str:
    """Without LaTeX, as far as the converter reads it."""
    text = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac")
    plain = latex_as_text(text.replace("\\frac", " \\frac"))  # the space makes 7\frac34 mixed
    if plain is None:
        return text
    for symbol, name in zip("√π∞∪·×", ("sqrt", "pi", "inf", "U", "*", "*"), strict=True):
        plain = plain.replace(symbol, name)
    return plain.strip()


def latex_as_text(latex: str) -> str | None:
    """`\\frac{\\pi}{2}` as "π/2", by pylatexenc as published; None if it fails or takes long."""
    if "\\maketitle" in latex:  # the converter puts the titles of all texts into each other
        return None
    if latex.count("\\begin") > MAX_ENVIRONMENTS:
        return None
    try:
        return CONVERTER.nodelist_to_text(_Walker(latex).get_latex_nodes()[0])
    except Exception:  # of any kind, as published; deep nesting is a RecursionError
        return None


class _Walker(LatexWalker):
    """Stops at arguments without an end: the parser starts over, 2^k times for k nested ones."""

    tokens = 0

    def get_token(self, *args: Any, **settings: Any) -> Any:
        self.tokens += 1
        if self.tokens > MAX_TOKENS:
            raise ValueError(f"more than {MAX_TOKENS} tokens")
        return super().get_token(*args, **settings)


def _whole(test: str, value: str, rounding: type = round) -> str | None:
    """`value` as an integer's text if `test` is within 1e-7 of an integer, else None."""
    with contextlib.suppress(ValueError, OverflowError):
        if abs(float(test) - round(float(test))) <= 1e-7:
            return str(rounding(float(value)))
    return None
