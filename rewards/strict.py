"""The strict grader: the answer block behind the reasoning must be a statement of the gold answer.

The type of the gold answer decides how it is read (answer.lark): a number must be stated, and no
other: "18", "\\$18.00", "9 * 2 = 18", "She makes 18 dollars a day". What is not read is text.
"""

import re
from typing import Any

from .reading import MAX_LENGTH, Expression, Group, Relation, gold_reading, read, spell, words
from .tags import last_closed_answer

SENTENCE = re.compile(  # its end
    r"\.\s+(?=[A-Z])|\n+|\\\\|[,;]\s+(?=(?:so|then|hence|thus|therefore)\b)|\\Rightarrow"
)
PERCENT = ord("%")
BRACKETS = {"<": "()", "\\le": "[]"}
INFINITY = [read(text, "math") for text in ("\\infty", "-\\infty")]
CONCLUSION = re.compile(r"(?i)(?:so|thus|hence|therefore|then)\b|.*\b(?:answer|option)\b")


def decide(completion: str, gold: str) -> bool:
    """Whether the final answer block gives the gold answer."""
    final = completion.partition("</think>")[2]
    if not final and completion.rstrip().endswith("</answer>"):
        final = completion  # its last block is no guess of the reasoning
    answer = last_closed_answer(final)
    if answer is None or max(len(answer), len(gold)) > MAX_LENGTH:
        return False
    answer, gold = spell(answer), spell(gold)
    name, value = gold_reading(gold)
    if words(answer) == words(gold) or states(answer, name, value):
        return True
    *before, last = SENTENCE.split(answer)
    if not before or not states(last, name, value):
        return False
    return bool(CONCLUSION.match(last)) or (
        name not in ("letter", "text")
        and all(read(said, name) is None or states(said, name, value) for said in before)
    )


def states(answer: str, name: str, gold: Any) -> bool:
    """Whether the whole answer is a statement of this type with this value."""
    value = read(answer, name)
    if name == "text":
        return gold in (words(answer), value)
    if value is None:
        return False
    if name == "number":
        return len(value) == len(gold) and all(map(same, value, gold))
    return equal(value, gold) if name == "math" else value == gold


def same(answer: tuple, gold: tuple) -> bool:
    """The same number or expression, and the same unit unless one has none."""
    if (answer[-1], gold[-1]) == (PERCENT, 1) and gold[0] % 1:  # 25% is 1/4; 0.25% is not
        return answer[0] == 100 * gold[0]
    return answer[0] == gold[0] and (answer[-1] == gold[-1] or 1 in (answer[-1], gold[-1]))


def equal(answer: Any, gold: Any) -> bool:
    """Whether two values of the grammar's rule `math` are equal."""
    kinds = type(answer), type(gold)
    if kinds == (Relation, Relation):
        return answer[:3] == gold[:3]
    if kinds == (Expression, Expression):
        return same(answer, gold)
    if is_interval(answer) != is_interval(gold):
        answer, gold = interval(answer), interval(gold)
        kinds = type(answer), type(gold)
    if kinds == (Group, Group):
        return same_group(answer, gold)
    if Relation not in kinds:
        return False
    if isinstance(gold, Relation):  # 5 is enough for x = 5, and x = 5 for 5
        return is_named(gold) and equal(answer, gold.right)
    return is_named(answer) and equal(answer.right, gold)


def is_named(value: Any) -> bool:
    return isinstance(value, Relation) and value.sign == "=" and value.left.name > ""


def same_group(answer: Group, gold: Group) -> bool:
    """The entries in their order in tuples, intervals and matrices, else in any."""
    rows = [row.entries for row in gold.entries if isinstance(row, Group) and len(row.entries) == 1]
    if len(rows) == len(gold.entries) and answer.brackets in ("()", "langlerangle"):
        gold = Group(answer.brackets, "", [entry for (entry,) in rows])  # a column
    if {answer.brackets, gold.brackets} == {"", "()"}:
        answer, gold = in_order(answer), in_order(gold)
    bare = {answer.brackets, gold.brackets} == {"", "{}"} or (
        (answer.brackets, gold.brackets) == ("", "()") and answer.joiner != "or"
    )
    if not bare and answer.brackets != gold.brackets:
        return False
    if (
        len(answer.entries) != len(gold.entries)
        or len({answer.joiner, gold.joiner} & {"and", "or"}) == 2
    ):
        return False
    if gold.brackets[:1] in ("(", "[") or gold.brackets[:6] == "langle":
        return all(map(equal, answer.entries, gold.entries))
    rest = list(answer.entries)
    for entry in gold.entries:
        fitting = [i for i, other in enumerate(rest) if equal(other, entry)]
        if not fitting:
            return False
        del rest[fitting[0]]
    return True


def is_interval(value: Any) -> bool:
    """Whether it is written as an interval or a union; (2, 3) may be a point."""
    if not isinstance(value, Group):
        return False
    names = [getattr(entry, "name", "") for entry in value.entries]
    infinite = value.brackets == "()" and "infty" in names
    return infinite or value.brackets in ("cup", "[)", "(]", "[]")


def interval(value: Any) -> Any:
    """The interval of an inequality: (2, \\infty) of x > 2; another value as it is."""
    sides = [value.left.name, value.right.name] if isinstance(value, Relation) else ["infty"]
    if "infty" not in sides and value.is_solved and value.sign in BRACKETS:
        left, right = BRACKETS[value.sign]
        if value.left.name:
            return Group("(" + right, value.left.name, [INFINITY[1], value.right])
        return Group(left + ")", value.right.name, [value.left, INFINITY[0]])
    parts = list(map(interval, value.entries)) if isinstance(value, Group) else []
    if {type(part) for part in parts} != {Group} or len({part.joiner for part in parts}) > 1:
        return value
    if value.joiner == "or":
        return Group("cup", "", parts)
    below = [part for part in parts if part.entries[0] is INFINITY[1]]
    above = [part for part in parts if part.entries[-1] is INFINITY[0]]
    if value.joiner != "and" or (len(parts), len(below), len(above)) != (2, 1, 1):
        return value
    low, high = above[0], below[0]
    return Group(low.brackets[0] + high.brackets[1], low.joiner, [low.entries[0], high.entries[1]])


def in_order(group: Group) -> Group:
    """(2, 3) of x = 2, y = 3, in the order of the names; another group as it is."""
    if group.joiner == "or" or not all(map(is_named, group.entries)):
        return group
    entries = sorted(group.entries, key=lambda entry: entry.left.name)
    return Group("()", "", [entry.right for entry in entries])
