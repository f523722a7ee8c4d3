"""One line for a wrong key or value: key=value: the rule; the remedy."""

import errno
import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml
from hydra.errors import (
    ConfigCompositionException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import MissingMandatoryValue
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pods.config.errors import UserError, meant, one_line
from pods.config.keys import FUNCTION, NAME, Section, dictionaries, flat, keys, typed_as, written
from pods.config.paths import CONFIG_DIR, SUITE, WORLDS

Config = TypeVar("Config", bound=Section)

TRL = yaml.safe_load((CONFIG_DIR / "_trl.yaml").read_text())
# What people type for a key that has another name: TRL's, of which _trl.yaml has more, and PEFT's.
OTHER_NAMES = {
    **{name: value[2:-1] for name, value in TRL.items() if str(value).startswith("${")},
    "lr": "optimizer.learning_rate",
    "n": "rollouts_per_prompt",
    "m": "kept_per_prompt",
    "gradient_accumulation_steps": "prompts_per_step",
    "generation_batch_size": "prompts_per_step",
    "num_train_epochs": "max_steps",
    "max_tokens": "sampling.max_completion_length",
    "max_new_tokens": "sampling.max_completion_length",
    "save_steps": "checkpoint.every_steps",
    "eval_steps": "evaluation.every_seconds",
    "report_to": "logger",
    "model_name_or_path": "model.path",
    "dataset_name": "task.source",
    "reward_funcs": "rewards.functions",
    "lora_r": "lora.rank",
    "r": "lora.rank",
    "lora_alpha": "lora.alpha",
    "lora_dropout": "lora.dropout",
    "lora_target_modules": "lora.target_modules",
}
RULES = {  # instead of pydantic's words, which are Python's
    "bool_type": "must be true or false",
    "float_type": "must be a number, such as 0.5",
    "int_from_float": "must be a whole number, such as 1",
    "int_type": "must be a whole number, such as 1",
    "missing": "has too few values",  # of a list
    "dict_type": "must be keys with values, {name: value}",
    "model_type": "must be keys with values, {name: value}",
    "string_type": "must be a text",
    FUNCTION: "path/to/file.py:function",
    NAME: "must be a folder name without / and without a dot, a bracket or a quote at the start",
}


def validated(schema: type[Config], values: dict[str, Any], prefix: str = "") -> Config:
    """The values as an instance of their schema; UserError names the first that does not fit."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise UserError(prefix + _mistake(error, schema, values)) from None


def _mistake(error: ValidationError, schema: type[Section], values: dict[str, Any]) -> str:
    """One line for the first wrong value, unknown key, or key without a value."""
    problems = error.errors()
    # A renamed key is also missing. The name of the run comes after the values in it.
    first = min(problems, key=lambda wrong: (wrong["type"] == "missing", wrong["loc"] == ("run",)))
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing" and isinstance(first["loc"][-1], str):
        typed = key.removesuffix(".name")  # the file of a group has its name
        return f"{key}: has no value; set {typed}=<value>"
    if first["type"] == "extra_forbidden":
        key, value = next(iter(flat({key: first["input"]}).items()), (key, {}))
        return f"{key}={written(value)}: unknown; {nearest_key(key, schema)}"
    key, value = _key_and_value(first["loc"], values)
    same = [problem for problem in problems if _key_and_value(problem["loc"], values)[0] == key]
    rules = dict.fromkeys(map(_rule, same))
    choices = [text for problem in same for text in re.findall(r"'([^']*)'", _expected(problem))]
    return f"{key}={written(value)}: {', or '.join(rules)}{meant(value, choices)}"


def _expected(problem: ErrorDetails) -> str:
    """The choices of a key, 'a', 'b' or 'c'; nothing of another."""
    return problem["ctx"]["expected"] if problem["type"] == "literal_error" else ""


def _rule(problem: ErrorDetails) -> str:
    """The rule that a value breaks; a text of a wrong form has that of its pattern."""
    kind = problem.get("ctx", {}).get("pattern", problem["type"])
    rule = RULES.get(kind) or re.sub(r"^\w+ should", "must", problem["msg"])
    return rule.partition(" after validation")[0]


def _key_and_value(location: Sequence[str | int], values: dict[str, Any]) -> tuple[str, Any]:
    """Key and value of an error, without items of a list and members of a union."""
    names, value = [], values
    for part in location:
        if not isinstance(value, Mapping) or part not in value:
            break
        value = value[part]
        names.append(str(part))
    return ".".join(names), value


def is_known(key: str, schema: type[Section]) -> bool:
    """Whether a schema has the key, or a dictionary that it is in."""
    return key in keys(schema) or any(key.startswith(f"{name}.") for name in dictionaries(schema))


def nearest_key(key: str, schema: type[Section]) -> str:
    """The key that was probably meant: another name of it, one spelt alike, or its longer form."""
    known = keys(schema)
    groups = {name.rpartition(".")[0] for name in known}
    names = [name for name in known if name not in groups]  # a group takes no number
    key = key.lstrip("+~")
    last = key.rpartition(".")[2]
    candidates = [
        OTHER_NAMES.get(last),
        *get_close_matches(key, names, 1, 0.75),
        *[name for name in names if name.rpartition(".")[2] == last],
        *[name for name in names if len(last) > 2 and name.rpartition(".")[2].startswith(last)],
    ]
    for candidate in candidates:
        if candidate in names:
            return f"did you mean {candidate}?"
    return "--help lists all keys"


def nearest(name: str, names: Sequence[str]) -> str:
    """The names that are most like a wrong one, else the last twenty."""
    return ", ".join(get_close_matches(name, names, 5) or names[-20:]) or "none"


def explain(error: BaseException) -> str:
    """One line for an error of ours, of Hydra, of OmegaConf or of the system."""
    match error:
        case MissingConfigException() if error.options:
            group, _, name = str(error.missing_cfg_file).partition("/")
            if (SUITE / WORLDS / f"{error.missing_cfg_file}.yaml").is_file():
                return f"{group}={name}: is in {WORLDS}; set -cd {WORLDS} {group}={name}"
            choices = ", ".join(option for option in error.options if not option.startswith("_"))
            return f"{group}={name}: must be one of {choices}{meant(name, error.options)}"
        case OverrideParseException():
            key, _, value = error.override.partition("=")
            typed = in_quotes(key, value)
            remedy = "no spaces around =, and quotes for the shell"
            if typed:
                remedy = f"needs quotes inside quotes: {typed}"
            return f"{error.override}: cannot be read as key=value; {remedy}"
        case ConfigCompositionException() if "Could not override" in str(error):
            key = str(error).split("'")[1]
            parent = key.rpartition(".")[0] or key
            return f"{key}: {parent} has no value; set {parent}=<value>"
        case MissingMandatoryValue():
            return f"{error.full_key}: has no value; set {error.full_key}=<value>"
        case OSError() if error.filename is not None:
            place = error.filename
            if error.errno == errno.ENOSPC and error.filename2:  # of a copy: its target
                place = error.filename2
            return f"{place}: {error.strerror}"
    return one_line(error)


def in_quotes(key: str, value: str) -> str | None:
    """key=value, which Hydra cannot read, with the quotes that it needs; None if none help."""
    if not re.fullmatch(r"[\w.]+", key) or not value:
        return None
    if value[0] not in "[{":
        return typed_as(key, value)
    # Names of a dictionary take no quotes of Hydra's; as a text it is read as YAML.
    is_whole = value[-1] == {"[": "]", "{": "}"}[value[0]]
    return typed_as(key, words_in_quotes(value)) if is_whole else None


def words_in_quotes(value: str) -> str:
    """A list or a dictionary in YAML, as it was meant: words in quotes where they need them."""
    value = value.strip()
    if value[:1] == "[" and value[-1:] == "]":
        return f"[{', '.join(map(words_in_quotes, split(value[1:-1])))}]"
    if value[:1] == "{" and value[-1:] == "}":
        pairs = [entry.partition(":") for entry in split(value[1:-1])]
        texts = [f"{words_in_quotes(name)}: {words_in_quotes(rest)}" for name, _, rest in pairs]
        return f"{{{', '.join(texts)}}}"
    is_plain = re.fullmatch(r"[A-Za-z][\w./*?-]*|[\d.eE+-]+|\"[^\"]*\"", value, re.ASCII)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
