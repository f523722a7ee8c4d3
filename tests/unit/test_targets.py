"""What a second, a stopped and a concurrent evaluation leave of the first one's files.

An engine that answers at once scores two checkpoints, of which only the digests exist.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pods import files
from pods.config.command import CONFIG_DIR, typed
from pods.config.errors import UserError
from pods.engines import Completion, Work, choose
from pods.evaluation import questions, records, run, scoreboard, targets
from pods.evaluation.config import EvaluateConfig
from pods.evaluation.questions import Questions
from pods.evaluation.run import Plan
from pods.evaluation.targets import Store, Target
from pods.models.policy import load_tokenizer
from pods.runs import results
from tests import configs
from tests.fake_run import TINY, make_run

ADAPTER = "adapter_model.safetensors"
SUMMARY, FACTS, BASE = (
    Path("results") / name for name in ("fake.json", "fake.meta.json", "base-tiny.json")
)


class Instant:
    """Answers at once, by the seed, or greedily 0."""

    def __init__(self, tokenizer: Any) -> None:
        texts = (f"<think></think><answer>{i}</answer>"[i % 3 :] for i in range(10))
        self.ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        self.generated = 0  # completions

    def generate(self, works: list[Work]) -> Iterator[tuple]:
        for work in works:
            seeds = [0 if work.greedy else request.seeds[0] for request in work.requests]
            self.generated += len(seeds)
            yield work, [[Completion(self.ids[seed % 10], seed % 7 == 0)] for seed in seeds]


def question(name: str, answer: str, prompt: str, prompt_ids: list[int]) -> dict[str, Any]:
    return {"id": name, "answer": answer, "prompt": prompt, "prompt_ids": prompt_ids}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(TINY))


@pytest.fixture
def plan(tokenizer, tmp_path, monkeypatch) -> Plan:
    """Two repeats and a greedy one of five questions, for two checkpoints and the base."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "provenance", lambda: {"git_commit": "here"})  # asks git
    values = configs.overridden("evaluate", CONFIG_DIR / "evaluate", "run=fake", "repeats=2")
    training = configs.compose("run=fake")
    rows = [question(f"q{i}", str(i), f"{i}+1-1=?", [7, i]) for i in range(5)]
    plain = Questions("gsm8k", "math", rows)
    return Plan(
        config=typed(EvaluateConfig, values),
        trained=training,
        training=training,
        engine="transformers",
        sampling=choose.sampling(training),
        tokenizer=tokenizer,
        checkpoints=[checkpoint(2), checkpoint(4)],
        questions=[plain, replace(plain, task="gsm8k.greedy", greedy=True)],
        functions=[],
        skipped=[],
    )


def checkpoint(step: int, digest: str = "of these weights") -> Target:
    name = f"checkpoint-{step}"
    return Target(
        name, step, Path("checkpoints/fake") / name, {"train_seconds": 2.5 * step}, digest
    )


def changed(plan: Plan, **keys: Any) -> Plan:
    """With other keys of the command."""
    return replace(plan, config=plan.config.model_copy(update=keys))


def score(plan: Plan, run_name: str | None = "fake") -> int:
    """Score all; the number of completions that were generated."""
    engine = Instant(plan.tokenizer)
    run.score_all(plan, lambda: engine, run_name)
    return engine.generated


