"""Results files that were edited by hand: one line that names the file, and the others are used."""

import json

import pytest

from tests.figures import facts_file, in_process, run_file

COMMANDS = {
    "speedup.py": ("json=true",),
    "plot.py": ("out_dir=out",),
}
KEYS = ("figure=gsm8k_main", "runs={A: [a-*], B: [b-*]}")
HUGE = 10**400
DEEP = "[" * 200_000
EDITS = {  # the place of a value in the file of a run, and another value
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
FACTS = {  # the content of a .meta.json
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
    """Results of two methods: two runs each, and of the first a bad run for each edit."""
    monkeypatch.chdir(tmp_path)
    scores = {"gsm8k": {"rewards": {"v2": {}}}}
    metas = [
        {"train_seconds": 1200.0 * i, "scores": scores, "pass@k": {"gsm8k": {"2": 0.5}}}
        for i in (1, 2, 3)
    ]
    names = ("a-1", "a-2", "b-1", "b-2", *(f"a-bad-{i}" for i in range(len(EDITS) + len(FACTS))))
    for number, name in enumerate(names):
        run_file(tmp_path, name, [0.1, 0.5, 0.6], metas=metas, greedy=0.9)
        facts_file(tmp_path, name, seed=number)
    return tmp_path


def edit(path, place, value):
    content = json.loads(path.read_text())
    node = content
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("script", COMMANDS)
def test_a_run_that_was_edited_is_left_out(script, folder, capsys):
    """The command uses the other runs, and one short line names the file."""
    for number, (place, value) in enumerate(EDITS.values()):
        edit(folder / f"a-bad-{number}.json", place, value)
    for number, content in enumerate(FACTS.values(), len(EDITS)):
        (folder / f"a-bad-{number}.meta.json").write_text(content)
    assert in_process(f"scripts/{script}", *KEYS, f"results_dir={folder}", *COMMANDS[script]) == 3
    lines = capsys.readouterr().err.splitlines()
    left_out = [line for line in lines if "the run is left out" in line]
    named = {
        name: sum(f"a-bad-{number}." in line for line in left_out)
        for number, name in enumerate([*EDITS, *FACTS])
    }
    assert named == dict.fromkeys(named, 1)
    assert len(left_out) == len(named)
    assert max(map(len, lines)) < 400


def test_a_base_that_was_edited_is_no_point(folder, capsys):
    for name, content in (
        ("base-qwen.json", '{"gsm8k": {"ans_acc": [5.5]}}'),
        ("base-qwen.meta.json", DEEP),
    ):
        (folder / "base-qwen.json").write_text('{"gsm8k": {"ans_acc": [0.5]}}')
        (folder / name).write_text(content)
        keys = (*KEYS, f"results_dir={folder}")
        assert in_process("scripts/speedup.py", *keys, "figure.base=[base-qwen]") == 3
        assert f"{name}: " in capsys.readouterr().err
