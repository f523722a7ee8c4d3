"""What docs/versions.md and docs/export.md say of two versions of vLLM, in the environments that
`.ci/vllm-env 0.28` and `.ci/vllm-env 0.32` make."""

import json
import subprocess
from functools import cache

import pytest

from tests.conftest import ROOT

ENVIRONMENTS = {"0.28": ".venv-vllm", "0.32": ".venv-vllm-0.32"}
pytestmark = pytest.mark.timeout(900)


@cache
def facts(version):
    python = ROOT / ENVIRONMENTS[version] / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"no {ENVIRONMENTS[version]}: .ci/vllm-env {version} makes it, or says why not")
    command = [python, "-m", "tests.nightly.vllm_facts"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.mark.parametrize(
    ("version", "ignored"), [("0.28", {"alpha_pattern", "rank_pattern"}), ("0.32", set())]
)
def test_the_factor_of_an_adapter(version, ignored):
    """alpha / r, with use_rslora alpha / sqrt(r); from 0.32 on the patterns', too."""
    gaps = facts(version)["gaps"]  # nats, to PEFT's log-probability
    assert {name for name, (to_adapter, _) in gaps.items() if to_adapter > 0.1} == ignored
    assert gaps["plain"][1] > 0.02 < gaps["use_rslora"][1]  # to the base's
    assert max(gaps["plain"][0], gaps["use_rslora"][0]) < 0.01


@pytest.mark.parametrize(("version", "holds"), [("0.28", False), ("0.32", True)])
def test_seeds_beside_a_request_without_one(version, holds):
    assert facts(version)["again"]
    assert facts(version)["beside_one_without"] == holds


def test_one_seed_gives_other_completions_in_both():
    assert facts("0.28")["seeded"] != facts("0.32")["seeded"]
