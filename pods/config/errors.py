"""The errors that a user can correct. Imports nothing of ours: every other file may import this."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake that the user can correct: one line with key, value, rule and remedy."""

    exit_code = 2


class Skipped(UserError):
    """The work is done except for the parts that the message names."""

    exit_code = 3


class RunFailed(UserError):
    """The run stopped early; the message says why and names the last checkpoint."""

    exit_code = 1


class EngineError(RunFailed):
    """The engine ended, or returned what is no completion."""


class OutOfMemory(UserError):
    """The device ran out of memory; the message names the keys to lower."""

    exit_code = 4


def one_line(error: BaseException) -> str:
    """The message on one line, without the parts that OmegaConf and Hydra add for developers."""
    noise = ("object_type=", "reference_type=", "Config search path:", "provider=", "full_key:")
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.startswith(noise))


def meant(name: object, names: Iterable[str]) -> str:
    """ "; did you mean <name>?" if one is spelt alike, whatever its case; else nothing."""
    by_fold = {known.casefold(): known for known in names}
    close = get_close_matches(str(name).casefold(), by_fold, 1, 0.7)
    return f"; did you mean {by_fold[close[0]]}?" if close else ""
