"""Names of runs: the key `run`, and the keys that are overridden beside it. A key that a resumed
run may change is in the name only if a sweep is over it."""

import hashlib
import os
import re
from collections.abc import Callable

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pods.config.errors import UserError

# Keys that a resumed run may change; any other would make it another experiment.
MAY_CHANGE = (
    "budget.", "max_steps", "logger.", "checkpoint.", "ledger.", "evaluation.",
    "resume", "stop_on_collapse", "output_dir", "data_dir", "backend.threads", "engine.",
)  # fmt: skip
NAMED_BY_RULE = ("grpo", "grpo_ga", "pods")  # algorithms whose rule is in the run's name
SWEPT = "PODS_SWEPT"  # variable with the keys of a sweep, also for jobs in other processes
Compose = Callable[[list[str]], DictConfig]
LONGEST, LONGEST_TAIL = 40, 120  # characters of a value and of all keys in a name; else a hash


def arm(*, _root_: DictConfig) -> str:
    """${arm:} in the key `run`: algorithm, rule, parameters, advantage and rewards of the user."""
    functions = [_root_.algorithm.name]
    functions += [_root_.rule.name] if functions[0] in NAMED_BY_RULE else []
    names = [str(name).rpartition(":")[2] for name in functions]  # without their files
    if OmegaConf.is_dict(params := _root_.algorithm.params):  # else refused later
        names += [f"{key}{value}" for key, value in sorted(params.items())]
    if _root_.advantage.name != "kept":
        names.append(str(_root_.advantage.name).rpartition(":")[2])
    names += ["own"] if _root_.task.name == "own" else []
    rewards = _root_.rewards.functions
    return "-".join([*names, *(rewards if OmegaConf.is_dict(rewards) else ())])


OmegaConf.register_new_resolver("arm", arm, replace=True)


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value of this key (or group)."""
    in_the_loss = key == "engine.importance_sampling_correction"
    return f"{key}.".startswith(MAY_CHANGE) and not in_the_loss


def note_swept(arguments: list[str]) -> None:
    """Remember the keys that a command line sweeps over; Hydra tells a job only its own values."""
    texts = [argument for argument in arguments if not argument.startswith("-")]
    overrides = OverridesParser.create().parse_overrides(texts)
    swept = [override for override in overrides if override.is_sweep_override()]
    if swept and not {"-m", "--multirun"} & set(arguments):
        remedy = "several values are a sweep, add -m; a list is written key=[a,b]"
        raise UserError(f"{swept[0].input_line}: {remedy}")
    os.environ[SWEPT] = ",".join(override.key_or_group for override in swept)


def name(config: DictConfig, overrides: list[str], compose: Compose) -> str:
    """`config.run` and the overrides that it lacks; run=<name> gets only the keys of the sweep. One
    config has one name: the order of the overrides does not count, nor do those without effect."""
    plain = OmegaConf.to_container(config, resolve=False)
    run = plain["run"]
    stated = ["run", *re.findall(r"\$\{([\w.]+)\}", run)]
    if "${arm:}" in run:
        stated += ["algorithm.name", "algorithm.params", "advantage.name"]
        stated += ["rule.name"] if config.algorithm.name in NAMED_BY_RULE else []
    parsed, tail = OverridesParser.create().parse_overrides(overrides), []
    named = any(override.key_or_group == "run" for override in parsed)
    for override in sorted(parsed, key=lambda override: override.key_or_group):
        key = override.key_or_group
        swept = key in os.environ.get(SWEPT, "").split(",")
        # A group is stated by its name, a parameter by all of them.
        is_stated = any(f"{other}.".startswith(f"{key}.") for other in stated)
        is_stated |= "algorithm.params" in stated and key.startswith("algorithm.params.")
        if not is_stated and (swept or not (named or may_change(key))):
            others = compose([other.input_line for other in parsed if other is not override])
            if named or OmegaConf.to_container(others, resolve=False) != plain:
                value = override.get_value_element_as_str()
                value = {"True": "true", "False": "false"}.get(value, value)
                value = re.sub(r"[^\w.+-]+", "_", value).strip("_")
                tail.append(f"{key}-{_short(value, LONGEST)}")
    return f"{run}-{_short('-'.join(tail), LONGEST_TAIL)}" if tail else run


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else hashlib.sha256(text.encode()).hexdigest()[:8]


def summary(jobs: list[tuple[str, str]]) -> str:
    """What a sweep shows at its end; jobs: run, and why it failed, if it did."""
    failed = [f"{run}: {error}" for run, error in jobs if error]
    done = ",".join(run for run, error in jobs if not error)
    lines = [f"sweep: {len(jobs) - len(failed)} of {len(jobs)} jobs done", *failed]
    lines += [f"next: uv run evaluate_run.py 'run=[{done}]'"] if done else []
    return "\n".join(lines)
