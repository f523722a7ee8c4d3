"""Names of runs: the key `run`, and the keys that are overridden beside it. A key that a resumed
run may change is in the name only if a sweep is over it.

The folder of a sweep, <output_dir>/sweep-<keys>-<hash>/, names its runs in runs.txt.
"""

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from pods.config.errors import UserError
from pods.config.functions import code_of
from pods.config.keys import TrainConfig, keys, may_change, typed_as, written
from pods.config.paths import CONFIG_DIR, RUNS, runs_of

# What ${method:} states, beside the source of a user's data and the user's reward functions.
METHOD = ("algorithm", "algorithm_kwargs", "rule", "advantage")
# Keys of task=own that its source stands for.
OF_SOURCE = ("task", "task.source", "task.question", "task.answer", "task.gold", "task.kind")
LONGEST = 40  # characters of a value in a name, which is else its hash
LONGEST_TAIL = 120  # of all appended keys
MOST = 60  # characters of the name of a sweep, and of its runs
MOST_OF_FIXED = 16  # of the keys that all runs of a sweep share, which are else their hash
SHORT = {"rollouts_per_prompt": "n", "kept_per_prompt": "m", "optimizer.learning_rate": "lr"}
KEYS = keys(TrainConfig)
LAST = [key.rpartition(".")[2] for key in KEYS]
Compose = Callable[[list[str]], DictConfig]


@dataclass
class Job:
    """A training of this process, and why it failed; without a config if it did not begin."""

    overrides: list[str]
    config: TrainConfig | None = None
    error: str = ""

    @property
    def line(self) -> str:
        return " ".join(self.overrides)

    @property
    def title(self) -> str:
        return self.config.run if self.config else self.line


def method(*, _root_: DictConfig) -> str:
    """${method:} in the key `run`: algorithm, its rule if it takes one, parameters, advantage, and
    the data and the rewards of the user."""
    names = [without_file(_root_.algorithm)]
    if _root_.rule is not None:
        names.append(without_file(_root_.rule))
    if OmegaConf.is_dict(_root_.algorithm_kwargs):  # else refused later
        names += [f"{key}{value}" for key, value in sorted(_root_.algorithm_kwargs.items())]
    if _root_.advantage != "kept":
        names.append(without_file(_root_.advantage))
    if _root_.task.name == "own":
        # path/to/file.csv -> file, and org/name:subset -> name:subset
        last = str(_root_.task.source).rstrip("/").rpartition("/")[2]
        source = re.sub(r"\.\w+$", "", last)
        names.append(shortened(as_part(source), LONGEST))
    if OmegaConf.is_dict(_root_.rewards.functions):
        names += _root_.rewards.functions
    return "-".join(names)


def without_file(function: object) -> str:
    """path/to/file.py:function -> function; without one, the file, which is refused later."""
    return re.split("[:/]", str(function))[-1]


OmegaConf.register_new_resolver("method", method, replace=True)


def parsed(overrides: list[str]) -> list[Override]:
    """Hydra's reading of a command line's overrides."""
    return OverridesParser.create().parse_overrides(overrides)


def expanded(overrides: list[str]) -> list[list[str]]:
    """The overrides of each job of a sweep, as Hydra's own sweeper makes them; none if another one
    is chosen, or if the values are random or found on the disk."""
    every = parsed(overrides)
    if any(override.key_or_group == "hydra/sweeper" for override in every):
        return []
    ours = [override for override in every if not override.is_hydra_override()]
    try:
        (jobs,) = BasicSweeper.split_arguments(ours, max_batch_size=None)
    except HydraException:
        return []
    return jobs


