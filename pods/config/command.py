"""How a command starts: Hydra composes the config, pydantic checks it, a mistake is one line.

Exit codes: 0 done, 1 failed, 2 bad input (nothing was written), 3 some skipped, 4 out of memory,
130 Ctrl-C, 143 SIGTERM.
"""

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import hydra
import yaml
from hydra.conf import HydraConf, RunDir, SweepDir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config import sweeps
from pods.config.errors import UserError
from pods.config.keys import CONFIG_DIR, TrainConfig, keys
from pods.config.mistakes import Config, explain, one_line, validated
from pods.config.place import as_typed

# Hydra writes no folder and no log: nothing is written before the config has been checked.
QUIET = {"hydra_logging": "none", "job_logging": "none"}
HYDRA = HydraConf(run=RunDir("."), output_subdir=None, sweep=SweepDir(subdir="."))
HYDRA.defaults = [
    {group: QUIET.get(group, choice) for group, choice in entry.items()} for entry in HYDRA.defaults
]
ConfigStore.instance().store("config", HYDRA, group="hydra", provider="pods")


def typed(schema: type[Config], config: DictConfig) -> Config:
    """The composed config as an instance of its schema. Raises UserError with a wrong key."""
    return validated(schema, OmegaConf.to_container(config, resolve=True, throw_on_missing=True))


def compose(name: str, overrides: list[str], folder: Path = CONFIG_DIR) -> DictConfig:
    """<folder>/<name>.yaml as its command would see it with these overrides, also inside a job."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(folder), version_base=None):
            return hydra.compose(name, overrides=settable(overrides, folder))
    finally:
        GlobalHydra.instance().hydra = outer


def load_config(path: Path) -> TrainConfig:
    """The config that a run was trained with: checkpoints/<run>/.hydra/config.yaml."""
    try:
        return validated(TrainConfig, OmegaConf.to_container(OmegaConf.load(path), resolve=True))
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError, UserError) as error:
        reason, meta = one_line(error), path.parents[1] / "meta.json"
        remedy = f"train it again, or check out the commit that {meta} names"
        line = f"{path}: not a config of this version of PODS ({reason}); {remedy}"
        raise UserError(line) from None


def settable(overrides: list[str], folder: Path) -> list[str]:
    """The overrides with ++ before keys that are no groups: the schema refuses them, not Hydra."""
    texts = []
    for text in overrides:
        key = re.match(r"([a-zA-Z_][\w.-]*)=", text)
        group = key and (folder / key[1]).is_dir()
        if group and text.endswith("=null"):
            raise UserError(f"{text}: a group needs a choice; --help lists them")
        texts.append(f"++{text}" if key and not group else text)
    return texts


def command(name: str, schema: type[Config], folder: Path = CONFIG_DIR) -> Callable:
    """Decorator: `main(config)` becomes a Hydra command on <folder>/<name>.yaml of type `schema`;
    trainings get their key `run`, distinct in a sweep, which ends with a summary."""
    names_run = schema is TrainConfig

    def decorate(main: Callable[[Config], None]) -> Callable[[], None]:
        jobs: list[tuple[str, str]] = []  # of a sweep in this process: run, error

        @functools.wraps(main)
        def job(config: DictConfig) -> None:
            facts = HydraConfig.get()
            sweep, overrides = facts.mode == RunMode.MULTIRUN, list(facts.overrides.task)
            run, line = "", " ".join(text.lstrip("+") for text in overrides)
            try:
                if names_run:
                    config.run = sweeps.name(config, overrides, functools.partial(compose, name))
                    run, line = config.run, f"run={config.run} ({line})"
                if sweep:
                    print(f"job {facts.job.num + 1}: {line}", file=sys.stderr, flush=True)
                main(typed(schema, config))
                jobs.append((run, ""))
            except Exception as error:
                if sweep:
                    jobs.append((run, explain(error)))
                    raise  # Hydra runs the others
                _report_and_exit(error)

        @functools.wraps(main)
        def entry() -> None:
            dashed = {f"--{key}" for key in keys(schema)}  # argparse would print its usage
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise; Hydra would print and exit 1
            try:
                if {"-h", "--help"} & set(sys.argv[1:]):
                    text = help_text(main.__globals__["__doc__"], folder / f"{name}.yaml")
                    print(as_typed(text))
                else:
                    for key in {text.partition("=")[0] for text in sys.argv[1:]} & dashed:
                        raise UserError(f"{key}: keys have no dashes; set {key[2:]}=<value>")
                    sweeps.note_swept(sys.argv[1:])
                    sys.argv[1:] = settable(sys.argv[1:], folder)
                    run = hydra.main(config_path=str(folder), config_name=name, version_base=None)
                    try:
                        run(job)()
                    finally:
                        if names_run and len(jobs) > 1:
                            print(as_typed(sweeps.summary(jobs)))
                sys.stdout.flush()
            except BrokenPipeError:  # `... | head` has read enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the flush at exit
            except KeyboardInterrupt:  # a training catches it, saves and ends with the same code
                print(f"{os.path.basename(sys.argv[0])}: interrupted", file=sys.stderr)
                sys.exit(130)
            except Exception as error:
                _report_and_exit(error)

        return entry

    return decorate


def help_text(title: str, file: Path) -> str:
    """What --help prints: the command's YAML with its comments, then each of its groups."""
    text = file.read_text()
    shared = re.findall(r"(?m)^  - (_(?!self_)\w+)", text)
    parts = [title, text, *(file.with_name(f"{name}.yaml").read_text() for name in shared)]
    for group, default in re.findall(r"(?m)^  - (\w+): (\S+)", text):
        files = {p.stem: p.read_text() for p in sorted((file.parent / group).glob("*.yaml"))}
        names = [name for name in files if not name.startswith("_")]
        parts.append(f"{group}={default}, any of {', '.join(names)}")
        shown = names if default.startswith("[") else ["_shared" if "_shared" in files else default]
        texts = [files.get(name, "") for name in shown]
        parts += [indent(text, "  ") for text in texts if "@package _global_" not in text]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def _report_and_exit(error: Exception) -> None:
    if not isinstance(error, UserError | HydraException | OmegaConfBaseException):
        raise error  # a bug keeps its traceback
    code = getattr(error, "exit_code", UserError.exit_code)
    # Bad input is the same for all processes of a machine (accelerate launch): one prints it.
    if code != UserError.exit_code or os.environ.get("LOCAL_RANK", "0") == "0":
        line = f"{os.path.basename(sys.argv[0])}: {explain(error)}"
        print(as_typed(line), file=sys.stderr)
    sys.exit(code)