def tree(folder: str = "results") -> dict[str, bytes]:
    paths = [path for path in Path(folder).rglob("*") if path.suffix in (".json", ".jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_second_command_generates_and_changes_nothing(plan, monkeypatch):
    assert score(plan) == 3 * 3 * 5  # policies, repeats, questions
    before = tree()
    monkeypatch.setattr(records, "write", None)  # no record is written
    assert score(plan) == 0
    assert tree() == before


def test_another_grader_costs_no_generation(plan):
    score(plan)
    published = results.read(SUMMARY)[2].datasets["gsm8k"]
    assert score(changed(plan, rewards=["v2", "v1", "strict"])) == 0
    again = results.read(SUMMARY)[2]
    assert again.datasets["gsm8k"] == published  # the first grader fills the published fields
    assert list(again.meta["scores"]["gsm8k"]["rewards"]) == ["v2", "v1", "strict"]
    graders = [
        {*record["correct"]}
        for path in Path("results/fake").rglob("repeat-*.jsonl")
        for record in files.read_lines(path)
    ]
    assert graders == [{"v2", "v1", "strict"}] * (2 * 3 * 5)  # checkpoints, repeats, questions


def test_more_repeats_and_tasks_keep_what_is_there(plan):
    score(plan)
    before = tree()
    further = [replace(q, task=q.task.replace("gsm8k", "math500")) for q in plan.questions]
    more = changed(replace(plan, questions=plan.questions + further), repeats=3)
    assert score(replace(more, checkpoints=[checkpoint(2)])) == 2 * (1 + 3 + 1) * 5
    stored = {name: text for name, text in before.items() if name.endswith(".jsonl")}
    assert stored.items() <= tree().items()
    scored = results.read(SUMMARY)
    assert [len(scored[2].datasets[name].ans_acc) for name in ("gsm8k", "math500")] == [3, 3]
    assert len(scored[4].datasets["gsm8k"].ans_acc) == 2


def half(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def a_bad_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"id"', b"\xff\0{", 1))


@pytest.mark.parametrize("spoil", [half, a_bad_line], ids=["half", "a bad line"])
@pytest.mark.parametrize("repeats", [2, 1], ids=["asked for", "further"])
def test_a_repeat_that_lacks_questions_is_generated_again(plan, spoil, repeats, capsys):
    score(plan)
    before = tree()
    path = Path("results/fake/checkpoint-2/gsm8k/repeat-1.jsonl")
    spoil(path)
    assert score(changed(plan, repeats=repeats)) == 5 * (repeats - 1)
    score(plan)
    assert tree() == before
    assert f"{path}: incomplete or of other questions; removed" in capsys.readouterr().err


class Killed(BaseException):
    """Nothing catches it, as nothing catches a signal."""


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "writes"), [(Killed(), 0), (Killed(), 1), (Killed(), 4), (FULL, 3), (Killed(), 18)]
)
def test_whatever_write_is_the_last_one_the_end_is_the_same(plan, error, writes, monkeypatch):
    score(plan)
    whole = tree()
    shutil.rmtree("results")
    written = []

    def write(path: Path, content: str) -> None:
        written.append(path)
        if len(written) > writes:
            error.filename = str(path)
            raise error
        files.write_atomic(path, content)

    with monkeypatch.context() as patch:
        for module in (targets, records, results):
            patch.setattr(module, "write_atomic", write)
        with pytest.raises((Killed, OSError)) as stop:
            score(plan)
    assert stop.value is error
    for path in Path("results").glob("*.json"):
        json.loads(path.read_text())
    score(plan)
    assert tree() == whole


def test_an_error_in_the_middle_keeps_the_scores_before_it(plan):
    broken = replace(plan, checkpoints=[checkpoint(2), checkpoint(4)])
    engine = Instant(plan.tokenizer)
    calls = iter([engine.generate, None])  # of the second checkpoint: no function
    with pytest.raises(TypeError):
        run.score_all(broken, lambda: type("Engine", (), {"generate": next(calls)}), "fake")
    assert [*results.read(SUMMARY)] == [2]


def test_the_provenance_of_the_first_scores_stays_and_the_training_is_the_newest(plan, monkeypatch):
    monkeypatch.setattr(run, "provenance", lambda: {"git_commit": "first"})
    score(plan)
    monkeypatch.setattr(run, "provenance", lambda: {"git_commit": "second", "new": True})
    score(replace(plan, trained=plan.trained.model_copy(update={"max_steps": 20})))
    facts = json.loads(FACTS.read_text())
    assert (facts["git_commit"], facts["new"]) == ("first", True)
    assert facts["train"]["max_steps"] == 20  # it went on since


OTHERWISE = "results_dir=results: gsm8k of fake was scored with other settings: "
RESTORE = "; restore them, or choose another results_dir"
OTHER_QUESTIONS = [Questions("gsm8k", "math", [question("q0", "8", "8+1-1=?", [7, 8])])]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (lambda plan: changed(plan, seed=7), f"{OTHERWISE}seed (0 -> 7){RESTORE}"),
        (
            lambda plan: replace(plan, questions=OTHER_QUESTIONS),
            f"{OTHERWISE}questions or prompts, questions (5 -> 1){RESTORE}",
        ),
        (
            lambda plan: replace(plan, sampling=replace(plan.sampling, top_p=0.5, top_k=3)),
            f"{OTHERWISE}top_k (0 -> 3), top_p (1.0 -> 0.5){RESTORE}",
        ),
    ],
    ids=["seed", "questions", "two keys"],
)
def test_scores_of_other_settings_are_refused_and_a_base_gets_another_file(plan, other, line):
    score(plan)
    before = tree()
    with pytest.raises(UserError) as mistake:
        score(other(plan))
    assert str(mistake.value) == line
    assert tree() == before
    assert score(other(replace(plan, checkpoints=[])), None) > 0
    assert tree().items() > before.items()
    again = tree()
    assert score(other(replace(plan, checkpoints=[])), None) == 0
    assert {name for name in again if name.startswith("base-tiny+") and "/" not in name} == {
        "base-tiny+2.json",
        "base-tiny+2.meta.json",
    }
    assert tree() == again


