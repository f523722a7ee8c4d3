"""evaluate_run.py on random adapters and a few sums; tests/unit/test_targets.py has what a second
command finds of a first one."""

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import evaluate_run
from pods import files
from pods.config import functions as user_functions
from pods.config.command import CONFIG_DIR, typed
from pods.config.errors import Skipped, UserError
from pods.engines import choose
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.lookup import SAVED, runs
from pods.models.policy import load_tokenizer
from pods.runs import results
from tests import configs
from tests.fake_run import TINY, edit_config, make_run
from tests.unit.test_targets import Instant

SUMS = [f"{a}+{b}-{c}=?" for a, b, c in [(1, 2, 1), (5, 4, 3), (9, 9, 2), (7, 3, 8), (2, 2, 2)]]
KEYS = ["run=fake", "tasks=[gsm8k]", "data_dir=data", "repeats=2", "max_tokens=16"]
LAST = Path("results/fake/checkpoint-4/gsm8k.greedy/repeat-0.jsonl")
SUMMARY = Path("results/fake.json")
BUILD = choose.build


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints beside two tasks of five questions."""
    folder = tmp_path_factory.mktemp("prepared")
    make_run(folder / "checkpoints", steps=(2, 4), scale=0.05)
    for task, name, mark in (("gsm8k", "question", "#### "), ("math500", "problem", "")):
        rows = [{name: s, "answer": f"{mark}{eval(s[:-2])}"} for s in SUMS]  # our own text
        lines = [json.dumps(row | {"unique_id": str(i)}) + "\n" for i, row in enumerate(rows)]
        (folder / "data" / task).mkdir(parents=True)
        (folder / "data" / task / "test.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(autouse=True)
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that the test may spoil, in the current folder: the run's own folder."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    engine = Instant(load_tokenizer(str(TINY)))
    monkeypatch.setattr(choose, "build", lambda *_: nullcontext(engine))
    return tmp_path / "checkpoints" / "fake"


def configured(*overrides: str) -> EvaluateConfig:
    values = configs.overridden("evaluate", CONFIG_DIR / "evaluate", *KEYS, *overrides)
    return typed(EvaluateConfig, values)


def evaluate(*overrides: str) -> None:
    evaluate_run.main.__wrapped__(configured(*overrides))


def test_results_are_what_the_published_reader_expects(monkeypatch, capsys):
    """Every key a step, every list one number a repeat."""
    monkeypatch.setattr(choose, "build", BUILD)
    evaluate("tasks=[gsm8k,math500]", "rewards=[v2,strict]", "results_dir=fresh")
    shown = capsys.readouterr()
    content = json.loads(Path("fresh/fake.json").read_text())
    assert list(content) == ["checkpoint-2", "checkpoint-4"]
    repeats = {"gsm8k": 2, "math500": 2, "gsm8k.greedy": 1, "math500.greedy": 1}
    lengths = {
        checkpoint: {name: len(scored[name]["ans_acc"]) for name in repeats}
        for checkpoint, scored in content.items()
    }
    assert lengths == dict.fromkeys(content, repeats)
    assert [*json.loads(Path("fresh/base-tiny.json").read_text())] == [*repeats]
    assert content["checkpoint-4"]["meta"]["train_seconds"] == 10.0
    facts = json.loads(Path("fresh/fake.meta.json").read_text())
    task = facts["tasks"]["gsm8k"]
    assert (task["engine"], task["max_tokens"], task["questions"]) == ("transformers", 16, 5)
    assert (facts["train"]["experiment"], "torch" in facts["versions"]) == ("quickstart", True)
    assert shown.out.count("checkpoint-4") == 4  # two tasks, two graders
    assert "greedy %" in shown.out
    assert "checkpoint-4: gsm8k " in shown.err
    assert shown.out.splitlines()[-1] == "wrote fresh/base-tiny.json, fresh/fake.json"


def test_too_long_prompts_are_counted_and_greedy_takes_one_repeat():
    path = Path("data/gsm8k/test.jsonl")
    row = {"question": "1+" * 400 + "1=?", "answer": "#### 401"}
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    evaluate("temperature=0", "checkpoints=last")
    ((name, facts),) = json.loads(Path("results/fake.meta.json").read_text())["tasks"].items()
    assert (name, facts["temperature"]) == ("gsm8k.greedy", 0.0)
    assert (facts["questions"], facts["dropped"]) == (5, 1)
    assert len(results.read(SUMMARY)[4].datasets[name].ans_acc) == 1


def test_the_bases_of_two_data_sets_are_kept_apart(folder):
    """Both are called own, and both are right when a command is repeated."""
    for name, questions in (("first", SUMS), ("second", SUMS[::-1] + SUMS)):
        lines = [f"{text},{eval(text[:-2])}\n" for text in dict.fromkeys(questions)]  # our own text
        Path(f"{name}.csv").write_text("".join(["question,answer\n", *lines, *rest(name)]))
        copy = shutil.copytree(folder, folder.with_name(name))
        own = {"name": "own", "source": f"{name}.csv", "gold": "as_is", "kind": "math"}
        own |= {"question": "question", "answer": "answer", "test_size": 4, "validation_size": 4}
        keys = {f"task__{key}": value for key, value in own.items()}
        edit_config(copy / SAVED, run=name, **keys)
    base = [Path("results/base-tiny.json"), Path("results/base-tiny+2.json")]
    for _ in range(2):
        for name in ("first", "second"):
            evaluate(f"run={name}", "tasks=null", "checkpoints=last", "repeats=1")
        assert [path.exists() for path in base] == [True, True]
    digests = [results.read_settings(path).tasks["own"]["digest"] for path in base]
    runs_of = [Path(f"results/{name}.json") for name in ("first", "second")]
    assert [results.read_settings(path).tasks["own"]["digest"] for path in runs_of] == digests
    assert len({*digests}) == 2
    assert not Path("results/base-tiny+3.json").exists()


def rest(name: str) -> list[str]:
    """Further questions of a data set, which is split into train, validation and test."""
    first = 2 if name == "first" else 3
    return [f"{first}+{i}-1=?,{first + i - 1}\n" for i in range(1, 10)]


def test_a_saved_config_is_not_resolved(folder, monkeypatch):
    monkeypatch.setenv("SECRET", "42")
    edit_config(folder / SAVED, task__system="${oc.env:SECRET}")
    evaluate("results_dir=unresolved")
    assert "42" not in Path("unresolved/fake.meta.json").read_text().partition("git_commit")[0]


@pytest.mark.parametrize("key", ["rewards.functions.own", "task.gold"])
def test_code_that_a_saved_config_names_runs_only_if_the_user_says_so(folder, key):
    Path("theirs.py").write_text("open('ran', 'w')\ndef gold(row): return row['answer']\n")
    edit_config(folder / SAVED, **{key: "theirs.py:gold"})
    line = rf"run=fake: \S*config.yaml names code of this machine, {key}=theirs.py:gold; if the"
    with pytest.raises(UserError, match=line):
        evaluate()
    assert not Path("ran").exists()


def test_the_trainings_own_rewards_score_stored_completions_too(folder, monkeypatch, capsys):
    """With all columns of a training; anew, as another function may have the name, or none is."""
    edit_config(folder / SAVED, task__name="gsm8k", rewards__weights__correctness=0.0)

    def scored_by(body: str | None) -> list[dict]:
        """The records of the last repeat after an evaluation with this function, if any."""
        columns = "completions, completion_ids, prompts, answer, question, trainer_state, **_"
        Path("mine.py").write_text(f"def brevity({columns}): return {body}")
        functions = {"brevity": "mine.py:brevity"} if body else {}
        edit_config(folder / SAVED, rewards__functions=functions)
        user_functions._module.cache_clear()
        evaluate("trust_code=true")
        return files.read_lines(LAST)

    rows = scored_by("[-len(c) for c in completions]")
    monkeypatch.setattr(choose, "build", None)  # no engine is built
    lengths = [-len(row["completion"]) for row in rows]
    assert [row["rewards"] for row in rows] == [{"brevity": length} for length in lengths]
    details = results.read(SUMMARY)[4].meta["scores"]["gsm8k.greedy"]["functions"]["brevity"]
    assert details["mean"] == pytest.approx(np.mean(lengths))
    assert "rewards.weights.correctness=0: correct % is by v2" in capsys.readouterr().out
    rows = scored_by("[len(p) + len(ids) for p, ids in zip(prompts, completion_ids)]")
    texts = [row["completion"] for row in rows]
    ids = load_tokenizer(str(TINY))(texts, add_special_tokens=False)["input_ids"]
    examples = results.read(SUMMARY)[4].datasets["gsm8k.greedy"].examples
    sizes = [len(example["prompt"]) + len(i) for example, i in zip(examples, ids, strict=True)]
    assert [row["rewards"]["brevity"] for row in rows] == sizes
    assert not any("rewards" in row for row in scored_by(None))


def only_long_questions(_: Path) -> None:
    row = {"question": "1+" * 400 + "1=?", "answer": "#### 401"}
    Path("data/gsm8k/test.jsonl").write_text(2 * (json.dumps(row) + "\n"))


MISTAKES = [  # further ones: tests/commands/test_mistakes.py, tests/unit/test_targets.py
    (
        None,
        "run=null checkpoints=last",
        "run=null: has no checkpoints; set run, or drop checkpoints",
    ),
    (
        None,
        "split=validation tasks=[math500]",
        "task=math500: has no validation split (its splits: test); name another task",
    ),
    (
        only_long_questions,
        "",
        "tasks=gsm8k: all 2 prompts are longer than the run's sampling.max_prompt_length=512; "
        "name another task",
    ),
]


@pytest.mark.parametrize(("spoil", "overrides", "line"), MISTAKES)
def test_mistakes_are_one_line_and_write_nothing(folder, spoil, overrides, line):
    if spoil:
        spoil(folder)
    with pytest.raises(UserError) as mistake:
        evaluate(*overrides.split())
    assert str(mistake.value) == line
    assert not Path("results").exists()


def test_run_null_scores_a_base_model_alone():
    evaluate("run=null", f"model={TINY}", "repeats=1")
    (summary,) = results.find("results", ["*"])
    assert re.fullmatch(r"base-\S+-pods-tiny_policy", summary.stem)
    assert len(results.read_base(summary).datasets["gsm8k"].ans_acc) == 1


@pytest.mark.parametrize(
    ("key", "task", "system"),
    [
        ("experiment=quickstart", "gsm8k", ""),  # its own
        ("model=tiny", "gsm8k", None),
        ("model=tiny", "arithmetic", ""),
    ],
)
def test_a_base_model_has_the_name_of_its_file_and_the_prompt_of_the_task(key, task, system):
    training = training_config(configured("run=null", key, f"tasks=[{task}]"), None)
    assert (training.model.name, training.task.system) == ("tiny", system)


def test_runs_are_matched_and_shown_in_one_table(capsys):
    make_run(Path("checkpoints"), "fake10", steps=(2,))
    make_run(Path("checkpoints"), "fake9", steps=())
    config = configured("run=[fake*,fake]", "checkpoints=last")
    assert runs(config.run, Path("checkpoints")) == ["fake", "fake9", "fake10"]
    with pytest.raises(Skipped, match=r"run=fake9: checkpoints/fake9: has no checkpoint yet"):
        evaluate_run.main.__wrapped__(config)
    shown = capsys.readouterr().out
    for row in ("correct %", "base-tiny ", "fake10 +checkpoint-2 ", "fake +checkpoint-4 "):
        assert len(re.findall(row, shown)) == 1, row
