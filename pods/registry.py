"""Algorithms, rules and advantages by name, in a file of the user's, or as functions."""

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

from pods.advantages import ADVANTAGES, Advantage
from pods.algorithms import ALGORITHMS
from pods.batch import Algorithm
from pods.config import functions
from pods.config.errors import UserError, meant
from pods.requirements import Requirements, requirements_of
from pods.rules import RULES, Rule, max_variance

if TYPE_CHECKING:  # PodsTrainer needs no package of the commands
    from omegaconf import DictConfig

KINDS: dict[str, tuple[dict[str, Callable], list[str]]] = {  # built-in functions, first arguments
    "algorithm": (ALGORITHMS, ["step"]),
    "rule": (RULES, ["rewards", "m", "rng"]),
    "advantage": (ADVANTAGES, ["batch", "kept"]),
}


class UnusableFunction(UserError, ValueError):
    """An unknown name, or a function with the wrong signature: a mistake in a command or in a
    PodsConfig."""


def function_of(kind: str, name: str | Callable) -> Callable:
    """The function of this kind: built in, path/to/file.py:function, or the function itself.

    Raises UserError for a file without the function, UnusableFunction for an unknown name.
    """
    built_in, _ = KINDS[kind]
    if not isinstance(name, str):
        return name
    if functions.is_path(name):
        return functions.load(kind, name)
    if name not in built_in:
        names = ", ".join(built_in)
        raise UnusableFunction(
            f"{kind}={name}: unknown; one of {names}, or path/to/file.py:function"
            f"{meant(name, built_in)}"
        )
    return built_in[name]


def requirements_of_name(name: str) -> Requirements:
    """What the algorithm of this name needs of a run. Raises the errors of function_of."""
    return requirements_of(function_of("algorithm", name))


def resolve(config: "DictConfig") -> dict[str, str]:
    """Set in a composed config what follows from its algorithm: n = m, or m = n, and no rule.

    Returns a line for each key whose value is not taken. Raises UserError for a file without the
    algorithm; a name that does not exist is refused by pods/training/check.py.
    """
    name = config.algorithm
    try:
        requirements = requirements_of_name(str(name))
    except UnusableFunction:
        return {}
    if not requirements.takes_rule and config.rule == "max_variance":  # the default
        config.rule = None
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    if n == m or not (isinstance(n, int) and isinstance(m, int)):
        return {}
    if requirements.samples_m:
        config.rollouts_per_prompt = "${kept_per_prompt}"
        reason = f"rollouts_per_prompt={n}: algorithm={name} samples kept_per_prompt={m}; it is {m}"
        return {"rollouts_per_prompt": reason}
    if requirements.keeps_all:
        config.kept_per_prompt = "${rollouts_per_prompt}"
        reason = f"kept_per_prompt={m}: algorithm={name} trains on all {n}; it is {n}"
        return {"kept_per_prompt": reason}
    return {}


def bind(
    kind: str, name: str | Callable, params: dict[str, Any] | None, rule: Rule = max_variance
) -> Callable:
    """The function of this kind with its parameters; an algorithm may take the config's `rule`.

    Raises the errors of function_of, also UnusableFunction for a parameter that it lacks.
    """
    function = function_of(kind, name)
    params = params or {}
    setting = f"{kind}={name}"
    if params:
        setting += f" {kind}_kwargs={params}"
    if kind == "algorithm":
        if not inspect.isgeneratorfunction(function):
            raise UnusableFunction(
                f"{setting}: no generator function; it must yield (prompts, count)"
            )
        code = getattr(inspect.unwrap(function), "__code__", None)
        if "logprobs" in getattr(code, "co_names", ()) and not hasattr(function, "reads_logprobs"):
            raise UnusableFunction(
                f"{setting}: reads batch.logprobs; write {function.__name__}.reads_logprobs = True "
                "below it, or False if it works without them"
            )
        if requirements_of(function).takes_rule:
            params = {"rule": rule, **params}
    _, arguments = KINDS[kind]
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **params)
    except TypeError as error:
        others = list(signature.parameters)[len(arguments) :]
        raise UnusableFunction(
            f"{setting}: cannot be called with ({', '.join(arguments)}, **params): {error}; "
            f"its parameters after these are: {', '.join(others) or 'none'}"
        ) from None
    if not params:
        return function
    return update_wrapper(partial(function, **params), function)


def algorithm_and_advantage(
    settings: Any, algorithm: Algorithm | None = None
) -> tuple[Algorithm, Advantage]:
    """The algorithm with its rule, and the advantage, of a TrainConfig or PodsConfig; `algorithm`
    takes the place of the named one. Raises the errors of `bind`."""
    rule = bind("rule", settings.rule or "max_variance", settings.rule_kwargs)
    name = algorithm or settings.algorithm
    function = bind("algorithm", name, settings.algorithm_kwargs, rule)
    return function, bind("advantage", settings.advantage, settings.advantage_kwargs)
