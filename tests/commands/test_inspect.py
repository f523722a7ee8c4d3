"""scripts/inspect_run.py: prompts without signal, wrong answers, mistakes."""

import json

import pytest

from tests.fake_run import make_run
from tests.figures import in_process, printed, refused, rollout_log_file, rollout_record

INSPECT = "scripts/inspect_run.py"
TEXT = "<think>a</think><answer>{}</answer>\x1b[2J"


def record(step, question, correct):
    texts = [TEXT.format(5 if value else 6) for value in correct]
    prompt = f"<user>{question} plus 1?"
    return rollout_record(step, question, correct, prompt=prompt, completions=texts)


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_run(tmp_path / "checkpoints", "r", steps=())
    steps = [("good", [1, 1]), ("good", [1, 1]), ("bad", [0, 0]), ("mixed", [0, 0])]
    steps.append(("mixed", [0, 1]))
    records = [record(step, *visit) for step, visit in enumerate(steps, 1)]
    rollout_log_file(folder, records)
    for step in (2, 10):
        for repeat in (0, 1):
            path = tmp_path / f"results/r/checkpoint-{step}/arithmetic/repeat-{repeat}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [
                {"id": "7", "answer": "5", "completion": TEXT.format(6), "correct": {"v2": False}},
                {"id": "8", "answer": "5", "completion": TEXT.format(5), "correct": {"v2": True}},
                {"id": "9", "answer": "5", "completion": f"late {step}", "correct": {}},
            ]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_prompts_without_signal_and_wrong_answers(capsys):
    out = printed(capsys, INSPECT, "run=r").out
    assert "r: 3 questions in 5 visits; 1 were always solved, 1 others never had signal" in out
    assert "wrong answers of checkpoint-10 on arithmetic: 1" in out
    assert out.splitlines()[-1].split() == ["7", "6", "5", "2"]
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["checkpoints/r", "run=checkpoints/r"])
def test_a_run_is_named_as_the_shell_completes_it(capsys, name):
    assert "r: 3 questions in 5 visits" in printed(capsys, INSPECT, name).out


def test_no_name_of_a_foreign_run_steers_the_terminal(capsys, run, tmp_path):
    """Ids, gold answers and folders of evaluations may hold any character."""
    hostile = "\x1b]0;title\x07\x1b[31m"
    rollout_log_file(run, [record(1, f"{hostile}-a", [0, 0]) | {"answer": hostile}])
    folder = tmp_path / "results" / "r"
    (folder / "checkpoint-10" / "arithmetic").rename(folder / "checkpoint-10" / f"{hostile}task")
    (folder / "checkpoint-2").rename(folder / f"checkpoint-2{hostile}")
    assert not {"\x1b", "\x07"} & {*printed(capsys, INSPECT, "run=r").out}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run=absent"], "run=absent: no such run in output_dir=checkpoints; it has r"),
        (["run=../r"], "run=../r: no such run"),
        (["run=r", "most=0"], "most=0: must be greater than 0"),
    ],
    ids=["run", "folder", "most"],
)
def test_a_mistake_is_one_line(capsys, arguments, line):
    assert line in refused(capsys, INSPECT, *arguments)


def test_a_run_without_a_rollout_log_is_refused(run, capsys):
    (run / "rollouts.jsonl.gz").unlink()
    line = refused(capsys, INSPECT, "run=r")
    assert "run=r: no rollout log checkpoints/r/rollouts.jsonl.gz; " in line


def test_without_scores_it_names_the_command_with_its_quotes(run, capsys):
    run.rename(run.with_name("my run"))
    assert in_process(INSPECT, "run=my run", "results_dir=other") == 0
    command = "uv run evaluate_run.py 'run=\"my run\"' results_dir=other"
    assert f"no scores of my run yet: {command}" in capsys.readouterr().out


def test_a_rollout_log_without_a_record_hides_no_scores(run, capsys):
    (run / "rollouts.jsonl.gz").write_bytes(b"")
    assert in_process(INSPECT, "run=r") == 0
    assert "wrong answers of checkpoint-10 on arithmetic: 1" in capsys.readouterr().out
