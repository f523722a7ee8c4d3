"""How a command starts: Hydra composes the config, pydantic checks it, a mistake is one line.

Exit codes: 0 done, 1 failed, 2 bad input (nothing was written), 3 some skipped, 4 out of memory,
129 SIGHUP, 130 Ctrl-C, 143 SIGTERM.
"""

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.conf import HydraConf, RunDir, SweepDir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config import sweeps
from pods.config.errors import RunFailed, UserError
from pods.config.help import help_text
from pods.config.keys import TrainConfig, keys, written
from pods.config.mistakes import Config, explain, one_line, refuse_former, validated
from pods.config.place import CONFIG_DIR, as_typed
from pods.config.prices import read_prices

# Hydra writes no folder and no log: nothing is written before the config has been checked.
QUIET = {"hydra_logging": "none", "job_logging": "none"}
HYDRA = HydraConf(run=RunDir("."), output_subdir=None, sweep=SweepDir(subdir="."))
HYDRA.defaults = [
    {group: QUIET.get(group, choice) for group, choice in entry.items()} for entry in HYDRA.defaults
]
ConfigStore.instance().store("config", HYDRA, group="hydra", provider="pods")

# Python 3.14 reads a flag's help when it is defined; one of Hydra 1.3's is no text (hydra#3121).
argparse.ArgumentParser._check_help = lambda *_: None

TEXTS = {"run", "question"}  # keys whose value stays as it is typed
SEARCHED = [CONFIG_DIR]  # by `compose`; in a job the folder of --config-dir too

# The algorithm of a config -> values of the keys that follow from it where nobody types them.
Implied = Callable[[str], dict[str, str | None]]


def nothing(_algorithm: str) -> dict[str, str | None]:
    """Of a command that trains nothing."""
    return {}


@dataclass
class Command:
    """A command: its function, its YAML file <folder>/<name>.yaml, and the schema of its config."""

    main: Callable
    name: str
    schema: type[Config]
    folder: Path
    implied: Implied = nothing
    searched: list[Path] = field(default_factory=list)  # the folder of --config-dir
    jobs: list[tuple[str, str]] = field(default_factory=list)  # run, error of those in this process

    @property
    def trains(self) -> bool:
        return self.schema is TrainConfig


def command(
    name: str, schema: type[Config], folder: Path = CONFIG_DIR, implied: Implied = nothing
) -> Callable:
    """Decorator: `main(config)` becomes a Hydra command on <folder>/<name>.yaml of type `schema`;
    a training gets what its algorithm implies, and a sweep ends with a summary."""

    def decorate(main: Callable[[Config], None]) -> Callable[[], None]:
        definition = Command(main, name, schema, folder, implied)

        @functools.wraps(main)
        def entry() -> None:
            start(definition)

        return entry

    return decorate


class LossyStream:
    """stdout or stderr, for a command that must not end because a line cannot be printed: the text
    is dropped when the terminal or the reader of a pipe is gone. A reward cannot close it.

    It stays in place until the process ends, because Python flushes it then.
    """

    def __init__(self, stream: TextIO, *errors: type[Exception]) -> None:
        """errors: those of a write that are ignored."""
        self.stream = stream
        self.errors = errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with suppress(*self.errors):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(*self.errors):
            self.stream.flush()

    def close(self) -> None:
        """Nothing: whoever started the process owns the stream."""


