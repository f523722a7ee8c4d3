"""benchmarks/gpu.py without a GPU: what ran is kept, what failed is tried again, and the large
shape is Qwen's."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import gpu
from tests import processes
from tests.configs import compose


def lines(folder, *records):
    (folder / "gpu.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_part_without_its_packages_says_so_and_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "hydra.py").write_text("raise ModuleNotFoundError(\"No module named 'hydra'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = [name for name in gpu.PARTS if name not in ("card", "learns")]
    lines(tmp_path, *({"part": name} for name in names))
    call = [tmp_path, "benchmarks/gpu.py", "cpu=true", "output_dir=."]
    card, learns = map(json.loads, processes.fresh(*call).stdout.splitlines())
    assert card["gigabytes_per_s"] > 0 < card["teraflops"]
    assert learns["failed"] == "ModuleNotFoundError: No module named 'hydra'"
    (again,) = map(json.loads, processes.fresh(*call).stdout.splitlines())
    assert again == learns
    assert "must be one of card, speed-4bit" in processes.fresh(*call, "part=everything").stderr


def test_what_failed_or_was_interrupted_comes_after_what_was_not_tried(tmp_path, monkeypatch):
    tried = []

    def line_of(name, *_):
        tried.append(name)
        if name == "learns":
            raise KeyboardInterrupt
        return json.dumps({"part": name})

    monkeypatch.setattr(gpu, "line_of", line_of)
    failed = {"part": "speed-4bit", "failed": "not done in 300 s"}
    lines(tmp_path, {"part": "card"}, failed)
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(True, tmp_path)
    assert tried == ["learns"]
    assert gpu.read_lines(tmp_path / "gpu.jsonl") == [{"part": "card"}, failed]
    monkeypatch.setattr(gpu, "line_of", lambda name, *_: json.dumps({"part": name}))
    gpu.run_all(True, tmp_path)
    names = list(gpu.PARTS)
    stored = [line["part"] for line in gpu.read_lines(tmp_path / "gpu.jsonl")]
    assert stored[2:] == [*names[2:], "speed-4bit"]


def test_the_large_shape_is_qwens_and_its_random_weights_are_as_large_as_a_models():
    shape = AutoConfig.from_pretrained(gpu.TINY, **gpu.QWEN_3B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.086e9, rel=1e-3)
    assert shape.initializer_range == 0.02
    assert shape.tie_word_embeddings


@pytest.mark.parametrize("name", gpu.PARTS)
def test_a_part_fits_a_call_and_names_keys_that_exist(name):
    part = gpu.PARTS[name]
    assert part.seconds <= gpu.CALL_SECONDS - 120
    shape = gpu.MAIN_PATH if part.measure in (gpu.speed, gpu.interrupt) else []
    config = compose(*shape, *part.keys.split())
    assert config.model.load_in_4bit == ("4bit" in name or name == "speed-vllm")
