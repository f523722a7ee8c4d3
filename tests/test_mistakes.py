"""A transcript of typical mistakes: a command and its answer, one line, before anything is written.

Types and bounds: tests/test_config.py; rules across keys: tests/test_check.py.
"""

import shlex
import sys

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

import evaluate_run
import train
from scripts import chat, export, plan, plot, replay, report
from tests.fake_run import make_run

MAINS = {
    "train.py": train.main, "evaluate_run.py": evaluate_run.main, "plot.py": plot.main,
    "replay.py": replay.main, "chat.py": chat.main, "export.py": export.main,
    "plan.py": plan.main, "report.py": report.main,
}  # fmt: skip
CASES = """
$ train.py ++sampling.temprature=1
sampling.temprature=1: unknown; did you mean sampling.temperature?
$ train.py lr=1e-3
lr=0.001: unknown; did you mean optimizer.learning_rate?
$ train.py experiment=null
experiment=null: a group needs a choice; --help lists them
$ train.py rule=my.py:f
rule=my.py:f: must be one of all, max_reward, max_variance, percentile, random; for a function ...
$ train.py --seed 3
--seed: keys have no dashes; set seed=<value>
$ train.py seed =3
seed: cannot be read as key=value; no spaces around =, and quotes for the shell
$ train.py seed=1,2
seed=1,2: several values are a sweep, add -m; a list is written key=[a,b]
$ train.py model.path=no/such/folder
model.path=no/such/folder: no such folder; give a folder or a hub id (org/name)
$ train.py data_dir=nowhere task=gsm8k
data_dir=nowhere: no file nowhere/gsm8k/train.jsonl; put the rows of openai/gsm8k there, or ...
$ train.py output_dir=my.py
output_dir=my.py: my.py is a file; choose another output_dir
$ train.py task=own task.source=no.jsonl task.question=q task.answer=a
task.source=no.jsonl: no such file or folder ...
$ train.py resume=nowhere/checkpoint-3
resume=nowhere/checkpoint-3: no such folder; set auto, never or a checkpoint folder
$ train.py model.load_in_4bit=true
model.load_in_4bit=true: 4-bit weights need CUDA; set model=tiny on a machine without a GPU, ...
$ evaluate_run.py
run=null: name a run, or the base model to score: experiment=quickstart, or model=<hub id or
folder> tasks=[gsm8k]; runs: old
$ evaluate_run.py run=odl
run=odl: no such run in output_dir=checkpoints; it has old
$ evaluate_run.py run=old sampling.temperature=0
sampling.temperature=0: unknown; did you mean temperature?
$ evaluate_run.py run=old checkpoints=newest
checkpoints=newest: must be all, best, last, or a list of steps
$ evaluate_run.py run=old tasks=gms8k
tasks=gms8k: must be 'gsm8k', 'math', 'math500', 'amc23', 'aime24', 'chemistry', ...
$ evaluate_run.py run=old experiment=quickstart
run=old experiment=quickstart: each says what is scored; set one
$ evaluate_run.py run=null model=tiny
model=tiny: no run says the task; set tasks=[gsm8k]
$ evaluate_run.py run=old from_training=true repeats=3
from_training=true repeats=3: nothing is generated or graded anew; drop one
$ evaluate_run.py run=old results_dir=my.py
results_dir=my.py: is a file; choose a folder
$ plot.py figure=gsm8k_mian
figure=gsm8k_mian: must be one of a100s, all, chemistry_main, ...
$ plot.py figure.title=x
figure.name: has no value; set figure.name=<value>
$ plot.py x=tokens
x=tokens: must be 'time', 'gpu_hours', 'steps', 'tokens_generated' or 'tokens_trained'
$ plot.py metric=acc
metric=acc: needs ans_acc | for_acc | both_acc | pass@<k>
$ plot.py figure=math_main
results_dir=results: no such folder; ...
$ report.py run=absent
run=absent: no folder checkpoints/absent; ...
$ report.py figure=all
figure=all: a page shows one figure; set figure=<name>
$ plan.py
accuracy=None: set run=<run>, or a share without a run
$ plan.py accuracy=.5 cells=[[1,4,8]]
cells: [1, 4, 8] must be [P,n,m] with P >= 1 and 2 <= m <= n
$ replay.py run=old
run=old: no ledger checkpoints/old/rollouts.jsonl.gz; runs with one: none
$ evaluate_run.py run=ol[de]
run=ol[de]: cannot be read as key=value; a pattern with brackets needs quotes inside quotes: ...
$ train.py task=own task.source=q.jsonl task.answer=a
task.question=None: task=own needs it; set one of its columns: q, a
$ train.py rewards.functions.short=my.py:short
rewards.functions.short=my.py:short: reward function short raised ZeroDivisionError('division ...
$ replay.py rule=max_reward
run: has no value; set run=<value>
$ chat.py run=old
checkpoint=last: checkpoints/old has none yet; wait for one
$ export.py run=old out=checkpoints
out=checkpoints: exists; remove it, or set out=<a new folder>
"""


def transcript() -> list[tuple[str, str]]:
    """(command, answer); an answer that ends with ... is cut."""
    parts = [part.split("\n", 1) for part in CASES.strip().removeprefix("$ ").split("\n$ ")]
    return [(command, " ".join(answer.split())) for command, answer in parts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with the run checkpoints/old; no mistake may change it."""
    folder = tmp_path_factory.mktemp("beside")
    make_run(folder / "checkpoints", "old", steps=())
    (folder / "my.py").write_text("def short(completions): return [1 / 0]")
    (folder / "q.jsonl").write_text('{"q": "1+1", "a": "2"}')
    return folder


@pytest.mark.parametrize(("command", "answer"), transcript(), ids=[c for c, _ in transcript()])
def test_a_mistake_is_one_line(folder, monkeypatch, capsys, command, answer):
    before = {*folder.rglob("*")}
    monkeypatch.chdir(folder)
    GlobalHydra.instance().clear()
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # as in a new process
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        MAINS[sys.argv[0]]()
    output = capsys.readouterr().err
    (line,) = [line for line in output.splitlines() if not line.startswith("backend ")]
    line = line.removeprefix(f"{sys.argv[0]}: ")
    assert line.startswith(answer[:-3]) if answer.endswith("...") else line == answer
    assert end.value.code == 2
    assert {*folder.rglob("*")} == before
