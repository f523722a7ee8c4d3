"""How a command starts: Hydra composes the config, pydantic checks it, a mistake is one line.

Exit codes: 0 done, 1 failed, 2 bad input (nothing was written), 3 some skipped, 4 out of memory,
129 SIGHUP, 130 Ctrl-C, 143 SIGTERM.
"""

import argparse
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Collection
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
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config import sources, sweeps
from pods.config.errors import RunFailed, UserError, one_line
from pods.config.help import help_text
from pods.config.keys import Section, TrainConfig, dictionaries, keys
from pods.config.mistakes import Config, explain, is_known, nearest_key, validated
from pods.config.paths import CONFIG_DIR, as_typed
from pods.config.prices import read_prices

# Hydra writes no folder and no log: nothing is written before the config has been checked.
QUIET = {"hydra_logging": "none", "job_logging": "none"}
HYDRA = HydraConf(run=RunDir("."), output_subdir=None, sweep=SweepDir(subdir="."))
HYDRA.defaults = [
    {group: QUIET.get(group, choice) for group, choice in entry.items()} for entry in HYDRA.defaults
]
ConfigStore.instance().store("config", HYDRA, group="hydra", provider="pods")
sources.read_files_as_data()

# Python 3.14 reads a flag's help when it is defined; one of Hydra 1.3's is no text (hydra#3121).
argparse.ArgumentParser._check_help = lambda *_: None

SEARCHED = [CONFIG_DIR]  # by `compose`; in a job the folder of --config-dir too


def open_keys(node: str, names: Collection[str]) -> None:
    """Let the command line add keys to these groups or dictionaries without Hydra's +, in every
    config that has `node` in its defaults. The schema refuses the unknown ones, and names the
    nearest."""
    content = {name: DictConfig({}, flags={"struct": False}) for name in names}
    ConfigStore.instance().store(node, content, package="_global_", provider="pods")


SECTIONS = {key.partition(".")[0] for key in keys(TrainConfig) if "." in key}
open_keys("_sections", SECTIONS | {key for key in dictionaries(TrainConfig) if "." not in key})
open_keys("_runs", ["runs"])  # of plot.yaml and others: the labels are the user's


def nothing(*_: Any) -> dict[str, str]:
    """Of a command that trains nothing."""
    return {}


@dataclass
class Command:
    """A command: its function, its YAML file <folder>/<name>.yaml, and the schema of its config."""

    main: Callable[[Any], None]
    name: str
    schema: type[Section]
    folder: Path
    resolve: Callable[[DictConfig], dict[str, str]]
    check: Callable[[Any, Collection[str]], object]
    searched: list[Path] = field(default_factory=list)  # the folder of --config-dir
    swept: list[str] = field(default_factory=list)  # the keys that have several values
    overrides: list[str] = field(default_factory=list)  # of the command line
    sweep: list[sweeps.Job] = field(default_factory=list)  # the jobs that are planned, if known
    jobs: list[sweeps.Job] = field(default_factory=list)  # those that ended in this process

    @property
    def trains(self) -> bool:
        return self.schema is TrainConfig


def command(
    name: str,
    schema: type[Config],
    folder: Path = CONFIG_DIR,
    resolve: Callable[[DictConfig], dict[str, str]] = nothing,
    check: Callable[[Config, Collection[str]], object] = nothing,
) -> Callable:
    """Decorator: `main(config)` becomes a Hydra command on <folder>/<name>.yaml of type `schema`.

    resolve: sets in a composed config what follows from other keys, and returns why, key by key.
    check: raises UserError if a config cannot be run; it also gets the keys that a sweep is over.
    All jobs of a sweep are checked before the first one starts.
    """

    def decorate(main: Callable[[Config], None]) -> Callable[[], None]:
        definition = Command(main, name, schema, folder, resolve, check)

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
    logging.getLogger("huggingface_hub.utils._http").addFilter(is_no_retry)
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


def is_no_retry(record: logging.LogRecord) -> bool:
    """False for lines of the hub's client about a retry: there are eleven without a network, and
    the error that follows has the reason. Those about a rate limit or an HTTP status are shown."""
    return not re.match("'.*' thrown while requesting|Retrying in", record.getMessage(), re.S)


def hydra_arguments(command: Command, arguments: list[str]) -> list[str]:
    """The command line as Hydra takes it, flags first. A sweep is checked whole here."""
    for argument in arguments:
        key = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and key in keys(command.schema):  # argparse: its usage
            raise UserError(f"--{key}: keys have no dashes; set {key}=<value>")
    parsed = get_args_parser().parse_intermixed_args(arguments)
    flags = [argument for argument in arguments if argument not in parsed.overrides]
    if parsed.config_dir:
        command.searched = [Path(parsed.config_dir).absolute()]
        if command.folder != CONFIG_DIR:  # it has no groups, but keys of the same names
            flags.append(f"--config-dir={command.folder}")
    if parsed.experimental_rerun:
        raise UserError(
            f"--experimental-rerun {parsed.experimental_rerun}: is a pickle, which can hold code; "
            "start the saved config instead: -cd checkpoints/<run>/.hydra -cn config run=<new run>"
        )
    command.name = parsed.config_name or command.name
    if "run" in keys(command.schema) and not command.trains:  # evaluate_run.py <run>
        parsed.overrides = [o if re.search("[=~]", o) else f"run={o}" for o in parsed.overrides]
    command.overrides = parsed.overrides
    overrides = sweeps.parsed(parsed.overrides)
    for override in overrides:
        refuse_override(override, command, parsed.multirun)
    command.swept = [one.key_or_group for one in overrides if one.is_sweep_override()]
    if parsed.multirun and not parsed.cfg:
        command.sweep = checked_jobs(command, sweeps.expanded(parsed.overrides))
    return [*flags, *parsed.overrides]


