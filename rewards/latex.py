"""LaTeX -> plain text, as far as short answers need it: `\\frac{\\pi}{2}` becomes "π/2".

The published grader runs answers through a general LaTeX converter; this file reproduces it for
short answers, in one pass of bounded depth. An open group ends at the end of the text; an unknown
macro is dropped and the content of its braces is kept.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

MAX_DEPTH = 50  # a text with deeper groups is not an answer; Python's recursion limit is far above
ROW, COLUMN = "\x1e", "\x1f"  # stand for `\\` and `&` until the enclosing environment is known

SYMBOL_TABLE = r"""
infty ∞ pm ± mp ∓ cdot · times × div ÷ ast ∗ star ⋆ bullet ∙ circ ∘ oplus ⊕ otimes ⊗ le ≤ leq ≤
leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ neq ≠ ll ≪ gg ≫ equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅ propto ∝
mid | parallel ∥ perp ⊥ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ cup ∪ cap ∩
setminus ∖ emptyset ∅ varnothing ∅ wedge ∧ vee ∨ lnot ¬ forall ∀ exists ∃ sum ∑ prod ∏ int ∫
partial ∂ nabla ∇ prime ' angle ∠ to → rightarrow → leftarrow ← Rightarrow ⇒ Leftarrow ⇐
leftrightarrow ↔ Leftrightarrow ⇔ longrightarrow ⟶ Longrightarrow ⟹ mapsto ↦ uparrow ↑ downarrow ↓
therefore ∴ because ∵ langle ⟨ rangle ⟩ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ lfloor ⌊
rfloor ⌋ lceil ⌈ rceil ⌉ lbrace { rbrace } backslash \ square □ textdegree ° ell ℓ hbar ħ dagger †
ldots … dots … dotsc … dotsb … dotsm … dotsi … dotso … cdots ⋯ vdots ⋮ ddots ⋱ textasciitilde ~
textdollar $ o ø O Ø i ı j ȷ
surd √ nmid ∤ bigcup ⋃ bigcap ⋂ bigwedge ⋀ bigvee ⋁ odot ⊙ ominus ⊖ doteq ≐ triangleq ≜ nleq ≰
ngeq ≱ nless ≮ ngtr ≯ leqq ≦ geqq ≧ asymp ≍ top ⊤ vdash ⊢ bigtriangleup △ measuredangle ∡
subsetneq ⊊ supsetneq ⊋ longleftrightarrow ⟷ Longleftrightarrow ⟺ aleph ℵ wp ℘ star ⋆ diamond ♢
lozenge ◊ flat ♭ sharp ♯ natural ♮ bigcirc ◯ bigoplus ⊕ bigotimes ⊗ coprod ∐ oint ∮ iint ∬ iiint ∭
complement ∁ nexists ∄ gtrsim ≳ lesssim ≲ texttimes × textdiv ÷ textpm ± textonehalf ½ textohm Ω
ss ß ae æ AE Æ oe œ OE Œ aa å AA Å l ł L Ł
cos cos sin sin tan tan arccos arccos arcsin arcsin arctan arctan cosh cosh sinh sinh tanh tanh
ln ln log log exp exp max max min min sup sup inf inf lim lim
"""
GREEK = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lamda mu nu xi omicron pi rho sigma tau
upsilon phi chi psi omega
"""  # lamda is Unicode's spelling
SYMBOLS = dict(zip(SYMBOL_TABLE.split()[::2], SYMBOL_TABLE.split()[1::2], strict=True))
for name in GREEK.split():
    SYMBOLS[name] = unicodedata.lookup(f"GREEK SMALL LETTER {name}")
    SYMBOLS[name.capitalize()] = unicodedata.lookup(f"GREEK CAPITAL LETTER {name}")
SYMBOLS |= {"lambda": "λ", "Lambda": "Λ", "phi": "ϕ", "epsilon": "ϵ"}
SYMBOLS |= {"varphi": "φ", "varepsilon": "ε", "vartheta": "ϑ"}
SYMBOLS |= {
    "quad": "  ",
    "qquad": "    ",
    "!": "",
    "-": "\xad",
    ",": " ",
    ";": " ",
    ":": " ",
    " ": " ",
}
SYMBOLS |= {character: character for character in "&$%#_{}"}

