"""The 16-bit copy of docs/gpu.md in the gpu environment: it is the 4-bit base, bit for bit."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

COPY = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "gpu.md").read_text(), re.DOTALL)[1]
# Loads the 4-bit base and the folder of its copy, and prints whether their logits are equal. In
# training mode: in evaluation a CPU with AVX512 has another kernel, which rounds otherwise.
EQUAL = """
import sys, torch
from pods.models.policy import load_model, load_tokenizer, quantisation

path, folder = sys.argv[1:]
base = load_model(path, "bfloat16", quantization_config=quantisation("bfloat16"))
copy = load_model(folder, "bfloat16")
plain = load_model(path, "bfloat16")
ids = torch.tensor([load_tokenizer(folder)("12 + 7 = 19").input_ids])
with torch.no_grad():
    logits = [model.train()(ids).logits for model in (base, copy, plain)]
linear = {type(m).__name__ for m in copy.modules() if "Linear" in type(m).__name__}
print(torch.equal(*logits[:2]), torch.equal(logits[1], logits[2]), *linear)
"""


def gpu_python() -> Path:
    python = Path(os.environ.get("PODS_GPU_PYTHON", ROOT / ".venv-gpu" / "bin" / "python"))
    if not python.is_file():
        pytest.skip(f"no gpu environment at {python}: UV_PROJECT_ENVIRONMENT=.venv-gpu uv sync")
    return python


def test_the_saved_copy_has_the_logits_of_the_4_bit_base(tmp_path):
    python, path = gpu_python(), str(ROOT / "pods" / "tiny_policy")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> str:
        command = [str(python), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    run("-c", COPY.replace("Qwen/Qwen2.5-3B-Instruct", path))
    folder = tmp_path / "exports" / "copy"
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert run("-c", EQUAL, path, str(folder)).split() == ["True", "False", "Linear"]
