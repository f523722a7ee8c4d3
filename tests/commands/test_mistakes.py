"""Typical mistakes, each answered by one line before any file is written, and the hints typed.

Types and bounds: tests/unit/test_config.py; rules across keys: tests/unit/test_check.py.
"""

import dataclasses
import functools
import runpy
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from pods.config import command as commands
from pods.config.command import CONFIG_DIR, Command, command
from pods.config.errors import UserError
from pods.config.keys import Text
from pods.config.mistakes import explain
from pods.evaluation.config import EvaluateConfig
from pods.figures.figure import FigureConfig
from tests.configs import overridden
from tests.conftest import ROOT
from tests.fake_run import make_run
from tests.figures import refused


def transcript() -> list[tuple[str, str]]:
    """(command, answer) of tests/commands/mistakes.txt."""
    text = (ROOT / "tests" / "commands" / "mistakes.txt").read_text().strip()
    parts = [part.split("\n", 1) for part in text.removeprefix("$ ").split("\n$ ")]
    return [(command, " ".join(answer.split())) for command, answer in parts]


def path_of(script: str) -> str:
    return script if (ROOT / script).is_file() else f"scripts/{script}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with the run checkpoints/old; no mistake may change it."""
    folder = tmp_path_factory.mktemp("beside")
    make_run(folder / "checkpoints", "old", steps=())
    lines = ["def short(completions): return [1 / 0]", "def one(completions): return [1.0]"]
    (folder / "my.py").write_text("\n".join(lines))
    (folder / "q.jsonl").write_text('{"q": "1+1", "a": "2"}')
    return folder


