"""benchmarks/gpu.py without a GPU: what ran is kept, what failed is tried again, and the large
shape trains with the keys of the main path."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import gpu
from tests import processes
from tests.configs import compose, get


def lines(folder, *records):
    (folder / "gpu.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_part_without_its_packages_says_so_and_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "hydra.py").write_text("raise ModuleNotFoundError(\"No module named 'hydra'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = [part.name for part in gpu.PARTS if part.name not in ("card", "learns")]
    lines(tmp_path, *({"part": name} for name in names))
    call = [tmp_path, "benchmarks/gpu.py", "cpu=true", "output_dir=."]
    card, learns = map(json.loads, processes.fresh(*call).stdout.splitlines())
    assert card["gigabytes_per_s"] > 0 < card["teraflops"]
    assert learns["failed"] == "ModuleNotFoundError: No module named 'hydra'"
    (again,) = map(json.loads, processes.fresh(*call).stdout.splitlines())
    assert again == learns
    assert "a part is one of card, speed-4bit" in processes.fresh(*call, "part=everything").stderr


def test_what_failed_or_was_interrupted_comes_after_what_was_not_tried(tmp_path, monkeypatch):
    tried = []

    def line_of(part, place):
        tried.append(part.name)
        if part.name == "learns":
            raise KeyboardInterrupt
        return json.dumps({"part": part.name})

    monkeypatch.setattr(gpu, "line_of", line_of)
    failed = {"part": "speed-4bit", "failed": "not done in time, 300 s on a GPU"}
    lines(tmp_path, {"part": "card"}, failed)
    place = gpu.Place(cpu=True, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(place)
    assert tried == ["learns"]
    assert gpu.lines_of(place.lines) == [{"part": "card"}, failed]
    monkeypatch.setattr(gpu, "line_of", lambda part, _: json.dumps({"part": part.name}))
    gpu.run_all(place)
    names = [part.name for part in gpu.PARTS]
    assert [line["part"] for line in gpu.lines_of(place.lines)[2:]] == [*names[2:], "speed-4bit"]


SHARED = [  # with experiment=gsm8k_qwen
    "lora", "loss", "rollouts_per_prompt", "kept_per_prompt", "micro_batch_size",
    "prompts_per_step", "gradient_checkpointing", "sampling.temperature", "sampling.top_p",
    "sampling.top_k", "sampling.max_completion_length", "sampling.max_prompt_length",
]  # fmt: skip


@pytest.mark.parametrize("key", SHARED)
def test_the_large_shape_trains_with_the_keys_of_the_main_path(tmp_path, key):
    (tmp_path / "random").mkdir()
    measured = compose(*gpu.large_keys(gpu.Place(cpu=False, folder=tmp_path)))
    assert get(measured, key) == get(compose("experiment=gsm8k_qwen"), key)


def test_the_large_shape_is_qwens_and_its_random_weights_are_as_large_as_a_models():
    shape = AutoConfig.from_pretrained(gpu.TINY, **gpu.QWEN_3B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.086e9, rel=1e-3)
    assert shape.initializer_range == 0.02
    assert shape.tie_word_embeddings


@pytest.mark.parametrize(("keys", "share"), [([], 1), (["model.load_in_4bit=true"], 0.325)])
def test_a_decode_step_reads_the_head_in_16_bits(tmp_path, keys, share):
    (tmp_path / "config.json").write_text('{"vocab_size": 1000, "hidden_size": 50}')
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1_000_000)
    assert gpu.bytes_read(tmp_path, keys) == share * 1_000_000


def test_every_part_fits_a_call_and_names_keys_that_exist():
    for part in gpu.PARTS:
        assert part.seconds <= gpu.CALL_SECONDS - 120
        compose(*part.keys.split())
