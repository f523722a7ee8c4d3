"""The seven drop-in checks: TRL's scripts with two names changed. They need the installed package,
TRL, PEFT and pytest, nothing else of the repository, so that they run beside any version of TRL:

    cp tests/nightly/test_drop_in.py <folder>; cd <folder>
    <environment>/bin/python -m pytest test_drop_in.py
docs/versions.md has the pairs of versions where they were run."""

from pathlib import Path

import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

import pods
from pods import PodsConfig, PodsTrainer

MODEL = str(Path(pods.__file__).parent / "tiny_policy")
TEXTS = [f"<think>{i}+{i % 7}=" for i in range(6)]
PLAIN = Dataset.from_dict({"prompt": TEXTS, "bonus": [0.1 * i for i in range(6)]})
CHAT = PLAIN.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
SETTINGS = {
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "max_completion_length": 8,
    "max_steps": 4,
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "seed": 0,
    "learning_rate": 1e-3,
}
ALGORITHM = """from pods.rules import keep, max_variance


def halves(step):
    batch = yield step.prompts, step.n // 2
    batch = yield step.prompts, step.n - step.n // 2
    return keep(batch, max_variance, step.m, step.rng)
"""


def letters(completions, bonus, **_):
    """Reads a column, so that completions and rows that are mixed up show."""
    texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
    return [len(set(text)) + extra for text, extra in zip(texts, bonus, strict=True)]


def sometimes(completion_ids, **_):
    return [None if ids[0] % 2 else float(sum(ids) % 9) for ids in completion_ids]


def built(kind, folder, data=PLAIN, rewards=letters, lora=False, own=None, **changes):
    """GRPOTrainer or PodsTrainer; `own`: arguments of PodsTrainer."""
    config = PodsConfig if kind is PodsTrainer else GRPOConfig
    transformers.set_seed(0)  # LoRA's first weights precede TRL's own set_seed
    return kind(
        model=MODEL,
        reward_funcs=rewards,
        args=config(**SETTINGS | {"output_dir": str(folder), **changes}),
        train_dataset=data,
        processing_class=transformers.AutoTokenizer.from_pretrained(MODEL),
        peft_config=LoraConfig(r=4, target_modules=["q_proj"]) if lora else None,
        **(own or {}),
    )


def trained(*arguments, **changes):
    trainer = built(*arguments, **changes)
    trainer.train()
    return trainer


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def moved(start, trainer):
    """Names of the weights that differ from those at the start."""
    return {name for name, value in weights(trainer).items() if not torch.equal(value, start[name])}


def assert_equal_to_trls(folder, **case):
    """Every weight is the stock trainer's, to the bit, and something was learnt."""
    theirs = trained(GRPOTrainer, folder, **case)
    ours = built(PodsTrainer, folder, **case, algorithm="grpo")
    start = weights(ours)
    ours.train()
    assert moved(start, ours)
    assert moved(weights(theirs), ours) == set()


def test_1_grpo_equals_grpo_trainer_to_the_bit(tmp_path):
    assert_equal_to_trls(tmp_path)


def test_2_conversational_prompts(tmp_path):
    assert_equal_to_trls(tmp_path, data=CHAT)


def test_3_several_rewards_with_weights_and_none(tmp_path):
    rewards = {"rewards": [sometimes, letters], "reward_weights": [0.3, 2.0]}
    assert_equal_to_trls(tmp_path, **rewards)


def test_4_lora_by_peft_config(tmp_path):
    assert_equal_to_trls(tmp_path, lora=True, beta=0.1)


def test_5_pods_samples_n_and_trains_on_m(tmp_path):
    ours = built(PodsTrainer, tmp_path, rollouts_per_prompt=12)
    start = weights(ours)
    ours.train()
    assert moved(start, ours)
    prompts = len(ours.newest.prompts)
    assert len(ours.newest.rollouts) == 12 * prompts
    assert len(ours.newest.selection.kept) == 4 * prompts


def test_6_a_resumed_run_ends_with_the_same_weights(tmp_path):
    settings = {"rollouts_per_prompt": 8, "save_strategy": "steps", "save_steps": 2}
    whole = trained(PodsTrainer, tmp_path / "whole", **settings)
    resumed = built(PodsTrainer, tmp_path / "resumed", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert resumed.state.global_step == whole.state.global_step == 4
    assert moved(weights(whole), resumed) == set()


@pytest.mark.parametrize("form", ["path", "function"])
def test_7_an_algorithm_of_the_users(form, tmp_path):
    file = tmp_path / "my_algorithm.py"
    file.write_text(ALGORITHM)
    chosen = {"algorithm": f"{file}:halves"}
    if form == "function":
        names = {}
        exec(ALGORITHM, names)
        chosen = {"own": {"algorithm": names["halves"]}}
    ours = trained(PodsTrainer, tmp_path, rollouts_per_prompt=8, max_steps=2, **chosen)
    assert len(ours.newest.rollouts) == 8 * len(ours.newest.prompts)
