"""evaluate_run.py and what stands below it, on random adapters and a few sums.

It alone guards what a second, a stopped and a concurrent evaluation leave of the first's files."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import chdir, nullcontext
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binomtest

import evaluate_run
from pods import files
from pods.config import functions as user_functions
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import Skipped, UserError
from pods.engines import Completion, Work, choose
from pods.evaluation import questions, records, scoreboard, scores, targets
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.lookup import SAVED, runs
from pods.evaluation.questions import Questions
from pods.evaluation.scoreboard import Best, Scoreboard
from pods.evaluation.targets import Store, Target
from pods.models.policy import load_tokenizer
from pods.runs import results
from tests.fake_run import TINY, add_checkpoint, edit_config, make_run

SUMS = [f"{a}+{b}-{c}=?" for a, b, c in [(1, 2, 1), (5, 4, 3), (9, 9, 2), (7, 3, 8), (2, 2, 2)]]
KEYS = ["run=fake", "tasks=[gsm8k]", "data_dir=data", "repeats=2", "max_tokens=16"]
LAST = Path("results/fake/checkpoint-4/gsm8k.greedy/repeat-0.jsonl")
ADAPTER = "adapter_model.safetensors"
SUMMARY, FACTS = Path("results/fake.json"), Path("results/fake.meta.json")


class Instant:
    """An engine that answers at once, by the seed, or greedily 0."""

    def generate(self, works: list[Work]) -> Iterator[tuple]:
        texts = (f"<think></think><answer>{i}</answer>"[i % 3 :] for i in range(10))
        tokenizer = load_tokenizer(str(TINY))
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        for work in works:
            seeds = [0 if work.greedy else request.seeds[0] for request in work.requests]
            yield work, [[Completion(ids[seed % 10], seed % 7 == 0)] for seed in seeds]


def question(name: str, answer: str, prompt: str, prompt_ids: list[int]) -> dict[str, Any]:
    return {"id": name, "answer": answer, "prompt": prompt, "prompt_ids": prompt_ids}


INSTANT, BUILD = nullcontext(Instant()), choose.build


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints and its results, beside two tasks of five questions."""
    folder = tmp_path_factory.mktemp("scored")
    make_run(folder / "checkpoints", steps=(2, 4), scale=0.05)
    for task, name, mark in (("gsm8k", "question", "#### "), ("math500", "problem", "")):
        rows = [{name: s, "answer": f"{mark}{eval(s[:-2])}"} for s in SUMS]  # our own text
        lines = [json.dumps(row | {"unique_id": str(i)}) + "\n" for i, row in enumerate(rows)]
        (folder / "data" / task).mkdir(parents=True)
        (folder / "data" / task / "test.jsonl").write_text("".join(lines))
        train = "".join(lines * 4).replace("unique_id", "number")
        (folder / "data" / task / "train.jsonl").write_text(train)
    with chdir(folder), mock.patch.object(choose, "build", return_value=INSTANT):
        evaluate()
    return folder


