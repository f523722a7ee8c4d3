"""One line for a wrong key or value: key=value: what is wrong; what to set."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

from hydra.errors import (
    ConfigCompositionException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import errors
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from pods.config.errors import UserError
from pods.config.schema import FunctionPath, Section, Text, keys, members, sections

Config = TypeVar("Config", bound=Section)

# What people type for a key that has another name.
SHORT = {"lr": "optimizer.learning_rate", "n": "rollouts_per_prompt", "m": "kept_per_prompt"}
TYPES = {
    int: "an integer", float: "a number", str: "a text", bool: "true or false",
    type(None): "null", dict: "keys with values, {name: value}",
    FunctionPath: "path/to/file.py:function", Text: "a text",
}  # fmt: skip
PLURAL = {int: "integers", float: "numbers", Text: "texts"}
ABSENT = {"extra_forbidden": 1, "missing": 2}  # pydantic's names, in the order of reporting


def validated(schema: type[Config], values: dict[str, Any], prefix: str = "") -> Config:
    """The values as an instance of their schema; UserError names the first that does not fit."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise UserError(prefix + wrong(error, schema, values)) from None


def wrong(error: ValidationError, schema: type[Section], values: dict[str, Any]) -> str:
    """One line for the first wrong value, or else the first wrong key, of a composed config."""
    first = first_of(error)
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return _unknown(key, schema)
    if first["type"] == "missing":
        return f"{key}: has no value; set {key}=<value>"
    known, value, names = keys(schema), values, []
    for part in map(str, first["loc"]):
        if not isinstance(value, Mapping) or part not in value:
            break  # the index of an item, or the name of a union's member
        value = value[part]
        names.append(part)
    key = ".".join(names)
    while key not in known:  # of a free dict
        key = key.rpartition(".")[0]
    return f"{'.'.join(names)}={_written(value)}: must be {_rule(first, known[key])}"


def first_of(error: ValidationError) -> Mapping[str, Any]:
    """A wrong value before an unknown key, and that before one without a value."""
    return min(error.errors(), key=lambda item: ABSENT.get(item["type"], 0))


def _rule(error: Mapping[str, Any], field: FieldInfo) -> str:
    """The bound, or else the type, that a value breaks."""
    bounds = {type(item).__name__: item for item in field.metadata}
    match error["type"]:
        case "finite_number":
            return "a finite number"
        case "greater_than" | "less_than_equal" if "Le" in bounds:
            return f"in ({bounds['Gt'].gt}, {bounds['Le'].le}]"
        case "greater_than":
            return f"greater than {error['ctx']['gt']:g}"
        case "greater_than_equal":
            return f"{error['ctx']['ge']:g} or more"
    if get_origin(field.annotation) is dict and error["type"] != "dict_type":
        return _words(get_args(field.annotation)[1])
    return _words(field.annotation)


def _words(annotation: Any) -> str:
    """The values of a type, in words."""
    types = members(annotation)
    if choices := [kind for kind in types if get_origin(kind) is Literal]:
        function = ", or path/to/file.py:function" if FunctionPath in types else ""
        return f"one of {', '.join(get_args(choices[0]))}{function}"
    if len(types) > 1:
        return " or ".join(map(_words, types))
    if groups := sections(annotation):
        return f"a group of keys ({', '.join(groups[0].model_fields)})"
    if get_origin(annotation) is list:
        return f"a list of {PLURAL.get(get_args(annotation)[0], 'items')}"
    return TYPES.get(annotation) or TYPES.get(get_origin(annotation), "another value")


def _written(value: Any) -> str:
    """A value as it is typed on the command line."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(map(_written, value))}]"
        case dict():
            return f"{{{','.join(f'{key}:{_written(item)}' for key, item in value.items())}}}"
    return str(value)


def explain(error: BaseException | None, schema: type[Section]) -> str | None:
    """One line for what Hydra or OmegaConf refused; None for any other error."""
    while error is not None:
        key = getattr(error, "full_key", None)
        match error:
            case MissingConfigException() if error.options:
                return _no_such_choice(error)
            case OverrideParseException():
                remedy = "no spaces around =, and quotes for the shell"
                return f"{error.override.lstrip('+')}: cannot be read as key=value; {remedy}"
            case ValueError() if "Config group override must be" in str(error):
                override = next((text for text in sys.argv if text.endswith("=null")), "null")
                return f"{override}: a group needs a choice; --help lists them"
            case ConfigCompositionException() if "Ambiguous value" in str(error):
                override = str(error).split("'")[1].lstrip("+")
                return (
                    f"{override}: several values are a sweep, add -m; a list is written key=[a,b]"
                )
            case errors.MissingMandatoryValue() if key:
                return f"{key}: has no value; set {key}=<value>"
            case errors.ConfigKeyError() | errors.ConfigAttributeError() if key:
                return _unknown(key, schema)
            case errors.ConfigTypeError() | AssertionError():  # a key below a value
                override = " ".join(text.lstrip("+") for text in sys.argv[1:])
                return (
                    f"{override}: sets a key below a key that has a value; --help lists every key"
                )
        error = error.__cause__
    return None


def _no_such_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).partition("/")
    options = [option for option in error.options if not option.startswith("_")]
    line = f"{group}={name}: must be one of {', '.join(options)}"
    if group in ("algorithm", "rule", "advantage"):
        line += f"; for a function in a file set {group}.name=path/to/file.py:function"
    return line


def _unknown(key: str, schema: type[Section]) -> str:
    """For a key that no command has, or whose group is null."""
    typed = (argument.lstrip("+~") for argument in sys.argv[1:])
    override = next((t for t in typed if f"{t.partition('=')[0]}.".startswith(f"{key}.")), key)
    key, known = override.partition("=")[0], keys(schema)
    if key in known:
        remedy = "choose the group, e.g. logger=[console,wandb]"
        return f"{override}: sets a key of a group that is null; {remedy}"
    last = key.rpartition(".")[2]
    near = [SHORT[key]] if SHORT.get(key) in known else get_close_matches(key, known, 1, 0.75)
    near = near or [name for name in known if name.rpartition(".")[2] == last]
    remedy = f"did you mean {near[0]}?" if near else "--help lists every key"
    return f"{override}: unknown; {remedy}"


def one_line(error: BaseException) -> str:
    """The message on one line, without the parts that OmegaConf and Hydra add for developers."""
    noise = ("object_type=", "reference_type=", "Config search path:", "provider=", "full_key:")
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.startswith(noise))
