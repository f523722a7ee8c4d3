"""One line for a wrong key or value: key=value: the rule; the remedy."""

import errno
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pods.config.errors import UserError, one_line
from pods.config.keys import FUNCTION, NAME, Section, flat, keys, typed_as, written

Config = TypeVar("Config", bound=Section)

# What people type for a key that has another name.
SHORT = {"lr": "optimizer.learning_rate", "n": "rollouts_per_prompt", "m": "kept_per_prompt"}
# Keys of earlier versions, and what to set today; the first that the typed key begins with counts.
FORMER = {
    "algorithm.name": "algorithm",
    "algorithm.params": "algorithm_kwargs",
    "rule.name": "rule",
    "rule.params": "rule_kwargs",
    "advantage.name": "advantage",
    "advantage.params": "advantage_kwargs",
    "engine.name": "engine",
    "engine.vllm_mode": "trl.vllm_mode",
    "engine.server_url": "trl.vllm_server_base_url",
    "engine.importance_sampling_correction": "trl.vllm_importance_sampling_correction",
    "engine.max_sequences": "max_sequences",
    "engine.gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "engine.standby": "vllm.standby",
    "engine.max_logprob_gap": "guard.max_logprob_gap",
    "engine.check_every": "guard.check_every",
    "backend.name": "backend",
    "backend.gradient_checkpointing": "gradient_checkpointing",
    "backend.threads": "threads",
    "backend.warmup": "warm_up",
    "ledger.texts": "ledger_texts",
    "loss.scale_rewards": "advantage",
}
REMOVED = {  # and how a user gets the same
    "algorithm.max_rounds": "a step has at most 16 rounds of generation",
    "algorithm.needs_logprobs": "the algorithm says it, my_algorithm.reads_logprobs = True",
    "logger.console": "logger=[console] names every logger",
    "logger.tensorboard": "logger=[console,tensorboard] names every logger",
    "logger.wandb": "set logger=[console,wandb], and WANDB_PROJECT in the environment",
    "task.legacy_gold": "set task=math_published",
    "clock.": "write the prices into a YAML file and set clock=<file>",
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
    # The name of the run comes after the values that are parts of it.
    first = min(problems, key=lambda wrong: (LAST.get(wrong["type"], 0), wrong["loc"] == ("run",)))
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing" and isinstance(first["loc"][-1], str):
        typed = key.removesuffix(".name")  # the file of a group has its name
        return f"{key}: has no value; set {typed}=<value>"
    if first["type"] == "extra_forbidden":
        key, value = next(iter(flat({key: first["input"]}).items()), (key, {}))
        return f"{key}={written(value)}: unknown; {_nearest(key, schema)}"
    key, value = _place(first["loc"], values)
    same = [problem for problem in problems if _place(problem["loc"], values)[0] == key]
    rules = dict.fromkeys(map(_rule, same))
    return f"{key}={written(value)}: {', or '.join(rules)}"


def _rule(problem: ErrorDetails) -> str:
    """The rule that a value breaks; a text of a wrong form has that of its pattern."""
    kind = problem.get("ctx", {}).get("pattern", problem["type"])
    rule = RULES.get(kind) or re.sub(r"^\w+ should", "must", problem["msg"])
    return rule.partition(" after validation")[0]


def _place(location: Sequence[str | int], values: dict[str, Any]) -> tuple[str, Any]:
    """Key and value of an error, without items of a list and members of a union."""
    names, value = [], values
    for part in location:
        if not isinstance(value, Mapping) or part not in value:
            break
        value = value[part]
        names.append(str(part))
    return ".".join(names), value


def _nearest(key: str, schema: type[Section]) -> str:
    """The key that was probably meant: another name of it, one spelt alike, or its longer form."""
    names = list(keys(schema))
    last = key.rpartition(".")[2]
    candidates = [
        SHORT.get(last),
        *get_close_matches(key, names, 1, 0.75),
        *[name for name in names if name.rpartition(".")[2] == last],
        *[name for name in names if len(last) > 2 and name.rpartition(".")[2].startswith(last)],
    ]
    for candidate in candidates:
        if candidate in names:
            return f"did you mean {candidate}?"
    return "--help lists all keys"


def refuse_former(text: str) -> None:
    """Raise UserError for an override of a key that has another name today, or is gone."""
    key, _, value = text.lstrip("+~").partition("=")
    for former, today in FORMER.items():
        if f"{key}.".startswith(f"{former}."):
            raise UserError(
                f"{key}={value}: has another name; set {today}{key[len(former) :]}={value}"
            )
    for former, remedy in REMOVED.items():
        if key.startswith(former):
            raise UserError(f"{key}={value}: no key of this version; {remedy}")


def nearest(name: str, names: Sequence[str]) -> str:
    """The names that are most like a wrong one, else the last twenty."""
    return ", ".join(get_close_matches(name, names, 5) or names[-20:]) or "none"


def explain(error: BaseException) -> str:
    """One line for an error of ours, of Hydra, of OmegaConf or of the system."""
    match error:
        case MissingConfigException() if error.options:
            group, _, name = str(error.missing_cfg_file).partition("/")
            choices = ", ".join(option for option in error.options if not option.startswith("_"))
            return f"{group}={name}: must be one of {choices}"
        case OverrideParseException():
            remedy = "no spaces around =, and quotes for the shell"
            key, _, value = error.override.partition("=")
            if not value.isascii() or re.search(r"[^\[]\[", value):
                remedy = f"needs quotes inside quotes: {typed_as(key.lstrip('+'), value)}"
            return f"{error.override.lstrip('+')}: cannot be read as key=value; {remedy}"
        case MissingMandatoryValue():
            return f"{error.full_key}: has no value; set {error.full_key}=<value>"
        case OSError() if error.filename is not None:
            place = error.filename
            if error.errno == errno.ENOSPC and error.filename2:  # of a copy: its target
                place = error.filename2
            return f"{place}: {error.strerror}"
    return one_line(error)
