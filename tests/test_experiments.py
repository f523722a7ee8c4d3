"""The paper's settings as named experiments: their values, as keys and as TRL's arguments, and that
docs/paper.md trains every arm of every figure."""

import itertools
import re
from fnmatch import fnmatch
from functools import partial

import pytest
import yaml

from pods import by_name
from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.keys import TrainConfig
from pods.models.policy import Policy
from pods.training.build import trl_arguments
from pods.training.check import settle
from tests.configs import compose, get
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
SETTINGS = [  # experiment, its figure, n, m, beta, rewards, seconds of training and of a checkpoint
    ("gsm8k_qwen", "gsm8k_main", 64, 16, 0.0, "v1", 21600, 1800),
    ("gsm8k_llama", "llama_main", 64, 16, 0.04, "v2", 5400, 600),
    ("math_qwen", "math_main", 32, 8, 0.0, "v1-correctness", 21600, 1800),
    ("chemistry_qwen", "chemistry_main", 64, 16, 0.0, "v1-correctness", 21600, 1800),
]


@pytest.mark.parametrize("name", [p.stem for p in (CONFIG_DIR / "experiment").glob("*.yaml")])
def test_every_experiment_passes_its_checks(name):
    config = compose(f"experiment={name}")
    assert config.experiment == name


@pytest.mark.parametrize(("name", "size"), [("gsm8k_h100", "3B"), ("gsm8k_a100", "7B")])
def test_the_values_of_settings_e_and_f(name, size):
    for algorithm, n, m in (("pods", 4 * 128, 4 * 32), ("grpo_ga", 16 * 32, 16 * 32)):
        config = compose(f"experiment={name}", f"algorithm={algorithm}")
        assert (config.rollouts_per_prompt, config.kept_per_prompt) == (n, m)
        assert {key: get(config, key) for key in FULL} == FULL
        assert config.model.path == f"Qwen/Qwen2.5-{size}-Instruct"


def assert_arguments(config, expected):
    actual = trl_arguments(config, Policy(None, None, None, "cpu", [1]))
    assert {key: actual[key] for key in expected} == expected


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_papers_values_and_its_figure(setting):
    experiment, name, n, m, beta, version, seconds, grid = setting
    folder = CONFIG_DIR / "figure"
    figure = yaml.safe_load((folder / "_published.yaml").read_text())
    figure |= yaml.safe_load((folder / f"{name}.yaml").read_text())
    assert (figure["budget_seconds"], figure["grid_seconds"]) == (seconds, grid)
    for algorithm, drawn, kept in (("pods", n, m), ("grpo", m, m), ("grpo_ga", n, n)):
        config = compose(f"experiment={experiment}", f"algorithm={algorithm}", "seed=7")
        assert {key: get(config, key) for key in PAPER} == PAPER
        assert (config.rollouts_per_prompt, config.rewards.version) == (drawn, version)
        assert (config.budget.train_seconds, config.checkpoint.every_seconds) == (seconds, grid)
        expected = PUBLISHED | {"beta": beta, "num_generations": kept}
        expected |= {"per_device_train_batch_size": m, "gradient_accumulation_steps": kept // m}
        expected |= {"steps_per_generation": kept // m}
        assert_arguments(config, expected)


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


ROWS = re.findall(r"train\.py (?:-m )?(experiment=[^#\n]*)", (ROOT / "docs/paper.md").read_text())
ROWS.append("experiment=gsm8k_h100 algorithm=grpo_ga")  # the line says it in words
OURS = ("all", "a100s")  # drawn from others' runs; ours alone; a comment of h100s
FILES = [*(CONFIG_DIR / "figure").glob("[!_]*.yaml")]
FIGURES = [p.stem for p in FILES if p.stem not in OURS and "experiment" not in p.read_text()]


def names():
    """The runs that the lines of docs/paper.md train, with the first seed."""
    runs = set()
    for row in ROWS:
        pairs = (word.split("=") for word in re.sub(r"(seed=\d+),\S*", r"\1", row).split())
        choices = [[f"{key}={value}" for value in values.split(",")] for key, values in pairs]
        for overrides in itertools.product(*choices):
            composed = command.compose("train", list(overrides), implied=by_name.implied)
            composed.run = sweeps.name(
                composed,
                overrides,
                set(),
                partial(command.compose, "train", implied=by_name.implied),
            )
            config = command.typed(TrainConfig, composed)
            settle(config)
            runs.add(config.run)
    return runs


def test_every_arm_of_every_figure_is_trained_by_a_line():
    trained = names()
    assert len(FIGURES) == 9
    for figure in FIGURES:
        series = command.compose(f"figure/{figure}", []).figure.series
        for arm, settings in series.items():
            assert any(fnmatch(run, p) for run in trained for p in settings.runs), (figure, arm)
