"""Rewards of the user's beside the built-in ones: TRL's signature, and what can go wrong."""

import pytest
from transformers import TrainerState

from pods import PodsTrainer
from pods.config.errors import UserError
from pods.config.functions import load
from pods.scoring import ChatText, RewardError, call_once, checked
from pods.training.rewards import Rewards
from tests.configs import compose
from tests.unit.test_pods_trainer import trainer_of

COLUMNS = {
    "id": ["0", "1", "2"],
    "question": ["0+1", "1+1", "2+1"],
    "answer": ["1", "2", "3"],
    "prompts": [f"<user>{i}+1<assistant>" for i in range(3)],
    "kind": ["math"] * 3,
    "level": [0, 1, 2],
    "trainer_state": TrainerState(global_step=4),
    "log_extra": None,
    "log_metric": None,
}
TEXTS = ["<think>a</think><answer>1</answer>", "5", "<answer>3</answer>"]
IDS = [[1, 2], [3], [4, 5]]


def scores(rewards: Rewards, texts: list[str] = TEXTS) -> dict[str, list[float]]:
    """Each function called as TRL calls it, at step 4."""
    columns = COLUMNS | {"completions": texts, "completion_ids": IDS}
    return {f.__name__: f(**columns) for f in rewards.functions}


def rewards(tmp_path, body: str, *overrides: str) -> Rewards:
    file = tmp_path / f"file{abs(hash(body))}.py"
    file.write_text(body)
    config = compose("rewards=v2", *overrides).rewards
    config.functions = {"own": f"{file}:function"}
    return Rewards(config)


def test_every_column_and_trls_arguments_reach_a_function(tmp_path):
    body = (
        "def function(prompts, completions, completion_ids, answer, level, question, **kwargs):\n"
        "    assert [p[0]['content'] for p in prompts] == question\n"
        "    assert {'id', 'kind'} <= kwargs.keys()\n"
        "    rows = zip(completions, level, completion_ids)\n"
        "    return [len(text) + 10 * n + len(ids) for text, n, ids in rows]"
    )
    settings = ["rewards.weights.tags=0.7", "rewards.weights.correctness=2.5"]
    score = rewards(tmp_path, body, *settings)
    columns = scores(score)
    assert score.grader == "correctness"
    assert score.weights == {"correctness": 2.5, "format": 1.0, "tags": 0.7, "own": 1.0}
    assert list(columns) == ["correctness", "format", "tags", "own"] == list(score.weights)
    assert columns["own"] == [len(t) + 10 * i + len(IDS[i]) for i, t in enumerate(TEXTS)]
    assert columns["correctness"] == [1, 0, 1]  # unweighted
    assert columns["tags"] == pytest.approx([0.1, 0.0, 0.05])


def test_functions_written_for_chats_work_on_texts(tmp_path):
    body = (  # as in TRL's own rewards and Unsloth's notebooks
        "import re\n"
        "def function(completions):\n"
        "    contents = [completion[0]['content'] for completion in completions]\n"
        "    assert [c[-1]['role'] for c in completions] == ['assistant'] * len(completions)\n"
        "    return [1.0 if re.match('<think>', content) else None for content in contents]"
    )
    score = rewards(tmp_path, body, "rewards.weights.correctness=0")
    assert scores(score, ["", *TEXTS[:2]])["own"] == [0, 1, 0]
    assert score.grader is None  # a reward without a weight grades nothing
    text = ChatText("hello", "question")  # a string in every other way
    assert (text, text[0], text[-1], text[1:3], text[1]) == ("hello", "h", "o", "el", "e")
    assert text[-1]["content"] == "question"


