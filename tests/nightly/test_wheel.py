"""The wheel that `uv build` makes, installed in an environment outside the repository: a TRL
script, the graders, the tasks and the commands work without a clone, beside a user's rewards.py."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pods.runs import checkpoints, results
from tests.commands.test_docs import TRL_SCRIPT
from tests.conftest import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LIBRARY = """
import pods, pods.tasks, rewards
from pods import PodsConfig, PodsTrainer
from pods.config.paths import CONFIG_DIR
from pods.rules import select
print(rewards.correct())  # the user's own
print(pods.__file__, CONFIG_DIR)
print(select("max_variance", [0.0, 1.0, 0.5], 2))
print(len(pods.tasks.load("arithmetic", "test")), {"PodsConfig", "PodsTrainer"} <= set(dir(pods)))
from pods.training import check  # the suite's own use of the graders
"""
GRADES = """
import rewards
right = "<think>2 and 2</think><answer>\\\\frac{1}{2}</answer>"
for version in rewards.VERSIONS:
    grade = rewards.grade(right, "\\\\frac{1}{2}", version)
    print(version, grade, rewards.grade(right, "3", version))
print(rewards.grade(right, "0.5", "strict"), sorted(rewards.score([right], ["3"])))
import rewards.tags
"""
HALVES = """
from pods.rules import keep, max_variance

def halves(step):
    batch = yield step.prompts, step.n // 2
    batch = yield step.prompts, step.n - step.n // 2
    return keep(batch, max_variance, step.m, step.rng)
"""


class Installed:
    """The wheel in an environment of its own, whose other packages are those of this one."""

    def __init__(self, folder: Path, uv: str) -> None:
        self.folder = folder
        self.packages = folder / "packages"
        build = [uv, "build", "--wheel", "--offline", "--out-dir", str(folder)]
        built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
        if built.returncode and "hatchling" in built.stderr:
            pytest.skip("hatchling is not in uv's cache")
        self.wheel = folder / f"pods_rl-{VERSION}-py3-none-any.whl"
        assert self.wheel.is_file(), built.stderr
        environment = folder / "environment"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
        self.python = environment / "bin" / "python"
        into = [uv, "pip", "install", "--quiet", "--offline", "--no-deps"]
        subprocess.run([*into, "--python", self.python, self.wheel], check=True)
        # The lock's packages without this checkout: linked, not installed again.
        here = Path(pytest.__file__).parents[1]
        there = next(environment.glob("lib/*/site-packages"))
        for path in here.iterdir():
            if "pods_rl" not in path.name and not (there / path.name).exists():
                (there / path.name).symlink_to(path)

    def run(self, folder: Path, *arguments: str | Path, code: int = 0) -> str:
        """What a process in this folder prints; `pods` is the console command."""
        program = self.python.with_name("pods") if arguments[0] == "pods" else self.python
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [program, *arguments[arguments[0] == "pods" :]]
        process = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
        assert process.returncode == code, process.stderr
        return process.stdout + process.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if not (uv := shutil.which("uv")):
        pytest.skip("uv is not on this machine")
    return Installed(tmp_path_factory.mktemp("wheel"), uv)


def script(folder: Path, text: str) -> Path:
    """A user's script, with a rewards.py of the user's beside it."""
    (folder / "rewards.py").write_text("def correct():\n    return 'of the user'\n")
    (folder / "script.py").write_text(text)
    return folder / "script.py"


def test_the_library_and_a_trl_script_work_beside_a_users_rewards_py(installed, tmp_path):
    """The script is README's, with an own algorithm."""
    text = TRL_SCRIPT.replace("=50,", "=10,")
    assert text.count("max_steps=10") == 1
    (tmp_path / "halves.py").write_text(HALVES)
    own = text.replace('"sums",', '"sums", algorithm="halves.py:halves",')
    assert own != text
    lines = installed.run(tmp_path, script(tmp_path, LIBRARY + own)).splitlines()
    assert (tmp_path / "sums" / "checkpoint-10").is_dir()
    package = str(installed.folder / "environment")
    assert lines[0] == "of the user"
    assert all(path.startswith(package) for path in lines[1].split())
    assert lines[2:4] == ["[0 1]", "256 True"]


def test_the_graders_of_every_version(installed, tmp_path):
    (tmp_path / "grades.py").write_text(GRADES)
    lines = installed.run(tmp_path, "grades.py").splitlines()
    versions = ("v1", "v1-correctness", "v2", "strict")
    assert lines[:4] == [f"{version} True False" for version in versions]
    assert lines[4] == "True ['correctness', 'format', 'tags']"


def test_train_evaluate_plot_in_fresh_interpreters(installed, tmp_path):
    script(tmp_path, "")
    name = "quickstart-pods-max_variance-n8-m4-seed0"
    trained = installed.run(tmp_path, "pods", "train", "max_steps=2", "checkpoint.every_steps=1")
    assert f"next: pods evaluate run={name}" in trained
    saved = checkpoints.find(tmp_path / "checkpoints" / name)
    first, second = (load_file(c.path / "adapter_model.safetensors") for c in saved)
    assert [key for key in first if "lora_B" in key and torch.equal(first[key], second[key])] == []

    installed.run(tmp_path, "pods", "evaluate", f"run={name}", "repeats=1", "greedy=false")
    assert sorted(results.read(tmp_path / "results" / f"{name}.json")) == [1, 2]
    assert (tmp_path / "results" / "base-tiny.json").is_file()
    grid = "figure.grid_seconds=0.1"  # finer than a step: this machine's speed decides no point
    installed.run(tmp_path, "pods", "plot", "figure=quickstart", grid)
    figure = tmp_path / "figures" / "quickstart"
    assert {"main.png", "main.pdf", "length.png"} <= {path.name for path in figure.iterdir()}
    curve = json.loads((figure / "curves.json").read_text())["series"]["GRPO-PODS"]
    assert curve["time_hours"][0] == 0
    names = {"checkpoints", "figures", "results", "rewards.py", "script.py"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_commands_name_each_other(installed, tmp_path):
    shown = installed.run(tmp_path, "pods", "plot", "--help")
    assert "pods plot figure=quickstart" in shown
    assert "uv run" not in shown
    refused = installed.run(tmp_path, "pods", "train", "run=r", "nothing=1", code=2)
    assert refused.startswith("pods train: nothing=1: unknown")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 0, "pods <command> key=value"),
        (["tain"], 2, "pods: tain: no command; one of train, evaluate, plot"),
        (["plan"], 2, "pods: plan: was removed; docs/algorithms.md"),
    ],
)
def test_a_word_that_is_no_command_is_refused(installed, tmp_path, arguments, code, said):
    assert installed.run(tmp_path, "pods", *arguments, code=code).startswith(said)


def test_its_version_is_that_of_the_pages():
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert len(re.findall(rf"\n## {VERSION} ", (ROOT / "CHANGELOG.md").read_text())) == 1