def name(config: DictConfig, overrides: list[str], swept: list[str], compose: Compose) -> str:
    """`config.run`, the keys that a sweep is over, and the other overrides that change the config,
    which run=<name> does not get; their order does not count.

    In a sweep whose keys are not in the key `run` a name has what is typed, the experiment and the
    seed: quickstart-grpo-lr0.001-seed1. swept: the keys that a sweep is over. compose: overrides ->
    the config with them.
    """
    template = written(OmegaConf.to_container(config, resolve=False)["run"])
    if template == "null":
        raise UserError("run=null: a run needs a name; leave run out for its default")
    every = sorted(parsed(overrides), key=lambda override: override.key_or_group)
    has_name = any(override.key_or_group == "run" for override in every)
    stated = ["run", *re.findall(r"\$\{([\w.]+)\}", template)]
    if "${method:}" in template:
        stated += METHOD
        parts = [*OF_SOURCE] if OmegaConf.select(config, "task.name") == "own" else []
        functions = OmegaConf.select(config, "rewards.functions")
        parts += [f"rewards.functions.{function}" for function in functions or []]
        stated += [part for part in parts if part not in swept]
    varied = [override for override in every if override.key_or_group in swept]
    fixed = []  # of the others, those that change the config
    if not has_name:
        others = [o for o in every if o not in varied and not may_change(o.key_or_group)]
        fixed = with_effect(config, others, every, compose) if others else []
    appended = [o for o in fixed + varied if not is_stated(o.key_or_group, stated)]
    if not appended:
        return written(config.run)
    if not swept:
        parts = [f"{o.key_or_group}-{shortened(as_text(o), LONGEST)}" for o in appended]
        return f"{written(config.run)}-{shortened('-'.join(parts), LONGEST_TAIL)}"
    if has_name:
        return bounded([written(config.run), short(appended)])
    fixed, varied = (
        [o for o in group if o.key_or_group not in ("experiment", "seed")]
        for group in (fixed, varied)
    )
    parts = [written(config.experiment), shortened(short(fixed), MOST_OF_FIXED), short(varied)]
    return bounded(parts, f"-seed{config.seed}")


def short(overrides: list[Override]) -> str:
    """Overrides as a part of a name: pods-lr0.001-warm_up-true. A key is its last part if no other
    key of a training ends so; an algorithm, a rule or an advantage is its value."""
    parts = []
    for override in sorted(overrides, key=lambda override: override.key_or_group not in METHOD):
        key, value = override.key_or_group, as_text(override)
        typed = override.get_value_element_as_str()
        last = key.rpartition(".")[2]
        if key in METHOD:
            # parameters are no file: {a:1} -> a_1
            value = value if key == "algorithm_kwargs" else as_part(without_file(typed))
            parts.append(shortened(value, LONGEST))
            continue
        if LAST.count(last) == (key in KEYS):
            key = SHORT.get(key, last)
        parts.append(f"{key}{'-' * value[0].isalpha()}{shortened(value, LONGEST)}")
    return "-".join(parts)


def bounded(parts: list[str], end: str = "") -> str:
    """The parts joined by dashes, and the end. A longer name than MOST is cut, and its hash stands
    before the end."""
    text = "-".join(part for part in parts if part)
    most = MOST - len(end)
    if len(text) > most:
        text = f"{text[: most - 9]}-{hashed(text)}"
    return text + end


def with_effect(
    config: DictConfig, overrides: list[Override], every: list[Override], compose: Compose
) -> list[Override]:
    """The overrides that change the config. every: all overrides of its command line."""
    groups = [override for override in every if is_group(override)]
    chosen = plain(compose([override.input_line for override in groups]))
    experiment = [o.input_line for o in groups if o.key_or_group == "experiment"]
    default = chosen if len(experiment) == len(groups) else plain(compose(experiment))
    values = plain(config)
    effective = []
    for override in overrides:
        key = override.key_or_group
        before, after = (default, chosen) if is_group(override) else (chosen, values)
        if value_at(before, key) != value_at(after, key):
            effective.append(override)
    return effective


def is_group(override: Override) -> bool:
    return (CONFIG_DIR / override.key_or_group).is_dir()


def plain(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=False)