TEXT_MACROS = """
text textrm textit textbf textsc textsl emph mathrm overline underline widehat widetilde
overrightarrow overleftarrow overbrace underbrace
"""
VANISHING_MACROS = """
mbox textmd textsf texttt textup label ensuremath hphantom vphantom color hspace vspace input
"""
KEEPS_ARGUMENT = frozenset(TEXT_MACROS.split())
LOSES_ARGUMENT = frozenset(VANISHING_MACROS.split())
ACCENTS = {"vec": "\u20d7", "bar": "\u0305", "hat": "\u0302", "tilde": "\u0303", "dot": "\u0307"}
ACCENTS |= {"ddot": "\u0308", "check": "\u030c", "breve": "\u0306", "acute": "\u0301"}
ACCENTS |= {"grave": "\u0300", "not": "\u0338", "b": "\u0331", "c": "\u0327", "d": "\u0323"}
ACCENTS |= {"k": "\u0328", "r": "\u030a", "u": "\u0306", "v": "\u030c", "H": "\u030b"}
ACCENTS |= {"^": "\u0302", "'": "\u0301", "`": "\u0300", '"': "\u0308", "~": "\u0303"}
ACCENTS |= {".": "\u0307", "=": "\u0304"}
STYLES = {"mathbf": "BOLD", "mathit": "ITALIC", "mathbb": "DOUBLE-STRUCK", "mathcal": "SCRIPT"}
TAKES_ARGUMENTS = KEEPS_ARGUMENT | LOSES_ARGUMENT | ACCENTS.keys() | STYLES.keys()
TAKES_ARGUMENTS |= {"frac", "nicefrac", "sqrt", "begin", "end"}
MATRICES = frozenset({"array", "pmatrix", "bmatrix", "smallmatrix"})
DISPLAYS = frozenset({"equation", "equation*", "align", "align*", "gather", "gather*"})
LIGATURES = {"---": "—", "--": "–", "``": "“", "''": "”", "~": "\xa0", "&": COLUMN}

TOKEN = re.compile(
    r"\\(?P<macro>[a-zA-Z]+)(?P<space>(?:[ \t\r]|\n(?!\s*\n))*)|\\(?P<escape>[\s\S])|(?P<stray>\\)|"
    r"(?P<brace>[{}])|(?P<ligature>---|--|``|''|[~&])|(?P<chars>(?:[^\\{}\-`'~&]|-(?!-)|`(?!`)|'(?!'))+)"
)
ENVIRONMENT = re.compile(r"\{([^{}\\]*)\}")


class Unreadable(ValueError):
    """The published converter stops with an error here, and its grader then keeps the raw text."""


