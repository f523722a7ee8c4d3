"""A transcript of typical mistakes: a command and its answer, one line, before anything is written.

The commands run in this process, without torch where they need none.
"""

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import evaluate_run
import train
from scripts import chat, export, plot, replay, report, speedup
from tests.configs import compose

MAINS: dict[str, Callable[[], None]] = {
    "train.py": train.main, "evaluate_run.py": evaluate_run.main, "plot.py": plot.main,
    "speedup.py": speedup.main, "report.py": report.main, "replay.py": replay.main,
    "chat.py": chat.main, "export.py": export.main,
}  # fmt: skip
CASES = """
$ train.py ++sampling.temprature=1
sampling.temprature=1: unknown; did you mean sampling.temperature?
$ train.py zebra=1
zebra=1: unknown; --help lists every key
$ train.py rewards.weights.tags=big
rewards.weights.tags=big: must be a number
$ train.py model.path=no/such/folder
model.path=no/such/folder: no such folder; give a folder or a hub id (org/name)
$ train.py rule=my.py:f
rule=my.py:f: must be one of all, max_reward, max_variance, percentile, random; ...
$ train.py kept_per_prompts=4
kept_per_prompts=4: unknown; did you mean kept_per_prompt?
$ train.py sampling.temprature=1
sampling.temprature=1: unknown; did you mean sampling.temperature?
$ train.py temperature=1
temperature=1: unknown; did you mean sampling.temperature?
$ train.py lr=1e-3
lr=1e-3: unknown; did you mean optimizer.learning_rate?
$ train.py m=4
m=4: unknown; did you mean kept_per_prompt?
$ train.py learning_rate=1e-3
learning_rate=1e-3: unknown; did you mean optimizer.learning_rate?
$ train.py seed=one
seed=one: must be an integer
$ train.py seed=null
seed=null: must be an integer
$ train.py seed=-1
seed=-1: must be 0 or more
$ train.py lora.rank=big
lora.rank=big: must be an integer or null
$ train.py backend.warmup=maybe
backend.warmup=maybe: must be true or false
$ train.py 'optimizer.betas=[x,y]'
optimizer.betas=[x,y]: must be a list of numbers
$ train.py sampling.stop=end
sampling.stop=end: must be a list of texts
$ train.py logger.wandb.project=x
logger.wandb.project=x: sets a key of a group that is null; choose the group...
$ train.py experiment=null
experiment=null: a group needs a choice; --help lists them
$ train.py experiment=gsm9k
experiment=gsm9k: must be one of chemistry_qwen, gsm8k_a100, gsm8k_h100, gsm8k_llama, ...
$ train.py --seed 3
--seed: keys have no dashes; set seed=<value>
$ train.py seed =3
seed: cannot be read as key=value; no spaces around =, and quotes for the shell
$ train.py lora=3
lora=3: must be a group of keys (rank, alpha, dropout, target_modules)
$ train.py rule=best
rule=best: must be one of all, max_reward, max_variance, percentile, random; ...
$ train.py rule.name=my.py:none
rule.name=my.py:none: none is not defined in my.py; correct the name or the file
$ train.py rewards.functions.brevity=my.py:number
rewards.functions.brevity=my.py:number: number is no function in my.py; correct the name or the
file
$ train.py rewards=v3
rewards=v3: must be one of strict, v1, v1-correctness, v2
$ train.py rewards.weights.brevity=1
rewards.weights.brevity=1.0: no such reward; one of correctness, format, tags, or define it with
rewards.functions.brevity=path/to/file.py:function
$ train.py model=qwen
model=qwen: must be one of llama-3.2-3b-instruct, qwen2.5-3b-instruct, ...
$ train.py data_dir=nowhere task=gsm8k
data_dir=nowhere: no file nowhere/gsm8k/train.jsonl; put the rows of openai/gsm8k there, or unset
data_dir to use the hub
$ train.py output_dir=my.py
output_dir=my.py: my.py is a file; choose another output_dir
$ train.py task=own task.source=no.jsonl task.question=q task.answer=a
task.source=no.jsonl: no such file or folder ...
$ train.py lora.alpha.x=1
lora.alpha.x=1: ...
$ train.py algorithm.params=3
algorithm.params=3: must be keys with values, {name: value}
$ plot.py figure.title=x
figure.title=x: sets a key of a group that is null; ...
$ evaluate_run.py run=old model_path=no/such/folder
model_path=no/such/folder: no such folder; give a folder or a hub id (org/name)
$ evaluate_run.py run=old data_dir=nowhere
data_dir=nowhere: no such folder; correct the path
$ evaluate_run.py run=old results_dir=my.py
results_dir=my.py: is a file; choose a folder
$ train.py kept_per_prompt=100
kept_per_prompt=100: cannot keep more than rollouts_per_prompt=32; set 32 or less
$ train.py kept_per_prompt=12 micro_batch_size=5
micro_batch_size=5: must divide the 12 rows of a step (kept_per_prompt=12 x prompts_per_step=1);
set e.g. 1
$ train.py seed=1,2
seed=1,2: several values are a sweep, add -m; a list is written key=[a,b]
$ train.py resume=nowhere/checkpoint-3
resume=nowhere/checkpoint-3: no such folder; set auto, never or a checkpoint folder
$ train.py init_from=nowhere/checkpoint-3
init_from=nowhere/checkpoint-3: no finished checkpoint; give <run>/checkpoint-<step>
$ train.py run=a/b
run=a/b: must be a folder name without / and without a dot at the start
$ train.py backend=unsloth
backend=unsloth: no CUDA device; set backend=transformers
$ train.py model.load_in_4bit=true
model.load_in_4bit=true: 4-bit weights need CUDA; set model=tiny on a machine without a GPU, or
model.load_in_4bit=false
$ train.py task=own
task.source=None: task=own needs it; set a JSONL file, folder or hub id
$ train.py trial=maybe
trial=maybe: must be true or false
$ evaluate_run.py run=old engine=tgi
engine=tgi: must be one of auto, vllm, transformers
$ evaluate_run.py run=old select_on=test
select_on=test: must be one of validation
$ evaluate_run.py a=b=c
a=b=c: cannot be read as key=value; no spaces around =, and quotes for the shell
$ evaluate_run.py
run=null: name a run, or the base model to score: experiment=quickstart, or model=<hub id or
folder> tasks=[gsm8k]; runs: old
$ evaluate_run.py run=odl
run=odl: no such run in output_dir=checkpoints; it has old
$ evaluate_run.py run=new-*
run=new-*: no such run in output_dir=checkpoints; it has old
$ evaluate_run.py run=old checkpoint=last
checkpoint=last: unknown; did you mean checkpoints?
$ evaluate_run.py run=old checkpoints=newest
checkpoints=newest: must be all, best, last, or a list of steps
$ evaluate_run.py run=old tasks=gms8k
tasks=gms8k: unknown; choose from gsm8k, math, math500, amc23, aime24, chemistry, arithmetic, own
$ evaluate_run.py run=old rewards=v9
rewards=v9: unknown; choose from v1, v1-correctness, v2, strict
$ evaluate_run.py run=old repeat=1
repeat=1: unknown; did you mean repeats?
$ evaluate_run.py run=old questions=0
questions=0: must be 1 or more
$ evaluate_run.py run=old sampling.temperature=0
sampling.temperature=0: unknown; did you mean temperature?
$ evaluate_run.py run=old experiment=quickstart
run=old experiment=quickstart: needs run=null; drop one
$ evaluate_run.py run=null model=tiny
model=tiny: no run says the task; set tasks=[gsm8k]
$ evaluate_run.py run=null model=./nowhere tasks=[gsm8k]
model=./nowhere: no such folder; give a folder or a hub id (org/name)
$ evaluate_run.py run=null experiment=gsm9k
experiment=gsm9k: must be one of chemistry_qwen, gsm8k_a100, gsm8k_h100, ...
$ evaluate_run.py run=old from_training=true repeats=3
from_training=true repeats=3: nothing is generated or graded anew; drop one
$ evaluate_run.py run=old watch=true
watch=true: unknown; --help lists every key
$ evaluate_run.py select_on=validation
select_on=validation: a base model has no checkpoints; set run
$ plot.py figure=gsm8k_mian
figure=gsm8k_mian: must be one of a100s, all, chemistry_main, ...
$ plot.py figur=quickstart
figur=quickstart: unknown; did you mean figure?
$ plot.py run=old
run=old: unknown; did you mean runs?
$ replay.py run=old
run=old: no ledger checkpoints/old/rollouts.jsonl.gz; runs with one: none
$ replay.py rule=max_reward
run: has no value; set run=<value>
$ chat.py run=old temprature=1
temprature=1: unknown; did you mean temperature?
$ chat.py run=old
checkpoint=last: checkpoints/old has none yet; wait for one
$ export.py run=old merge=x
merge=x: must be true or false
$ export.py run=old out=checkpoints
out=checkpoints: exists; remove it, or set out=<a new folder>
"""