@pytest.mark.parametrize("content", [None, "{}", "[1]"])
def test_a_summary_of_another_program_stays_as_it_is(plan, content):
    score(plan)
    FACTS.unlink()
    if content:
        FACTS.write_text(content)
    base = BASE.with_suffix(".meta.json")
    base.unlink()
    with pytest.raises(UserError) as mistake:
        score(plan)
    assert str(mistake.value) == (
        "results_dir=results: results/fake.json was not written by evaluate_run.py "
        "(fake.meta.json is missing or another's); move it, or choose another results_dir"
    )
    score(replace(plan, checkpoints=[]), None)
    assert not base.exists()
    assert Path("results/base-tiny+2.json").read_bytes() == BASE.read_bytes()


def test_scores_of_other_weights_leave_the_summary_once_their_records_are_removed(plan):
    score(plan)
    shutil.rmtree("results/fake/checkpoint-2")
    again = [replace(plan.questions[0], task="math500")]
    trained_again = [checkpoint(2, "of other weights"), checkpoint(4)]
    score(replace(plan, questions=again, checkpoints=trained_again))
    datasets = {step: [*of_step.datasets] for step, of_step in results.read(SUMMARY).items()}
    assert datasets == {2: ["math500"], 4: ["gsm8k", "gsm8k.greedy", "math500"]}
    assert json.loads(FACTS.read_text())["weights"]["checkpoint-2"] == "of other weights"


def test_of_two_evaluations_of_a_run_at_once_the_second_is_refused_in_a_line(plan):
    owner = f"pid {os.getpid()} on "
    refused = pytest.raises(UserError, match=rf"^results_dir=results: {owner}\S+ scores fake; wait")
    with targets.held(Path("results"), "fake", plan.settings), refused:
        score(plan)
    assert score(plan) == 45


def test_of_two_evaluations_of_one_base_model_the_second_waits_and_both_are_kept(plan, capsys):
    other = [replace(plan.questions[0], task="math500")]
    second = Thread(target=score, args=(replace(plan, questions=other, checkpoints=[]), None))
    with targets.held(Path("results"), "base-tiny", plan.settings, base=True) as store:
        second.start()
        while "waits for pid" not in capsys.readouterr().err:
            second.join(0.01)
        assert second.is_alive()
        run.score(plan, lambda: Instant(plan.tokenizer), store, [Target()])
    second.join()
    assert [*results.read_base(BASE).datasets] == ["gsm8k", "gsm8k.greedy", "math500"]
    details = results.read_settings(BASE).details
    assert [*details["scores"]] == ["gsm8k", "gsm8k.greedy", "math500"]
    assert details["pass@k"]["math500"].keys() == {"1"}


def test_repeats_are_in_their_order_and_a_copy_of_one_is_none(plan):
    score(plan)
    store = Store(Path("results"), "fake")
    first, second = store.repeats("checkpoint-2", "gsm8k")
    names = ("repeat-0 (copy).jsonl", "repeat-9.jsonl", "repeat-10.jsonl")
    _, ninth, tenth = [shutil.copy(first, first.with_name(name)) for name in names]
    assert store.repeats("checkpoint-2", "gsm8k") == [first, second, ninth, tenth]


