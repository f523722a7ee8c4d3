"""The public interface: versions, kinds and keys."""

from contextlib import closing

import pytest

import rewards
from rewards import functions

CORRECT = "<think>a</think><answer>27</answer>"
WRONG = "<think>a</think>\n<answer>26</answer>!"
CHOICES = {  # gold: (answer blocks that name it, blocks that do not)
    "B": (
        ["B", "b", "B.", "(B)", " (B). ", "B: 22.7 g/mol", "B) 22.7 g/mol", "B:salt", "B: C(=O)N."],
        ["C", "A or B", "AB", "B because", "Both", "E", "1", ""],
    ),
    "A": ([], ["A. or B.", "A: water B: salt", "A cat"]),  # the whole list; an article
}
SCORES = [  # version, completion, correctness, format, tags
    ("v1", CORRECT, 1.0, 0.0, 0.0),  # no bonus for the correct ones
    ("v1", WRONG, 0.0, 0.099, 0.1),  # one character outside
    ("v1-correctness", WRONG, 0.0, 0.0, 0.0),
    ("v2", CORRECT, 1.0, 0.1, 0.1),
    ("v2", WRONG, 0.0, 0.099, 0.1),
    ("v2", WRONG + "x" * 200, 0.0, 0.0, 0.1),  # never below 0
    ("v2", "<think>" + WRONG, 0.0, 0.099, 0.075),  # greedy from the first tag; one tag twice
    ("strict", CORRECT, 1.0, 0.1, 0.1),
    ("strict", "27", 0.0, 0.0, 0.0),
    ("strict", "<think></think><answer></answer>", 0.0, 0.0, 0.0),
    ("strict", "<think>why</think><answer> \n</answer>", 0.0, 0.0, 0.0),
    ("strict", "<think></think><answer>27</answer>", 1.0, 0.0, 0.0),  # nothing was reasoned
    ("v2", "<think></think><answer></answer>", 0.0, 0.1, 0.1),  # as published
]


@pytest.mark.parametrize(("version", "completion", "correctness", "format", "tags"), SCORES)
def test_scores(version, completion, correctness, format, tags):
    scores = rewards.score([completion], ["27"], version=version)
    expected = {"correctness": correctness, "format": format, "tags": tags}
    assert scores == {name: [pytest.approx(value)] for name, value in expected.items()}


def test_choices():
    for gold, (correct, wrong) in CHOICES.items():
        for answer in correct + wrong:
            completion = f"<think>A? C?</think><answer>{answer}</answer>"
            assert rewards.grade(completion, gold, kind="choice") is (answer in correct), answer
    for completion in ("B", "<answer>B", "<answer>B</answer><answer>C</answer>"):
        assert not rewards.grade(completion, "B", kind="choice")  # the last closed block counts


def test_a_new_reward_is_one_function_and_a_batch_may_mix_kinds(monkeypatch):
    def brevity(completion, answer, correct, version):
        return 1.0 / (1 + len(completion))

    monkeypatch.setattr(functions, "brevity", brevity, raising=False)
    names = ["correctness", "brevity"]  # the keys of config/rewards/*.yaml's weights
    with closing(rewards.Scorer("v2", workers=0, deadline_seconds=1, names=names)) as scorer:
        batch = ["abc", "<answer>B</answer>", "27"], ["5", "B", "27"], ["math", "choice", "math"]
        scores = scorer.score(*batch)
    assert scores == {"correctness": [0.0, 1.0, 1.0], "brevity": [0.25, 1 / 19, 1 / 3]}
    assert rewards.score([], []) == {"correctness": [], "format": [], "tags": []}


def test_mistakes_are_named():
    for key, line in (("version", "one of v1, "), ("kind", "one of math, choice")):
        with pytest.raises(ValueError, match=f"{key}=poem: unknown; {line}"):
            rewards.grade("", "", **{key: "poem"})
