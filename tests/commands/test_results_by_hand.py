"""Results files that were edited by hand: one line that names the file, and the others are used."""

import json

import pytest

from tests.figures import facts_file, in_process, run_file

COMMANDS = {
    "speedup.py": ("json=true",),
    "plot.py": ("out_dir=out",),
}
HUGE = 10**400
DEEP = "[" * 200_000
EDITS = {  # the place of a value in bad-1.json, and another value
    "an accuracy above 1": (("checkpoint-200", "gsm8k", "ans_acc", 0), 73.2),
    "an accuracy below 0": (("checkpoint-200", "gsm8k", "for_acc", 0), -0.5),
    "a greedy accuracy above 1": (("checkpoint-200", "gsm8k.greedy", "ans_acc", 0), 2),
    "pass@k above 1": (("checkpoint-200", "meta", "pass@k", "gsm8k", "2"), 50),
    "400 digits of an accuracy": (("checkpoint-200", "gsm8k", "ans_acc", 0), HUGE),
    "5000 digits of a step": (("checkpoint-" + "9" * 5000,), {}),
    "scores are a text": (("checkpoint-200", "meta", "scores"), "none"),
    "scores of a data set are a list": (("checkpoint-200", "meta", "scores", "gsm8k"), [1]),
    "a checkpoint is a text": (("checkpoint-200",), "none"),
}
FACTS = {  # the content of bad-1.meta.json
    "nested": DEEP,
    "no JSON": "{",
    "a list": "[]",
    "a task is a number": '{"tasks": {"gsm8k": 1}}',
    "the training is a list": '{"train": [1]}',
    "the seed is a text": '{"train": {"seed": "one"}}',
    "the model's path is a number": '{"train": {"model": {"path": 1}}}',
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Results of two methods with two runs each; bad-1 is to be edited."""
    monkeypatch.chdir(tmp_path)
    scores = {"gsm8k": {"rewards": {"v2": {}}}}
    metas = [
        {"train_seconds": 1200.0 * i, "scores": scores, "pass@k": {"gsm8k": {"2": 0.5}}}
        for i in (1, 2, 3)
    ]
    for number, name in enumerate(("bad-1", "bad-2", "good-1", "good-2")):
        run_file(tmp_path, name, [0.1, 0.5, 0.6], metas=metas, greedy=0.9)
        facts_file(tmp_path, name, seed=number)
    return tmp_path


def left_out(capsys, folder, script="speedup.py", file="bad-1"):
    """The command uses the other runs, and one short line names the file."""
    keys = ("figure=gsm8k_main", "runs={A: [bad-*], B: [good-*]}", f"results_dir={folder}")
    assert in_process(f"scripts/{script}", *keys, *COMMANDS[script]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if f"{file}" in line]
    assert len([line for line in lines if "the run is left out" in line]) == 1
    assert max(map(len, lines)) < 400


def edit(folder, place, value):
    path = folder / "bad-1.json"
    content = json.loads(path.read_text())
    node = content
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", EDITS)
def test_a_run_that_was_edited_is_left_out(name, folder, capsys):
    edit(folder, *EDITS[name])
    left_out(capsys, folder)


@pytest.mark.parametrize("name", FACTS)
def test_a_run_whose_facts_were_edited_is_left_out(name, folder, capsys):
    (folder / "bad-1.meta.json").write_text(FACTS[name])
    left_out(capsys, folder)


def test_no_accuracy_above_1_is_drawn(folder, capsys):
    edit(folder, *EDITS["an accuracy above 1"])
    left_out(capsys, folder, "plot.py")


def test_a_base_that_was_edited_is_no_point(folder, capsys):
    for name, content in (
        ("base-qwen.json", '{"gsm8k": {"ans_acc": [5.5]}}'),
        ("base-qwen.meta.json", DEEP),
    ):
        (folder / "base-qwen.json").write_text('{"gsm8k": {"ans_acc": [0.5]}}')
        (folder / name).write_text(content)
        keys = ("figure=gsm8k_main", "runs={A: [bad-*], B: [good-*]}", f"results_dir={folder}")
        assert in_process("scripts/speedup.py", *keys, "figure.base=[base-qwen]") == 3
        assert f"{name}: " in capsys.readouterr().err