def test_scores_of_other_weights_leave_the_summary_before_new_ones_are_made(plan):
    """A kill before the new scores are written must not leave the old ones beside a new digest."""
    score(plan)
    store, summary = Store(Path("results"), "fake"), Path("results/fake.json")
    others = [step for step in results.read(summary) if step != 2]
    (target,) = [target for target in plan.checkpoints if target.step == 2]
    store.note("gsm8k", plan.settings["gsm8k"], target)
    assert [*results.read(summary)] == [2, *others]
    store.note("gsm8k", plan.settings["gsm8k"], replace(target, digest="another"))
    assert [*results.read(summary)] == others


def of_validation(plan: Plan, high: dict[str, int], tasks: list[str]) -> None:
    """Store validation scores of both checkpoints: one is always correct, the other every second
    time; high: its step, by data set."""
    for task in tasks:
        for step in (2, 4):
            for q in plan.questions:
                if q.task == task:
                    correct = [i % 2 == 0 or high[task] == step for i in range(5)]
                    path = Path(f"results/fake/checkpoint-{step}/{task}/repeat-0.jsonl")
                    records.write(
                        path,
                        [verdict(row, right) for row, right in zip(q.rows, correct, strict=True)],
                    )


def verdict(row: dict[str, Any], correct: bool) -> dict[str, Any]:
    facts = {"id": row["id"], "answer": row["answer"], "completion": "", "tokens": 1}
    return facts | {"clipped": False, "well_formed": True, "correct": {"v2": correct}}


def test_validation_questions_choose_the_checkpoint_of_the_test(plan, tmp_path):
    """Sampled completions before greedy ones, of checkpoints that are still there."""
    data = {"gsm8k.validation": 4, "gsm8k.validation.greedy": 2}
    asked = [replace(plan.questions[0], task=name, greedy="greedy" in name) for name in data]
    folder = make_run(tmp_path / "checkpoints")
    checkpoints, _ = targets.find(folder, ["all"], Store(Path("results"), "fake"), "gsm8k")
    plan = replace(plan, questions=asked, checkpoints=checkpoints)
    plan = changed(plan, split="validation", repeats=1)
    of_validation(plan, data, [*data])
    notes = {}
    for name, q in zip(("sampled", "greedy"), asked, strict=True):
        board = run.score_all(replace(plan, questions=[q]), lambda: Instant(plan.tokenizer), "fake")
        notes[name] = board.notes[0]
    once = "100.0%; score it once: uv run evaluate_run.py run=fake split=test checkpoints=best"
    assert notes == {
        "sampled": f"fake, checkpoint-4: best on gsm8k.validation, {once}",
        "greedy": f"fake, checkpoint-2: best on gsm8k.validation.greedy, {once}",
    }
    trusting = changed(plan, trust_code=True)
    board = run.score_all(trusting, lambda: Instant(plan.tokenizer), "fake")
    assert board.notes[0].endswith(" checkpoints=best trust_code=true")
    assert best_of(folder) == [4]
    (folder / "checkpoint-4").rename("moved")
    assert best_of(folder) == [2]


def best_of(folder: Path) -> list[int]:
    found, _ = targets.find(folder, ["best"], Store(Path("results"), "fake"), "gsm8k")
    return [target.step for target in found]


def test_the_best_of_training_is_taken_if_no_other_was_chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_run(Path("checkpoints"))
    with pytest.raises(UserError, match=r"evaluate_run.py run=fake split=validation$"):
        best_of(folder)
    noted = {"checkpoint_best": {"checkpoint": "checkpoint-4", "accuracy": 0.5}}
    (folder / "meta.json").write_text(json.dumps(noted))
    assert best_of(folder) == [4]


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
        Path("results/fake/checkpoint-2/gsm8k").mkdir(parents=True)
        or Path("results/fake/checkpoint-2/gsm8k/repeat-0.jsonl").touch()
    ),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("trained"), steps=(2, 4, 10))


@pytest.mark.parametrize("reason", BAD)
def test_checkpoints_are_found_by_step_and_bad_ones_named(trained, tmp_path, monkeypatch, reason):
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(trained, "checkpoints/fake"))
    size = (folder / "checkpoint-2" / ADAPTER).stat().st_size
    BAD[reason](folder / "checkpoint-2")
    finished, (problem,) = targets.find(folder, ["all"], Store(Path("results"), "fake"), "gsm8k")
    facts = [(target.step, target.meta["train_seconds"]) for target in finished]
    assert facts == [(4, 10.0), (10, 25.0)]
    assert problem == f"{folder}/{reason.format(size=size)}"


