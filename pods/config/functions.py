"""Functions of the user's, named in the config as path/to/file.py:function."""

import importlib.util
import os.path  # not pathlib: pods.rules loads in a moment
import sys
import sysconfig
import traceback
from asyncio import CancelledError
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from pods.config.errors import UserError
from pods.config.paths import PACKAGE

if TYPE_CHECKING:
    from pods.config.keys import TrainConfig  # pydantic: pods.rules loads in a moment

NOT_THE_USERS = (  # folders
    os.path.dirname(os.path.dirname(__file__)),
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    "<frozen",
    "<string>",  # methods of a dataclass
    "numpy/",
    "pandas/",  # compiled modules: numpy/random/_generator.pyx
)
# Of the user's code: completions that it runs call exit(), a request is cancelled.
FAILURES = (Exception, SystemExit, CancelledError)


def is_path(value: str) -> bool:
    """Whether a config value names a function in a file, not a built-in one."""
    return ":" in value or value.endswith(".py")


def code_of(config: "TrainConfig", step: bool = False) -> dict[str, str]:
    """key -> path/to/file.py:function, for each key with a function of the user's that is called
    by an evaluation of this training, with `step` also by a training step."""
    names = {f"rewards.functions.{name}": path for name, path in config.rewards.functions.items()}
    names["task.gold"] = config.task.gold
    if step:
        names |= config.model_dump(include={"algorithm", "rule", "advantage", "engine"})
    return {key: name for key, name in names.items() if name and is_path(name)}


def refuse_code(source: str, code: dict[str, str]) -> None:
    """Raise UserError if a saved config names code, which is run only if the user says so."""
    for key, function in code.items():
        raise UserError(
            f"{source} names code of this machine, {key}={function}; "
            "if the run is yours set trust_code=true, which runs it"
        )


def file_of(value: str) -> str:
    """The absolute path of the file in path/to/file.py:function. One of the suite's, such as
    pods/tasks/arithmetic.py, is found from every folder."""
    path = value.rpartition(":")[0]
    if not os.path.isfile(path) and os.path.isfile(PACKAGE.parent / path):
        return str(PACKAGE.parent / path)
    return os.path.realpath(path)


def load(key: str, value: str) -> Callable:
    """The function or class that `key=path/to/file.py:function` names; its file is run."""
    path, _, name = value.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise UserError(f"{key}={value}: must be path/to/file.py:function")
    file = file_of(value)
    try:
        function = getattr(_module(file), name, None)
    except FAILURES as error:
        raise UserError(
            f"{key}={value}: {path} cannot be imported ({type(error).__name__}: {error}); "
            "correct the file"
        ) from error
    if not callable(function):
        raise UserError(f"{key}={value}: {path} has no function {name}; correct the name or file")
    return function


def location(error: BaseException) -> str:
    """at my_file.py:12, the deepest line outside of PODS and of installed packages; else ""."""
    text = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(NOT_THE_USERS):
            text = f" at {os.path.relpath(frame.filename)}:{frame.lineno}"
    return text


@cache
def _module(path: str) -> ModuleType:
    sys.path.append(os.path.dirname(path))  # it may import a file beside it
    spec = importlib.util.spec_from_file_location(f"user_{os.path.basename(path)[:-3]}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module
