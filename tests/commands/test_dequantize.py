"""dequantize.py: mistakes are one line. The copy: tests/nightly/test_dequantize.py."""

import pytest

from tests import processes
from tests.conftest import ROOT

# Loads the 4-bit base and the folder of its copy, and prints whether their logits are equal. In
# training mode: in evaluation a CPU with AVX512 has another kernel, which rounds otherwise.


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (["model=tiny"], "model.load_in_4bit=false"),
        (["model=qwen2.5-3b-instruct", "out=here"], "out=here"),
        (["model=qwen2.5-3b-instruct", "path=x"], "path"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(tmp_path, keys, part):
    (tmp_path / "here").mkdir()
    script = ROOT / "scripts" / "dequantize.py"
    result = processes.run(tmp_path, *keys, script=script, cwd=tmp_path, code=2)
    errors = result.stderr.splitlines()
    assert len(errors) == 1
    assert part in errors[0]
    assert [path.name for path in tmp_path.glob("*") if path.name == "exports"] == []
