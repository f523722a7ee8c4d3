"""One line for a wrong key or value: key=value: the rule; the remedy."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra.errors import ConfigCompositionException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pods.config.errors import UserError, meant, one_line
from pods.config.keys import FUNCTION, NAME, Section, dictionaries, flat, keys, written
from pods.config.paths import CONFIG_DIR, SUITE, WORLDS

Config = TypeVar("Config", bound=Section)

TRL = yaml.safe_load((CONFIG_DIR / "_trl.yaml").read_text())
# What people type for a key that has another name: TRL's, of which _trl.yaml has more, and PEFT's.
OTHER_NAMES = {
    **{name: value[2:-1] for name, value in TRL.items() if str(value).startswith("${")},
    "num_generations": "rollouts_per_prompt (sampled) and kept_per_prompt (trained on)",
    "per_device_train_batch_size": "prompts_per_step and micro_batch_size (rows computed at once)",
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
# Groups of which people type a file or a hub id of theirs, and the key for it.
YOURS = {
    "rewards": "rewards.functions.<name>",
    "task": "task=own task.source",
    "model": "model.path",
}
# Hydra's words for a key of a group without a choice, such as figure=null.
NOT_SET = re.compile(r"Could not override '((\w+)\.[\w.]+)'")
RULES = {  # instead of pydantic's words, which are Python's, or a regular expression
    "dict_type": "must be {key: value}",
    "bool_type": "must be true or false",
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
    names, value = [], values
    for part in first["loc"]:  # items of a list and members of a union are no keys
        if not isinstance(value, Mapping) or part not in value:
            break
        names.append(part)
        value = value[part]
    same = [problem for problem in problems if [*problem["loc"]][: len(names)] == names]
    rules = ", or ".join(dict.fromkeys(map(_rule, same)))
    choices = re.findall(r"'([^']*)'", rules)
    return f"{'.'.join(map(str, names))}={written(value)}: {rules}{meant(value, choices)}"


def _rule(problem: ErrorDetails) -> str:
    """The rule that a value breaks; a text of a wrong form has that of its pattern."""
    kind = problem.get("ctx", {}).get("pattern", problem["type"])
    return RULES.get(kind) or re.sub(r"^\w+ should", "must", problem["msg"])


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
        OTHER_NAMES.get(last, ""),
        *get_close_matches(key, names, 1, 0.75),
        *[name for name in names if name.rpartition(".")[2] == last],
        *[name for name in names if len(last) > 2 and name.rpartition(".")[2].startswith(last)],
    ]
    for candidate in candidates:
        if candidate.partition(" ")[0] in names:  # the first of two keys
            return f"did you mean {candidate}?"
    return "--help lists all keys"


def explain(error: BaseException) -> str:
    """One line for an error of ours, of Hydra, of OmegaConf or of the system."""
    match error:
        case MissingConfigException() if error.options:
            group, _, name = str(error.missing_cfg_file).partition("/")
            if (SUITE / WORLDS / f"{error.missing_cfg_file}.yaml").is_file():
                return f"{group}={name}: is in {WORLDS}; set -cd {WORLDS} {group}={name}"
            is_theirs = "/" in name or Path(name.partition(":")[0]).is_file()
            if group in YOURS and is_theirs:
                return f"{group}={name}: no file of config/{group}; set {YOURS[group]}={name}"
            choices = ", ".join(option for option in error.options if not option.startswith("_"))
            return f"{group}={name}: must be one of {choices}{meant(name, error.options)}"
        case OverrideParseException():
            return (
                f"{error.override}: cannot be read as key=value; no spaces around =, and a value "
                "with brackets or other signs in quotes inside quotes, 'key=\"value\"'"
            )
        case ConfigCompositionException() if unset := NOT_SET.match(str(error)):
            key, group = unset.groups()
            return (
                f"{key}: the config has no such key; add {group}=<name>, or make the key, beside "
                f"a {group}, by +{key}=<value>"
            )
        case MissingMandatoryValue():
            return f"{error.full_key}: has no value; set {error.full_key}=<value>"
    return one_line(error)
