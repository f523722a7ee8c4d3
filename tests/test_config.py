"""Schemas, dict fields that take new keys, Hydra's settings, configs of earlier versions."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from pods.config import command, schema
from pods.config.check import settle
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.upgrade import load, upgrade
from pods.evaluation.config import EvaluateConfig, training_config
from pods.runs import checkpoints, ledger, results
from pods.runs.folder import RunFolder, read_metrics
from tests.configs import compose, get

FIRST = Path(__file__).parent / "fixtures" / "first_design"
SAVED = FIRST / "checkpoints" / "v1" / ".hydra" / "config.yaml"


@dataclass
class Inner:
    size: int | None = schema.positive()
    part: float = schema.share()


@dataclass
class Outer:
    name: str = schema.one_of("a", "b")
    function: str = schema.one_of_or_function("a")
    low: float = schema.at_least(0)
    inner: Inner | None = None


def test_every_field_that_breaks_its_rule_is_named_in_order():
    assert list(schema.broken(Outer("a", "my.py:f", 0, Inner(None, 1)))) == []
    assert list(schema.broken(Outer("c", "b", float("nan"), Inner(0, 0)))) == [
        "name=c: must be one of a, b",
        "function=b: must be one of a, or path/to/file.py:function",
        "low=nan: must be 0 or more",
        "inner.size=0: must be greater than 0",
        "inner.part=0: must be in (0, 1]",
    ]


def test_no_key_is_old_and_new():
    known = schema.keys(TrainConfig)
    assert {"rewards.functions", "logger.wandb.mode", "engine.check_every"} <= known.keys()
    old = {key.partition("=")[0] for key in schema.OLD_KEYS["train"]}
    assert not old & known.keys()
    assert not schema.OLD_KEYS["evaluate"].keys() & schema.keys(EvaluateConfig).keys()


@pytest.mark.parametrize(
    "group",
    ["rule", "advantage", "prompts", "resample", "engine", "backend", "rewards", "model"],
)
def test_every_choice_of_a_group_composes(group):
    names = [p.stem for p in (CONFIG_DIR / group).glob("*.yaml") if not p.stem.startswith("_")]
    assert names
    for name in names:
        config = command.typed(
            TrainConfig, command.compose("train", TrainConfig, [f"{group}={name}"])
        )
        if group not in ("rewards", "model"):
            assert get(config, f"{group}.name") == name


def test_dict_fields_take_new_keys_as_typed():
    config = command.typed(
        TrainConfig,
        command.compose(
            "train",
            TrainConfig,
            [
                "rewards.functions.brevity=my_rewards.py:brevity", "rewards.weights.brevity=0.5",
                "rule.params.k=3", "advantage.params={scale: 2}", "optimizer.swept.mine=1e-3",
            ],
        ),
    )  # fmt: skip
    assert config.rewards.functions == {"brevity": "my_rewards.py:brevity"}
    assert config.rewards.weights == {"correctness": 1, "format": 1, "tags": 1, "brevity": 0.5}
    assert (config.rule.params, config.advantage.params) == ({"k": 3}, {"scale": 2})
    assert config.optimizer.swept["mine"] == 1e-3


def test_composing_inside_a_job_leaves_its_hydra_alone():
    with initialize_config_dir(str(CONFIG_DIR / "evaluate"), version_base=None):
        outer = GlobalHydra.instance().hydra
        assert command.compose("train", TrainConfig, ["seed=5"]).seed == 5
        assert GlobalHydra.instance().hydra is outer


@pytest.mark.parametrize(
    ("folder", "name", "schema_of", "sweeps"),
    [
        ("", "train", TrainConfig, "${output_dir}/.sweeps"),
        ("evaluate", "evaluate", EvaluateConfig, "${results_dir}/.sweeps"),
    ],
)
def test_hydra_writes_nothing_by_itself(folder, name, schema_of, sweeps):
    command.register(name, schema_of)
    with initialize_config_dir(str(CONFIG_DIR / folder), version_base=None):
        settings = hydra_compose(name, return_hydra_config=True).hydra
    raw = OmegaConf.to_container(settings, resolve=False)
    assert (raw["run"], raw["sweep"]) == ({"dir": "."}, {"dir": sweeps, "subdir": "."})
    assert raw["output_subdir"] is None
    assert settings.runtime.choices["hydra/job_logging"] == "none"
    assert settings.runtime.choices["hydra/hydra_logging"] == "none"


def test_comparisons_have_one_set_of_defaults():
    shared = OmegaConf.load(CONFIG_DIR / "_comparison.yaml")
    for name in ("plot", "speedup", "report"):
        assert not OmegaConf.load(CONFIG_DIR / f"{name}.yaml").keys() & shared.keys()


def test_gsm8k_a100_is_gsm8k_h100_with_a_larger_model():
    small, large = (compose(f"experiment=gsm8k_{name}", "run=r") for name in ("h100", "a100"))
    assert (small.model.name, large.model.name) == ("qwen2.5-3b-instruct", "qwen2.5-7b-instruct")
    assert (large.experiment, large.model.load_in_4bit) == ("gsm8k_a100", False)
    large.experiment, large.model = small.experiment, small.model
    assert small == large


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"engine.name": "auto", "engine.vllm_mode": "auto", "advantage.name": "kept"}),
        ({"backend.engine": "generate"}, {"engine.name": "transformers"}),
        (
            {"backend.engine": "generate", "backend.name": "unsloth"},
            {"engine.name": "trl", "engine.vllm_mode": "none"},
        ),
        (
            {"backend.engine": "generate", "lora.rank": None},
            {"engine.name": "trl", "engine.vllm_mode": "none"},
        ),
        ({"backend.engine": "vllm", "backend.name": "unsloth"}, {"engine.name": "unsloth"}),
        (
            {"backend.engine": "vllm", "lora.rank": None},
            {"engine.name": "trl", "engine.vllm_mode": "colocate"},
        ),
        (
            {"backend.engine": "vllm_server", "backend.server_url": "http://a:1"},
            {"engine.name": "trl", "engine.vllm_mode": "server", "engine.server_url": "http://a:1"},
        ),
        (
            {"backend.gpu_memory_utilization": 0.3, "backend.standby": True},
            {"engine.gpu_memory_utilization": 0.3, "engine.standby": True},
        ),
        (
            {"backend.importance_sampling_correction": True, "backend.max_logprob_gap": 0.5},
            {"engine.importance_sampling_correction": True, "engine.max_logprob_gap": 0.5},
        ),
        ({"loss.scale_rewards": "none"}, {"advantage.name": "dr_grpo"}),
        ({"loss.scale_rewards": "batch"}, {"advantage.name": "batch"}),
        ({"experiment": "mine"}, {"experiment": "mine", "sampling.stop": []}),
        ({"experiment": "gsm8k_qwen", "optimizer.swept": {}}, {"optimizer.swept": {}}),
        ({"rewards.weights": {"correctness": 2.0}}, {"rewards.weights": {"correctness": 2.0}}),
    ],
)
def test_a_saved_config_is_upgraded(changes, expected):
    saved = OmegaConf.load(SAVED)
    for key, value in changes.items():
        OmegaConf.update(saved, key, value, merge=False)
    config = command.typed(TrainConfig, upgrade(saved))
    assert {key: get(config, key) for key in expected} == expected


def test_the_rest_of_a_saved_config_stays():
    saved, config = OmegaConf.load(SAVED), OmegaConf.structured(load(SAVED))
    old = {key.partition("=")[0] for key in schema.OLD_KEYS["train"]}
    for group, section in saved.items():
        names = section if OmegaConf.is_dict(section) else [None]
        for key in (f"{group}.{name}" if name else group for name in names):
            if key not in old:
                assert OmegaConf.select(config, key) == OmegaConf.select(saved, key), key


def test_a_config_of_today_is_not_changed_by_upgrading():
    config = compose("experiment=gsm8k_qwen", "rule.params={}", "engine=vllm", "advantage=rloo")
    assert command.typed(TrainConfig, upgrade(OmegaConf.structured(config))) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense: 1", "nonsense: unknown"),
        ("seed: one", "seed=one: must be an integer"),
        ("a: [", "not a config"),
        ("3", "not a config"),
    ],
)
def test_a_file_that_is_no_saved_config_is_named(tmp_path, text, said):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def first_design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """checkpoints/v1 and results/ of the first design in the working folder."""
    shutil.copytree(FIRST, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "checkpoints" / "v1"


def resumed(*overrides: str) -> TrainConfig:
    """The config of the command that continues the fixture."""
    typed = (
        "run=v1 seed=3 prompts_per_step=2 rollouts_per_prompt=8 kept_per_prompt=4 "
        "micro_batch_size=2 lora.rank=2 "
        "sampling.max_completion_length=24 optimizer.name=adamw_torch_fused backend=transformers "
        "budget.train_seconds=null max_steps=3 checkpoint.every_seconds=null"
    )
    config = command.typed(
        TrainConfig, command.compose("train", TrainConfig, [*typed.split(), *overrides])
    )
    settle(config)
    return config


def test_a_run_of_the_first_design_may_be_resumed(first_design, capsys):
    RunFolder(resumed()).refuse_changes()
    assert capsys.readouterr().err == ""
    RunFolder(resumed("engine=transformers")).refuse_changes()
    assert capsys.readouterr().err == ""  # `auto` chose this one
    RunFolder(resumed("engine.max_sequences=4")).refuse_changes()
    assert capsys.readouterr().err == (
        "run=v1 resumes with another engine: engine.max_sequences (None -> 4)\n"
    )


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sampling.temperature=0.5", "sampling.temperature (1.0 -> 0.5)"),
        ("advantage=dr_grpo", "advantage.name (kept -> dr_grpo)"),
        ("engine.importance_sampling_correction=true", "(False -> True)"),
        ("rewards.functions.brevity=my.py:f", "rewards.functions.brevity (None -> my.py:f)"),
    ],
)
def test_a_resume_with_another_config_is_refused(first_design, override, said):
    with pytest.raises(UserError, match="was started with another config") as error:
        RunFolder(resumed(override)).refuse_changes()
    assert said in str(error.value)


def test_files_of_the_first_design_are_read(first_design):
    found = checkpoints.find(first_design)
    assert [checkpoint.step for checkpoint in found] == [1, 2]
    assert [checkpoints.damage(checkpoint) for checkpoint in found] == [None, None]
    assert found[1].meta["rollouts_trained"] == 16
    assert checkpoints.newest_intact(first_design)[0].step == 2
    assert [line["step"] for line in read_metrics(first_design / "metrics.jsonl")] == [1, 2]
    assert read_metrics(first_design / "evaluations.jsonl")
    groups = list(ledger.read(first_design / "rollouts.jsonl.zst"))
    assert [(group["step"], len(group["total"]), len(group["kept"])) for group in groups] == [
        (step, 8, 4) for step in (1, 1, 2, 2)
    ]
    assert sorted(results.read(Path("results/v1.json"))) == [1, 2]
    assert json.loads(Path("results/v1.meta.json").read_text())["train"]["run"] == "v1"


def test_a_run_of_the_first_design_can_be_evaluated(first_design):
    values = command.compose("evaluate", EvaluateConfig, ["run=v1"], CONFIG_DIR / "evaluate")
    training = training_config(command.typed(EvaluateConfig, values))
    assert (training.run, training.engine.name, training.advantage.name) == ("v1", "auto", "kept")
