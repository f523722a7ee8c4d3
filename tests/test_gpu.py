"""benchmarks/gpu.py on a machine without hydra: what ran is kept, what failed says why."""

import json

from benchmarks.gpu import PARTS
from tests import processes


def test_a_part_without_its_packages_says_so_and_no_part_runs_twice(tmp_path, monkeypatch):
    (tmp_path / "hydra.py").write_text("raise ModuleNotFoundError(\"No module named 'hydra'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    others = [json.dumps({"part": name}) for name in PARTS if name not in ("card", "learns")]
    (tmp_path / "gpu.jsonl").write_text("\n".join(others) + "\n")
    call = [tmp_path, "benchmarks/gpu.py", "cpu=true", "output_dir=."]
    card, learns = map(json.loads, processes.fresh(*call).stdout.splitlines())
    assert card["gigabytes_per_s"] > 0 < card["teraflops"]
    assert learns["failed"] == "ModuleNotFoundError: No module named 'hydra'"
    assert processes.fresh(*call).stdout == ""
    assert "a part is one of card, learns" in processes.fresh(*call, "part=everything").stderr