def value_at(values: Any, key: str) -> Any:
    """The value of a dotted key; None without one."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


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
    return as_part(value) or "empty"


def as_part(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")


def shortened(text: str, most: int) -> str:
    """The text, or its hash if it is longer."""
    return text if len(text) <= most else hashed(text)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def summary(jobs: list[Job], overrides: list[str]) -> str:
    """What a sweep with these overrides shows at its end. The runs that are done are written to its
    folder. Raises OSError."""
    failed = [f"{job.title}: {job.error}" for job in jobs if job.error]
    done = [job.config for job in jobs if not job.error]
    lines = [f"sweep: {len(done)} of {len(jobs)} jobs done", *failed]
    if done and not done[0].trial:
        sweep = folder(overrides, done[0].output_dir)
        runs = dict.fromkeys([*runs_of(sweep), *(config.run for config in done)])
        sweep.mkdir(parents=True, exist_ok=True)
        temporary = sweep / f".{RUNS}.{os.getpid()}.tmp"  # pods.files is no part of pods/config
        temporary.write_text("".join(f"{run}\n" for run in runs))
        temporary.replace(sweep / RUNS)
        lines.append(f"next: {evaluation_of(done, sweep)}")
        chooses = done[0].evaluation.split == "validation"  # else compares
        words = [typed_as("runs", str(sweep))]
        words += typed_folders(output_dir=done[0].output_dir) if chooses else []
        lines.append(f"then: uv run scripts/{'best' if chooses else 'table'}.py {' '.join(words)}")
    return "\n".join(lines)


def folder(overrides: list[str], output_dir: str | Path) -> Path:
    """The folder of the sweep with these overrides; keys that a resumed run may change, and that
    the sweep is not over, do not count."""
    typed = [
        override
        for override in sorted(parsed(overrides), key=lambda override: override.key_or_group)
        if override.is_sweep_override() or not may_change(override.key_or_group)
        if not override.is_hydra_override()
    ]
    fixed = [override for override in typed if not override.is_sweep_override()]
    swept = [o.key_or_group.rpartition(".")[2] for o in typed if o.is_sweep_override()]
    words = " ".join(override.input_line for override in typed)
    if len(short(fixed)) <= MOST_OF_FIXED:
        swept.insert(0, short(fixed))
    return Path(output_dir) / bounded(["sweep", *swept], f"-{hashed(words)}")


LAST_STEPS = 10  # of the mean reward


def score(config: TrainConfig) -> float | None:
    """What a sweeper compares trainings by: greedy accuracy of the last evaluation, else the mean
    reward of the last steps; None without a step."""
    accuracy = None
    last: deque[dict[str, Any]] = deque(maxlen=LAST_STEPS)
    with suppress(OSError), open(Path(config.output_dir) / config.run / "metrics.jsonl") as file:
        for line in map(json.loads, file):
            accuracy = line.get("eval/greedy_accuracy", accuracy)
            last.append(line)
    if accuracy is not None:
        return accuracy
    rewards = [line["all/reward_mean"] for line in last if "all/reward_mean" in line]
    return mean(rewards) if rewards else None


def evaluation_defaults() -> dict[str, Any]:
    """The values of config/evaluate/evaluate.yaml."""
    return yaml.safe_load((CONFIG_DIR / "evaluate" / "evaluate.yaml").read_text())


def typed_folders(**folders: str | Path) -> list[str]:
    """output_dir and results_dir as words of a command, unless they are the defaults."""
    defaults = evaluation_defaults()
    return [typed_as(key, str(path)) for key, path in folders.items() if str(path) != defaults[key]]


def evaluate_command(*words: str, trust: bool = False, **folders: str | Path) -> str:
    """The command evaluate_run.py with these words, with folders that are no defaults, and with
    leave to run code that a saved config names."""
    words += (*typed_folders(**folders), *["trust_code=true"] * trust)
    return " ".join(["uv run evaluate_run.py", *words])


def evaluation_of(trainings: list[TrainConfig], sweep: Path | None = None) -> str:
    """The command that evaluates a run, or the runs of a sweep, typed in the same folder."""
    first = trainings[0]
    words = [typed_as("run", str(sweep or first.run))]
    if first.evaluation.split != evaluation_defaults()["split"]:  # for best.py, checkpoints=best
        words.append(f"split={first.evaluation.split}")
    trust = any(code_of(training) for training in trainings)
    return evaluate_command(*words, trust=trust, output_dir=first.output_dir)
