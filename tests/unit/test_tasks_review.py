"""The look at the data before a model loads: golds that no completion meets, and overlap."""

from pathlib import Path
from typing import Any

import pytest

from pods import tasks
from pods.config.errors import UserError
from pods.tasks import review
from pods.training.rewards import Rewards
from tests.configs import compose
from tests.tokenizers_like import like
from tests.unit.test_tasks import write as write_built_in
from tests.unit.test_tasks_own import write

QWEN = like("qwen")
SOLUTION = "She sells 9 a day.\nSo she makes 9 * 2 = 18."
OWN = ("task=own", "task.source=q.jsonl", "task.question=problem", "task.answer=solution")


def load(*overrides: str) -> None:
    """The prompts of a training, looked at as train.py does."""
    config = compose("model=tiny", *overrides)
    tasks.load_prompts(config, QWEN, Rewards(config.rewards).grade)


def train_on(golds: list[Any], *overrides: str, options: str = " (A) 1 (B) 2 (C) 3 (D) 4") -> None:
    questions = [{"problem": f"{i}?{options}", "solution": g} for i, g in enumerate(golds)]
    write(Path("q.jsonl"), questions)
    load(*OWN, *overrides)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)


UNMET = [  # a gold, the keys of the run, what the remedy names
    (f"{SOLUTION}\n#### 18", "rewards=v1", "task.gold=after_hashes"),
    (f"{SOLUTION}\n#### 18", "rewards=v2", "task.gold=after_hashes"),
    (f"{SOLUTION}\n#### 18", "rewards=strict", "task.gold=after_hashes"),
    (f"{SOLUTION} So $\\boxed{{18}}$.", "rewards=v2", "task.gold=boxed"),
    ("London", "task.kind=choice", "task.kind=math"),
    ("B) London", "task.kind=choice", "task.kind=math"),
    ("x " * 700, "rewards=v1", "1399 characters"),
    ("x " * 700, "rewards=v2", "1399 characters"),
    ("x " * 700, "rewards=strict", "1399 characters"),
    ("18</answer>", "rewards=strict", "rewards=strict"),
]


@pytest.mark.parametrize(("gold", "key", "remedy"), UNMET)
def test_golds_that_no_completion_meets_are_refused(gold, key, remedy):
    with pytest.raises(UserError) as error:
        train_on([gold] * 20, key)
    assert error.value.exit_code == 2
    message = str(error.value)
    assert "\n" not in message
    for part in ("task=own", "13 of 13", "id '", remedy, "rewards.weights.correctness=0"):
        assert part in message


IMPOSSIBLE = {  # a gold, and what its remedy names
    "['46']": "list in a text",
    '["4", "6"]': "list in a text",
    "proof": "return None",
    "N/A": "return None",
    "None": "return None",
    "\\pm 3": "3, -3",
    "2 ± 1": "3, -3",
}


@pytest.mark.parametrize("gold", IMPOSSIBLE)
def test_golds_that_are_no_answer_are_counted_or_refused_with_a_remedy(gold, capsys):
    train_on(["18"] * 12 + [gold] * 3, "rewards=v2", "task.validation_size=0")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if IMPOSSIBLE[gold] in line]
    assert "of 12 gold answers" in line
    with pytest.raises(UserError, match=r"^task=own: 13 of 13 gold answers") as error:
        train_on([gold] * 20, "rewards=v2")
    assert IMPOSSIBLE[gold] in str(error.value)


def test_choice_questions_that_name_no_option_are_refused():
    with pytest.raises(UserError, match=r"^task=own: 13 of 13 .* task\.question"):
        train_on(["A", "B"] * 10, "task.kind=choice", options="")


WAYS = ["\nA. 1\nB. 2", " (a) 1, (b) 2", "\nA 1\nB 2", " **A** 1 **B** 2"]


@pytest.mark.parametrize("options", WAYS)
def test_options_are_written_in_many_ways(options, capsys):
    train_on(["A", "B"] * 10, "task.kind=choice", options=options)
    assert "gold answers" not in capsys.readouterr().err


