"""The wheel that `uv build` makes: its packages import alone, without this checkout."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

USED = """import sys
sys.path.insert(0, sys.argv[1])
import pods.rules
print(pods.__file__, pods.rules.select("max_variance", [0.0, 1.0, 0.5], 2))"""


def test_pods_selects_from_the_wheel(tmp_path: Path) -> None:
    if not (uv := shutil.which("uv")):
        pytest.skip("uv is not on this machine")
    build = [uv, "build", "--wheel", "--offline", "--out-dir", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("hatchling is not in uv's cache")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wheel = tmp_path / f"pods_rl-{version}-py3-none-any.whl"
    assert wheel.is_file(), built.stderr
    command = [sys.executable, "-I", "-c", USED, str(wheel)]
    used = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert used.stdout.split(maxsplit=1) == [f"{wheel}/pods/__init__.py", "[0 1]\n"], used.stderr
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert (ROOT / "CHANGELOG.md").read_text().count(f"\n## {version} ") == 1