class _Reader:
    """One pass over the tokens of a text; `position` moves forward only."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth, self.math = text, 0, 0, 0

    def until(self, stop: Callable[[re.Match], bool]) -> str:
        """Everything up to the token that stops (consumed) or the end, as text."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        pieces = list(self._pieces(stop))
        self.depth -= 1
        return "".join(pieces)

    def _pieces(self, stop: Callable[[re.Match], bool]) -> Iterator[str]:
        while token := TOKEN.match(self.text, self.position):
            self.position = token.end()
            if stop(token):
                return
            yield self.node(token)

    def node(self, token: re.Match) -> str:
        if macro := token["macro"]:
            return self.macro(macro) + self._kept_space(macro, token["space"])
        if escape := token["escape"]:
            return self.escape(escape)
        if brace := token["brace"]:
            return self.until(lambda t: t["brace"] == "}") if brace == "{" else ""
        if ligature := token["ligature"]:
            return LIGATURES[ligature]
        if self.math and (token["chars"] or "").isspace():
            return ""  # space between two constructs of a formula
        return token["chars"] or ""

    def _kept_space(self, macro: str, space: str) -> str:
        """In a formula the space after a macro without arguments stays, before plain characters."""
        if not (space and self.math) or macro in TAKES_ARGUMENTS:
            return ""
        following = TOKEN.match(self.text, self.position)
        return space if following and following["chars"] else ""

    def formula(self, stop: Callable[[re.Match], bool]) -> str:
        self.math += 1
        body = self.until(stop).strip()
        self.math -= 1
        return body

    def escape(self, character: str) -> str:
        if character == "(":
            return self.formula(lambda t: t["escape"] == ")")
        if character == "[":
            return _block(self.formula(lambda t: t["escape"] == "]"))
        if character == "\\":
            self._skip(r"\*?(\[[^\]]*\])?")
            return ROW
        return self.accented(character) if character in ACCENTS else SYMBOLS.get(character, "")

    def accented(self, name: str) -> str:
        return unicodedata.normalize("NFC", (self.argument() or "") + ACCENTS[name])

    def macro(self, name: str) -> str:
        if name in SYMBOLS:
            return SYMBOLS[name]
        if name in ("frac", "nicefrac"):
            top, bottom = self.argument(), self.argument()
            # without both, the converter's own placeholder stays in its output
            return f"%s/%s{top or ''}" if bottom is None else f"{top}/{bottom}"
        if name == "sqrt":
            self._skip(r"\s*\[[^\]]*\]")
            radicand = self.argument()
            if radicand is None:
                raise Unreadable("a root of nothing")
            return f"√({radicand})"
        if name in KEEPS_ARGUMENT:
            return self.argument() or ""
        if name in LOSES_ARGUMENT:
            self.argument()
            return ""
        if name in ACCENTS:
            return self.accented(name)
        if name in STYLES:
            return "".join(_styled(letter, STYLES[name]) for letter in self.argument() or "")
        if name == "textcolor":
            self.argument()
            return self.argument() or ""
        if name == "begin":
            return self.environment(self.environment_name())
        if name == "end":
            self.environment_name()
        return "\n* " if name == "item" else ""

    def environment_name(self) -> str:
        match = ENVIRONMENT.match(self.text, self.position)
        if match is None:
            raise Unreadable("begin or end without a name")
        self.position = match.end()
        return match[1]

    def environment(self, name: str) -> str:
        if name in ("array", "tabular"):
            self._skip(r"\s*\[[^\]]*\]")
            self.argument()
        read = self.formula if name in DISPLAYS else self.until
        body = read(lambda t: t["macro"] == "end")
        if self.position < len(self.text):
            self.environment_name()
        if name in MATRICES:
            rows = [map(str.strip, row.split(COLUMN)) for row in body.split(ROW)]
            return "[ " + "; ".join(map("  ".join, rows)) + " ]"
        return _block(body) if name in DISPLAYS else body

    def argument(self) -> str | None:
        """The next group, character or macro (which then takes none itself); None at the end."""
        self._skip(r"\s*")
        token = TOKEN.match(self.text, self.position)
        if token is None:
            return None
        if token["brace"] == "}":
            return ""
        if token["chars"]:
            self.position += 1
            return token["chars"][0]
        self.position = token.end()
        if token["macro"]:
            return self.bare(token["macro"])
        return SYMBOLS.get(token["escape"], "") if token["escape"] else self.node(token)

    def bare(self, name: str) -> str:
        """A macro that is an argument gets none itself: \\sqrt\\frac12 is a root of "%s/%s"."""
        if name in ("sqrt", "begin"):
            raise Unreadable(f"{name} without an argument")
        placeholder = "%s/%s" if name in ("frac", "nicefrac") else ACCENTS.get(name, "")
        return SYMBOLS.get(name, placeholder)

    def _skip(self, pattern: str) -> None:
        if match := re.compile(pattern).match(self.text, self.position):
            self.position = match.end()


def _block(body: str) -> str:
    return f"\n{body}\n"


def _styled(letter: str, style: str) -> str:
    if not (letter.isascii() and letter.isalpha()):
        return letter
    case = "CAPITAL" if letter.isupper() else "SMALL"
    for prefix in ("", "MATHEMATICAL "):  # a few letters lie outside the mathematical block
        try:
            return unicodedata.lookup(f"{prefix}{style} {case} {letter}")
        except KeyError:
            continue
    return letter


def to_text(latex: str) -> str:
    """The text of a short piece of LaTeX. Raises Unreadable where the published converter fails."""
    text = _Reader(latex).until(lambda token: False)
    return text.replace(ROW, "\n").replace(COLUMN, "   ")
