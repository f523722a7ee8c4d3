"""What a run is called: the key `run` of config/train.yaml, and each job of a sweep.

    uv run train.py -m optimizer.learning_rate=1e-3,2e-3

What is overridden on the command line and does not stand in the name is appended to it; a key that
a resumed run may change is appended only where the sweep is over it.
"""

import hashlib
import os
import re
import sys

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

# Keys that a resumed run may change; any other would make it another experiment.
MAY_CHANGE = (
    "budget.", "max_steps", "logger.", "checkpoint.", "ledger.", "evaluation.",
    "resume", "output_dir", "data_dir", "backend.threads", "engine.",
)  # fmt: skip
MAY_NOT_CHANGE = ("engine.importance_sampling_correction",)  # part of the loss
NAMED_BY_RULE = ("grpo", "grpo_ga", "pods")  # algorithms whose rule is in the run's name
SWEPT = "PODS_SWEPT"  # variable with the keys of a sweep, also for jobs in other processes
LONGEST = 40  # characters of a value in a name; a longer one is shown by its hash


def arm(*, _root_: DictConfig) -> str:
    """${arm:} in the key `run`: algorithm, rule and parameters, an advantage that is not the
    default, `own` for task=own, and the reward functions of the user's."""
    algorithm, rule, advantage = _root_.algorithm, _root_.rule.name, _root_.advantage.name
    names = [_short(algorithm.name)]
    names += [_short(rule)] if algorithm.name in NAMED_BY_RULE else []
    names += [f"{key}{value}" for key, value in sorted(_items(algorithm.params))]
    names += [_short(advantage)] if advantage != "kept" else []
    names += ["own"] if _root_.task.name == "own" else []
    return "-".join([*names, *(name for name, _ in _items(_root_.rewards.functions))])


def _short(value: object) -> str:
    """A function in a file is named without its file."""
    return str(value).rpartition(":")[2]


def _items(node: object) -> list[tuple]:
    """Empty where the value is of another type, which is refused later."""
    return list(node.items()) if OmegaConf.is_dict(node) else []


OmegaConf.register_new_resolver("arm", arm, replace=True)


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
    texts = [argument for argument in arguments if not argument.startswith("-")]
    overrides = OverridesParser.create().parse_overrides(texts)
    os.environ[SWEPT] = ",".join(o.key_or_group for o in overrides if o.is_sweep_override())


def name(config: DictConfig, overrides: list[str]) -> str:
    """`config.run`, unresolved, with what these overrides set and it does not say. A name that is
    given (run=...) gets the keys of the sweep alone."""
    run = OmegaConf.to_container(config, resolve=False)["run"]
    stated = ["run", *re.findall(r"\$\{([\w.]+)\}", run)]
    if "${arm:}" in run:
        stated += ["algorithm.name", "algorithm.params", "advantage.name"]
        stated += ["rule.name"] if config.algorithm.name in NAMED_BY_RULE else []
    parsed = OverridesParser.create().parse_overrides(overrides)
    named, swept = any(o.key_or_group == "run" for o in parsed), os.environ.get(SWEPT, "")
    for override in parsed:
        key = override.key_or_group
        appended = key in swept.split(",") or not (named or may_change(key))
        if appended and not any(_covers(other, key) for other in stated):
            run += suffix(key, override.get_value_element_as_str())
    return run


def _covers(stated: str, key: str) -> bool:
    """Whether the name states `key`, a key of this group, or this parameter."""
    below = stated.endswith(".params") and key.startswith(f"{stated}.")
    return below or f"{stated}.".startswith(f"{key}.")


def begin_job(config: DictConfig, names_run: bool) -> None:
    """Name the run of this job, and print job, run and overrides on stderr."""
    job, overrides = HydraConfig.get().job, list(HydraConfig.get().overrides.task)
    if names_run:
        config.run = name(config, overrides)
    run = f"run={config.run} " if names_run else ""
    shown = " ".join(text.lstrip("+") for text in overrides)
    print(f"job {job.num + 1}: {run}({shown})", file=sys.stderr, flush=True)
