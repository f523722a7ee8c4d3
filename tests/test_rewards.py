"""The public interface: versions, kinds, keys, their configs, and the process boundary."""

import subprocess
import sys

import pytest
import yaml

import rewards
from rewards import functions
from tests.conftest import ROOT

RIGHT = "<think>a</think><answer>27</answer>"
WRONG = "<think>a</think>\n<answer>26</answer>!"

CHOICES = [
    # answer block, gold, right
    ("B", "B", True),
    ("b", "B", True),
    ("B.", "B", True),
    ("(B)", "B", True),
    (" (B). ", "B", True),
    ("B: 2249.7 g/mol", "B", True),
    ("B) 2249.7 g/mol", "B", True),
    ("C", "B", False),
    ("A or B", "B", False),
    ("A. or B.", "A", False),
    ("A: water B: salt", "A", False),  # the whole list
    ("B:salt", "B", True),
    ("B: CC(=O)N.", "B", True),
    ("AB", "B", False),
    ("B because", "B", False),
    ("Both", "B", False),
    ("A cat", "A", False),  # an article, not a letter
    ("E", "B", False),  # not an option
    ("1", "B", False),
    ("", "B", False),
]
SCORES = [
    # version, completion, correctness, format, tags
    ("v1", RIGHT, 1.0, 0.0, 0.0),  # no bonus for the right ones
    ("v1", WRONG, 0.0, 0.099, 0.1),  # one character outside
    ("v1-correctness", WRONG, 0.0, 0.0, 0.0),
    ("v1-correctness", RIGHT, 1.0, 0.0, 0.0),
    ("v2", RIGHT, 1.0, 0.1, 0.1),
    ("v2", WRONG, 0.0, 0.099, 0.1),
    ("v2", WRONG + "x" * 200, 0.0, 0.0, 0.1),  # never below 0
    ("v2", "<think>" + WRONG, 0.0, 0.099, 0.075),  # greedy from the first tag; one tag twice
    ("strict", RIGHT, 1.0, 0.1, 0.1),
    ("strict", "27", 0.0, 0.0, 0.0),
    ("strict", "<think></think><answer></answer>", 0.0, 0.0, 0.0),
    ("strict", "<think>why</think><answer> \n</answer>", 0.0, 0.0, 0.0),
    ("strict", "<think></think><answer>27</answer>", 1.0, 0.0, 0.0),  # nothing was reasoned
    ("v2", "<think></think><answer></answer>", 0.0, 0.1, 0.1),  # as published
]


@pytest.mark.parametrize(("version", "completion", "correctness", "format", "tags"), SCORES)
def test_scores(
    version: str, completion: str, correctness: float, format: float, tags: float
) -> None:
    scores = rewards.score([completion], ["27"], version=version)
    expected = {"correctness": correctness, "format": format, "tags": tags}
    assert scores == {name: [pytest.approx(value)] for name, value in expected.items()}


@pytest.mark.parametrize(("answer", "gold", "right"), CHOICES)
@pytest.mark.parametrize("version", rewards.VERSIONS)
def test_choices(answer: str, gold: str, right: bool, version: str) -> None:
    completion = f"<think>A? C?</think><answer>{answer}</answer>"
    assert rewards.grade(completion, gold, version, kind="choice") is right


@pytest.mark.parametrize("completion", ["B", "<answer>B", "<answer>B</answer><answer>C</answer>"])
def test_a_choice_stands_in_the_last_closed_block(completion: str) -> None:
    assert not rewards.grade(completion, "B", kind="choice")


def test_kinds_may_be_mixed_in_a_batch() -> None:
    with rewards.Scorer("v2", workers=0, deadline_seconds=1) as scorer:
        correct = scorer.grade(["<answer>B</answer>", "27"], ["B", "27"], ["choice", "math"])
    assert correct == [True, True]


def test_a_new_reward_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def brevity(completion: str, answer: str, correct: bool, version: str) -> float:
        return 1.0 / (1 + len(completion))

    monkeypatch.setattr(functions, "brevity", brevity, raising=False)
    names = ["correctness", "brevity"]  # the keys of config/rewards/*.yaml's weights
    with rewards.Scorer("v2", workers=0, deadline_seconds=1, names=names) as scorer:
        scores = scorer.score(["abc"], ["5"], ["math"])
    assert scores == {"correctness": [0.0], "brevity": [0.25]}


def test_an_empty_batch() -> None:
    assert rewards.score([], []) == {"correctness": [], "format": [], "tags": []}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rewards.grade("", "", version="v3"), "version=v3: unknown; one of v1, "),
        (lambda: rewards.grade("", "", kind="poem"), "kind=poem: unknown; one of math, choice"),
        (
            lambda: rewards.Scorer("v2", workers=0, deadline_seconds=1, names=["tag"]),
            "weights=tag: unknown; one of correctness, ",
        ),
        (lambda: rewards.score(["a"], []), "shorter"),
    ],
)
def test_mistakes_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("version", rewards.VERSIONS)
def test_every_version_has_a_config(version: str) -> None:
    folder = ROOT / "config" / "rewards"
    own = yaml.safe_load((folder / f"{version}.yaml").read_text())
    shared = yaml.safe_load((folder / "_shared.yaml").read_text())
    assert own["version"] == version
    assert own.get("workers", shared["workers"]) == (2 if version == "strict" else 0)
    assert all(callable(getattr(functions, name)) for name in shared["weights"])


def test_a_script_without_a_main_guard_may_use_workers_and_loads_no_torch() -> None:
    """The server never re-imports the caller's main module, which may start training."""
    code = (
        "import sys; from rewards import Scorer\n"
        "scorer = Scorer('strict', workers=1, deadline_seconds=100)\n"
        "answer = '<answer>(x+1)(x+2)</answer>'\n"
        "print(scorer.grade([answer], ['x^2+3x+2'], ['math']), 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split("\n")[0] == "[True] False", done.stderr
