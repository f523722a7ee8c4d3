"""The public interface: versions, kinds and keys."""

import pytest

import rewards
from rewards.functions import FUNCTIONS, Graded

CORRECT = "<think>a</think><answer>27</answer>"
WRONG = "<think>a</think>\n<answer>26</answer>!"


@pytest.mark.parametrize(
    ("version", "completion", "correctness", "format", "tags"),
    [
        pytest.param("v1", CORRECT, 1.0, 0.0, 0.0, id="v1: no bonus for the correct ones"),
        pytest.param("v1", WRONG, 0.0, 0.099, 0.1, id="v1: one character outside"),
        pytest.param("v1-correctness", WRONG, 0.0, 0.0, 0.0, id="v1-correctness: no bonus"),
        pytest.param("v2", CORRECT, 1.0, 0.1, 0.1, id="v2: correct"),
        pytest.param("v2", WRONG, 0.0, 0.099, 0.1, id="v2: wrong"),
        pytest.param("v2", WRONG + "x" * 200, 0.0, 0.0, 0.1, id="v2: never below 0"),
        pytest.param(
            "v2",
            "<think>" + WRONG,
            0.0,
            0.099,
            0.075,
            id="v2: greedy from the first tag, one twice",
        ),
        pytest.param(
            "v2", "<think></think><answer></answer>", 0.0, 0.1, 0.1, id="v2: empty blocks"
        ),
        pytest.param("strict", CORRECT, 1.0, 0.1, 0.1, id="strict: correct"),
        pytest.param("strict", "27", 0.0, 0.0, 0.0, id="strict: no block"),
        pytest.param(
            "strict", "<think></think><answer></answer>", 0.0, 0.0, 0.0, id="strict: empty blocks"
        ),
        pytest.param(
            "strict",
            "<think>why</think><answer> \n</answer>",
            0.0,
            0.0,
            0.0,
            id="strict: no answer",
        ),
        pytest.param(
            "strict", "<think></think><answer>27</answer>", 1.0, 0.0, 0.0, id="strict: no reasons"
        ),
    ],
)
def test_scores(version, completion, correctness, format, tags):
    scores = rewards.score([completion], ["27"], version=version)
    assert scores == {
        "correctness": [correctness],
        "format": [pytest.approx(format)],
        "tags": [pytest.approx(tags)],
    }


@pytest.mark.parametrize(
    "answer",
    ["B", "b", "B.", "(B)", " (B). ", "B: 22.7 g/mol", "B) 22.7 g/mol", "B:salt", "B: C(=O)N."],
)
def test_an_answer_that_names_the_letter(answer):
    assert rewards.grade(f"<think>A? C?</think><answer>{answer}</answer>", "B", kind="choice")


@pytest.mark.parametrize(
    ("gold", "completion"),
    [
        *(
            ("B", f"<answer>{text}</answer>")
            for text in ("C", "A or B", "AB", "Both", "E", "1", "")
        ),
        ("B", "<answer>B because</answer>"),
        ("B", "B"),
        ("B", "<answer>B"),
        ("B", "<answer>B</answer><answer>C</answer>"),  # the last closed block counts
        ("A", "<answer>A. or B.</answer>"),
        ("A", "<answer>A: water B: salt</answer>"),  # the whole list
        ("A", "<answer>A cat</answer>"),  # an article
    ],
)
def test_an_answer_that_does_not_name_the_letter_alone(gold, completion):
    assert not rewards.grade(completion, gold, kind="choice")


def test_a_new_reward_is_one_function_and_a_batch_may_mix_kinds(monkeypatch):
    def brevity(graded: Graded) -> float:
        return 1.0 / (1 + len(graded.text))

    monkeypatch.setitem(FUNCTIONS, "brevity", brevity)
    scores = rewards.score(
        ["abc", "<answer>B</answer>", "27"], ["5", "B", "27"], kind=["math", "choice", "math"]
    )
    assert scores["correctness"] == [0.0, 1.0, 1.0]
    assert scores["brevity"] == [0.25, 1 / 19, 1 / 3]


def test_no_completions_have_no_scores():
    assert rewards.score([], []) == {"correctness": [], "format": [], "tags": []}


@pytest.mark.parametrize(
    ("key", "valid"), [("version", "v1, v1-correctness, v2, strict"), ("kind", "math, choice")]
)
def test_mistakes_are_named(key, valid):
    with pytest.raises(ValueError, match=f"{key}=poem: unknown; one of {valid}"):
        rewards.grade("", "", **{key: "poem"})
