"""Names of runs: the key `run`, and the keys that are overridden beside it. A key that a resumed
run may change is in the name only if a sweep is over it."""

import hashlib
import re
from collections.abc import Callable, Collection

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from pods.config.errors import UserError
from pods.config.keys import written

# Keys that a resumed run may change; any other would make it another experiment.
MAY_CHANGE = (
    "budget.",
    "max_steps.",
    "logger.",
    "checkpoint.",
    "ledger_texts.",
    "evaluation.",
    "resume.",
    "stop_on_collapse.",
    "trial.",
    "card.",
    "json.",
    "output_dir.",
    "data_dir.",
    "threads.",
    "engine.",
    "max_sequences.",
    "vllm.",
    "guard.",
    "trl.use_vllm.",
    "trl.vllm_mode.",
    "trl.vllm_server_",
)
# Keys of the arm, which the default name has: the others are appended to it.
ARM = ("algorithm", "algorithm_kwargs", "rule", "advantage")
# Hydra's key for those that its own ${hydra:job.override_dirname} leaves out of a name, too.
UNNAMED = "hydra.job.config.override_dirname.exclude_keys"
LONGEST = 40  # characters of a value in a name, which is else its hash
LONGEST_TAIL = 120  # of all appended keys
Compose = Callable[[list[str]], DictConfig]


def arm(*, _root_: DictConfig) -> str:
    """${arm:} in the key `run`: algorithm, its rule if it takes one, parameters, advantage and
    rewards of the user."""
    names = [without_file(_root_.algorithm)]
    if _root_.rule is not None:
        names.append(without_file(_root_.rule))
    if OmegaConf.is_dict(_root_.algorithm_kwargs):  # else refused later
        names += [f"{key}{value}" for key, value in sorted(_root_.algorithm_kwargs.items())]
    if _root_.advantage != "kept":
        names.append(without_file(_root_.advantage))
    if _root_.task.name == "own":
        names.append("own")
    if OmegaConf.is_dict(_root_.rewards.functions):
        names += _root_.rewards.functions
    return "-".join(names)


def without_file(function: object) -> str:
    """path/to/file.py:function -> function; without one, the file, which is refused later."""
    return re.split("[:/]", str(function))[-1]


OmegaConf.register_new_resolver("arm", arm, replace=True)


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value of this key (or group)."""
    return f"{key}.".startswith(MAY_CHANGE)


def parsed(overrides: list[str]) -> list[Override]:
    """Hydra's reading of a command line's overrides."""
    return OverridesParser.create().parse_overrides(overrides)


def unnamed(overrides: list[str], multirun: bool) -> list[str]:
    """The keys of a command line that its sweep is not over: Hydra tells a job only its values.
    Raises UserError for a sweep without --multirun."""
    keys = []
    for override in parsed(overrides):
        if not override.is_sweep_override():
            keys.append(override.key_or_group)
        elif not multirun:
            raise UserError(
                f"{override.input_line.lstrip('+')}: several values are a sweep, add -m; "
                "a list is written key=[a,b]"
            )
    return [key for key in keys if not key.startswith("hydra")]


def name(
    config: DictConfig, overrides: list[str], unnamed: Collection[str], compose: Compose
) -> str:
    """`config.run` and the overrides that it lacks; run=<name> gets only the keys of the sweep. One
    config has one name: the order of the overrides does not count, nor do those without effect.

    unnamed: the overridden keys that no sweep is over. compose: overrides -> the config with them.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    if plain["run"] is None:
        raise UserError("run=null: a run needs a name; leave run out for its default")
    template = written(plain["run"])
    run = written(config.run)
    stated = ["run", *re.findall(r"\$\{([\w.]+)\}", template)]
    if "${arm:}" in template:
        stated += ARM
    every = parsed(overrides)
    has_name = any(override.key_or_group == "run" for override in every)
    tail = []
    for override in sorted(every, key=lambda override: override.key_or_group):
        key = override.key_or_group
        if is_stated(key, stated):
            continue
        if key in unnamed and (has_name or may_change(key)):
            continue
        if not has_name:
            others = compose([other.input_line for other in every if other is not override])
            if OmegaConf.to_container(others, resolve=False) == plain:
                continue
        tail.append(f"{key}-{shortened(as_text(override), LONGEST)}")
    if not tail:
        return run
    return f"{run}-{shortened('-'.join(tail), LONGEST_TAIL)}"


def is_stated(key: str, stated: list[str]) -> bool:
    """Whether a name has the key. A group is stated by its name, parameters by all of them."""
    if any(f"{other}.".startswith(f"{key}.") for other in stated):
        return True
    return "algorithm_kwargs" in stated and key.startswith("algorithm_kwargs.")


def as_text(override: Override) -> str:
    """An override's value, as a part of a folder's name."""
    value = override.get_value_element_as_str()
    if value in ("True", "False"):
        value = value.lower()
    return re.sub(r"[^\w.+-]+", "_", value).strip("_")


def shortened(text: str, most: int) -> str:
    """The text, or its hash if it is longer."""
    if len(text) <= most:
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def summary(jobs: list[tuple[str, str]]) -> str:
    """What a sweep shows at its end; jobs: run, and why it failed, if it did."""
    failed = [f"{run}: {error}" for run, error in jobs if error]
    done = ",".join(run for run, error in jobs if not error)
    lines = [f"sweep: {len(jobs) - len(failed)} of {len(jobs)} jobs done", *failed]
    if done:
        lines.append(f"next: uv run evaluate_run.py 'run=[{done}]'")
    return "\n".join(lines)