def transcript() -> list[tuple[str, str]]:
    """(command, answer); an answer that ends with ... is cut."""
    parts = [part.split("\n", 1) for part in CASES.strip().removeprefix("$ ").split("\n$ ")]
    return [(command, " ".join(answer.split())) for command, answer in parts]


@pytest.fixture(scope="module")
def saved() -> str:
    """The config of a run."""
    return OmegaConf.to_yaml(compose("run=old").model_dump())


@pytest.fixture
def say(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> Iterator[Callable]:
    """Types a command beside checkpoints/old, and returns its exit code and stderr."""
    config = tmp_path / "checkpoints" / "old" / ".hydra" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(saved)
    (tmp_path / "my.py").write_text("def reward(completions, **columns): ...\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> tuple[int, str]:
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None  # as in a new process
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as end:
            MAINS[sys.argv[0]]()
        return end.value.code, capsys.readouterr().err

    yield run
    HydraConfig.instance().cfg = None


@pytest.mark.parametrize(("command", "answer"), transcript(), ids=[c for c, _ in transcript()])
def test_a_mistake_is_one_line(say: Callable, tmp_path: Path, command: str, answer: str) -> None:
    (tmp_path / "__pycache__").mkdir(exist_ok=True)  # Python's, of my.py
    before = sorted(set(tmp_path.rglob("*")) - set(tmp_path.rglob("__pycache__/*")))
    code, said = say(command)
    lines = [line for line in said.splitlines() if not line.startswith("backend ")]
    assert (code, len(lines)) == (2, 1), said
    name = command.partition(" ")[0]
    given = lines[0].removeprefix(f"{name}: ")
    assert given.startswith(answer[:-3]) if answer.endswith("...") else given == answer
    assert sorted(set(tmp_path.rglob("*")) - set(tmp_path.rglob("__pycache__/*"))) == before
