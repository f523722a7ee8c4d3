"""`train.py -m optimizer.learning_rate=1e-3,2e-3`: each job of a sweep has its own run's name.

Whatever is overridden on the command line and is not in the name is appended to it; a key that a
resumed run may change is appended only where the sweep is over it.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterable

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

# Keys that a resumed run may change; any other would make it another experiment.
MAY_CHANGE = (
    "budget.", "max_steps", "logger.", "checkpoint.", "ledger.", "evaluation.",
    "resume", "output_dir", "data_dir", "backend.threads", "engine.",
)  # fmt: skip
MAY_NOT_CHANGE = ("engine.importance_sampling_correction",)  # part of the loss
NAMED_BY_RULE = ("grpo", "grpo_ga", "pods")  # algorithms whose rule is in the run's name
SWEPT = "PODS_SWEPT"  # the keys of a sweep, for its jobs, also in processes of a launcher
LONGEST = 40  # characters of a value in a name; a longer one is shown by its hash


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value of this key (or group)."""
    return f"{key}.".startswith(MAY_CHANGE) and key not in MAY_NOT_CHANGE


def suffix(key: str, value: object) -> str:
    """`-<key>-<value>` in the characters of a folder's name."""
    text = {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    text = re.sub(r"[^\w.+-]+", "_", text).strip("_")
    if len(text) > LONGEST:
        text = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"-{key}-{text}"


def note_swept(arguments: list[str]) -> None:
    """Remember the keys that a command line sweeps over; Hydra tells a job its own values alone."""
    swept = [o.key_or_group for o in _parsed(arguments) if o.is_sweep_override()]
    os.environ[SWEPT] = ",".join(swept)


def name(config: DictConfig, overrides: Iterable[str]) -> str:
    """`config.run`, unresolved, with what these overrides set and it does not say; a name that is
    given (run=...) is only told apart: by the keys of the sweep that it lacks."""
    run = OmegaConf.to_container(config, resolve=False)["run"]
    said = re.findall(r"\$\{([\w.]+)\}", run)
    if "${algorithm:}" in run:
        said += ["algorithm.name", "algorithm.params"]
        said += ["rule.name"] if config.algorithm.name in NAMED_BY_RULE else []
    swept, parsed = os.environ.get(SWEPT, "").split(","), _parsed(overrides)
    given = any(override.key_or_group == "run" for override in parsed)
    for override in parsed:
        key = override.key_or_group
        known = key == "run" or any(_overlap(one, key) for one in said)
        if not known and (key in swept or not (given or may_change(key))):
            run += suffix(key, override.get_value_element_as_str())
    return run


def _overlap(named: str, key: str) -> bool:
    """Whether `key` is the key in the name, its group, or one of its parameters."""
    below = named.endswith(".params") and key.startswith(f"{named}.")
    return below or f"{named}.".startswith(f"{key}.")


def begin_job(config: DictConfig, names_run: bool) -> None:
    """Name the run of this job, and print job, run and overrides on stderr."""
    job, overrides = HydraConfig.get().job, list(HydraConfig.get().overrides.task)
    if names_run:
        config.run = name(config, overrides)
    run = f"run={config.run} " if names_run else ""
    shown = " ".join(text.lstrip("+") for text in overrides)
    print(f"job {job.num + 1}: {run}({shown})", file=sys.stderr, flush=True)


def _parsed(arguments: Iterable[str]) -> list[Override]:
    """The overrides among the arguments; those that Hydra will refuse are left out."""
    found = []
    for argument in arguments:
        try:
            found += OverridesParser.create().parse_overrides([argument])
        except HydraException:
            continue
    return found
