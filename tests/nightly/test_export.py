"""An exported model in transformers 4.57, in an interpreter of its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.commands.test_export import exported
from tests.fake_run import TINY, edit_json, make_run

ROPE = [
    {"rope_theta": 500.0, "rope_type": "default"},
    {"rope_theta": 500.0, "rope_type": "linear", "factor": 2.0},
]


LOGITS = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained("exported")
torch.save(model(torch.arange(5, 60)[None]).logits, "logits.pt")
"""


@pytest.mark.parametrize("rope", ROPE, ids=["default", "linear"])
def test_an_older_transformers_reads_the_same_positions(tmp_path, monkeypatch, rope):
    """transformers 5 nests RoPE's settings, and 4.57 would read its defaults without a word."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("checkpoints"), steps=(2, 4), scale=0.05)
    base = Path(shutil.copytree(TINY, tmp_path / "base"))
    edit_json(base / "config.json", rope_parameters=rope)
    assert exported(f"model_path={base}") == 0
    written = json.loads(Path("exported/config.json").read_text())
    assert written["rope_theta"] == 500
    assert written["rope_parameters"] == rope
    expected = AutoModelForCausalLM.from_pretrained("exported")(torch.arange(5, 60)[None]).logits
    uv = ["uv", "run", "--offline", "--no-project", "--quiet", "--python", sys.executable]
    uv += ["--with", "transformers==4.57.6", "--with", f"torch=={torch.__version__.split('+')[0]}"]
    if shutil.which("uv") is None or subprocess.run([*uv, "true"], capture_output=True).returncode:
        pytest.skip("transformers 4.57.6 is not in uv's cache")
    subprocess.run([*uv, "python", "-c", LOGITS], check=True, timeout=300)
    torch.testing.assert_close(torch.load("logits.pt"), expected, rtol=1e-4, atol=1e-3)
