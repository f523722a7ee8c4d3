"""benchmarks/gpu.py without a GPU: what ran is kept, what failed is tried again, and the large
shape is Qwen's."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import gpu
from tests.configs import compose
from tests.conftest import ROOT
from tests.fake_run import TINY


def write(folder, *records):
    (folder / "gpu.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def parts(folder):
    return [json.loads(line)["part"] for line in (folder / "gpu.jsonl").open()]


def printed(folder, *arguments):
    """What benchmarks/gpu.py prints in a fresh interpreter, which has this environment."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=540)


def test_a_part_without_its_packages_says_so_and_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "hydra.py").write_text("raise ModuleNotFoundError(\"No module named 'hydra'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write(tmp_path, *({"part": name} for name in gpu.PARTS if name != "learns"))
    call = [tmp_path, "cpu=true", "output_dir=."]
    (learns,) = map(json.loads, printed(*call).stdout.splitlines())
    assert learns == {"part": "learns", "failed": "ModuleNotFoundError: No module named 'hydra'"}
    (again,) = map(json.loads, printed(*call).stdout.splitlines())
    assert again == learns
    assert "all=true: no such key; set cpu, out" in printed(*call, "all=true").stderr


def test_what_failed_or_was_interrupted_comes_after_what_was_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "commands", lambda name, *_: [name])
    tried = []

    def outcome(commands, seconds):
        tried.extend(commands)
        if commands == ["speed-vllm"]:
            raise KeyboardInterrupt
        return {"shown": []}

    monkeypatch.setattr(gpu, "outcome", outcome)
    write(tmp_path, {"part": "learns"}, {"part": "speed-4bit", "failed": "not done in 300 s"})
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(tmp_path, cpu=True)
    assert tried == ["speed-vllm"]
    assert parts(tmp_path) == ["learns", "speed-4bit"]
    monkeypatch.setattr(gpu, "outcome", lambda *_: {"shown": []})
    gpu.run_all(tmp_path, cpu=True)
    others = [name for name in gpu.PARTS if name not in ("learns", "speed-4bit")]
    assert parts(tmp_path)[2:] == [*others, "speed-4bit"]


def test_a_part_shows_what_its_commands_print_and_ends_in_time():
    shown = [["-c", "print(1)"], ["-c", "print(2); print(3)"]]
    assert gpu.outcome(shown, 60) == {"shown": ["1", "2", "3"]}
    assert gpu.outcome([*shown, ["-c", "exit('a\\nb')"]], 60) == {"failed": "b"}
    assert gpu.outcome([["-c", "import time; time.sleep(60)"]], 0.5) == {
        "failed": "not done in 0.5 s"
    }


def test_the_large_shape_is_qwens_and_its_random_weights_are_as_large_as_a_models():
    shape = AutoConfig.from_pretrained(TINY, **gpu.QWEN_3B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.086e9, rel=1e-3)
    assert shape.initializer_range == 0.02
    assert shape.tie_word_embeddings


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("name", gpu.PARTS)
def test_a_part_fits_a_call_and_names_keys_that_exist(tmp_path, name, cpu):
    assert gpu.PARTS[name][0] <= gpu.CALL_SECONDS - 120
    (tmp_path / "random").mkdir()  # where a part writes its model before it trains
    (training,) = [c for c in gpu.commands(name, tmp_path, cpu) if c[0] == "train.py"][:1]
    config = compose(*training[1:])
    if not cpu:
        assert config.model.load_in_4bit == (name in ("speed-4bit", "speed-vllm"))
        assert (config.experiment == "gsm8k_qwen") == name.startswith("speed")
