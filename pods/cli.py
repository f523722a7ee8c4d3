"""How a command starts: Hydra composes the config, a typed schema checks it, a mistake is one line.

Exit codes: 0 done, 1 the run failed, 2 bad input (nothing was written), 3 done but something was
skipped, 4 out of memory.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"
Config = TypeVar("Config")


class UserError(Exception):
    """A mistake the user can mend: one line naming the key, the value, the rule and the remedy."""

    exit_code = 2


class Skipped(UserError):
    """The work is done except for what the message names."""

    exit_code = 3


class RunFailed(UserError):
    """The run stopped on its own; the message says why and names the last checkpoint."""

    exit_code = 1


class OutOfMemory(UserError):
    """The device's memory did not suffice; the message says what to lower."""

    exit_code = 4


def typed(schema: type[Config], config: DictConfig) -> Config:
    """The composed config as an instance of its dataclass; keys forced in with `+` are refused."""
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), values))


def command(name: str, schema: type[Config], folder: Path = CONFIG_DIR) -> Callable:
    """Decorator: `main(config)` becomes a Hydra command on <folder>/<name>.yaml of type `schema`.

    A command whose keys share names with config groups (rewards, backend) needs a folder of its
    own: Hydra takes an override of a group's name for a choice in that group.
    """
    ConfigStore.instance().store(f"{name}_schema", schema)

    def decorate(main: Callable[[Config], None]) -> Callable[[], None]:
        @functools.wraps(main)
        def job(config: DictConfig) -> None:
            try:
                main(typed(schema, config))
            except Exception as error:
                if HydraConfig.get().mode == RunMode.MULTIRUN:
                    raise  # Hydra names the job of the sweep and runs the others
                _report_and_exit(error)

        def entry() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise; Hydra would print and exit 1
            try:
                hydra.main(config_path=str(folder), config_name=name, version_base=None)(job)()
            except Exception as error:
                _report_and_exit(error)

        return entry

    return decorate


def _report_and_exit(error: Exception) -> None:
    if not isinstance(error, (UserError, HydraException, OmegaConfBaseException)):
        raise error  # a bug keeps its traceback
    code = getattr(error, "exit_code", UserError.exit_code)
    # Bad input is the same for all processes of a machine (accelerate launch): one says it.
    if code != UserError.exit_code or os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"{os.path.basename(sys.argv[0])}: {one_line(error)}", file=sys.stderr)
    sys.exit(code)


def one_line(error: BaseException) -> str:
    """The message on one line, without what OmegaConf and Hydra say to developers."""
    noise = ("object_type=", "reference_type=", "Config search path:", "provider=", "full_key:")
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.startswith(noise))
