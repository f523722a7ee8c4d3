"""What a config consists of: sections of typed keys (pydantic), without values.

A field's type, choices and bounds stand beside its name; its value and meaning stand in config/.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

# A run may be called 3: a number is a text where a text is wanted.
Text = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]
FunctionPath = Annotated[str, Field(pattern=":")]  # path/to/file.py:function


class Section(BaseModel):
    """A group of keys. Unknown keys, values of another type, inf and nan are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; the type itself where it is none."""
    union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if union else (annotation,)


def sections(annotation: Any) -> list[type[Section]]:
    """The groups of keys that a value of this type may be."""
    types = [member for member in members(annotation) if isinstance(member, type)]
    return [member for member in types if not get_origin(member) and issubclass(member, Section)]


def keys(schema: type[Section], prefix: str = "") -> dict[str, FieldInfo]:
    """Dotted key -> field, of every section and field of a schema."""
    fields = {}
    for name, field in schema.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        fields[key] = field
        for section in sections(field.annotation):
            fields |= keys(section, f"{key}.")
    return fields


def open_keys(schema: type[Section], prefix: str = "") -> Iterator[str]:
    """Keys that config/ need not mention: free dicts, and fields with a default."""
    for name, field in schema.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        if groups := sections(field.annotation):
            if groups == [field.annotation]:  # not null
                yield from open_keys(groups[0], f"{key}.")
        elif not field.is_required() or get_origin(field.annotation) is dict:
            yield key


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, dict)
        leaves |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return leaves
