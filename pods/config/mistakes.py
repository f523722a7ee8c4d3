"""One line for a wrong key or value: key=value: the rule; the remedy."""

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue
from pydantic import ValidationError

from pods.config.errors import UserError
from pods.config.keys import Section, flat, keys

Config = TypeVar("Config", bound=Section)

# What people type for a key that has another name.
SHORT = {"lr": "optimizer.learning_rate", "n": "rollouts_per_prompt", "m": "kept_per_prompt"}
RULES = {  # instead of pydantic's words, which are Python's
    "bool_type": "must be true or false",
    "dict_type": "must be keys with values, {name: value}",
    "model_type": "must be keys with values, {name: value}",
    "string_pattern_mismatch": "path/to/file.py:function",
    "string_type": "must be a text",
}
LAST = {"extra_forbidden": 1, "missing": 2}  # reported after a wrong value, in this order


def validated(schema: type[Config], values: dict[str, Any], prefix: str = "") -> Config:
    """The values as an instance of their schema; UserError names the first that does not fit."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise UserError(prefix + _mistake(error, schema, values)) from None


def _mistake(error: ValidationError, schema: type[Section], values: dict[str, Any]) -> str:
    """One line for the first wrong value, else an unknown key, else a key without a value."""
    problems = error.errors()
    first = min(problems, key=lambda problem: LAST.get(problem["type"], 0))
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{key}: has no value; set {key}=<value>"
    if first["type"] == "extra_forbidden":
        key, value = next(iter(flat({key: first["input"]}).items()), (key, {}))
        return f"{key}={written(value)}: unknown; {_nearest(key, schema)}"
    key, value = _place(first["loc"], values)
    same = [problem for problem in problems if _place(problem["loc"], values)[0] == key]
    rules = [RULES.get(p["type"]) or p["msg"].replace("Input should", "must") for p in same]
    return f"{key}={written(value)}: {', or '.join(dict.fromkeys(rules))}"


def _place(location: Sequence[str | int], values: dict[str, Any]) -> tuple[str, Any]:
    """Key and value of an error, without items of a list and members of a union."""
    names, value = [], values
    for part in location:
        if not isinstance(value, Mapping) or part not in value:
            break
        value = value[part]
        names.append(str(part))
    return ".".join(names), value


def written(value: Any) -> str:
    """A value as it is typed on the command line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _nearest(key: str, schema: type[Section]) -> str:
    names, last = list(keys(schema)), key.rpartition(".")[2]
    near = [SHORT[key]] if SHORT.get(key) in names else get_close_matches(key, names, 1, 0.75)
    near += [name for name in names if name.rpartition(".")[2] == last]
    return f"did you mean {near[0]}?" if near else "--help lists all keys"


def nearest(name: str, names: Sequence[str]) -> str:
    """The names that are most like a wrong one, else the last twenty."""
    return ", ".join(get_close_matches(name, names, 5) or names[-20:]) or "none"


def explain(error: BaseException) -> str:
    """One line for an error of ours, Hydra's or OmegaConf's."""
    match error:
        case MissingConfigException() if error.options:
            group, _, name = str(error.missing_cfg_file).partition("/")
            choices = ", ".join(option for option in error.options if not option.startswith("_"))
            line = f"{group}={name}: must be one of {choices}"
            if group not in ("algorithm", "rule", "advantage"):
                return line
            return f"{line}; for a function in a file set {group}.name=path/to/file.py:function"
        case OverrideParseException():
            remedy = "no spaces around =, and quotes for the shell"
            if re.search(r"=[^\[]+\[", error.override):
                remedy = "a pattern with brackets needs quotes inside quotes: 'run=\"a-[12]*\"'"
            return f"{error.override.lstrip('+')}: cannot be read as key=value; {remedy}"
        case MissingMandatoryValue():
            return f"{error.full_key}: has no value; set {error.full_key}=<value>"
    return one_line(error)


def one_line(error: BaseException) -> str:
    """The message on one line, without the parts that OmegaConf and Hydra add for developers."""
    noise = ("object_type=", "reference_type=", "Config search path:", "provider=", "full_key:")
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.startswith(noise))
