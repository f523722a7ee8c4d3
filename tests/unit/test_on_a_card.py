"""What only a card can show: the copy's speed, and the estimate beside a trial. Not run yet."""

import json
import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

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


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """What a trial prints, by name, of random weights of Qwen2.5-3B's shape in 4 bits and of their
    copy; and the estimate of both."""
    folder = tmp_path_factory.mktemp("card")
    with torch.device("cuda"):
        # Of the tiny policy, this would make noise of 0.3 nats in bfloat16.
        shape = AutoConfig.from_pretrained(TINY, **QWEN_3B, initializer_range=0.02)
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.save_pretrained(folder / "base")
    del model
    torch.cuda.empty_cache()
    AutoTokenizer.from_pretrained(TINY).save_pretrained(folder / "base")
    pad = "model.pad_token=null"
    run("scripts/dequantize.py", f"model.path={folder}/base", pad, f"out={folder}/copy")
    name = torch.cuda.get_device_name()
    card = next((key for part, key in CARDS.items() if part in name), None)
    found = {}
    for side, four_bit in (("base", "true"), ("copy", "false")):
        keys = ["trial=true", "experiment=gsm8k_qwen", "task=arithmetic", pad]
        keys += [f"model.path={folder}/{side}", f"model.load_in_4bit={four_bit}"]
        printed = run("train.py", *keys, f"output_dir={folder}/runs")
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
