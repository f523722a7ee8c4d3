"""Which engine a training gets, why, and where the named one is refused."""

from types import SimpleNamespace

import pytest
import torch

from pods import ranks
from pods.config.errors import UserError
from pods.engines import Limits, Sampling, choose
from tests.configs import compose

FULL = ["lora.rank=null", "lora.alpha=1"]
TWO = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
ZERO3 = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}


def on_a_machine(monkeypatch, cuda: bool, vllm: bool, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(choose, "find_spec", lambda name: vllm)
    monkeypatch.setattr(choose, "vllm_runs", lambda: cuda and vllm)


@pytest.mark.parametrize(
    ("cuda", "vllm", "backend", "overrides", "environment", "name", "reason"),
    [
        (False, False, "transformers", [], {}, "transformers", "no CUDA device"),
        (True, False, "transformers", [], {}, "transformers", "vllm is not installed"),
        (True, True, "transformers", [], {}, "vllm", "found CUDA and vllm"),
        (True, True, "transformers", [], TWO, "vllm", "found CUDA and vllm"),
        (True, True, "unsloth", [], {}, "unsloth", "shares the base weights"),
        (True, True, "transformers", FULL, {}, "transformers", "every parameter is trained"),
        (True, True, "transformers", FULL, TWO, "trl", "several processes"),
        (True, True, "transformers", ["engine=transformers"], {}, "transformers", "as configured"),
        (True, True, "unsloth", ["engine=vllm"], {}, "vllm", "as configured"),
        (True, True, "unsloth", ["engine=trl"], {}, "trl", "as configured"),
    ],
)
def test_the_choice_and_its_reason(
    monkeypatch, cuda, vllm, backend, overrides, environment, name, reason
):
    sizes = ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4"]
    config = compose(*sizes, *overrides)
    config.backend.name = backend
    on_a_machine(monkeypatch, cuda, vllm, environment)
    found = choose.for_training(config)
    assert found[0] == name
    assert reason in found[1]


@pytest.mark.parametrize(
    ("cuda", "backend", "overrides", "environment", "said"),
    [
        (
            True,
            "transformers",
            ["engine=unsloth"],
            {},
            "set engine=vllm, or backend=unsloth",
        ),
        (True, "unsloth", ["engine=transformers"], {}, "set engine=unsloth, vllm or trl"),
        (True, "transformers", ["engine=transformers", *FULL], ZERO3, "set engine=trl"),
        (True, "transformers", ["engine=vllm", *FULL], {}, "set engine=trl engine.vllm_mode=coloc"),
        (True, "transformers", ["engine=trl", "engine.vllm_mode=server"], {}, "set engine=vllm"),
        (False, "transformers", ["engine=vllm"], {}, "set engine=transformers"),
        (False, "transformers", ["engine=trl", "engine.vllm_mode=server", *FULL], {}, "CUDA"),
    ],
)
def test_an_engine_that_cannot_serve_is_refused_with_the_remedy(
    monkeypatch, cuda, backend, overrides, environment, said
):
    config = compose(*overrides)
    config.backend.name = backend
    on_a_machine(monkeypatch, cuda, cuda, environment)
    with pytest.raises(UserError, match=f"engine={config.engine.name}: .*{said}"):
        choose.for_training(config)


@pytest.mark.parametrize(("algorithm", "count"), [("pods", 64), ("grpo_ga", 64)])
def test_trls_colocated_engine_runs_a_ranks_share_of_all_rollouts_at_once(
    monkeypatch, algorithm, count
):
    """TRL would take m x P: four waves for PODS, one for GRPO-GA."""
    from trl.trainer import grpo_trainer

    from pods import seam

    taken = []
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", lambda **given: taken.append(given))
    config = compose(
        "prompts_per_step=2", "rollouts_per_prompt=64", "kept_per_prompt=16",
        f"algorithm={algorithm}",
    )  # fmt: skip
    m = config.kept_per_prompt
    arguments = SimpleNamespace(
        per_device_train_batch_size=m, steps_per_generation=1,  # of one of two ranks
        rollouts_per_prompt=64, num_generations=m, vllm_tensor_parallel_size=1,
    )  # fmt: skip
    with seam.engine_slots(arguments):
        grpo_trainer.VLLMGeneration(max_num_seqs=m, mode="colocate")
    assert taken == [{"max_num_seqs": count, "mode": "colocate"}]
    grpo_trainer.VLLMGeneration(max_num_seqs=1)
    assert taken[1] == {"max_num_seqs": 1}
    assert ranks.world_size() == 1


def test_an_engine_is_built_with_the_keys_of_the_training_and_the_ends_of_its_policy(monkeypatch):
    given = []
    monkeypatch.setattr(choose, "build", lambda *arguments: given.append(arguments))
    config = compose(
        "engine=transformers", "prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4",
        "sampling.temperature=0.7", "sampling.top_p=0.9", "sampling.top_k=5", "lora.rank=16",
        "sampling.max_completion_length=20", "sampling.max_prompt_length=30", "sampling.stop=[b]",
        "engine.gpu_memory_utilization=0.4",
    )  # fmt: skip
    choose.build_for_training(
        config, SimpleNamespace(tokenizer="t", end_tokens=[3, 9])
    )  # 9: Unsloth's pad
    drawn = Sampling(0.7, 0.9, 5, 20, 30, ("b",), (3, 9))
    limits = Limits(max_sequences=16, gpu_memory_utilization=0.4)
    assert given == [("transformers", config, "t", drawn, limits, 16)]
    assert choose.build_for_training(compose("engine=trl"), "policy") is None  # the trainer does


def test_an_engine_of_the_users_is_given_config_and_policy(tmp_path):
    (tmp_path / "mine.py").write_text("def made(config, policy): return config.run, policy")
    config = compose(f"engine.name={tmp_path}/mine.py:made", "run=r")
    assert choose.build_for_training(config, "policy") == ("r", "policy")


@pytest.mark.parametrize(
    ("name", "overrides", "given"),
    [
        ("transformers", [], True),
        ("unsloth", [], True),
        ("trl", [], False),
        ("trl", ["engine=trl", "engine.vllm_mode=colocate"], True),
        ("vllm", [], True),
        ("vllm", ["sampling.top_p=0.9", "sampling.temperature=0.7"], False),
    ],
)
def test_which_engines_give_log_probabilities(name, overrides, given):
    config = compose("lora.rank=null", "lora.alpha=1", *overrides)
    assert choose.gives_logprobs(name, config) is given


@pytest.mark.parametrize(
    ("cuda", "vllm", "name", "expected"),
    [
        (False, False, "auto", "transformers"),
        (True, False, "auto", "transformers"),
        (True, True, "auto", "vllm"),
        (True, True, "vllm", "vllm"),
        (True, False, "vllm", "needs a CUDA device and vllm .*; set engine=transformers"),
    ],
)
def test_an_evaluation_takes_the_fastest_engine_and_refuses_one_that_cannot_run(
    monkeypatch, cuda, vllm, name, expected
):
    on_a_machine(monkeypatch, cuda, vllm, {})
    if " " not in expected:
        assert choose.for_evaluation(name)[0] == expected
        return
    with pytest.raises(UserError, match=f"engine={name}: .*{expected}"):
        choose.for_evaluation(name)
