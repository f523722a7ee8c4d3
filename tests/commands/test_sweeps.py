"""Names of a sweep's runs, what --help prints, and a reader that closes the pipe."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from pods import registry
from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, keys, typed_as, typed_list
from pods.evaluation import lookup
from pods.evaluation.config import EvaluateConfig
from pods.runs import results
from pods.training.check import check as check_all
from pods.training.check import resolve_defaults
from tests.configs import compose, composed

NAME = "quickstart-pods-max_variance-n8-m4-seed0"
OWN = "task=own task.source=data/my.sums.csv task.question=q task.answer=a"
RUNS = [
    ("optimizer.learning_rate=2e-3", f"{NAME}-optimizer.learning_rate-0.002"),
    ("rewards=v2 prompts_per_step=8 optimizer.learning_rate=1e-3", NAME),  # all by default
    ("optimizer.learning_rate=1e-3,2e-3", "quickstart-lr0.001-seed0"),
    (
        "algorithm=grpo,pods optimizer.learning_rate=2e-3 seed=3,4 lora.rank=4,8 loss.beta=.1,.2",
        "quickstart-lr0.002-grpo-rank4-beta0.1-seed3",
    ),
    (  # what all runs share is a hash if it is long
        f"optimizer.learning_rate=-1,2 warm_up=true task.system={'x' * 50}",
        "quickstart-0abd250c-lr-1-seed0",
    ),
    ("rule=random,max_variance seed=1,2", "quickstart-pods-random-n8-m4-seed1"),
    ("rule=random,max_variance task.date=''", "quickstart-date-empty-random-seed0"),
    ("task.date=''", f"{NAME}-task.date-empty"),
    ("seed=3 rule=random kept_per_prompt=2", "quickstart-pods-random-n8-m2-seed3"),
    ("algorithm=grpo rollouts_per_prompt=16", "quickstart-grpo-n4-m4-seed0"),
    ("algorithm=grpo_ga kept_per_prompt=2", "quickstart-grpo_ga-n8-m8-seed0"),
    ("algorithm=dapo algorithm_kwargs.rounds=2", "quickstart-dapo-rounds2-n4-m4-seed0"),
    ("algorithm=speed rule=random", "quickstart-speed-random-n8-m4-seed0"),
    ("algorithm=my.py:f", "quickstart-f-n8-m4-seed0"),
    ("run=3", "3"),
    ("rewards=strict rule_kwargs.k=1", f"{NAME}-rewards-strict-rule_kwargs.k-1"),
    ("task.system=null warm_up=true", f"{NAME}-task.system-null-warm_up-true"),
    (f"task.system={'x' * 50}", f"{NAME}-task.system-77cf1206"),  # a hash of a long value
    ("model=tiny model.path=a/b", f"{NAME}-model.path-a_b"),
    ("rewards.functions.f=a.py:g", "quickstart-pods-max_variance-f-n8-m4-seed0"),
    (
        "rewards.functions.f=a.py:g,b.py:g",
        "quickstart-f-a.py_g-seed0",
    ),
    ("rewards.weights.format=2", f"{NAME}-rewards.weights.format-2"),
    ("advantage=rloo", "quickstart-pods-max_variance-rloo-n8-m4-seed0"),
    ("rule=my.py:rule", "quickstart-pods-rule-n8-m4-seed0"),
    (OWN, "quickstart-pods-max_variance-my.sums-n8-m4-seed0"),
    (
        f"{OWN} task.kind=choice,math task.system=s",
        "quickstart-1f2a3d0e-kind-choice-seed0",
    ),
    ("budget.train_seconds=5 output_dir=x vllm.standby=true", NAME),  # a run may go on with these
    ("vllm.merged_rollouts=true", f"{NAME}-vllm.merged_rollouts-true"),
    ("budget.train_seconds=5,9", "quickstart-train_seconds5-seed0"),
    ("run=mine seed=1,2", "mine-seed1"),
    ("run=mine-${seed} seed=1,2 lora.rank=4", "mine-1"),
]


@pytest.mark.parametrize(("command", "name"), RUNS)
def test_what_is_overridden_and_not_in_the_name_is_appended(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("def f(step):\n    yield step.prompts, step.n\n")
    job, *_ = sweeps.expanded(command.split())
    overrides = sweeps.parsed(command.split())
    swept = [override.key_or_group for override in overrides if override.is_sweep_override()]
    assert sweeps.name(composed(*job), job, swept, lambda texts: composed(*texts)) == name


@pytest.mark.parametrize(
    ("typed", "flags", "overrides"),
    [
        ("--cfg job seed=1", "--cfg job", "seed=1"),
        ("seed=1 -c all --package task", "-c all --package task", "seed=1"),
        ("--config-dir a=b task=own", "--config-dir a=b", "task=own"),
        ("--config-dir=here ~trl.a run=1e3", "--config-dir=here", "~trl.a run=1e3"),
        ("seed=1 -cn train --hydra-help", "-cn train --hydra-help", "seed=1"),
    ],
    ids=lambda text: text.replace(" ", "_"),
)
def test_flags_of_hydra_take_their_values_with_a_space(typed, flags, overrides):
    train = command.Command(print, "train", TrainConfig, CONFIG_DIR, print, print)
    assert command.hydra_arguments(train, typed.split()) == [*flags.split(), *overrides.split()]


@pytest.fixture
def sweep(monkeypatch, tmp_path):
    """train.py -m with these overrides, which trains nothing -> the runs that started."""
    monkeypatch.chdir(tmp_path)

    def start(*overrides: str, train=lambda config: None) -> list[str]:
        started = []

        def main(config):
            started.append(config.run)
            train(config)

        monkeypatch.setattr(sys, "argv", ["train.py", "-m", *overrides])
        try:
            command.command("train", TrainConfig, resolve=registry.resolve, check=check)(main)()
        except SystemExit as end:
            started.append(end.code)
        return started

    return start


def check(config, swept):
    resolve_defaults(config)
    check_all(config)


@pytest.mark.parametrize(
    ("overrides", "key", "number"),
    [
        ("seed=1,2 kept_per_prompt=4,9", "kept_per_prompt=9", "job 2 of 4 "),
        ("seed=1,x", "seed=x", "job 2 of 2 "),
        ("algorithm=pods,my.py:f", "algorithm=my.py:f", "job 2 of 2 "),
        ("task=own,gsm8k data_dir=nowhere", "task.source=None", "job 1 of 2 "),
        ("optimizer.learning_rate=choice(0.1,-0.1)", "optimizer.learning_rate=-0.1", "job 2 of 2 "),
    ],
)
def test_a_sweep_with_a_wrong_job_starts_none(sweep, capsys, tmp_path, overrides, key, number):
    assert sweep(*overrides.split()) == [2]
    line = capsys.readouterr().err
    assert line.startswith(f"train.py: {key}: ")
    assert number in line
    assert line.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_an_algorithm_that_samples_m_takes_m_and_says_so(sweep, capsys):
    keys = ["algorithm=grpo,grpo_ga,pods", "rollouts_per_prompt=16", "kept_per_prompt=4"]
    sizes = ("grpo-n4-m4", "grpo_ga-n16-m16", "pods-max_variance-n16-m4")
    assert sweep(*keys) == [f"quickstart-{size}-seed0" for size in sizes]
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("job ")]
    assert [line.partition(":")[0] for line in said] == [
        "rollouts_per_prompt=16",
        "kept_per_prompt=4",
    ]


def test_values_that_are_drawn_are_left_to_hydras_sweeper():
    assert sweeps.expanded(["seed=interval(1,3)"]) == []
    assert sweeps.expanded(["seed=1,2", "hydra/sweeper=optuna"]) == []
    assert sweeps.expanded(["seed=glob(*)"]) == []


def test_the_summary_names_what_failed_and_the_command_that_evaluates_the_rest(sweep, capsys):
    def train(config):
        if config.seed == 2:
            raise UserError("a reason")

    own = ["rewards.functions.f=my.py:f", "output_dir=a b"]
    Path("my.py").write_text("def f(completions, **_): ...")
    *runs, code = sweep("seed=1,2,3", *own, train=train)
    assert code == 2
    first, failed, evaluate, _ = capsys.readouterr().out.splitlines()
    assert first == "sweep: 2 of 3 jobs done"
    assert failed == f"{runs[1]}: a reason"
    words = shlex.split(evaluate)
    assert words[:4] == ["next:", "uv", "run", "evaluate_run.py"]
    assert words[5:] == ['output_dir="a b"', "trust_code=true"]
    assert sweeps.runs_of(Path(words[4].partition("=")[2].strip('"'))) == [runs[0], runs[2]]


def test_a_sweep_of_one_job_has_its_folder(sweep):
    (run,) = sweep("seed=7")
    assert sweeps.runs_of(sweeps.folder(["seed=7"], "checkpoints")) == [run]


def test_jobs_with_one_name_are_refused_before_any_trains(sweep, capsys):
    *runs, code = sweep("seed=1,1")
    assert (runs, code) == ([], 2)
    assert "is also the name of job 1" in capsys.readouterr().err


def test_parameters_that_differ_in_their_names_alone_are_two_runs():
    words = ["algorithm_kwargs={a:1},{b:1}", "optimizer.learning_rate=0.001,0.002"]
    names = {sweeps.short(sweeps.parsed(job)) for job in sweeps.expanded(words)}
    assert names == {"a_1-lr0.001", "a_1-lr0.002", "b_1-lr0.001", "b_1-lr0.002"}


def write_metrics(folder, rows):
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"step": i, "train_seconds": i / 10, **row}) for i, row in enumerate(rows, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([{"all/reward_mean": 0.5 * i} for i in range(12)], 3.25),  # of the last ten steps
        ([{"eval/greedy_accuracy": 0.5}, {"eval/greedy_accuracy": 0.25}, {}], 0.25),
    ],
)
def test_the_score_of_a_job_is_its_last_greedy_accuracy_else_its_reward(tmp_path, rows, expected):
    config = compose("run=a", f"output_dir={tmp_path}", "max_steps=12")
    write_metrics(tmp_path / "a", rows)
    assert sweeps.score(config) == expected


def test_names_of_a_sweep_are_short_and_differ():
    """Keys and values of any length."""
    words = ["algorithm=horvitz_thompson,max_abs_advantage", "lora.alpha=16", "lora.rank=4,8"]
    words += ["optimizer.schedule=constant", f"task.system={'long-' * 7}a,{'long-' * 7}b"]
    swept = ["algorithm", "lora.rank", "task.system"]
    names = {
        sweeps.name(composed(*job), job, swept, lambda texts: composed(*texts))
        for job in sweeps.expanded(words)
    }
    assert len(names) == 8
    assert max(map(len, names)) <= sweeps.MOST


def test_the_folder_of_a_sweep_has_its_runs_and_stands_for_them(sweep, tmp_path, capsys):
    command = ("algorithm=grpo,pods", "seed=1,2")
    runs = sweep(*command, "max_steps=1")
    lines = capsys.readouterr().out.splitlines()
    folder = lines[-2].rpartition("=")[2]
    assert lines[-2:] == [
        f"next: uv run evaluate_run.py run={folder}",
        f"then: uv run scripts/table.py runs={folder}",
    ]
    assert re.fullmatch(r"checkpoints/sweep-algorithm-seed-\w{8}", folder)
    assert sweeps.runs_of(Path(folder)) == runs
    # the same command finds its runs and its folder again, also with more steps
    assert {*sweep(*command[::-1], "max_steps=2", "hydra.sweep.dir=x")} == {*runs}
    assert [path.name for path in Path("checkpoints").glob("[!.]*")] == [Path(folder).name]
    for run in runs[:3]:
        (tmp_path / "checkpoints" / run / ".hydra").mkdir(parents=True)
        (tmp_path / "checkpoints" / run / ".hydra" / "config.yaml").touch()
        results.write(tmp_path / "results" / f"{run}.json", {})
    for name in (folder, Path(folder).name):
        assert lookup.runs([name], Path("checkpoints")) == runs[:3]
    found = results.find("results", [folder])
    assert {path.stem for path in found} == {*runs[:3]}


def test_a_sweep_by_validation_goes_on_with_the_choice(sweep, capsys):
    sweep("optimizer.learning_rate=1,2", "evaluation.split=validation", "max_steps=1")
    *_, evaluate, choose = capsys.readouterr().out.splitlines()
    assert evaluate.endswith(" split=validation")
    assert choose.startswith("then: uv run scripts/best.py runs=checkpoints/sweep-learning_rate-")
    assert "output_dir" not in choose
    sweep("seed=1,2", "evaluation.split=validation", "max_steps=1", "output_dir=elsewhere")
    assert capsys.readouterr().out.splitlines()[-1].endswith(" output_dir=elsewhere")


def test_jobs_of_a_launcher_are_summed_up_too(tmp_path, monkeypatch, capsys):
    """They run in other processes (joblib, submitit): none has begun in this one."""
    monkeypatch.chdir(tmp_path)
    nothing = command.nothing
    definition = command.Command(nothing, "train", TrainConfig, CONFIG_DIR, nothing, nothing)
    command.hydra_arguments(definition, ["-m", "run=r", "seed=1,2"])
    monkeypatch.setattr(command.hydra, "main", lambda *_, **__: lambda job: lambda: None)
    command.run_hydra(definition)
    done, evaluate, _ = capsys.readouterr().out.splitlines()
    assert done == "sweep: 2 of 2 jobs done"
    assert sweeps.runs_of(Path(evaluate.rpartition("=")[2])) == ["r-seed1", "r-seed2"]


def test_algorithm_kwargs_of_one_algorithm_in_a_sweep_are_answered_with_what_to_type(sweep, capsys):
    assert sweep("algorithm=dapo,grpo", "algorithm_kwargs.rounds=2") == [2]
    assert "in a command for the algorithms that take them" in capsys.readouterr().err


def test_a_run_of_plain_keys_is_evaluated_by_its_name():
    runs = [compose(f"run={name}", "output_dir=checkpoints") for name in "ab"]
    assert sweeps.evaluation_of(runs[:1]).endswith(".py run=a")
    by_folder = sweeps.evaluation_of(runs, Path("checkpoints/sweep-x"))
    assert by_folder.endswith(".py run=checkpoints/sweep-x")
    validation = compose("run=a", "output_dir=checkpoints", "evaluation.split=validation")
    assert sweeps.evaluation_of([validation]).endswith(" run=a split=validation")


AWKWARD = [
    "1e3",
    "true",
    "1_000",
    "a b",
    "Größe",
    "基线",
    "$x",
    'a"b',
    "a\\",
    "'",
    "a,b",
    "[x]",
    "${",
    "é=1",
]


@pytest.mark.parametrize("text", AWKWARD)
def test_a_text_is_typed_so_that_hydra_reads_it_back(text):
    for typed, value in ((typed_as("k", text), text), (typed_list("k", [text, "b"]), [text, "b"])):
        (word,) = shlex.split(typed)
        assert sweeps.parsed([word])[0].value() == value


def test_the_summary_of_a_stopped_sweep_names_the_run_that_was_stopped(sweep, capsys):
    def train(config):
        if config.seed == 2:
            sys.exit(130)

    assert sweep("seed=1,2,3", train=train)[-1] == 130
    shown = capsys.readouterr().out
    assert "sweep: 1 of 2 jobs done\n" in shown
    assert "seed2: was stopped; the same command goes on with it\n" in shown


def test_a_command_without_groups_looks_for_configs_in_a_folder_of_the_users(tmp_path, monkeypatch):
    """Hydra would take its keys `experiment` and `model` for groups if the folder had them."""
    for group, values in {"experiment": "experiment: mine", "model": "name: mine"}.items():
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(f"# @package _global_\n{values}\n")
    arguments = ["--config-dir", str(tmp_path), "run=null", "experiment=mine", "model=mine"]
    monkeypatch.setattr(sys, "argv", ["evaluate_run.py", *arguments])
    seen = []

    def main(config):
        seen.append(command.compose("train", [f"experiment={config.experiment}"]).experiment)

    command.command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")(main)()
    del command.SEARCHED[1:]
    assert seen == ["mine"]


def test_help_has_the_commands_own_keys_and_groups_with_comments():
    text = command.help_text("title", CONFIG_DIR, "train")
    words = set(re.findall(r"\w+", text))
    missing = [key for key in keys(TrainConfig) if key.rpartition(".")[2] not in words]
    assert {key.partition(".")[0] for key in missing} == {"task"}, missing  # of task=own
    assert "experiment=quickstart, any of chemistry_qwen, gsm8k_a100, " in text
    assert "figure" not in text