@pytest.fixture(autouse=True)
def folder(scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that the test may spoil, in the current folder: the run's own folder."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choose, "build", lambda *_: INSTANT)
    return tmp_path / "checkpoints" / "fake"


def configured(*overrides: str) -> EvaluateConfig:
    values = compose("evaluate", [*KEYS, *overrides], CONFIG_DIR / "evaluate")
    return typed(EvaluateConfig, values)


def evaluate(*overrides: str) -> None:
    evaluate_run.main.__wrapped__(configured(*overrides))


def tree(folder: str) -> dict[str, bytes]:
    paths = [path for path in Path(folder).rglob("*") if path.suffix in (".json", ".jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_results_are_what_the_published_reader_expects(monkeypatch, capsys):
    """Every key a step, every list one number a repeat."""
    monkeypatch.setattr(choose, "build", BUILD)
    evaluate("tasks=[gsm8k,math500]", "rewards=[v2,strict]", "results_dir=fresh")
    shown = capsys.readouterr()
    content = json.loads(Path("fresh/fake.json").read_text())
    assert list(content) == ["checkpoint-2", "checkpoint-4"]
    repeats = {"gsm8k": 2, "math500": 2, "gsm8k.greedy": 1, "math500.greedy": 1}
    lengths = {
        checkpoint: {name: len(scored[name]["ans_acc"]) for name in repeats}
        for checkpoint, scored in content.items()
    }
    assert lengths == dict.fromkeys(content, repeats)
    assert [*json.loads(Path("fresh/base-tiny.json").read_text())] == [*repeats]
    assert content["checkpoint-4"]["meta"]["train_seconds"] == 10.0
    facts = json.loads(Path("fresh/fake.meta.json").read_text())
    task = facts["tasks"]["gsm8k"]
    assert (task["engine"], task["max_tokens"], task["questions"]) == ("transformers", 16, 5)
    assert (facts["train"]["experiment"], "torch" in facts["versions"]) == ("quickstart", True)
    assert shown.out.count("checkpoint-4") == 4  # two tasks, two graders
    assert "greedy %" in shown.out
    assert "checkpoint-4: gsm8k " in shown.err
    assert shown.out.splitlines()[-1] == "wrote fresh/base-tiny.json, fresh/fake.json"


@pytest.mark.parametrize(
    ("key", "task", "temperature", "repeats"),
    [("temperature=0", "gsm8k.greedy", 0.0, 1), ("greedy=false", "gsm8k", 1.0, 2)],
)
def test_too_long_prompts_are_counted_and_greedy_takes_one_repeat(key, task, temperature, repeats):
    path = Path("data/gsm8k/test.jsonl")
    row = {"question": "1+" * 400 + "1=?", "answer": "#### 401"}
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    evaluate(key, "results_dir=fresh")
    ((name, facts),) = json.loads(Path("fresh/fake.meta.json").read_text())["tasks"].items()
    assert (name, facts["temperature"]) == (task, temperature)
    assert (facts["questions"], facts["dropped"]) == (5, 1)
    assert len(results.read("fresh/fake.json")[2].datasets[task].ans_acc) == repeats


def record(v2: bool, strict: bool, formed: bool, tokens: int) -> dict[str, Any]:
    verdicts = {"v2": v2, "strict": strict}
    facts = {"tokens": tokens, "clipped": tokens == 20, "well_formed": formed}
    return {"answer": "1", "completion": f"of {tokens}", "correct": verdicts, **facts}


def test_the_published_entry_and_our_details_are_of_every_repeat():
    """Two questions, three repeats; the first grader fills the published fields."""
    repeats = [
        [record(True, True, True, 10), record(False, False, True, 11)],
        [record(True, True, False, 12), record(True, False, True, 13)],
        [record(False, True, False, 20), record(False, False, False, 14)],
    ]
    entry, details = scores.summary(repeats, ["v2", "strict"], [2, 5], ["prompt 0", "prompt 1"])
    assert (entry.ans_acc, entry.for_acc) == ([0.5, 1.0, 0.0], [1.0, 0.5, 0.0])
    assert (entry.both_acc, entry.lengths) == ([0.5, 0.5, 0.0], [10.5, 12.5, 17.0])
    example = {"prompt": "prompt 1", "answer": "1", "completion": "of 11"}
    assert entry.examples[1] == example | {"correct": "False", "format_correct": "True"}
    graded = details.pop("rewards")
    means = {grader: {key: x["mean"] for key, x in row.items()} for grader, row in graded.items()}
    of_v2 = {"correct": 0.5, "both": 1 / 3, "pass@2": (1 + 2 / 3) / 2, "alike": 0}
    of_strict = {"correct": 0.5, "both": 1 / 6, "pass@2": 0.5, "alike": 1}
    assert means == {"v2": pytest.approx(of_v2), "strict": pytest.approx(of_strict)}
    assert (details["questions"], details["repeats"]) == (2, 3)
    of_all = [details[name]["mean"] for name in ("format", "tokens", "clipped")]
    assert of_all == pytest.approx([0.5, 80 / 6, 1 / 6])


@pytest.mark.parametrize("k", [1, 3, 6])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(k):
    correct = np.random.default_rng(5).random((4, 6)) < 0.4
    stupid = [np.mean([any(subset) for subset in combinations(row, k)]) for row in correct]
    np.testing.assert_allclose(scores.pass_at_k(correct, k), stupid)


def test_the_seed_of_a_completion_depends_on_policy_task_question_and_repeat():
    def seed(task="gsm8k", of_command=0, policy="base", repeat=0, name="a"):
        row = question(name, "", "", [7])
        (request,) = questions.requests(task, [row], of_command, policy, repeat)
        return request.seeds[0]

    others = [seed(task="math"), seed(of_command=1), seed(policy="checkpoint-2"), seed(repeat=1)]
    seeds = {seed(), *others, seed(name="b")}
    assert len(seeds) == 6
    assert max(seeds) < 2**63  # what vLLM and torch accept


def test_the_provenance_of_the_first_scores_stays_and_the_training_is_the_newest():
    store = Store(Path("results"), "fake")
    commit = store.facts["git_commit"]
    store.claim({}, {"git_commit": "another", "new": True, "train": {"max_steps": 20}})
    assert (store.facts["git_commit"], store.facts["new"]) == (commit, True)
    assert store.facts["train"] == {"max_steps": 20}  # it went on since


def test_scores_of_other_weights_under_the_name_leave_the_summary_and_choose_nothing():
    shutil.copytree("results", "trained_again")
    store = Store(Path("trained_again"), "fake")
    store.facts["best"] = {"gsm8k": "checkpoint-2", "own": "checkpoint-4"}
    target = Target(store, "checkpoint-2", 2, Path("checkpoint-2"), digest="of other weights")
    target.note_weights()
    target.note_weights()  # nothing is left to forget
    store.write_facts()
    assert [*results.read("trained_again/fake.json")] == [4]
    facts = Store(Path("trained_again"), "fake").facts
    assert facts["best"] == {"gsm8k": None, "own": "checkpoint-4"}
    assert facts["weights"]["checkpoint-2"] == "of other weights"


def test_two_commands_at_a_time_keep_the_details_of_one_base_model():
    scores = results.Entry(), {"rewards": {"v2": {"pass@2": {"mean": 0.5}}}}
    stores = [Store(Path("two"), "base-tiny") for _ in range(2)]
    for task, store in zip(("gsm8k", "math500"), stores, strict=True):
        Target(store).publish({task: scores})
    details = results.facts_of(stores[0].facts_path)["details"]
    assert [*details["scores"]] == ["gsm8k", "math500"]
    assert details["pass@k"] == {"gsm8k": {"2": 0.5}, "math500": {"2": 0.5}}


def test_repeats_are_in_their_order_and_a_copy_of_one_is_none():
    shutil.copytree("results", "copied")
    target = Target(Store(Path("copied"), "fake"), "checkpoint-2", 2)
    first, second = target.repeats("gsm8k")
    names = ("repeat-0 (copy).jsonl", "repeat-9.jsonl", "repeat-10.jsonl")
    _, ninth, tenth = [shutil.copy(first, first.with_name(name)) for name in names]
    assert target.repeats("gsm8k") == [first, second, ninth, tenth]


def test_a_second_command_changes_nothing(monkeypatch):
    before = tree("results")
    monkeypatch.setattr(choose, "build", None)  # no engine is built
    monkeypatch.setattr(records, "write", None)  # no record is written
    evaluate()
    assert tree("results") == before


def test_another_grader_costs_no_generation(monkeypatch):
    published = results.read(SUMMARY)[2].datasets["gsm8k"]
    monkeypatch.setattr(choose, "build", None)  # no engine is built
    evaluate("rewards=[v2,v1,strict]")
    again = results.read(SUMMARY)[2]
    assert again.datasets["gsm8k"] == published  # the first grader fills the published fields
    assert list(again.meta["scores"]["gsm8k"]["rewards"]) == ["v2", "v1", "strict"]
    graders = [
        {*record["correct"]}
        for path in Path("results/fake").rglob("repeat-*.jsonl")
        for record in files.read_lines(path)
    ]
    assert graders == [{"v2", "v1", "strict"}] * (2 * 3 * 5)  # checkpoints, repeats, questions


def half(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def a_bad_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"id"', b"\xff\0{", 1))


def without_lengths(path: Path) -> None:
    path.write_text(path.read_text().replace('"tokens"', '"length"'))


@pytest.mark.parametrize(
    "spoil",
    [half, a_bad_line, without_lengths],
    ids=["half", "a bad line", "no lengths"],
)
def test_a_repeat_that_is_not_whole_is_set_aside_and_generated_again(spoil, capsys):
    before = tree("results")
    path = Path("results/fake/checkpoint-2/gsm8k/repeat-0.jsonl")
    spoil(path)
    spoiled = path.read_bytes()
    evaluate()
    assert (path.parent / "set-aside" / "repeat-0.jsonl.0").read_bytes() == spoiled
    shutil.rmtree(path.parent / "set-aside")
    assert tree("results") == before
    assert f"{path}: " in capsys.readouterr().err


def test_a_saved_config_is_not_resolved(folder, monkeypatch):
    monkeypatch.setenv("SECRET", "42")
    edit_config(folder / SAVED, task__system="${oc.env:SECRET}")
    evaluate("results_dir=unresolved")
    assert "42" not in Path("unresolved/fake.meta.json").read_text().partition("git_commit")[0]


@pytest.mark.parametrize("key", ["rewards.functions.own", "task.gold"])
def test_code_that_a_saved_config_names_runs_only_if_the_user_says_so(folder, key):
    Path("theirs.py").write_text("open('ran', 'w')\ndef gold(row): return row['answer']\n")
    edit_config(folder / SAVED, **{key: "theirs.py:gold"})
    line = rf"run=fake: \S*config.yaml names code of this machine, {key}=theirs.py:gold; if the"
    with pytest.raises(UserError, match=line):
        evaluate()
    assert not Path("ran").exists()


def test_the_rewards_of_our_worlds_need_no_trust_but_a_users_file_of_their_name_does(folder):
    functions = {"noisy": "pods/tasks/arithmetic.py:noisy"}
    edit_config(folder / SAVED, rewards__functions=functions)
    keys = configured()
    assert training_config(keys, "fake").rewards.functions == functions
    Path("pods/tasks").mkdir(parents=True)
    Path("pods/tasks/arithmetic.py").write_text("open('ran', 'w')\n")
    with pytest.raises(UserError, match=r"rewards.functions.noisy=pods/tasks/arithmetic.py:noisy"):
        training_config(keys, "fake")


def test_the_trainings_own_rewards_score_stored_completions_too(folder, monkeypatch, capsys):
    """With all columns of a training; anew, as another function may have the name, or none is."""
    monkeypatch.setattr(choose, "build", None)  # no engine is built
    edit_config(folder / SAVED, task__name="gsm8k", rewards__weights__correctness=0.0)

    def scored_by(body: str | None) -> list[dict]:
        """The records of the last repeat after an evaluation with this function, if any."""
        columns = "completions, completion_ids, prompts, answer, question, trainer_state, **_"
        Path("mine.py").write_text(f"def brevity({columns}): return {body}")
        functions = {"brevity": "mine.py:brevity"} if body else {}
        edit_config(folder / SAVED, rewards__functions=functions)
        user_functions._module.cache_clear()
        evaluate("trust_code=true")
        return files.read_lines(LAST)

    rows = scored_by("[-len(c) for c in completions]")
    lengths = [-len(row["completion"]) for row in rows]
    assert [row["rewards"] for row in rows] == [{"brevity": length} for length in lengths]
    details = results.read(SUMMARY)[4].meta["scores"]["gsm8k.greedy"]["functions"]["brevity"]
    assert details["mean"] == pytest.approx(np.mean(lengths))
    assert "rewards.weights.correctness=0: correct % is by v2" in capsys.readouterr().out
    rows = scored_by("[len(p) + len(ids) for p, ids in zip(prompts, completion_ids)]")
    texts = [row["completion"] for row in rows]
    ids = load_tokenizer(str(TINY))(texts, add_special_tokens=False)["input_ids"]
    examples = results.read(SUMMARY)[4].datasets["gsm8k.greedy"].examples
    sizes = [len(example["prompt"]) + len(i) for example, i in zip(examples, ids, strict=True)]
    assert [row["rewards"]["brevity"] for row in rows] == sizes
    assert not any("rewards" in row for row in scored_by(None))


def test_more_repeats_and_tasks_keep_what_is_there():
    before = tree("results")
    evaluate("repeats=3", "tasks=[gsm8k,math500]", "checkpoints=[2]")
    stored = {name: text for name, text in before.items() if name.endswith(".jsonl")}
    assert stored.items() <= tree("results").items()
    scored = results.read(SUMMARY)
    assert [len(scored[2].datasets[name].ans_acc) for name in ("gsm8k", "math500")] == [3, 3]
    assert len(scored[4].datasets["gsm8k"].ans_acc) == 2


def test_the_facts_of_questions():
    a, b = question("a", "1", "1+0?", [7, 8]), question("b", "2", "1+1?", [7])
    plain = Questions("gsm8k", "math", [a, b], dropped=1)
    sample = Questions("gsm8k.sample2.greedy", "math", [a, b], total=5, greedy=True)
    same = {"questions": 2, "digest": "f056627088a1a809"}  # as in stored results
    assert plain.facts == same | {"dropped": 1}
    assert sample.facts == same | {"dropped": 0, "temperature": 0.0, "sampled_from": 5}
    for change in ({"id": "c"}, {"answer": "3"}, {"prompt_ids": [7]}):
        assert replace(plain, rows=[a | change, b]).facts["digest"] != same["digest"]


def test_the_record_of_a_completion():
    """The second prompt ends with the tag that its completion would need."""
    tokenizer = load_tokenizer(str(TINY))
    text = "1</think><answer>5</answer>"
    completion = Completion(tokenizer.encode(text, add_special_tokens=False), True)
    rows = [question("a", "5", "2+3?", [7]), question("b", "5", "2+3?<think>", [7])]
    without_tag, record = questions.records(rows, [[completion]] * 2, tokenizer, [])
    assert (without_tag["well_formed"], record.pop("well_formed")) == (False, True)
    facts = {"id": "b", "answer": "5", "completion": text, "correct": {}}
    assert record == facts | {"tokens": len(completion.token_ids), "clipped": True}


class Killed(BaseException):
    """Nothing catches it, as nothing catches a signal."""


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "writes"), [(Killed(), 0), (Killed(), 2), (Killed(), 5), (FULL, 3)]
)
def test_whatever_write_is_the_last_one_the_end_is_the_same(error, writes, monkeypatch):
    written = []

    def write(path: Path, content: str) -> None:
        written.append(path)
        if len(written) > writes:
            error.filename = str(path)
            raise error
        files.write_atomic(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(targets, "write_atomic", write)
        patch.setattr(records, "write_atomic", write)
        patch.setattr(results, "write_atomic", write)
        with pytest.raises((Killed, OSError)) as stop:
            evaluate("results_dir=stopped")
    assert stop.value is error
    for path in Path("stopped").glob("*.json"):
        json.loads(path.read_text())
    evaluate("results_dir=stopped")
    assert tree("stopped") == tree("results")


def test_an_error_of_another_kind_than_the_disks_keeps_its_words(monkeypatch):
    def fail(*_):
        raise OSError("no route to the hub")

    monkeypatch.setattr(records, "write_atomic", fail)
    with pytest.raises(OSError, match=r"^no route to the hub$"):
        evaluate("results_dir=stopped")


BAD = {
    "checkpoint-2: adapter_model.safetensors has 1000 bytes, not {size}": lambda p: os.truncate(
        p / ADAPTER, 1000
    ),
    "checkpoint-2: not finished (by its name or meta.json)": lambda p: (p / "meta.json").write_text(
        '{"step": 2'
    ),
    "checkpoint-best: not finished (by its name or meta.json)": lambda p: p.rename(
        p.with_name("checkpoint-best")
    ),
    "checkpoint-2: other weights than results/fake/checkpoint-2; remove that folder": lambda p: (
        shutil.rmtree(p) or add_checkpoint(p.parent, 2, scale=0.2)
    ),
}


@pytest.mark.parametrize("reason", BAD)
def test_checkpoints_are_found_by_step_and_bad_ones_named(folder, reason):
    size = (add_checkpoint(folder, 10) / ADAPTER).stat().st_size
    BAD[reason](folder / "checkpoint-2")
    finished, (problem,) = targets.find(folder, ["all"], Store(Path("results"), "fake"), "gsm8k")
    facts = [(target.step, target.meta["train_seconds"]) for target in finished]
    assert facts == [(4, 10.0), (10, 25.0)]
    assert problem == f"{folder}/{reason.format(size=size)}"


def only_long_questions(_: Path) -> None:
    row = {"question": "1+" * 400 + "1=?", "answer": "#### 401"}
    Path("data/gsm8k/test.jsonl").write_text(2 * (json.dumps(row) + "\n"))


def other_answers(_: Path) -> None:
    path = Path("data/gsm8k/test.jsonl")
    path.write_text(path.read_text().replace("#### ", "#### 1"))


SCORED = "results_dir=results: gsm8k of fake was scored with another "
SAME = "; ask for the same, or choose another results_dir"
NOT_OURS = (
    "results_dir=results: results/fake.json was not written by evaluate_run.py "
    "(fake.meta.json is missing or another's); choose another results_dir"
)
MISTAKES = [  # further ones: tests/commands/test_mistakes.py
    (
        None,
        "run=null checkpoints=last",
        "run=null: has no checkpoints; set run, or drop checkpoints",
    ),
    (None, "checkpoints=3", "checkpoints/fake: has no checkpoint-3; it has 2, 4"),
    (
        None,
        "checkpoints=best",  # test scores are there: they choose nothing
        "checkpoints/fake: no checkpoint has validation scores on gsm8k; run evaluate_run.py "
        "split=validation, or train with evaluation.split=validation",
    ),
    (
        None,
        "split=validation tasks=[math500]",
        "task=math500: has no validation split (its splits: test); name another task",
    ),
    (
        only_long_questions,
        "",
        "tasks=gsm8k: all 2 prompts are longer than the run's sampling.max_prompt_length=512; "
        "name another task",
    ),
    (
        other_answers,
        "",
        "results_dir=results: the questions of gsm8k, or their prompts, have changed since fake "
        "was scored; restore them, or choose another results_dir",
    ),
    (None, "seed=7 top_p=0.5", f"{SCORED}seed (0 -> 7), top_p (1.0 -> 0.5){SAME}"),
    (lambda _: FACTS.unlink(), "", NOT_OURS),
    (lambda _: FACTS.write_text('{"tasks": {}}'), "", NOT_OURS),
    (lambda _: FACTS.write_text("[1]"), "", NOT_OURS),
    (
        lambda folder: [(p / ADAPTER).unlink() for p in folder.glob("checkpoint-*")],
        "",
        "checkpoints/fake/checkpoint-2: adapter_model.safetensors is missing; "
        "checkpoints/fake/checkpoint-4: adapter_model.safetensors is missing",
    ),
    (
        lambda folder: make_run(folder.parent, "empty", steps=()),
        "run=empty",
        "checkpoints/empty: has no checkpoint yet; wait for one",
    ),
]


@pytest.mark.parametrize(("spoil", "overrides", "line"), MISTAKES)
def test_mistakes_are_one_line_and_write_nothing(folder, spoil, overrides, line):
    if spoil:
        spoil(folder)
    before = tree("results")
    with pytest.raises(UserError) as mistake:
        evaluate(*overrides.split())
    assert str(mistake.value) == line
    assert tree("results") == before


def test_the_base_is_scored_once_and_other_settings_or_models_leave_it(capsys):
    base = Path("results/base-tiny.json")
    before = base.read_text()
    make_run(Path("checkpoints"), "second", steps=(2,))
    moved_base = shutil.copytree(TINY, "elsewhere/tiny_policy")
    evaluate("run=second", f"model_path={moved_base}", "results_dir=moved")
    assert "base model not scored" not in capsys.readouterr().err
    evaluate("run=second", "seed=5")
    assert "base model not scored" in capsys.readouterr().err
    assert list(results.read("results/second.json")) == [2]
    assert base.read_text() == before
    facts = base.with_suffix(".meta.json")
    facts.write_text(facts.read_text().replace('"tiny_policy"', '"another"'))
    evaluate("repeats=3", "checkpoints=2")
    evaluate("tasks=math500", "checkpoints=2")
    error = capsys.readouterr().err
    assert "gsm8k of base-tiny was scored with another model (another -> tiny_policy)" in error
    datasets = results.read_base(base).datasets
    assert [len(entry.ans_acc) for entry in datasets.values()] == [2, 1]


@pytest.mark.parametrize("key", ["experiment=quickstart", "model=tiny", f"model={TINY}"])
def test_run_null_scores_a_base_model_alone(key):
    evaluate("run=null", key, "repeats=1", "results_dir=fresh")
    (summary,) = results.find("fresh", ["*"])
    assert re.fullmatch(r"base-(\S+-pods-)?tiny(_policy)?", summary.stem)
    assert len(results.read_base(summary).datasets["gsm8k"].ans_acc) == 1


@pytest.mark.parametrize("task", ["arithmetic", "gsm8k"])
def test_a_base_model_sees_the_prompt_of_the_task(task):
    folder = CONFIG_DIR / "evaluate"
    composed = compose("evaluate", ["model=tiny", f"tasks={task}"], folder)
    config = typed(EvaluateConfig, composed)
    system = {"arithmetic": "", "gsm8k": None}[task]
    assert training_config(config, None).task.system == system


def test_the_last_line_names_the_best_run_by_validation(capsys):
    line = dict.fromkeys(scoreboard.NAMES, "same")
    best = [Best("gsm8k.validation", f"a-lr{i}", "checkpoint-2", 0.2 + i / 5) for i in (2, 1)]
    scoreboard.show([Scoreboard([line], [of_run], [], [], []) for of_run in best])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("checkpoint-2: best on gsm8k.validation, 60.0%")
    assert "run=a-lr2" in last


def test_validation_questions_choose_the_checkpoint_of_the_test(folder, capsys):
    keys = ("repeats=1", "results_dir=chosen")
    evaluate("split=validation", *keys)
    for path in Path("chosen/fake").rglob("gsm8k.validation*/repeat-*.jsonl"):
        lines, high = files.read_lines(path), ("4", "2")["greedy" in str(path)]
        for i, line in enumerate(lines):  # half correct, or all
            line["correct"] = {"v2": f"checkpoint-{high}" in str(path) or i % 2 == 0}
        records.write(path, lines)
    capsys.readouterr()
    best = {}
    for key in ("temperature=0", "greedy=true"):
        evaluate("split=validation", key, *keys)
        best[key] = re.findall(r"(\S+): best on gsm8k\.validation", capsys.readouterr().out)
    assert best == {"temperature=0": ["checkpoint-2"], "greedy=true": ["checkpoint-4"]}
    evaluate("split=validation", "checkpoints=2", *keys)  # a worse one alone
    assert "checkpoint-4: best on gsm8k.validation" in capsys.readouterr().out
    shutil.move(folder / "checkpoint-4", "moved")
    evaluate("split=validation", *keys)
    assert "checkpoint-2: best on gsm8k.validation" in capsys.readouterr().out
    shutil.move("moved", folder / "checkpoint-4")
    evaluate("split=validation", *keys)
    evaluate("checkpoints=best", *keys)
    scored = {step: [*scores.datasets] for step, scores in results.read("chosen/fake.json").items()}
    validation = ["gsm8k.validation", "gsm8k.validation.greedy"]
    assert scored == {2: validation, 4: [*validation, "gsm8k", "gsm8k.greedy"]}


@pytest.mark.parametrize(("chosen", "step"), [({}, 4), ({"gsm8k": "checkpoint-2"}, 2)])
def test_the_best_of_training_is_taken_where_no_other_was_chosen(folder, chosen, step):
    noted = {"checkpoint_best": {"checkpoint": "checkpoint-4", "accuracy": 0.5}}
    (folder / "meta.json").write_text(json.dumps(noted))
    store = Store(Path("results"), "fake")
    store.facts["best"] = chosen
    ((target,), _) = targets.find(folder, ["best"], store, "gsm8k")
    assert target.step == step


def test_a_sample_of_questions_is_kept_apart_and_a_larger_one_contains_it():
    evaluate("questions=2", "checkpoints=last", "repeats=1")
    early, late = (set(scored.datasets) for scored in results.read(SUMMARY).values())
    assert late - early == {"gsm8k.sample2", "gsm8k.sample2.greedy"}
    facts = json.loads(FACTS.read_text())["tasks"]["gsm8k.sample2"]
    assert (facts["questions"], facts["sampled_from"]) == (2, 5)
    training = training_config(configured(), "fake").moved(None, "data")
    load = partial(questions.load, "gsm8k", "train", training, load_tokenizer(str(TINY)))
    small, large, of_another_seed, every = load(5), load(9), load(5, seed=1), load(16)
    assert (small.task, small.total) == ("gsm8k.train.sample5", 16)
    assert (every.task, every.total) == ("gsm8k.train", None)
    assert len(large.rows) == 9
    assert all(row in large.rows for row in small.rows)
    assert small.rows != of_another_seed.rows


def test_runs_are_matched_and_shown_in_one_table(capsys):
    make_run(Path("checkpoints"), "fake10", steps=(2,))
    make_run(Path("checkpoints"), "fake9", steps=())
    config = configured("run=[fake*,fake]", "checkpoints=last")
    assert runs(config.run, Path("checkpoints")) == ["fake", "fake9", "fake10"]
    with pytest.raises(Skipped, match=r"run=fake9: checkpoints/fake9: has no checkpoint yet"):
        evaluate_run.main.__wrapped__(config)
    shown = capsys.readouterr().out
    for row in ("correct %", "base-tiny ", "fake10 +checkpoint-2 ", "fake +checkpoint-4 "):
        assert len(re.findall(row, shown)) == 1, row


@pytest.mark.parametrize(("share", "questions"), [(0.7, 200), (0.05, 30), (0.97, 40)])
def test_intervals_cover_the_truth_about_95_times_in_100(share, questions):
    samples = np.random.default_rng(1).random((400, questions)) < share  # 400 experiments
    intervals = [scores.interval(row.astype(float)) for row in samples]
    covered = [interval["low"] <= share <= interval["high"] for interval in intervals]
    assert 0.91 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("value", [2.0, -1.0])
def test_tokens_and_penalties_are_no_shares(value):
    expected = dict.fromkeys(("mean", "low", "high"), value)
    assert scores.interval(np.full(30, value)) == pytest.approx(expected)


def test_nothing_correct_or_everything_has_wilsons_interval():
    nothing, everything = (scores.interval(np.full(30, share)) for share in (0.0, 1.0))
    wilson = binomtest(0, 30).proportion_ci(method="wilson")
    assert [nothing["low"], nothing["high"]] == pytest.approx([wilson.low, wilson.high], abs=1e-5)
    assert everything["low"] == pytest.approx(1 - nothing["high"])


def test_ten_repeats_of_a_question_tell_more_than_one():
    often, once = np.zeros((2, 20))
    often[:10], once[0] = 0.1, 1.0
    of_ten, of_one = scores.interval(often), scores.interval(once)
    assert of_ten["mean"] == of_one["mean"] == 0.05
    assert of_ten["high"] < of_one["high"]
