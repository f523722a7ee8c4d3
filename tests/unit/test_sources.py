"""Config files as data: what Hydra would run or read because of a file is refused by name, and the
rest of the file works. Every target below is harmless: collections.OrderedDict."""

import os
from pathlib import Path

import pytest
import yaml

from pods.config import command
from pods.config.errors import UserError
from tests.configs import compose
from tests.figures import refused

TARGET = {"_target_": "collections.OrderedDict"}
GLOBAL = "# @package _global_\n"
REFUSED = {  # experiment/theirs.yaml -> what the line names
    "hydra.callbacks.x._target_": {"hydra": {"callbacks": {"x": TARGET}}},
    "hydra.job.env_set.PODS_X": {"hydra": {"job": {"env_set": {"PODS_X": "1"}}}},
    "hydra.job_logging.handlers.x.()": {
        "hydra": {"job_logging": {"handlers": {"x": {"()": "logging.NullHandler"}}}}
    },
    "hydra.hydra_logging.version": {"hydra": {"hydra_logging": {"version": 1}}},
    "/hydra/launcher;": {"defaults": [{"override /hydra/launcher": "submitit_local"}]},
    "hydra.launcher.timeout_min": {"hydra": {"launcher": {"timeout_min": 60}}},
    "hydra.sweeper.params.seed": {"hydra": {"sweeper": {"params": {"seed": "1,2"}}}},
    "hydra.launcher._target_": {"hydra": {"launcher": TARGET}},
    "hydra.launcher.x._target_": {"hydra": {"launcher": {"x": TARGET}}},
    "hydra.launcher.setup": {"hydra": {"launcher": {"setup": ["true"]}}},
    "hydra.launcher.python": {"hydra": {"launcher": {"python": "python3"}}},
    "hydra.sweeper.sampler._target_": {"hydra": {"sweeper": {"sampler": TARGET}}},
    "hydra.sweeper.params.hydra.callbacks": {
        "hydra": {"sweeper": {"params": {"hydra.callbacks": "1"}}}
    },
    "hydra.searchpath": {"hydra": {"searchpath": ["pkg://collections"]}},
    "hydra.mode": {"hydra": {"mode": "MULTIRUN"}},
    "sets hydra;": {"hydra": "${task}"},
    "hydra/callbacks": {"defaults": ["_self_", {"override /hydra/callbacks": "mine"}]},
    "/hydra/callbacks/mine": {"defaults": ["/hydra/callbacks/mine"]},
    "/hydra/launcher": {"defaults": [{"/hydra/launcher": "mine"}]},
    "@hydra.callbacks": {"defaults": [{"/task@hydra.callbacks": "own"}]},
    "@_global_.hydra": {"defaults": [{"/task@_global_.hydra": "own"}]},
}


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """A folder of a stranger's, as --config-dir."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    monkeypatch.setattr(command, "SEARCHED", [command.CONFIG_DIR, folder])
    write(folder / "experiment" / "theirs.yaml", {"defaults": ["quickstart", "_self_"]})
    for group in ("hydra/callbacks", "hydra/launcher"):
        write(folder / group / "mine.yaml", {"x": TARGET}, "")
    return folder


def write(path: Path, content: dict, header: str = GLOBAL) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + yaml.safe_dump(content, sort_keys=False))


@pytest.mark.parametrize("named", REFUSED)
def test_a_file_cannot_have_hydra_run_something(conf, capsys, named):
    path = conf / "experiment" / "theirs.yaml"
    content = {"defaults": ["quickstart", "_self_"]} | REFUSED[named]
    write(path, content)
    typed = ["trial=true", "card=l40s", "experiment=theirs"]
    line = refused(capsys, "train.py", "--config-dir", str(conf), *typed)
    assert line.startswith(f"train.py: {path}: ")
    assert named in line


@pytest.mark.parametrize(
    ("file", "header", "typed"),
    [
        ("hydra/launcher/mine.yaml", "", "hydra/launcher=mine"),
        ("hydra/launcher/basic.yaml", "", "seed=1"),  # instead of Hydra's own
        ("experiment/theirs.yaml", "# @package hydra.callbacks\n", "experiment=theirs"),
        ("task/theirs.yaml", "# @package _global_.hydra\n", "task=theirs"),
    ],
)
def test_a_file_cannot_stand_in_hydras_groups(conf, capsys, file, header, typed):
    write(conf / file, {"x": TARGET}, header)
    flags = ["--config-dir", str(conf), "trial=true", "card=l40s"]
    assert f"{conf / file}: " in refused(capsys, "train.py", *flags, typed)


def test_the_saved_config_of_a_stranger_and_a_figure_are_looked_at(conf, capsys):
    saved = compose("run=r").model_dump() | {"hydra": {"callbacks": {"x": TARGET}}}
    write(conf / "config.yaml", saved, "")
    line = refused(capsys, "train.py", "-cd", str(conf), "-cn", "config", "run=again")
    assert "hydra.callbacks.x._target_" in line
    write(conf / "figure" / "theirs.yaml", {"hydra": {"callbacks": {"x": TARGET}}})
    line = refused(capsys, "scripts/plot.py", "-cd", str(conf), "figure=theirs")
    assert "hydra.callbacks.x._target_" in line


def test_a_pickle_of_hydras_is_not_read(conf, capsys):
    line = refused(capsys, "train.py", "--experimental-rerun", "config.pickle")
    assert "--experimental-rerun config.pickle" in line


def test_a_file_may_set_the_folder_of_a_launchers_logs(conf):
    content = {"defaults": ["quickstart", "_self_"], "hydra": {"sweep": {"dir": "a"}}, "seed": 7}
    write(conf / "experiment" / "theirs.yaml", content)
    assert command.compose("train", ["experiment=theirs"]).seed == 7


@pytest.mark.parametrize(
    "value",
    ["${oc.env:HOME}", "a-${oc.env:HOME}", "${oc.${seed}:HOME}", "${oc.decode:'${oc.env:HOME}'}"],
)
def test_a_file_from_elsewhere_does_not_read_the_environment(conf, value):
    path = conf / "experiment" / "theirs.yaml"
    write(path, {"defaults": ["quickstart", "_self_"], "wandb": {"tags": ["x", value]}})
    with pytest.raises(UserError) as error:
        command.compose("train", ["experiment=theirs"])
    assert str(error.value).startswith(f"{path}: wandb.tags={['x', value]}: ")
    assert os.environ["HOME"] not in str(error.value)


def test_a_file_from_elsewhere_may_name_other_keys(conf):
    keys = {"run": "x-${method:}-${seed}", "lora": {"rank": 4, "alpha": "${lora.rank}"}}
    write(conf / "experiment" / "theirs.yaml", {"defaults": ["quickstart", "_self_"]} | keys)
    composed = command.compose("train", ["experiment=theirs", "seed=5"])
    assert (composed.lora.alpha, composed.run[-2:]) == (4, "-5")
