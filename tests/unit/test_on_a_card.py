"""What only a card can show: the copy's speed, the estimate beside a trial, prompts
computed once. Not run yet."""

import json
import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from pods.files import read_lines
from tests.conftest import ROOT
from tests.fake_run import QWEN_3B, TINY

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: these are lines for a card"
)
CARDS = {"L40S": "l40s", "A6000": "a6000", "4090": "rtx4090", "A100": "a100"}
CARDS |= {"H100": "h100", "H200": "h200"}


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=600
    ).stdout


PAD = "model.pad_token=null"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder with random weights of Qwen2.5-3B's shape, and with the copy of their 4 bits."""
    folder = tmp_path_factory.mktemp("card")
    with torch.device("cuda"):
        # Of the tiny policy, this would make noise of 0.3 nats in bfloat16.
        shape = AutoConfig.from_pretrained(TINY, **QWEN_3B, initializer_range=0.02)
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.save_pretrained(folder / "base")
    del model
    torch.cuda.empty_cache()
    AutoTokenizer.from_pretrained(TINY).save_pretrained(folder / "base")
    copy = re.search(r"```python\n(.*?)```", (ROOT / "docs/gpu.md").read_text(), re.DOTALL)[1]
    copy = copy.replace("Qwen/Qwen2.5-3B-Instruct", f"{folder}/base")
    run("-c", copy.replace("exports/copy", f"{folder}/copy"))
    return folder


@pytest.fixture(scope="module")
def trials(weights):
    """What a trial prints, by name, of the weights in 4 bits and of their copy; the estimates."""
    name = torch.cuda.get_device_name()
    card = next((key for part, key in CARDS.items() if part in name), None)
    found = {}
    for side, four_bit in (("base", "true"), ("copy", "false")):
        # Random weights earn no reward, and a lean update would leave every row out.
        keys = ["trial=true", "experiment=gsm8k_qwen", "task=arithmetic", PAD, "lean_update=false"]
        keys += [f"model.path={weights}/{side}", f"model.load_in_4bit={four_bit}"]
        printed = run("train.py", *keys, f"output_dir={weights}/runs")
        numbers = re.findall(r"(?m)^([\w/]+) ([\d.e-]+)$", printed)
        estimate = {}
        if card:
            estimate = json.loads(run("train.py", *keys, f"card={card}", "json=true"))
        found[side] = {key: float(value) for key, value in numbers}, estimate
    return found


def seconds(trial):
    return sum(value for name, value in trial.items() if name.startswith("seconds/"))


def test_the_copy_is_faster_on_hopper(trials):
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("on Hopper only: other cards multiply 4-bit weights without unpacking them")
    (base, _), (copy, _) = trials["base"], trials["copy"]
    assert base["seconds/generate"] >= 1.5 * copy["seconds/generate"]
    assert seconds(base) >= 1.4 * seconds(copy)
    assert copy["engine/logprob_gap"] < 0.1


@pytest.mark.parametrize("side", ["base", "copy"])
def test_the_estimate_is_near_the_trial(trials, side):
    """Memory within 5 % beside the KV cache, seconds in their range, on an idle card."""
    trial, estimate = trials[side]
    if not estimate:
        pytest.skip("no estimate for this card")
    peak = max(value for name, value in trial.items() if name.startswith("peak_memory_gib/"))
    expected = estimate["peak_gib"] - estimate["parts_gib"]["kv_cache"]
    assert expected == pytest.approx(peak, rel=0.05)
    low, high = estimate["seconds_range"]
    assert low < seconds(trial) < high


REWARD = """
def varied(completions, **_):
    return [float(sum(map(ord, text)) % 7) for text in completions]
"""


def test_prompts_that_are_computed_once_have_the_same_gradient(weights, tmp_path, monkeypatch):
    """Unsloth's prefix grouping: the length of the first gradient, in bfloat16."""
    pytest.importorskip("unsloth_zoo")
    (tmp_path / "own.py").write_text(REWARD)
    lengths = []
    for value in "01":
        monkeypatch.setenv("UNSLOTH_GRPO_PREFIX_GROUPER", value)
        keys = ["experiment=gsm8k_qwen", "task=arithmetic", PAD, "max_steps=1"]
        keys += [f"rewards.functions.varied={tmp_path}/own.py:varied"]
        keys += [f"model.path={weights}/copy", "model.load_in_4bit=false", "backend=unsloth"]
        keys += ["engine=trl", "trl.use_vllm=false", "sampling.max_completion_length=128"]
        run("train.py", *keys, f"run={value}", f"output_dir={tmp_path}")
        (line,) = read_lines(tmp_path / value / "metrics.jsonl")
        lengths.append(line["grad_norm"])
    assert lengths[0] > 0
    assert lengths[1] == pytest.approx(lengths[0], rel=0.02)