def test_equal_questions_with_other_golds_are_counted_or_refused(capsys):
    lines = [{"problem": f"{i}?", "solution": "1"} for i in range(12)]
    write(Path("q.jsonl"), [*lines, {"problem": "0? ", "solution": "2"}])
    load(*OWN, "task.validation_size=0", "task.test_size=1")
    assert "1 of 11 questions have several gold answers" in capsys.readouterr().err
    write(Path("q.jsonl"), [*lines, *({"problem": f"{i}?", "solution": "2"} for i in range(12))])
    with pytest.raises(UserError, match=r"questions have several gold answers"):
        load(*OWN, "task.validation_size=0")


def test_a_few_of_them_are_one_line(capsys):
    gold, key, remedy = UNMET[0]
    train_on(["18"] * 12 + [gold] * 3, key, "task.validation_size=0")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if remedy in line]
    assert "of 12 gold answers" in line


def test_a_marker_is_said_even_if_the_answer_in_it_is_met(capsys):
    train_on(["\\boxed{18}"] * 20, "rewards=strict")
    assert "task.gold=boxed" in capsys.readouterr().err


def test_golds_are_not_looked_at_if_no_reward_reads_them(capsys):
    Path("mine.py").write_text("def mine(completions, **_): return [0.0] * len(completions)\n")
    own = ("rewards.functions.mine=mine.py:mine", "rewards.weights.correctness=0")
    train_on([f"{SOLUTION}\n#### 18"] * 20, *own)
    assert "gold answers" not in capsys.readouterr().err


GOOD = {
    "math": [
        *("18", "-3", "1/2", "\\frac{1}{2}", "3.14", "50\\%", "x^2+1", "(1, 2)", "[0, 1)", "yes"),
        *("12 \\text{ cm}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "2:30", "CO2", "2024-05-01"),
        *(7, 0.5),
    ],
    "choice": ["A", "b", "C", "D"],
}


@pytest.mark.parametrize("version", ["v1", "v1-correctness", "v2", "strict"])
@pytest.mark.parametrize("kind", GOOD)
def test_golds_that_can_be_met_are_not_mentioned(version, kind, capsys):
    train_on(GOOD[kind] * 3, f"rewards={version}", f"task.kind={kind}")
    assert "gold answers" not in capsys.readouterr().err


def test_of_a_large_file_a_sample_is_graded(monkeypatch, capsys):
    monkeypatch.setattr(review, "MOST", 10)
    train_on(["18"] * 50 + ["#### 18"] * 20, "task.validation_size=0")
    assert "of 10 gold answers" in capsys.readouterr().err


def row(question: str) -> dict[str, str]:
    return {"question": question, "answer": "#### 1"}


def test_test_questions_that_are_trained_on_are_counted(tmp_path, capsys):
    write_built_in(tmp_path, "gsm8k", "train", [row(f"How many  {i}?") for i in range(20)])
    tests = [row(f"how many {i}?\n") for i in range(3)] + [row(f"{i}?") for i in range(4)]
    write_built_in(tmp_path, "gsm8k", "test", tests)
    load("task=gsm8k", f"data_dir={tmp_path}", "task.validation_size=0")
    assert "3 of 7 test questions" in capsys.readouterr().err
    for split in ("train", "test"):
        lines = [{"problem": f"{i}?", "solution": "1"} for i in range(8)]
        write(Path(f"{split}.jsonl"), lines)
    load(*OWN, "task.source=.", "task.validation_size=0")
    assert "8 of 8 test questions" in capsys.readouterr().err


def test_a_test_split_that_cannot_be_read_stops_no_training(tmp_path, capsys):
    write_built_in(tmp_path, "gsm8k", "train", [row(f"{i}?") for i in range(20)])
    load("task=gsm8k", f"data_dir={tmp_path}")
    assert "test.jsonl" in capsys.readouterr().err
