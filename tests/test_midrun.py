"""Evaluation inside a run: own clock, own draws, same training; results/<run>.json from it."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pods import files
from pods.config.errors import UserError
from pods.engines import Completion, LivePolicy
from pods.evaluation import scores
from pods.evaluation.midrun import MidRun
from pods.evaluation.targets import Store
from pods.models.policy import load_tokenizer
from pods.runs import checkpoints, results
from tests import processes
from tests.configs import compose
from tests.fake_run import make_run
from tests.figures import in_process, refused

SETTINGS = [
    *processes.SMALL, "rollouts_per_prompt=4", "kept_per_prompt=2", "max_steps=4",
    "checkpoint.every_steps=2",
]  # fmt: skip
EVALUATION = ["evaluation.every_seconds=0.001", "evaluation.questions=5"]
COUNTS = {"train_seconds": 2.5, "tokens/generated": 90, "tokens/trained": 30}


def test_it_leaves_training_alone_and_its_time_out_of_the_clock(tmp_path):
    plain, evaluated = tmp_path / "without" / "r", tmp_path / "with" / "r"
    for run, extra in ((plain, []), (evaluated, EVALUATION)):
        arguments = [*SETTINGS, f"output_dir={run.parent}", *extra]
        processes.run(run.parent / "out", *arguments)
    records = [list(files.read_lines(run / "rollouts.jsonl.gz")) for run in (plain, evaluated)]
    assert records[0] == records[1]
    adapter = "checkpoint-4/adapter_model.safetensors"
    assert (plain / adapter).read_bytes() == (evaluated / adapter).read_bytes()
    assert not (plain / "evaluations.jsonl").exists()
    metrics = files.read_lines(evaluated / "metrics.jsonl")
    meta = json.loads((evaluated / "checkpoint-4" / "meta.json").read_text())
    seconds = sum(line["eval/seconds"] for line in metrics)
    assert 0 < seconds <= meta["outside_seconds"]["evaluate"]
    phases = [v for line in metrics for k, v in line.items() if k.startswith("seconds/")]
    assert metrics[-1]["train_seconds"] == pytest.approx(sum(phases))
    assert meta["train_seconds"] == metrics[-1]["train_seconds"]
    lines = files.read_lines(evaluated / "evaluations.jsonl")
    assert [line["step"] for line in lines] == [line["step"] for line in metrics] == [1, 2, 3, 4]
    for line, step in zip(lines, metrics, strict=True):
        shared = {k: v for k, v in step.items() if k.startswith("eval/") or k in COUNTS}
        assert shared.items() <= line.items()
        assert len(line["correct"]) == 5
        assert (line["task"], line["split"]) == ("arithmetic", "test")
    best = results.facts_of(evaluated / "meta.json")["checkpoint_best"]
    assert best is meta["checkpoint_best"] is None  # test questions choose nothing


def test_every_verdict_is_counted_as_what_it_is(tmp_path):
    config = compose(*SETTINGS, *EVALUATION)
    tokenizer, path, works = load_tokenizer(config.model.path), tmp_path / "lines.jsonl", []
    midrun = MidRun(config, None, tokenizer, path)
    answers = [row.answer for row in midrun.questions.rows]
    texts = [f"<think></think><answer>{answers[0]}</answer>", f"<answer>{answers[1]}</answer>"]
    texts += [f"<answer>{answers[2]}</answer>", "<think>", "<think></think><answer>999999</answer>"]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

    class Engine:
        def generate(self, asked):
            works.extend(asked)
            drawn = [*ids[:2], *[ids[4]] * 3] if asked[0].greedy else ids
            yield asked[0], [[Completion(tokens, tokens is ids[3])] for tokens in drawn]

    midrun.engine = Engine()
    metrics = midrun(LivePolicy(None, 7), 7, COUNTS | {"other": 1})
    (line,) = files.read_lines(path)
    prompts = [row.prompt_ids for row in midrun.questions.rows[:5]]
    assert [request.prompt for request in works[0].requests] == prompts
    assert line.items() >= {"step": 7, "correct": [1, 1, 1, 0, 0], **COUNTS}.items()
    assert "other" not in line
    length = np.mean([len(tokens) for tokens in ids])
    assert line["entry"] == asdict(results.Entry([0.6], [0.4], [0.2], [length], []))
    assert list(line["scores"]["rewards"]) == [config.rewards.version]
    assert line["greedy"]["correct"] == [1, 1, 0, 0, 0]
    del metrics["eval/seconds"]
    shares = {"eval/accuracy": 0.6, "eval/well_formed": 0.4, "eval/clipped_ratio": 0.2}
    shares["eval/greedy_accuracy"] = 0.4
    assert metrics == shares | {"eval/completion_length_mean": length}


def scripted_grades():
    """Of five questions 1, 3, 2, 4 and 5 are correct in the evaluations of a process."""
    counts = iter([1, 5, 3, 0, 2, 0, 4, 0, 5, 0])  # sampled, greedy, ...

    def grade(records, versions, kind):
        count = next(counts)
        for i, record in enumerate(records):
            record["correct"][versions[0]] = i < count

    scores.grade = grade


def test_validation_names_the_best_checkpoint(tmp_path):
    arguments = [*SETTINGS, *EVALUATION, "evaluation.split=validation"]
    arguments += [f"output_dir={tmp_path}", "checkpoint.every_steps=null"]
    done = processes.run(tmp_path / "out", *arguments, fault=scripted_grades)
    assert "step 2  accuracy 0.600, greedy 0.000  (validation split, " in done.stderr
    best = {
        step: {"checkpoint": f"checkpoint-{step}", "accuracy": accuracy, "on": "validation"}
        for step, accuracy in ((1, 0.2), (2, 0.6), (4, 0.8))
    }
    assert {c.step: c.meta["checkpoint_best"] for c in checkpoints.find(tmp_path / "r")} == best
    meta = tmp_path / "r" / "meta.json"
    assert results.facts_of(meta)["checkpoint_best"] == best[4]
    assert "best on validation: checkpoint-4" in done.stdout
    further = processes.run(tmp_path / "further", *arguments, "max_steps=5", fault=scripted_grades)
    assert "5 steps" in further.stdout
    assert results.facts_of(meta)["checkpoint_best"] == best[4]  # 0.2 at step 5 is no better


RUN = "gsm8k_h100-pods-max_variance-n512-m128-seed0"
FROM_TRAINING = ("evaluate_run.py", f"run={RUN}", "from_training=true")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of setting (e) without a checkpoint, evaluated after its steps 3 and 5."""
    monkeypatch.chdir(tmp_path)
    folder = make_run(Path("checkpoints"), RUN, steps=(), experiment="gsm8k_h100")
    write(folder, evaluation(3, 130.0), evaluation(5, 250.0))
    (folder / "meta.json").write_text('{"git_commit": "abc", "gpu": "H100"}')
    return folder


