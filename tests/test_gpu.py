"""benchmarks/gpu.py without a GPU: what ran is kept, what failed is tried again, and the large
shape is Qwen's."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import gpu
from pods.config import command
from tests.configs import compose
from tests.fake_run import TINY


def test_a_part_that_is_done_is_not_run_again(tmp_path, monkeypatch):
    (tmp_path / "learns.txt").touch()
    tried = []

    def run(commands, seconds, file):
        tried.append(file.stem)
        if file.stem != "signal":
            file.touch()

    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", f"output_dir={tmp_path}"])
    monkeypatch.setattr(gpu, "run", run)
    with pytest.raises(SystemExit, match="failed: signal"):
        gpu.main()
    assert tried == [name for name in gpu.PARTS if name != "learns"]
    monkeypatch.setattr(gpu, "run", lambda commands, seconds, file: file.touch())
    gpu.main()


@pytest.mark.parametrize("arguments", [["all=true"], ["output_dir=a", "output_dir=b"]])
def test_another_key_is_refused(monkeypatch, arguments):
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", *arguments])
    with pytest.raises(SystemExit, match="set output_dir=<folder>, or nothing"):
        gpu.main()


def test_a_part_keeps_what_its_commands_print(tmp_path):
    file = tmp_path / "speed.txt"
    gpu.run([["-c", "print(1)"], ["-c", "print(2); print(3)"]], 60, file)
    assert file.read_text() == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("last", "seconds", "line"),
    [
        ("exit('a')", 60, "speed: failed, as its last lines above say"),
        ("import time; time.sleep(60)", 2.5, "speed: not done in 2.5 s"),
    ],
    ids=["failed", "late"],
)
def test_a_part_that_fails_or_takes_too_long_leaves_nothing(tmp_path, capsys, last, seconds, line):
    file = tmp_path / "speed.txt"
    gpu.run([["-c", last]], seconds, file)
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert not file.exists()


def test_the_large_shape_is_qwens_and_its_random_weights_are_as_large_as_a_models():
    shape = AutoConfig.from_pretrained(TINY, **gpu.QWEN_3B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.086e9, rel=1e-3)
    assert shape.initializer_range == 0.02
    assert shape.tie_word_embeddings


def test_the_signal_is_that_of_the_run_that_learns(tmp_path):
    ((script, *words),) = gpu.commands("signal", tmp_path)
    config = command.compose("plan", words, command.CONFIG_DIR / "checkpoint")
    assert (script, config.run) == ("scripts/plan.py", "learns")


@pytest.mark.parametrize("name", [name for name in gpu.PARTS if name != "signal"])
def test_a_part_fits_a_call_and_names_keys_that_exist(tmp_path, name):
    assert gpu.PARTS[name][0] <= gpu.CALL_SECONDS - 120
    (tmp_path / "random").mkdir()  # where a part writes its model before it trains
    (training,) = [c for c in gpu.commands(name, tmp_path) if c[0] == "train.py"][:1]
    config = compose(*training[1:])
    assert config.model.load_in_4bit == (name in ("speed-4bit", "speed-vllm"))
    assert (config.experiment == "gsm8k_qwen") == name.startswith("speed")
