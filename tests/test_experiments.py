"""The paper's settings as named experiments: their values, and that the figures find their runs."""

from fnmatch import fnmatch

import pytest
import yaml

from pods.config.command import CONFIG_DIR
from tests.configs import compose, get

PAPER = {  # the same in every setting of the paper
    "lora.rank": 64,
    "lora.alpha": 64,
    "optimizer.learning_rate": 5e-6,
    "optimizer.schedule": "constant",
    "optimizer.betas": [0.9, 0.99],
    "optimizer.weight_decay": 0.1,
    "optimizer.max_grad_norm": 0.1,
    "sampling.temperature": 0.9,
    "sampling.max_prompt_length": 512,
    "sampling.max_completion_length": 512,
    "prompts_per_step": 1,
    "loss.type": "grpo",
    "advantage.name": "kept",
    "model.load_in_4bit": True,
    "engine.gpu_memory_utilization": 0.5,
    "engine.importance_sampling_correction": False,
}
# settings (e) and (f) train all parameters
FULL = {"gsm8k_h100": "Qwen/Qwen2.5-3B-Instruct", "gsm8k_a100": "Qwen/Qwen2.5-7B-Instruct"}
SETTINGS = [  # experiment, its figure, n, m, beta, rewards, seconds of training and of a checkpoint
    ("gsm8k_qwen", "gsm8k_main", 64, 16, 0.0, "v1", 21600, 1800),
    ("gsm8k_llama", "llama_main", 64, 16, 0.04, "v2", 5400, 600),
    ("math_qwen", "math_main", 32, 8, 0.0, "v1-correctness", 21600, 1800),
    ("chemistry_qwen", "chemistry_main", 64, 16, 0.0, "v1-correctness", 21600, 1800),
]


@pytest.mark.parametrize("path", (CONFIG_DIR / "experiment").glob("*.yaml"), ids=lambda p: p.stem)
def test_every_experiment_passes_its_checks(path):
    config = compose(f"experiment={path.stem}")
    assert config.experiment == path.stem
    if path.stem in FULL:
        assert (config.model.path, config.lora.rank) == (FULL[path.stem], None)


@pytest.mark.parametrize(
    ("experiment", "name", "n", "m", "beta", "version", "seconds", "grid"), SETTINGS
)
def test_the_papers_values_and_its_figure(experiment, name, n, m, beta, version, seconds, grid):
    folder = CONFIG_DIR / "figure"
    figure = yaml.safe_load((folder / "_published.yaml").read_text())
    figure |= yaml.safe_load((folder / f"{name}.yaml").read_text())
    assert (figure["budget_seconds"], figure["grid_seconds"]) == (seconds, grid)
    for label, algorithm, sizes in (
        ("GRPO-PODS", "pods", (n, m, m)),
        ("GRPO", "grpo", (m, m, m)),
        (None, "grpo_ga", (n, n, m)),
    ):
        config = compose(f"experiment={experiment}", f"algorithm={algorithm}", "seed=7")
        assert {key: get(config, key) for key in PAPER} == PAPER
        assert (config.loss.beta, config.rewards.version) == (beta, version)
        assert (config.budget.train_seconds, config.checkpoint.every_seconds) == (seconds, grid)
        n_and_m = config.rollouts_per_prompt, config.kept_per_prompt
        assert (*n_and_m, config.micro_batch_size) == sizes
        patterns = figure["series"][label]["runs"] if label else ["*"]
        assert any(fnmatch(config.run, pattern) for pattern in patterns)
