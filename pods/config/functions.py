"""Functions of the user's, named in the config as path/to/file.py:function."""

import importlib.util
import inspect
import os.path  # not pathlib: pods.rules loads in a moment
import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import cache, partial, update_wrapper
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pods.config.errors import UserError
from pods.config.place import PACKAGE

if TYPE_CHECKING:
    from pods.config.keys import TrainConfig  # pydantic: pods.rules loads in a moment

NOT_THE_USERS = (  # folders
    os.path.dirname(os.path.dirname(__file__)),
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    "<frozen",
)


def is_path(value: str) -> bool:
    """Whether a config value names a function in a file, not a built-in one."""
    return ":" in value or value.endswith(".py")


def code_of(config: "TrainConfig") -> dict[str, str]:
    """key -> path/to/file.py:function of each file that an evaluation of this training runs."""
    code = {f"rewards.functions.{name}": path for name, path in config.rewards.functions.items()}
    if config.task.gold and is_path(config.task.gold):
        code["task.gold"] = config.task.gold
    return code


def load(key: str, value: str) -> Callable:
    """The function or class that `key=path/to/file.py:function` names; its file is run. One of the
    suite's, such as pods/tasks/arithmetic.py:steps, is found from every folder."""
    path, _, name = value.rpartition(":")
    if not os.path.isfile(path) and os.path.isfile(PACKAGE.parent / path):
        path = str(PACKAGE.parent / path)
    if not path.endswith(".py") or not name.isidentifier():
        raise UserError(f"{key}={value}: must be path/to/file.py:function")
    if not os.path.isfile(path):
        raise UserError(f"{key}={value}: no file {path} in {os.getcwd()}; correct the path")
    try:
        function = getattr(_module(os.path.realpath(path)), name, None)
    except Exception as error:
        raise UserError(
            f"{key}={value}: {path} cannot be imported ({type(error).__name__}: {error}); "
            "correct the file"
        ) from error
    if not callable(function):
        raise UserError(f"{key}={value}: {path} has no function {name}; correct the name or file")
    return function


def place(error: BaseException) -> str:
    """at my_file.py:12, the deepest line outside of PODS and of installed packages; else ""."""
    places = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(NOT_THE_USERS):
            places = f" at {os.path.relpath(frame.filename)}:{frame.lineno}"
    return places


def with_params(function: Callable, arguments: str, params: dict[str, Any]) -> Callable:
    """The function with its parameters; ValueError unless it takes these positional `arguments`."""
    positional = arguments.split(", ")
    signature = inspect.signature(function)
    try:
        signature.bind(*positional, **params)
    except TypeError as error:
        others = list(signature.parameters)[len(positional) :]
        raise ValueError(
            f"{getattr(function, '__name__', function)} cannot be called with "
            f"({arguments}, **params): {error}; "
            f"its parameters after these are: {', '.join(others) or 'none'}"
        ) from None
    if not params:
        return function
    return update_wrapper(partial(function, **params), function)


@cache
def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"user_{os.path.basename(path)[:-3]}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module