def evaluation(step, seconds, split="test"):
    """A line as pods/evaluation/midrun.py writes it, of four questions."""
    columns = [(1, 0, 1, 0), (0, 1, 1, 1), (0, 0, 0, 1), (10, 20, 30, 40)]
    records = [
        {"correct": {"strict": correct}, "well_formed": formed, "clipped": clip, "tokens": tokens}
        for correct, formed, clip, tokens in zip(*columns, strict=True)
    ]
    parts = []
    for drawn in (records, records[::-2]):  # sampled, greedy
        entry, details = scores.summary([drawn], ["strict"])
        parts.append({"entry": asdict(entry), "scores": details})
    line = {"step": step, "train_seconds": seconds, "task": "gsm8k", "split": split}
    line |= {"tokens/generated": 300 * step, "tokens/trained": 100 * step}
    return line | parts[0] | {"greedy": parts[1]}


def write(run, *lines):
    text = "\n".join([*map(json.dumps, lines), '{"step": 7, "tra'])  # torn by a kill
    (run / "evaluations.jsonl").write_text(text)


def test_every_evaluation_is_a_checkpoint_of_the_published_schema(run):
    assert in_process(*FROM_TRAINING) == 0
    content = json.loads(Path(f"results/{RUN}.json").read_text())
    assert list(content) == ["checkpoint-3", "checkpoint-5"]
    assert content["checkpoint-3"]["gsm8k"] == {
        "ans_acc": [0.5], "for_acc": [0.75], "both_acc": [0.25], "lengths": [25.0], "examples": []
    }  # fmt: skip
    meta = {"train_seconds": 130.0, "tokens_generated": 900, "tokens_trained": 300}
    line = evaluation(3, 130.0)
    meta["scores"] = {"gsm8k": line["scores"], "gsm8k.greedy": line["greedy"]["scores"]}
    assert content["checkpoint-3"]["gsm8k.greedy"]["ans_acc"] == [0.0]
    assert content["checkpoint-3"]["meta"] == meta
    facts = json.loads(Path(f"results/{RUN}.meta.json").read_text())
    claim = {"split": "test", "questions": 4}
    assert facts["tasks"] == {"gsm8k": claim, "gsm8k.greedy": claim}
    assert (facts["train"]["experiment"], facts["gpu"]) == ("gsm8k_h100", "H100")
    with pytest.raises(UserError, match=r"taken in training .* choose another results_dir"):
        Store("results", RUN).claim({"math500": {"seed": 0}}, {})
    write(run, evaluation(3, 130.0), evaluation(6, 260.0))  # resumed at step 3
    assert in_process(*FROM_TRAINING) == 0
    assert list(results.read(f"results/{RUN}.json")) == [3, 6]


OTHER = evaluation(5, 250.0, "validation")  # a resumed run may change it


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda run: (run / "evaluations.jsonl").unlink(), "has no evaluation; score"),
    (lambda run: write(run, evaluation(3, 130.0), OTHER), "has evaluations of different quest"),
])  # fmt: skip
def test_mistakes_are_one_line_and_write_nothing(run, capsys, spoil, said):
    spoil(run)
    assert said in refused(capsys, *FROM_TRAINING)