@pytest.fixture
def answer(folder, monkeypatch, capsys):
    """A command line -> the line that refuses it."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # my.py's would count as a file

    def run(typed: str) -> str:
        monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # as in a new process
        script, *arguments = shlex.split(typed)
        return refused(capsys, path_of(script), *arguments).removeprefix(f"{Path(script).name}: ")

    return run


@pytest.mark.parametrize(("typed", "line"), transcript(), ids=[typed for typed, _ in transcript()])
def test_a_mistake_is_one_line(answer, typed, line):
    assert answer(typed) == line


# (what was typed, what the line begins with) by the function that refuses it: hydra_arguments reads
# the words, overridden composes them, prepared makes the typed config, check applies rules across
# keys, and main looks at files; no model is loaded yet.
REFUSED = {
    "hydra_arguments": [
        ("train.py ++sampling.temprature=1", "++sampling.temprature=1"),
        ("train.py lr=1e-3", "lr=1e-3"),
        ("train.py logger.console=true", "logger.console=true"),
        ("train.py clock.update=.1", "clock.update=.1"),
        ("train.py experiment=null", "experiment=null"),
        ("train.py experiment=1", "experiment=1"),
        ("train.py model=nan", "model=nan"),
        ("evaluate_run.py run=old sampling.temperature=0", "sampling.temperature=0"),
        ("chat.py acc=.5", "acc=.5"),
    ],
    "overridden": [
        ("train.py model=none", "model=none"),
        ("plot.py figure=gsm8k_mian", "figure=gsm8k_mian"),
        ("plot.py figure.title=x", "figure.title: the config has no such key; add figure=<name>"),
        (
            "plot.py figure=quickstart figure.series.New.runs=[a]",
            "figure.series.New.runs: the config has no such key; add figure=<name>, or make ",
        ),
    ],
    "prepared": [
        ("train.py clock={fixed:1}", "clock: "),
        ("train.py ~warm_up", "warm_up: has no value; set warm_up=<value>"),
        ("train.py run=null", "run=null"),
        ("train.py run=[x]", "run="),
        ("train.py seed=4294967296", "seed=4294967296"),
        ("train.py trial=true card=v100", "card=v100"),
        ("evaluate_run.py run=old tasks=gms8k", "tasks=gms8k"),
        ("evaluate_run.py run=old checkpoints=newest", "checkpoints=newest"),
        ("plot.py metric=acc", "metric=acc"),
        ("chat.py", "run"),
    ],
    "check": [
        ("train.py rule=conf/my.py", "rule=conf/my.py"),
        ("train.py algorithm=grpo 'rule_kwargs={q: 1}'", "rule=max_variance rule_kwargs={'q': 1}"),
        ("train.py algorithm=thin trl.scale_rewards=none", "trl.scale_rewards=none"),
        ("train.py data_dir=nowhere task=gsm8k", "data_dir=nowhere"),
        ("train.py resume=nowhere/checkpoint-3", "resume=nowhere/checkpoint-3"),
        (
            "train.py task=own task.source=no.jsonl task.question=q task.answer=a",
            "task.source=no.jsonl",
        ),
        ("train.py task=own task.source=q.jsonl task.answer=a", "task.question=None"),
        ("train.py card=l40s", "card=l40s"),
        ("train.py trial=true json=true", "json=true"),
        ("train.py trial=true card=l40s model.path=./none", "model.path=./none"),
    ],
    "main": [
        ("train.py optimizer.name=adam", "optimizer.name=adam"),
        ("train.py output_dir=my.py", "output_dir=my.py"),
        ("train.py model.load_in_4bit=true", "model.load_in_4bit=true"),
        ("train.py rewards.functions.short=my.py:short", "rewards.functions.short=my.py:short"),
        ("evaluate_run.py", "run=null"),
        ("evaluate_run.py run=old experiment=quickstart", "run=old experiment=quickstart"),
        ("evaluate_run.py run=null model=tiny", "model=tiny"),
        ("plot.py figure=math_main", "results_dir=results"),
        ("plot.py figure=all figure.grid_seconds=60", "figure.grid_seconds=60.0"),
        ("report.py run=absent", "run=absent"),
        ("report.py run=../x/r", "run=../x/r"),
        ("chat.py run=old", "checkpoints/old"),
    ],
}


@functools.cache
def definition(script: str) -> Command:
    """What a script starts."""
    with mock.patch.object(commands, "start") as start:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return start.call_args.args[0]


def run(job: Command, words: list[str]) -> None:
    """In the order of a command's start, without Hydra's own composing, which takes 0.2 s."""
    overrides = commands.hydra_arguments(job, words)
    composed = overridden(job.name, job.folder, *overrides)
    config = commands.prepared(job, composed, overrides)
    job.check(config, [])
    job.main(config)


@pytest.mark.parametrize(
    ("typed", "start", "stage"),
    [(*case, stage) for stage, cases in REFUSED.items() for case in cases],
)
def test_a_mistake_is_refused_with_its_key(folder, monkeypatch, typed, start, stage):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = {*Path().rglob("*")}
    script, *words = shlex.split(typed)
    job = dataclasses.replace(definition(path_of(script)))
    with pytest.raises((UserError, HydraException, OmegaConfBaseException, OSError)) as error:
        run(job, words)
    assert explain(error.value).startswith(start)
    assert error.traceback[2].name == stage  # below this test and `run`
    assert {*Path().rglob("*")} == before


def test_a_folder_of_configs_that_is_not_there_is_one_line(answer):
    assert answer("train.py --config-dir nowhere").startswith("Additional config directory")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("train.py algorithm=PODS", "pods"),
        ("train.py experiment=smolm2", "smollm2"),
        ("train.py model=Tiny", "tiny"),
        ("plot.py figure=quickstat", "quickstart"),
        ("train.py optimizer.schedule=Cosine", "cosine"),
        ("train.py save_steps=5", "checkpoint.every_steps"),
        ("train.py lr_scheduler_type=cosine", "optimizer.schedule"),
        ("train.py lora_alpha=16", "lora.alpha"),
    ],
)
def test_a_name_spelt_alike_is_offered(answer, typed, name):
    assert answer(typed).endswith(f"did you mean {name}?")


@pytest.mark.parametrize("typed", ["old", "checkpoints/old", "run=checkpoints/old", "run=old"])
def test_a_run_may_be_typed_without_its_key_and_with_its_folder(answer, typed):
    """It is understood: what is refused is its checkpoints, of which it has none."""
    assert answer(f"chat.py {typed}").startswith("checkpoints/old: ")


class PlotConfig(FigureConfig):
    out_dir: Text
    by: Text | None


def test_a_value_with_signs_is_typed_in_quotes_inside_quotes(monkeypatch):
    seen: list = []
    plot = command("plot", PlotConfig)(seen.append)
    for label in ("GRPO", "Größe", "基线", "GRPO (lr=1e-6)", "$", "n = 8", "b's", "100 %", "a/b"):
        monkeypatch.setattr(sys, "argv", ["plot.py", f'runs="{{{label}: [größe-*], B: [b]}}"'])
        plot()
        assert seen.pop().runs == {label: ["größe-*"], "B": ["b"]}
    evaluate = command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")(seen.append)
    for name in ("run-seed[01]", "größe", "a b=c"):
        for typed in (f'run="{name}"', f'run=[b,"{name}"]'):
            monkeypatch.setattr(sys, "argv", ["evaluate_run.py", typed])
            evaluate()
            assert seen.pop().run[-1] == name