def start(command: Command) -> None:
    """Run a command on sys.argv; every mistake is one line on stderr and an exit code."""
    # A result that is printed must not be lost without a word, so on a full disk, say, others fail.
    errors = (OSError, ValueError) if command.trains else (BrokenPipeError,)
    sys.stdout, sys.stderr = LossyStream(sys.stdout, *errors), LossyStream(sys.stderr, *errors)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise; Hydra would print and exit 1
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # docs/gpu.md has the reason
    try:
        if {"-h", "--help"} & set(sys.argv[1:]):
            text = help_text(command.main.__globals__["__doc__"], command.folder, command.name)
            print(as_typed(text))
        else:
            sys.argv[1:] = hydra_arguments(command, sys.argv[1:])
            run_hydra(command)
        sys.stdout.flush()
    except KeyboardInterrupt:  # a training catches it, saves and ends with the same code
        print(f"{os.path.basename(sys.argv[0])}: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        _report_and_exit(error)


def hydra_arguments(command: Command, arguments: list[str]) -> list[str]:
    """The command line as Hydra takes it: its flags, then the overrides."""
    known = {*keys(command.schema)}
    for argument in arguments:
        key = argument.partition("=")[0]
        if key.startswith("--") and key[2:] in known:  # argparse would print its usage
            raise UserError(f"{key}: keys have no dashes; set {key[2:]}=<value>")
        if key.startswith("~") and key[1:] in known:
            raise UserError(f"{key}: the command needs this key; set {key[1:]}=<value>")
    parsed = get_args_parser().parse_intermixed_args(arguments)
    flags = [argument for argument in arguments if argument not in parsed.overrides]
    if parsed.config_dir:
        command.searched = [Path(parsed.config_dir).absolute()]
        if command.folder != CONFIG_DIR:  # it has no groups, but keys of the same names
            flags.append(f"--config-dir={command.folder}")
    settings = settable(parsed.overrides, command.folder)
    unnamed = ",".join(sweeps.unnamed(settings, parsed.multirun))
    return [*flags, *settings, f"++{sweeps.UNNAMED}=[{unnamed}]"]


def run_hydra(command: Command) -> None:
    """Compose the config of sys.argv, and run the job or the jobs of the sweep."""

    @functools.wraps(command.main)
    def job(config: DictConfig) -> None:
        run_job(command, config)

    run = hydra.main(str(command.folder), command.name, version_base=None)(job)
    try:
        run()
    finally:
        if command.trains and len(command.jobs) > 1:
            print(as_typed(sweeps.summary(command.jobs)))


def run_job(command: Command, config: DictConfig) -> None:
    """One job of Hydra's. In a sweep its error is kept for the summary, and the others run."""
    facts = HydraConfig.get()
    is_sweep = facts.mode == RunMode.MULTIRUN
    overrides = list(facts.overrides.task)
    line = " ".join(text.lstrip("+") for text in overrides)
    run = ""
    SEARCHED[1:] = command.searched
    try:
        if command.trains:
            complete(config, overrides, command.implied)
            unnamed = facts.job.config.override_dirname.exclude_keys
            others = functools.partial(compose, command.name, implied=command.implied)
            run = config.run = sweeps.name(config, overrides, unnamed, others)
            line = f"run={run} ({line})"
        if is_sweep:
            print(f"job {facts.job.num + 1}: {line}", file=sys.stderr, flush=True)
        command.main(typed(command.schema, config))
        command.jobs.append((run, ""))
    except SystemExit:  # by a signal, after a checkpoint
        command.jobs.append((run, "was stopped; the same command goes on with it"))
        raise
    except Exception as error:
        if not is_sweep:
            _report_and_exit(error)
        command.jobs.append((run, explain(error)))
        raise


def complete(config: DictConfig, overrides: list[str], implied: Implied = nothing) -> None:
    """Set in a composed training config what its algorithm implies for keys that are not typed,
    and the prices that `clock` names."""
    overridden = {override.key_or_group for override in sweeps.parsed(overrides)}
    values = OmegaConf.to_container(config, resolve=False)
    for key, value in implied(str(values["algorithm"])).items():
        if key not in overridden:
            config[key] = value
    clock = values["clock"]
    if isinstance(clock, dict):
        raise UserError(
            f"clock={written(clock)}: must be measured, the name of a price list or a YAML file; "
            "write the prices into a file and set clock=<file>"
        )
    if clock != "measured":
        config.clock = read_prices(str(clock)).model_dump()


def typed(schema: type[Config], config: DictConfig) -> Config:
    """The composed config as an instance of its schema. Raises UserError with a wrong key."""
    return validated(schema, OmegaConf.to_container(config, resolve=True, throw_on_missing=True))


def compose(
    name: str, overrides: list[str], folder: Path = CONFIG_DIR, implied: Implied = nothing
) -> DictConfig:
    """<folder>/<name>.yaml as its command would see it with these overrides, also inside a job."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(folder), version_base=None):
            searchpath = f"hydra.searchpath={[f'file://{searched}' for searched in SEARCHED[1:]]}"
            config = hydra.compose(name, [*settable(overrides, folder), searchpath])
    finally:
        GlobalHydra.instance().hydra = outer
    if name == "train":
        complete(config, overrides, implied)
    return config


def load_config(path: Path) -> TrainConfig:
    """The config that a run was trained with: checkpoints/<run>/.hydra/config.yaml. It is data: no
    interpolation is resolved, and no name in it leaves a folder."""
    try:
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        return validated(TrainConfig, values)
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError, UserError) as error:
        raise UserError(
            f"{path}: not a config of this version of PODS, but made by an earlier one or damaged "
            f"({one_line(error)}); train it again, or check out the commit that "
            f"{path.parents[1] / 'meta.json'} names"
        ) from None


def settable(overrides: list[str], folder: Path) -> list[str]:
    """The overrides with ++ before keys that are no groups: the schema refuses them, not Hydra.
    Raises UserError for keys of earlier versions, and for a group without or with two choices."""
    texts = []
    for text in overrides:
        refuse_former(text)
        match = re.fullmatch(r"([a-zA-Z_][\w.-]*)=(.*)", text, re.DOTALL)
        if match:
            key, value = match.groups()
            is_group = (folder / key).is_dir()
            if is_group and re.match(r"null$|\[", value):
                raise UserError(f"{text}: takes one choice; set {key}=<name>, --help lists them")
            quoted = is_group or key in TEXTS
            if quoted and re.fullmatch(r"[\d.eE_+-]+|true|false|nan|inf", value):
                value = f"'{value}'"  # Hydra would read 1e3 as 1000.0
            text = f"{'' if is_group else '++'}{key}={value}"
        texts.append(text)
    return texts


def _report_and_exit(error: Exception) -> None:
    code = getattr(error, "exit_code", UserError.exit_code)
    if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
        if not isinstance(error, OSError):
            raise error  # a bug keeps its traceback
        code = RunFailed.exit_code  # a full disk, or a folder that may not be written
    # Bad input is the same for all processes of a machine (accelerate launch): one prints it.
    if code != UserError.exit_code or os.environ.get("LOCAL_RANK", "0") == "0":
        line = f"{os.path.basename(sys.argv[0])}: {explain(error)}"
        print(as_typed(line), file=sys.stderr)
    sys.exit(code)
