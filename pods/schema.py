"""Schemas of the commands: allowed values beside a field, and one line for a wrong key or value.

OmegaConf checks names and types, but has no choices and no bounds; these stand in the metadata of
a dataclass field, and `broken` checks them.
"""

import math
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

# command -> key of an earlier version, or key=value -> what to write today ({value}: the old one).
OLD_KEYS = {
    "train": {
        "backend.engine": "now called engine; set engine={value}",
        "backend.engine=generate": "now called engine; set engine=transformers",
        "backend.engine=vllm_server": "now called engine; set engine=trl engine.vllm_mode=server",
        "backend.server_url": "moved to engine; set engine.server_url={value}",
        "backend.gpu_memory_utilization": "moved to engine; set engine.gpu_memory_utilization="
        "{value}",
        "backend.standby": "moved to engine; set engine.standby={value}",
        "backend.importance_sampling_correction": "moved to engine; set "
        "engine.importance_sampling_correction={value}",
        "backend.max_logprob_gap": "moved to engine; set engine.max_logprob_gap={value}",
        "loss.scale_rewards": "part of the advantage now; set advantage=kept (group) or "
        "advantage=dr_grpo (none)",
        "evaluation.batch_size": "no longer needed; set engine.max_sequences to limit memory",
    },
    "evaluate": {
        "backend": "now called engine; set engine={value}",
        "batch_size": "now called max_sequences; set max_sequences={value}",
    },
}
TYPES = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
PLURALS = {int: "integers", float: "numbers", str: "texts", bool: "true or false"}


@dataclass(frozen=True)
class Allowed:
    """The values a field may have; null is allowed wherever the field's type has None."""

    accepts: Callable[[Any], bool]
    words: str  # completes "must be ..."


def _checked(accepts: Callable[[Any], bool], words: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"allowed": Allowed(accepts, words)})


def one_of(*names: str, default: Any = MISSING) -> Any:
    """A field that holds one of these names."""
    return _checked(lambda value: value in names, f"one of {', '.join(names)}", default)


def one_of_or_function(*names: str, default: Any = MISSING) -> Any:
    """A field that holds one of these names or path/to/file.py:function."""
    return _checked(
        lambda value: value in names or ":" in value,
        f"one of {', '.join(names)}, or path/to/file.py:function",
        default,
    )


def positive() -> Any:
    """A field that holds a finite number above 0."""
    return _checked(lambda value: 0 < value < math.inf, "greater than 0")


def at_least(low: float) -> Any:
    """A field that holds a finite number of `low` or more."""
    return _checked(lambda value: low <= value < math.inf, f"{low} or more")


def share() -> Any:
    """A field that holds a number in (0, 1]."""
    return _checked(lambda value: 0 < value <= 1, "in (0, 1]")


def broken(config: Any, prefix: str = "") -> Iterator[str]:
    """One line for each field whose value is not allowed, in the order of the schema."""
    for item in fields(config):
        value, allowed = getattr(config, item.name), item.metadata.get("allowed")
        if is_dataclass(value):
            yield from broken(value, f"{prefix}{item.name}.")
        elif allowed and value is not None and not allowed.accepts(value):
            yield f"{prefix}{item.name}={value}: must be {allowed.words}"


def structured(schema: type) -> DictConfig:
    """The schema for Hydra, in which dict fields (rewards.functions, rule.params) take new keys."""
    node = OmegaConf.structured(schema)
    _open_dicts(node)
    return node


def _open_dicts(node: DictConfig) -> None:
    for key in node:
        child = None if OmegaConf.is_missing(node, key) else node[key]
        if not OmegaConf.is_dict(child):
            continue
        if OmegaConf.get_type(child) is dict:
            OmegaConf.set_struct(child, False)
        else:
            _open_dicts(child)


def keys(schema: type, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> annotation, of every section and field of a schema."""
    found = {}
    for name, annotation in get_type_hints(schema).items():
        found[f"{prefix}{name}"] = annotation
        parts = get_args(annotation) if _is_union(annotation) else (annotation,)
        for section in filter(is_dataclass, parts):
            found |= keys(section, f"{prefix}{name}.")
    return found


def explain(error: BaseException, command: str, schema: type) -> str | None:
    """One line for a key or value that Hydra or OmegaConf refused; None for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingConfigException) and cause.options:
            return _no_such_choice(cause)
        if isinstance(cause, OverrideParseException):
            return f"{cause.override}: cannot be read as key=value; quote it for the shell"
        if isinstance(cause, AssertionError):  # Hydra's, for a key below null
            return (
                f"{' '.join(sys.argv[1:])}: sets a key of a group that is null; choose the group, "
                "e.g. logger=[console,wandb]"
            )
        key = cause.full_key if isinstance(cause, OmegaConfBaseException) else None
        if key and isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
            return _unknown(key, command, schema)
        if key and isinstance(cause, ValidationError):
            return _wrong_type(key, cause.value, schema)
        if key and isinstance(cause, MissingMandatoryValue):
            return f"{key}: has no value; set {key}=<value>"
        cause = cause.__cause__
    return None


def _no_such_choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).partition("/")
    line = f"{group}={name}: must be one of {', '.join(error.options)}"
    if group in ("rule", "advantage"):
        line += f"; for a function in a file set {group}.name=path/to/file.py:function"
    return line


def _given(key: str) -> str:
    """`key=value` as typed on the command line; the key alone where it comes from a file."""
    typed = (argument.lstrip("+~") for argument in sys.argv[1:])
    return next((text for text in typed if text.partition("=")[0] == key), key)


def _unknown(key: str, command: str, schema: type) -> str:
    given = _given(key)
    old = OLD_KEYS.get(command, {})
    if remedy := old.get(given) or old.get(key):
        return f"{given}: {remedy.format(value=given.partition('=')[2] or '<value>')}"
    known = list(keys(schema))
    near = get_close_matches(key, known, n=1, cutoff=0.75)
    last = key.rpartition(".")[2]
    near = near or [name for name in known if name.rpartition(".")[2] == last]
    if near:
        return f"{given}: unknown; did you mean {near[0]}?"
    return f"{given}: unknown; --help lists every key"


def _wrong_type(key: str, value: Any, schema: type) -> str:
    known, name = keys(schema), key.partition("[")[0]
    given = f"{name}={'null' if value is None else value}" if name == key else _given(name)
    if name not in known:  # an item of a dict field
        annotation = known.get(name.rpartition(".")[0])
        item = get_args(annotation)[-1] if get_origin(annotation) is dict else Any
        return f"{given}: must be {_words(item)}"
    return f"{given}: must be {_words(known[name])}"


def _words(annotation: Any) -> str:
    """The values of a type, in words."""
    if _is_union(annotation):
        return " or ".join(_words(part) for part in get_args(annotation))
    if annotation is type(None):
        return "null"
    if is_dataclass(annotation):
        return f"a group of keys ({', '.join(item.name for item in fields(annotation))})"
    if get_origin(annotation) is list:
        return f"a list of {PLURALS.get(get_args(annotation)[0], 'items')}"
    if get_origin(annotation) is dict:
        return "keys with values, {name: value}"
    return TYPES.get(annotation, "another value")


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)
