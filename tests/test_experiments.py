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
# experiment -> (n, m, beta, rewards, seconds of training, seconds between checkpoints), its figure
OF_SETTING = {
    "gsm8k_qwen": ((64, 16, 0.0, "v1", 21600, 1800), "gsm8k_main"),
    "gsm8k_llama": ((64, 16, 0.04, "v2", 5400, 600), "llama_main"),
    "math_qwen": ((32, 8, 0.0, "v1-correctness", 21600, 1800), "math_main"),
    "chemistry_qwen": ((64, 16, 0.0, "v1-correctness", 21600, 1800), "chemistry_main"),
}


@pytest.mark.parametrize("path", (CONFIG_DIR / "experiment").glob("*.yaml"), ids=lambda p: p.stem)
def test_every_experiment_passes_its_checks(path):
    assert compose(f"experiment={path.stem}").experiment == path.stem


@pytest.mark.parametrize("experiment", OF_SETTING)
def test_the_papers_values(experiment):
    config = compose(f"experiment={experiment}")
    assert {key: get(config, key) for key in PAPER} == PAPER
    assert OF_SETTING[experiment][0] == (
        config.rollouts_per_prompt, config.kept_per_prompt, config.loss.beta,
        config.rewards.version, config.budget.train_seconds, config.checkpoint.every_seconds,
    )  # fmt: skip


@pytest.mark.parametrize("experiment", OF_SETTING)
def test_sizes_of_the_baselines(experiment):
    n, m = OF_SETTING[experiment][0][:2]
    grpo = compose(f"experiment={experiment}", "algorithm=grpo")
    assert (grpo.rollouts_per_prompt, grpo.kept_per_prompt, grpo.micro_batch_size) == (m, m, m)
    ga = compose(f"experiment={experiment}", "algorithm=grpo_ga")
    assert (ga.rollouts_per_prompt, ga.kept_per_prompt, ga.micro_batch_size) == (n, n, m)


@pytest.mark.parametrize("experiment", OF_SETTING)
def test_the_figure_has_the_runs_and_their_grid(experiment):
    folder = CONFIG_DIR / "figure"
    figure = yaml.safe_load((folder / "_published.yaml").read_text())
    figure |= yaml.safe_load((folder / f"{OF_SETTING[experiment][1]}.yaml").read_text())
    for label, algorithm in (("GRPO", "grpo"), ("GRPO-PODS", "pods")):
        config = compose(f"experiment={experiment}", f"algorithm={algorithm}", "seed=7")
        assert any(fnmatch(config.run, pattern) for pattern in figure["series"][label]["runs"])
        assert config.checkpoint.every_seconds == figure["grid_seconds"]
        assert config.budget.train_seconds == figure["budget_seconds"]
