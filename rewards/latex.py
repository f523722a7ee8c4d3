"""LaTeX -> plain text by pylatexenc, as the published graders do: `\\frac{\\pi}{2}` is "π/2"."""

import logging
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text, get_default_latex_context_db
from pylatexenc.latexwalker import LatexWalker

MAX_TOKENS = 1500  # read for one text; the longest answers that were seen take 240
MAX_ENVIRONMENTS = 3  # a table within a table is padded to its width in every cell

logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # its remarks on broken LaTeX
CONVERTER = LatexNodes2Text()
SYMBOLS = {  # macros that stand for one or more characters
    macro.macroname
    for macro in get_default_latex_context_db().iter_macro_specs()
    if isinstance(macro.simplify_repl, str)
    and macro.simplify_repl
    and "%" not in macro.simplify_repl
}


class Unreadable(ValueError):
    """The converter fails here, and the published grader then keeps the raw text."""


class _Walker(LatexWalker):
    """Gives up where an argument has no end: its parser would start over, 2^k times for k of them
    within each other."""

    left = MAX_TOKENS

    def get_token(self, *where: Any, **how: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"more than {MAX_TOKENS} tokens")
        return super().get_token(*where, **how)


def to_text(latex: str) -> str:
    """The text of a short piece of LaTeX. Raises Unreadable where the converter fails."""
    if "\\maketitle" in latex:  # the converter keeps the titles of all texts, one in another
        raise Unreadable("a title page")
    if latex.count("\\begin") > MAX_ENVIRONMENTS:
        raise Unreadable(f"more than {MAX_ENVIRONMENTS} environments")
    try:
        return CONVERTER.nodelist_to_text(_Walker(latex).get_latex_nodes()[0])
    except Exception as error:  # of any kind, as published; deep nesting is a RecursionError
        raise Unreadable(str(error)) from error