def without_weights(folder: Path) -> None:
    for path in folder.glob("checkpoint-*"):
        (path / ADAPTER).unlink()


@pytest.mark.parametrize(
    ("spoil", "names", "line"),
    [
        (None, ["3"], "checkpoints/fake: has no checkpoint-3; it has 2, 4, 10"),
        (
            without_weights,
            ["2", "last"],
            "checkpoints/fake/checkpoint-2: adapter_model.safetensors is missing; "
            "checkpoints/fake/checkpoint-10: adapter_model.safetensors is missing",
        ),
        (shutil.rmtree, ["all"], "checkpoints/fake: has no checkpoint yet; wait for one"),
    ],
    ids=["absent", "without weights", "empty"],
)
def test_no_checkpoint_is_one_line(trained, tmp_path, monkeypatch, spoil, names, line):
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(trained, "checkpoints/fake"))
    if spoil:
        spoil(folder)
    with pytest.raises(UserError) as mistake:
        targets.find(folder, names, Store(Path("results"), "fake"), "gsm8k")
    assert str(mistake.value) == line


def test_the_seed_of_a_completion_depends_on_policy_task_question_and_repeat():
    def seed(task="gsm8k", of_command=0, policy="base", repeat=0, name="a"):
        row = question(name, "", "", [7])
        (request,) = questions.requests(task, [row], of_command, policy, repeat)
        return request.seeds[0]

    others = [seed(task="math"), seed(of_command=1), seed(policy="checkpoint-2"), seed(repeat=1)]
    seeds = {seed(), *others, seed(name="b")}
    assert len(seeds) == 6
    assert max(seeds) < 2**63  # what vLLM and torch accept


def test_the_facts_of_questions():
    a, b = question("a", "1", "1+0?", [7, 8]), question("b", "2", "1+1?", [7])
    plain = Questions("gsm8k", "math", [a, b], dropped=1)
    sample = Questions("gsm8k.sample2.greedy", "math", [a, b], total=5, greedy=True)
    same = {"questions": 2, "digest": "f056627088a1a809"}  # as in stored results
    assert plain.facts == same | {"dropped": 1}
    assert sample.facts == same | {"dropped": 0, "temperature": 0.0, "sampled_from": 5}
    for change in ({"id": "c"}, {"answer": "3"}, {"prompt_ids": [7]}):
        assert replace(plain, rows=[a | change, b]).facts["digest"] != same["digest"]


def test_the_record_of_a_completion(tokenizer):
    """The second prompt ends with the tag that its completion would need."""
    text = "1</think><answer>5</answer>"
    completion = Completion(tokenizer.encode(text, add_special_tokens=False), True)
    rows = [question("a", "5", "2+3?", [7]), question("b", "5", "2+3?<think>", [7])]
    without_tag, record = questions.records(rows, [[completion]] * 2, tokenizer, [])
    assert (without_tag["well_formed"], record.pop("well_formed")) == (False, True)
    facts = {"id": "b", "answer": "5", "completion": text, "correct": {}}
    assert record == facts | {"tokens": len(completion.token_ids), "clipped": True}


def test_a_larger_sample_of_questions_contains_a_smaller_one(tokenizer):
    training = configs.compose("task=arithmetic")
    load = partial(questions.load, "arithmetic", "validation", training, tokenizer)
    small, large, of_another_seed, every = load(5), load(9), load(5, seed=1), load(10**6)
    assert (small.task, small.total) == ("arithmetic.validation.sample5", len(every.rows))
    assert (every.task, every.total) == ("arithmetic.validation", None)
    assert len(large.rows) == 9
    assert all(row in large.rows for row in small.rows)
    assert small.rows != of_another_seed.rows


def test_the_table_shows_notes_of_all_runs_once(capsys):
    line = dict.fromkeys(scoreboard.NAMES, "same")
    boards = [scoreboard.Scoreboard([line], ["a note"], [Path("a.json")], []) for _ in range(2)]
    scoreboard.show(boards)
    out = " ".join(capsys.readouterr().out.split())
    interval = "95 % interval over the questions of one run (bootstrap; near 0 and 100 %: Wilson)"
    assert out.endswith(f"[ ]: {interval} a note wrote a.json")