@pytest.mark.parametrize(
    ("returned", "line"),
    [
        ("[1.0, 2.0]", "returned 2 values for 3 completions of step 4; return one for each"),
        ("[1.0, '1.0', 2.0]", "returned '1.0' for completion 1 of step 4; a finite number or"),
        ("[1.0, 2.0, float('nan')]", "returned nan for completion 2 of step 4"),
        ("[1.0, 2.0, float('inf')]", "returned inf"),
        ("[1.0, 1e300, 2.0]", r"returned 1e\+300 for completion 1 of step 4.*3.4e38"),
        ("[1.0, 2.0, 10**400]", "returned 10{59} for completion 2 of step 4.*3.4e38"),
        ("[1.0, [2.0], 3.0]", r"returned \[2.0\]"),
        (
            "[1 / (len(c) - 1) for c in completions]",
            r"raised ZeroDivisionError.* at \S+\.py:1 at step 4",
        ),
        ("None", "returned None at step 4; return a list with one number for each of the 3"),
        ("{'a': 1, 'b': 2, 'c': 3}", "returned {'a': 1, 'b': 2, 'c': 3} at step 4"),
        ("(1 / 0 for _ in completions)", "raised ZeroDivisionError"),
        ("exit()", "raised SystemExit"),
    ],
)
def test_an_error_names_function_completion_and_step(tmp_path, returned, line):
    body = f"def function(completions, **_): return {returned}"
    score = rewards(tmp_path, body)
    with pytest.raises(RewardError, match=f"own {line}"):
        scores(score)


@pytest.mark.parametrize("kind", ["torch.tensor", "np.array", "tuple"])
def test_arrays_and_tensors_are_numbers(tmp_path, kind):
    body = f"import torch, numpy as np\ndef function(completions): return {kind}([1, 0, 2])"
    score = rewards(tmp_path, body)
    assert scores(score)["own"] == [1.0, 0.0, 2.0]


ASYNC = """
import asyncio

both = asyncio.Barrier(2)

async def one(completions, **_):
    await asyncio.wait_for(both.wait(), 300)
    return [1.0] * len(completions)

async def two(completions):
    await asyncio.wait_for(both.wait(), 300)
    return [float(len(text[0]["content"])) for text in completions]

async def fails(completions):
    raise KeyError("no such key")
"""


def test_async_functions_run_side_by_side(tmp_path):
    """Each of the first two waits for the other."""
    (tmp_path / "own.py").write_text(ASYNC)
    config = compose("rewards=v2").rewards
    config.functions = {name: f"{tmp_path / 'own.py'}:{name}" for name in ("one", "two")}
    rewards = Rewards(config)
    functions = [f for f in rewards.functions if f.__name__ in config.functions]
    trainer = trainer_of(PodsTrainer, tmp_path, rewards=functions, max_steps=1)
    trainer.train()
    texts = [rollout.text for rollout in trainer.newest.rollouts]
    assert trainer.newest.batch.by_function["one"].tolist() == [1.0] * len(texts)
    assert trainer.newest.batch.by_function["two"].tolist() == [len(text) for text in texts]


def test_a_parameter_that_no_call_has_is_refused_with_the_names_that_it_has(tmp_path):
    (tmp_path / "own.py").write_text("def function(completions, *, gold, scale=1, **_): return []")
    config = compose("rewards=v2").rewards
    config.functions = {"own": f"{tmp_path / 'own.py'}:function"}
    line = "argument: 'gold'.* can be answer, .*kind, .*prompts"
    rewards = Rewards(config)
    with pytest.raises(UserError, match=line):
        rewards.dry_run({"prompt": "", "answer": "1", "kind": "math"})


def test_an_async_function_is_named_and_tried_before_the_model_loads(tmp_path):
    (tmp_path / "own.py").write_text(ASYNC)
    config = compose("rewards=v2").rewards
    config.functions = {"own": f"{tmp_path / 'own.py'}:fails"}
    row = {"prompt": "", "answer": "1", "kind": "math"}
    rewards = Rewards(config)
    with pytest.raises(
        UserError, match=r"own raised KeyError.* \(a made-up completion\); give any"
    ):
        rewards.dry_run(row)
    stored = checked(load("rewards.functions.own", config.functions["own"]), "own")
    with pytest.raises(RewardError, match="raised KeyError"):  # as evaluate_run.py calls it
        call_once(stored, {"prompts": [""], "completions": ["1"]})