def refuse_override(override: Override, command: Command, multirun: bool) -> None:
    """Raise UserError for several values without --multirun, for an unknown key, and for a group
    without a name or with several."""
    key, line = override.key_or_group, override.input_line
    if override.is_sweep_override() and not multirun:
        raise UserError(f"{line}: several values are a sweep, add -m; a list is written key=[a,b]")
    if override.is_hydra_override():
        return
    if not (command.folder / key).is_dir():
        if not is_known(key, command.schema):
            raise UserError(f"{line}: unknown; {nearest_key(key, command.schema)}")
        return
    if override.is_delete() or override.is_sweep_override():
        return
    if not isinstance(override.value(), str):
        raise UserError(f"{line}: takes one name; set {key}=<name>, --help lists them")


def checked_jobs(command: Command, jobs: list[list[str]]) -> list[sweeps.Job]:
    """The jobs of a sweep with these overrides. Raises UserError for the first one that would be
    refused: a sweep of many hours must not end with that; a job with the name of an earlier one is
    refused, too."""
    checked = []
    SEARCHED[1:] = command.searched
    names: dict[str, int] = {}  # run -> number of its job
    for number, overrides in enumerate(jobs, start=1):
        try:
            composed = compose(command.name, overrides, command.folder)
            config = prepared(command, composed, overrides)
            command.check(config, command.swept)
            if command.trains and names.setdefault(config.run, number) != number:
                raise UserError(
                    f"run={config.run}: is also the name of job {names[config.run]}; remove "
                    "a value that is listed twice, or set run=<name> in a command for each"
                )
        except (UserError, HydraException, OmegaConfBaseException) as error:
            line = f"job {number} of {len(jobs)} ({' '.join(overrides)})"
            remedy = ""
            if "algorithm" in command.swept and "algorithm_kwargs" in str(error):
                remedy = "; give algorithm_kwargs in a command for the algorithms that take them"
            raise UserError(
                f"{explain(error)}{remedy}; this is {line}, no job was started"
            ) from None
        checked.append(sweeps.Job(overrides, config))
    return checked


def run_hydra(command: Command) -> None:
    """Compose the config of sys.argv, and run the job or the jobs of the sweep."""

    @functools.wraps(command.main)
    def job(config: DictConfig) -> float | None:
        return run_job(command, config)

    run = hydra.main(str(command.folder), command.name, version_base=None)(job)
    jobs = command.jobs
    try:
        run()
        jobs = jobs or command.sweep  # that other processes ran (joblib, submitit)
    finally:
        if command.trains and jobs and (command.sweep or len(jobs) > 1):
            print(as_typed(sweeps.summary(jobs, command.overrides)))


def run_job(command: Command, composed: DictConfig) -> float | None:
    """One job of Hydra's. In a sweep its error is kept for the summary, and the others run. Returns
    a training's score, by which a sweeper such as optuna goes on."""
    facts = HydraConfig.get()
    is_sweep = facts.mode == RunMode.MULTIRUN
    overrides = list(facts.overrides.task)
    job = sweeps.Job(overrides)
    command.jobs.append(job)
    SEARCHED[1:] = command.searched
    try:
        config = prepared(command, composed, overrides, say=True)
        title = job.line
        if command.trains:
            job.config = config
            title = f"run={config.run} ({job.line})"
        if is_sweep:
            print(f"job {facts.job.num + 1}: {title}", file=sys.stderr, flush=True)
        command.check(config, [])
        command.main(config)
        return sweeps.score(config) if command.trains and not config.trial else None
    except SystemExit:  # by a signal, after a checkpoint
        job.error = "was stopped; the same command goes on with it"
        raise
    except Exception as error:
        if not is_sweep:
            _report_and_exit(error)
        job.error = explain(error)
        raise


def prepared(
    command: Command, composed: DictConfig, overrides: list[str], say: bool = False
) -> Any:
    """The typed config of a job, with what follows from its keys and with the name of its run.
    say: print which of the typed keys have another value, and why."""
    reasons = command.resolve(composed)
    if command.trains:
        composed.run = sweeps.name(
            composed, overrides, command.swept, functools.partial(compose, command.name)
        )
    typed_keys = {override.key_or_group for override in sweeps.parsed(overrides)}
    for key in reasons.keys() & typed_keys:
        if say and os.environ.get("LOCAL_RANK", "0") == "0":
            print(reasons[key], file=sys.stderr)
    return typed(command.schema, composed)


def typed(schema: type[Config], config: DictConfig) -> Config:
    """The composed config as an instance of its schema, with the prices that `clock` names. Raises
    UserError with a wrong key."""
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    if schema is TrainConfig and values["clock"] != "measured":
        values["clock"] = read_prices(values["clock"]).model_dump()
    return validated(schema, values)


def compose(name: str, overrides: list[str], folder: Path = CONFIG_DIR) -> DictConfig:
    """<folder>/<name>.yaml as its command would see it with these overrides, also inside a job."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        folders = [folder, *SEARCHED[1:]]  # a saved config is in the folder of --config-dir
        main = next((one for one in folders if (one / f"{name}.yaml").is_file()), folder)
        with hydra.initialize_config_dir(str(main), version_base=None):
            searchpath = f"hydra.searchpath={[f'file://{one}' for one in folders if one != main]}"
            return hydra.compose(name, [*overrides, searchpath])
    finally:
        GlobalHydra.instance().hydra = outer


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
