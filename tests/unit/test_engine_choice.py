"""Which backend and engine a run gets, why, and where the named one is refused."""

from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from trl.trainer import grpo_trainer

from pods import PodsConfig, trainer
from pods.config.errors import UserError
from pods.engines import Limits, Sampling, choose
from pods.models.policy import Policy
from tests.configs import compose
from tests.fake_run import make_run
from tests.figures import in_process

FULL = ["lora.rank=null", "lora.alpha=1"]
FLOAT32 = ["model.dtype=float32"]
TWO = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
ZERO3 = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}
CORRECTS = ["trl.vllm_importance_sampling_correction=true"]
NEEDS = [f"algorithm={__file__}:likely"]
NARROW = ["sampling.top_p=.9", "sampling.temperature=.7"]
MODE = "trl.use_vllm=false"
SIZES = ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4"]


def likely(step):
    """The half of the rollouts that the policy finds likeliest."""
    batch = yield step.prompts, step.n
    return np.argsort(-batch.logprobs)[: step.budget]


likely.reads_logprobs = True


@pytest.fixture
def machine(monkeypatch, tmp_path_factory):
    headers = tmp_path_factory.mktemp("include")
    (headers / "Python.h").touch()

    def become(cuda, packages, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(choose, "find_spec", lambda name: packages)
        monkeypatch.setenv("CC", "cc")
        monkeypatch.setattr(choose.sysconfig, "get_path", lambda name: str(headers))
        installed = ["vllm"] if packages else []
        monkeypatch.setattr(
            metadata, "distributions", lambda name: [x for x in installed if x == name]
        )

    return become


def outcome(function, *arguments):
    """What is chosen and why, or why not."""
    try:
        return ": ".join(function(*arguments))
    except UserError as error:
        return str(error)


@pytest.mark.parametrize(
    ("choice", "name", "cuda", "packages", "environment", "expected"),
    [
        (choose.backend, "auto", True, True, {}, "unsloth: found CUDA and unsloth"),
        (choose.backend, "auto", True, False, {}, "transformers: unsloth is not installed"),
        (choose.backend, "auto", False, True, {}, "transformers: no CUDA device"),
        (choose.backend, "auto", True, True, TWO, "transformers: 2 processes; Unsloth trains on o"),
        (choose.backend, "unsloth", False, True, {}, "backend=unsloth: no CUDA device; set backen"),
        (choose.for_evaluation, "auto", False, True, {}, "transformers: no CUDA device"),
        (choose.for_evaluation, "auto", True, False, {}, "transformers: vllm is not installed"),
        (choose.for_evaluation, "auto", True, True, {}, "vllm: found CUDA and vllm"),
        (choose.for_evaluation, "vllm", True, True, {}, "vllm: as configured"),
        (choose.for_evaluation, "vllm", True, False, {}, "engine=vllm: vllm is not installed"),
    ],
)
def test_the_backend_and_the_engine_of_an_evaluation(
    machine, choice, name, cuda, packages, environment, expected
):
    config = compose("model.dtype=bfloat16")
    machine(cuda, packages, environment)
    assert outcome(choice, name, config).startswith(expected)


@pytest.mark.parametrize(
    ("choice", "name", "overrides", "expected"),
    [
        (choose.backend, "auto", FLOAT32, "transformers: Unsloth takes no model.dtype=float32"),
        (
            choose.backend,
            "unsloth",
            FLOAT32,
            "backend=unsloth: Unsloth takes no model.dtype=float3",
        ),
        (choose.backend, "auto", FULL, "transformers: Unsloth trains adapters (lora.rank=null)"),
        (
            choose.backend,
            "unsloth",
            FULL,
            "backend=unsloth: Unsloth trains adapters (lora.rank=nul",
        ),
        (choose.for_evaluation, "auto", FLOAT32, "transformers: vLLM's adapters take no model.dty"),
        (choose.for_evaluation, "vllm", FLOAT32, "engine=vllm: vLLM's adapters take no model.dty"),
        (choose.for_evaluation, "transformers", FLOAT32, "transformers: as configured"),
    ],
)
def test_what_a_package_cannot_do_is_done_by_transformers_on_a_card_too(
    machine, choice, name, overrides, expected
):
    """The README's first command is of float32."""
    machine(True, True, {})
    config = compose("model.dtype=bfloat16", *overrides)
    assert outcome(choice, name, config).startswith(expected)


def test_an_evaluation_chooses_before_anything_loads(machine, monkeypatch, tmp_path, capsys):
    """Of a run in float32, with a card."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("checkpoints"))

    def build(name, *_):
        raise UserError(f"builds {name}")

    monkeypatch.setattr(choose, "build", build)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a card")
    machine(True, True, {})
    assert in_process("evaluate_run.py", "run=fake") == 2
    assert "builds transformers" in capsys.readouterr().err


def engine_of(overrides, unsloth):
    config = compose(*SIZES, "model.dtype=bfloat16", *overrides)
    config.backend = "unsloth" if unsloth else "transformers"
    return outcome(choose.for_training, config)


@pytest.mark.parametrize(
    ("cuda", "packages", "environment", "overrides", "expected"),
    [
        (False, False, {}, [], "transformers: no CUDA device"),
        (False, True, {}, ["engine=trl", "trl.vllm_mode=server", *FULL], "no CUDA dev"),
        (True, False, {}, [], "transformers: vllm is not installed"),
        (True, False, {}, ["engine=vllm"], "installed (uv sync --extra gpu); set engine=tr"),
        (True, True, TWO, FULL, "trl: several processes"),
        (True, True, ZERO3, ["engine=transformers", *FULL], "set engine=trl"),
        (True, True, ZERO3, [], "engine=vllm: ZeRO-3 divides"),  # an adapter's too
    ],
)
def test_the_engine_of_a_training_is_one_that_this_machine_has(
    machine, cuda, packages, environment, overrides, expected
):
    machine(cuda, packages, environment)
    assert expected in engine_of(overrides, unsloth=False)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], "vllm: found CUDA and vllm"),
        (FULL, "transformers: every parameter is trained"),
        (FLOAT32, "transformers: vLLM's adapters take no"),
        ([*FLOAT32, "engine=vllm"], "set engine=transformers"),
        (["engine=transformers"], "transformers: as configured"),
        (["engine=unsloth"], "set engine=vllm, or backend=unsloth"),
        (["engine=vllm", *FULL], "set engine=trl trl.vllm_mode=coloc"),
        (["engine=vllm", "trl.use_vllm=true"], "starts TRL's own vLLM; set"),
        (["vllm.merged_rollouts=true"], "engine=vllm: only Unsloth's vLLM has"),
        (["vllm.merged_rollouts=true", "engine=transformers"], "only Unsloth's vLLM has"),
        (["engine=trl", "trl.vllm_mode=server"], "set engine=vllm"),
        ([*NEEDS, "engine=vllm"], "vllm: as configured"),
        ([*NEEDS, *NARROW, "engine=vllm"], "likely reads log-prob"),
        ([*NEEDS, *NARROW, "engine=transformers"], "transformers: as conf"),
        ([*NEEDS, *FULL, "engine=trl", MODE], "reads log-probabilities"),
        ([*CORRECTS, *FULL, "engine=trl", MODE], "correction=true, and it"),
        ([*NEEDS, *FULL, "engine=trl"], "trl: as configured"),  # colocated
        ([*NEEDS, *FULL, "engine=trl", "sampling.top_k=20"], "gives none"),
    ],
)
def test_the_engine_of_a_training_on_a_card_is_one_that_can_serve_it(machine, overrides, expected):
    machine(True, True, {})
    assert expected in engine_of(overrides, unsloth=False)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], "unsloth: shares the base weights"),
        (["vllm.merged_rollouts=true"], "unsloth: shares the base weights"),
        (["engine=transformers"], "set engine=unsloth, vllm or trl"),
    ],
)
def test_the_engine_of_a_training_by_unsloth(machine, overrides, expected):
    machine(True, True, {})
    assert expected in engine_of(overrides, unsloth=True)


def test_auto_is_resolved_and_said_in_one_line(machine, monkeypatch):
    config = compose("engine=auto", "model.dtype=bfloat16")
    config.backend, config.optimizer.name = "auto", "auto"
    machine(True, True, {})
    line = choose.resolve_auto(config)
    assert (config.backend, config.engine) == ("unsloth", "unsloth")
    assert config.optimizer.name == "adamw_8bit"
    assert line.startswith("backend unsloth (found CUDA and unsloth), engine unsloth (shares ")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "one of 2 cards: accelerate launch uses them all" in choose.resolve_auto(config)
    machine(True, True, TWO)
    assert "2 cards" not in choose.resolve_auto(compose())


def test_rollouts_are_not_merged_into_4_bit_weights():
    keys = "vllm.merged_rollouts=true", "model.load_in_4bit=true"
    with pytest.raises(UserError, match=r"^vllm\.merged_rollouts=true: .*load_in_4bit=false"):
        compose(*keys)


def test_4_bit_weights_need_cuda(machine):
    machine(False, True, {})
    line = outcome(choose.resolve_auto, compose("model.load_in_4bit=true"))
    assert "need CUDA, with driver 580 or newer" in line


@pytest.mark.parametrize("m", [16, 64])
def test_trls_colocated_engine_runs_a_ranks_share_of_all_rollouts_at_once(monkeypatch, m):
    """TRL would take m x P: four waves for PODS, one for GRPO-GA."""
    taken = []
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", lambda **given: taken.append(given))
    args = PodsConfig(
        "out",
        rollouts_per_prompt=64,
        num_generations=m,
        per_device_train_batch_size=m,
        use_cpu=True,
        bf16=False,
    )
    with trainer.engine_slots(args):
        grpo_trainer.VLLMGeneration(max_num_seqs=m, mode="colocate")
    grpo_trainer.VLLMGeneration(max_num_seqs=1)
    assert taken == [{"max_num_seqs": 64, "mode": "colocate"}, {"max_num_seqs": 1}]


def test_an_engine_is_built_with_the_keys_of_the_training_and_the_ends_of_its_policy(monkeypatch):
    given = []
    monkeypatch.setattr(choose, "build", lambda *arguments: given.append(arguments))
    config = compose(
        *SIZES,
        "engine=transformers",
        "vllm.gpu_memory_utilization=0.4",
        "lora.rank=16",
        "sampling.temperature=0.7",
        "sampling.top_p=0.9",
        "sampling.top_k=5",
        "sampling.stop=[b]",
        "sampling.max_completion_length=20",
        "sampling.max_prompt_length=30",
    )
    policy = Policy(None, "t", None, [3, 9])  # 9: Unsloth's pad
    choose.build_for_training(config, policy)
    sampled = Sampling(0.7, 0.9, 5, 20, 30, ("b",), (3, 9))
    limits = Limits(max_sequences=16, gpu_memory_utilization=0.4)
    assert given == [("transformers", config, "t", sampled, limits, 16)]
    assert choose.build_for_training(compose("engine=trl"), "policy") is None  # the trainer does


def test_an_engine_of_the_users_is_given_config_and_policy(tmp_path):
    (tmp_path / "mine.py").write_text("def made(config, policy): return config.run, policy")
    config = compose(f"engine={tmp_path}/mine.py:made", "run=r")
    assert choose.for_training(config)[1] == "a class in a file"
    assert choose.build_for_training(config, "policy") == ("r", "policy")


@pytest.mark.parametrize(
    ("compiler", "header", "named"),
    [
        (False, True, ["C compiler"]),
        (True, False, ["Python.h"]),
        (False, False, ["C compiler", "Python.h"]),
    ],
)
@pytest.mark.parametrize("overrides", [[], ["engine=vllm"]])
def test_a_machine_without_compiler_or_headers_is_refused(
    machine, monkeypatch, tmp_path, compiler, header, named, overrides
):
    machine(True, True, {})
    if not compiler:
        monkeypatch.delenv("CC")
        monkeypatch.setattr(choose.shutil, "which", lambda name: None)
    if not header:
        monkeypatch.setattr(choose.sysconfig, "get_path", lambda name: str(tmp_path))
    config = compose("model.dtype=bfloat16", "backend=auto", *overrides)
    with pytest.raises(UserError) as error:
        choose.resolve_auto(config)
    assert all(part in str(error.value) for part in (*named, "build-essential", "python3-dev"))
    choose.refuse_without_compiler("transformers", "transformers")  # needs neither
