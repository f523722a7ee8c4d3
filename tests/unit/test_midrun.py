"""Evaluation inside a run: own clock, own samples, same training."""

import numpy as np

from pods import files
from pods.engines import Completion, LivePolicy, Work
from pods.evaluation import questions
from pods.evaluation.midrun import MidRun
from pods.models.policy import load_tokenizer
from tests.configs import compose

EVALUATION = ["evaluation.every_seconds=0.001", "evaluation.questions=5"]
COUNTS = {"train_seconds": 2.5, "tokens/generated": 90, "tokens/trained": 30}


def test_every_verdict_is_counted_as_what_it_is(tmp_path):
    config = compose(*EVALUATION)
    tokenizer, path, works = load_tokenizer(config.model.path), tmp_path / "lines.jsonl", []
    midrun = MidRun(config, None, tokenizer, path)
    rows = midrun.questions.rows[:5]
    answers = [row["answer"] for row in rows]
    texts = [f"<think></think><answer>{answers[0]}</answer>", f"<answer>{answers[1]}</answer>"]
    texts += [f"<answer>{answers[2]}</answer>", "<think>", "<think></think><answer>999999</answer>"]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

    class Engine:
        def generate(self, asked):
            works.extend(asked)
            sampled = [*ids[:2], *[ids[4]] * 3] if asked[0].greedy else ids
            yield asked[0], [[Completion(tokens, tokens is ids[3])] for tokens in sampled]

    midrun.engine = Engine()
    live = LivePolicy(None, 7)
    metrics = midrun(live, 7, COUNTS)
    requests = questions.requests("arithmetic", rows, config.seed, "step-7", repeat=0)
    assert works == [Work(requests, live, evaluation=True, greedy=greedy) for greedy in (0, 1)]
    assert metrics.pop("eval/seconds") > 0
    assert metrics == {
        "eval/accuracy": 0.6,
        "eval/well_formed": 0.4,
        "eval/clipped_ratio": 0.2,
        "eval/greedy_accuracy": 0.4,
        "eval/completion_length_mean": np.mean([len(tokens) for tokens in ids]),
    }
    (line,) = files.read_lines(path)
    assert line.items() >= (COUNTS | metrics | {"step": 7, "split": "test"}).items()
    assert line["correct"] == [1, 1, 1, 0, 0]
    assert line["greedy"]["correct"] == [1, 1, 0, 0, 0]
    assert line["entry"]["both_acc"] == [0.2]
    assert line["scores"]["rewards"].keys() == {config.rewards.version}
