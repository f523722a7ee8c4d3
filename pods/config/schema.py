"""Schemas of the commands: allowed values beside a field, and one line for a wrong key or value.

OmegaConf checks names and types, but has no choices and no bounds; these stand in the metadata of
a dataclass field, and `broken` checks them.
"""

import math
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.errors import (
    ConfigCompositionException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import MISSING, DictConfig, OmegaConf, errors

# What people type for a key that has another name.
SHORT = {"lr": "optimizer.learning_rate", "n": "rollouts_per_prompt", "m": "kept_per_prompt"}
SINGULAR = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
SINGULAR |= {type(None): "null", dict: "keys with values, {name: value}"}
PLURAL = {int: "integers", float: "numbers", str: "texts", bool: "true or false"}


def _checked(accepts: Callable[[Any], bool], words: str, default: Any = MISSING) -> Any:
    """A field whose value must be as `words` say; null is allowed where its type has None."""
    return field(default=default, metadata={"accepts": accepts, "words": words})


def one_of(*names: str, default: Any = MISSING) -> Any:
    """A field that holds one of these names."""
    return _checked(lambda value: value in names, f"one of {', '.join(names)}", default)


def one_of_or_function(*names: str, default: Any = MISSING) -> Any:
    """A field that holds one of these names or path/to/file.py:function."""
    words = f"one of {', '.join(names)}, or path/to/file.py:function"
    return _checked(lambda value: value in names or ":" in value, words, default)


def positive(default: Any = MISSING) -> Any:
    """A field that holds a finite number above 0."""
    return _checked(lambda value: 0 < value < math.inf, "greater than 0", default)


def at_least(low: float) -> Any:
    """A field that holds a finite number of `low` or more."""
    return _checked(lambda value: low <= value < math.inf, f"{low} or more")


def share() -> Any:
    """A field that holds a number in (0, 1]."""
    return _checked(lambda value: 0 < value <= 1, "in (0, 1]")


def broken(config: Any, prefix: str = "") -> Iterator[str]:
    """One line for each field whose value is not allowed, in the order of the schema."""
    for item in fields(config):
        value, rule = getattr(config, item.name), item.metadata
        if is_dataclass(value):
            yield from broken(value, f"{prefix}{item.name}.")
        elif rule and value is not None and not rule["accepts"](value):
            yield f"{prefix}{item.name}={value}: must be {rule['words']}"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    found = {}
    for key, value in tree.items():
        nested = isinstance(value, dict)
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def keys(schema: type, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> annotation, of every section and field of a schema."""
    found = {}
    for name, annotation in get_type_hints(schema).items():
        found[f"{prefix}{name}"] = annotation
        for section in filter(is_dataclass, _parts(annotation)):
            found |= keys(section, f"{prefix}{name}.")
    return found


def dict_keys(schema: type) -> list[str]:
    """The keys whose values are dicts (rewards.functions, rule.params)."""
    return [key for key, kind in keys(schema).items() if get_origin(kind) is dict]


def structured(schema: type) -> DictConfig:
    """The schema for Hydra, in which dict fields take new keys."""
    node = OmegaConf.structured(schema)
    for key in dict_keys(schema):
        child: Any = node
        for part in key.split("."):
            missing = not OmegaConf.is_dict(child) or OmegaConf.is_missing(child, part)
            child = None if missing else child[part]
        if child is not None:  # None: it, or its group, has no default
            OmegaConf.set_struct(child, False)
    return node


def explain(error: BaseException | None, schema: type) -> str | None:
    """One line for a key or value that Hydra or OmegaConf refused; None for any other error."""
    while error is not None:
        key = getattr(error, "full_key", None)
        match error:
            case MissingConfigException() if error.options:
                return _no_such_choice(error)
            case OverrideParseException():
                remedy = "no spaces around =, and quotes for the shell"
                return f"{error.override}: cannot be read as key=value; {remedy}"
            case AssertionError():  # Hydra's, for a key below null
                given = " ".join(sys.argv[1:])
                remedy = "choose the group, e.g. logger=[console,wandb]"
                return f"{given}: sets a key of a group that is null; {remedy}"
            case ValueError() if "Config group override must be" in str(error):
                given = next((text for text in sys.argv if text.endswith("=null")), "null")
                return f"{given}: a group needs a choice; --help lists them"
            case ConfigCompositionException() if "Ambiguous value" in str(error):
                given = str(error).split("'")[1]
                return f"{given}: several values are a sweep, add -m; a list is written key=[a,b]"
            case errors.ConfigKeyError() | errors.ConfigAttributeError() if key:
                return _unknown(key, schema)
            case errors.ValidationError() if key:
                return _wrong_type(key, error.value, schema)
            case errors.MissingMandatoryValue() if key:
                return f"{key}: has no value; set {key}=<value>"
        error = error.__cause__
    return None


def _no_such_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).partition("/")
    options = [option for option in error.options if not option.startswith("_")]
    line = f"{group}={name}: must be one of {', '.join(options)}"
    if group in ("algorithm", "rule", "advantage"):
        line += f"; for a function in a file set {group}.name=path/to/file.py:function"
    return line


def _given(key: str) -> str:
    """`key=value` as typed on the command line; the key alone where it comes from a file."""
    typed = (argument.lstrip("+~") for argument in sys.argv[1:])
    return next((t for t in typed if f"{t.partition('=')[0]}.".startswith(f"{key}.")), key)


def _unknown(key: str, schema: type) -> str:
    given, known = _given(key), keys(schema)
    key = given.partition("=")[0]
    last = key.rpartition(".")[2]
    near = [SHORT[key]] if SHORT.get(key) in known else get_close_matches(key, known, 1, 0.75)
    near = near or [name for name in known if name.rpartition(".")[2] == last]
    remedy = f"did you mean {near[0]}?" if near else "--help lists every key"
    return f"{given}: unknown; {remedy}"


def _wrong_type(key: str, value: Any, schema: type) -> str:
    known, name = keys(schema), key.partition("[")[0]
    annotation = known.get(name)
    if annotation is None:  # an item of a dict field
        annotation = (*get_args(known.get(name.rpartition(".")[0])), Any)[1]
    given = f"{name}={'null' if value is None else value}" if name == key else _given(name)
    return f"{given}: must be {_words(annotation)}"


def _words(annotation: Any) -> str:
    """The values of a type, in words."""
    if len(parts := _parts(annotation)) > 1:
        return " or ".join(map(_words, parts))
    if is_dataclass(annotation):
        return f"a group of keys ({', '.join(item.name for item in fields(annotation))})"
    if get_origin(annotation) is list:
        return f"a list of {PLURAL.get(get_args(annotation)[0], 'items')}"
    return SINGULAR.get(get_origin(annotation) or annotation, "another value")


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; the type itself if it is none."""
    union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if union else (annotation,)
