"""The graders of the two published versions, with their mistakes: two texts are equal if their
Hendrycks or their PRM800K forms are, or if all their elements are the same written fractions."""

import contextlib
import logging
import re
from functools import lru_cache
from typing import Any

import yaml

try:
    from pylatexenc.latex2text import LatexNodes2Text
    from pylatexenc.latexwalker import LatexWalker
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "rewards: the graders need pylatexenc and lark; install pods-rl[suite]",
        name=error.name,
    ) from error

from . import tags
from .reading import FOLDER, substitute

STEPS = yaml.safe_load((FOLDER / "published.yaml").read_text())
MAX_LENGTH = 300  # characters; a longer text is taken for wrong: none of the data sets equals it
MAX_TOKENS = 1500  # of LaTeX in one text; the longest answers that were seen take 240
MAX_ENVIRONMENTS = 3  # a table within a table is padded to its width in every cell

THOUSANDS = re.compile(r"(?<=\d),(?=\d\d\d($|\D))")
WRITTEN_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
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
    return len(answer) <= MAX_LENGTH and (
        first_form(answer) == first_form(gold) or _same(second_form(answer), second_form(gold))
    )


def _same(answer: str, gold: str) -> bool:
    """The same text, or tuples or intervals of the same fractions, as they are written."""
    elements = _elements(gold)
    return answer == gold or (
        _elements(answer) == elements
        and (
            len(elements) == 1 or answer[0] + answer[-1] == gold[0] + gold[-1]
        )  # not (1,2] and [1,2]
        and all(map(WRITTEN_FRACTION.search, elements))
    )


def _elements(form: str) -> list[str]:
    """What stands between brackets and commas; a text without brackets is one element."""
    form = THOUSANDS.sub("", form)
    match = re.fullmatch(r"[()\[\]]([^()\[\]]+)[()\[\]]", form)
    return [element.strip() for element in match[1].split(",")] if match else [form]


@lru_cache(maxsize=8192)
def first_form(text: str) -> str:
    """The Hendrycks form: spacing, units, degrees removed; fractions and roots braced. A text that
    made the release raise an error stays as it is: two units, or nothing behind a macro."""
    whole = substitute(text.strip(), STEPS["whole_text"]).strip()
    text, *units = substitute(whole, STEPS["first"]).split("\\text{ ")
    text = substitute(text, STEPS["unitless"])
    if len(units) > 1 or re.search(r"\\sqrt(?:\\sqrt|\Z)", text):
        return whole
    text = text.replace(" ", "")
    short = re.search(r"\\frac([^{]?)(?:\\frac|\Z)", text)
    if short is None:
        text = substitute(text, STEPS["fractions"])
    elif not short[1]:
        return whole
    return substitute(text, STEPS["whole_numbers"])


@lru_cache(maxsize=8192)
def second_form(text: str) -> str:
    """The PRM800K form: LaTeX as text, lower case, without units, spaces and braces."""
    text = substitute(text, STEPS["second"])
    text = _whole(text, text) or text
    if "\\" in text:
        text = re.sub(r"\\[td]frac", r"\\frac", text)
        plain = latex_as_text(text.replace("\\frac", " \\frac"))  # 7\frac34 is mixed
        if plain is not None:
            text = substitute(plain, STEPS["symbols"]).strip()
    text = substitute(text, STEPS["plain"]).lower()
    return _whole(THOUSANDS.sub("", text), text.replace(",", ""), int) or text


def latex_as_text(latex: str) -> str | None:
    """`\\frac{\\pi}{2}` as "π/2", by pylatexenc as published; None if it fails or takes long."""
    # The converter puts the titles of all texts into each other.
    if "\\maketitle" in latex or latex.count("\\begin") > MAX_ENVIRONMENTS:
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
            raise ValueError("too many tokens")
        return super().get_token(*args, **settings)


def _whole(test: str, value: str, rounding: type = round) -> str | None:
    """`value` as an integer's text if `test` is within 1e-7 of an integer, else None."""
    with contextlib.suppress(ValueError, OverflowError):
        if abs(float(test) - round(float(test))) <= 1e-7:
            return str(rounding(float(value)))
    return None
