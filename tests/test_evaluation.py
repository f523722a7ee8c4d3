"""evaluate_run.py and what stands below it, on random adapters of the tiny policy and a few sums.

Sessions run in this process; the kill and the exit code use the real command.
"""

import errno
import hashlib
import json
import re
import shutil
import signal
from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evaluate_run
from pods import files
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import Skipped, UserError
from pods.engines import Completion, choose
from pods.evaluation import questions, records, run, scoreboard, targets
from pods.evaluation.config import (
    EvaluateConfig,
    check,
    moved,
    renamed_keys,
    runs,
    training_config,
)
from pods.evaluation.questions import Questions
from pods.evaluation.records import Store
from pods.evaluation.targets import Target
from pods.models.policy import load_tokenizer
from pods.runs import results
from tests import faults, processes
from tests.fake_run import TINY, add_checkpoint, make_run

ROOT = Path(__file__).resolve().parents[1]
SUMS = [f"{a}+{b}-{c}=?" for a, b, c in [(1, 2, 1), (5, 4, 3), (9, 9, 2), (7, 3, 8), (2, 2, 2)]]


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks of five questions each, in the tiny policy's language, in GSM8K's columns."""
    monkeypatch.chdir(tmp_path)
    for task, field in (("gsm8k", "#### "), ("math500", "")):
        folder = tmp_path / "data" / task
        folder.mkdir(parents=True)
        question = "question" if field else "problem"
        rows = [{question: s, "answer": f"{field}{eval(s[:-2])}"} for s in SUMS]  # our own text
        lines = [json.dumps(row | {"unique_id": str(i)}) + "\n" for i, row in enumerate(rows)]
        (folder / "test.jsonl").write_text("".join(lines))
        (folder / "train.jsonl").write_text("".join(lines * 4).replace("unique_id", "number"))
    return tmp_path / "data"


@pytest.fixture(scope="session")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    make_run(folder, steps=(2, 4), scale=0.05)
    return folder


@pytest.fixture
def folder(two_checkpoints: Path, tmp_path: Path) -> Path:
    """A run with two intact checkpoints that the test may spoil."""
    shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    return tmp_path / "checkpoints" / "fake"


def configured(*overrides: str) -> EvaluateConfig:
    fixed = ["run=fake", "tasks=[gsm8k]", "data_dir=data", "repeats=2", *overrides]
    return typed(EvaluateConfig, compose("evaluate", fixed, CONFIG_DIR / "evaluate"))


def evaluate(*overrides: str) -> scoreboard.Board:
    config = configured(*overrides)
    check(config)
    with renamed_keys({"model.path": "model" if config.model else "model_path", "task": "tasks"}):
        (name,) = runs(config)
        board = run.evaluate(config.model_copy(update={"run": name}))
    scoreboard.show([board])
    return board


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def no_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise AssertionError("an engine was built, though nothing was missing")

    monkeypatch.setattr(choose, "build", build)


# What is written


def test_results_are_what_the_published_reader_expects(folder: Path) -> None:
    """A model of the published plot script: every key a step, every list one number a repeat."""
    evaluate("tasks=[gsm8k,math500]")
    content = json.loads(Path("results/fake.json").read_text())
    steps = sorted(content, key=lambda key: int(key.split("-")[1]))
    assert steps == ["checkpoint-2", "checkpoint-4"]
    for step in steps:
        for dataset in ("gsm8k", "math500"):
            entry = content[step][dataset]
            for metric in ("ans_acc", "for_acc", "both_acc", "lengths"):
                assert [type(value) for value in entry[metric]] == [float, float], metric
            keys = {"prompt", "answer", "completion", "correct", "format_correct"}
            assert [set(example) for example in entry["examples"]] == [keys] * 5
    base = json.loads(Path("results/base-tiny.json").read_text())
    assert set(base) == {"gsm8k", "math500"}
    read = results.read("results/fake.json")
    assert read[4].meta["train_seconds"] == 10.0
    assert set(read[4].meta["pass@k"]["gsm8k"]) == {"1"}  # 3 and 5 need more than two repeats


def test_meta_says_what_the_scores_were_made_with(folder: Path) -> None:
    evaluate("temperature=0.5", "top_p=0.9")
    facts = json.loads(Path("results/fake.meta.json").read_text())
    task = facts["tasks"]["gsm8k"]
    assert (task["temperature"], task["top_p"], task["max_tokens"]) == (0.5, 0.9, 48)
    assert (task["engine"], task["questions"], task["dropped"]) == ("transformers", 5, 0)
    assert facts["train"]["experiment"] == "quickstart"
    assert "torch" in facts["versions"]


def test_too_long_prompts_are_left_out_and_counted(folder: Path, data_dir: Path) -> None:
    path = data_dir / "gsm8k" / "test.jsonl"
    row = {"question": "1+" * 400 + "1=?", "answer": "#### 401", "unique_id": "long"}
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    evaluate()
    task = json.loads(Path("results/fake.meta.json").read_text())["tasks"]["gsm8k"]
    assert (task["questions"], task["dropped"]) == (5, 1)


def test_greedy_takes_one_repeat(folder: Path) -> None:
    evaluate("temperature=0")
    assert len(results.read("results/fake.json")[2].datasets["gsm8k"].ans_acc) == 1


GRADERS = ["v2", "strict"]


def made_up(questions: int, repeats: int) -> list[list[dict[str, Any]]]:
    """[repeat][question]: records whose fields, repeats and graders all differ."""
    rng = np.random.default_rng(5)

    def record(q: int, k: int) -> dict[str, Any]:
        answer = q + int(rng.choice([0, 0, 100, 200]))  # right half of the time
        return {
            "id": str(q),
            "answer": str(q),
            "completion": f"<answer>{answer}</answer>",
            "tokens": 100 * q + k,
            "truncated": bool(rng.random() < 0.2),
            "well_formed": bool(rng.random() < 0.7),
            "correct": {"v2": answer == q, "strict": answer == q and q < 4},
        }

    return [[record(q, k) for q in range(questions)] for k in range(repeats)]


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """{"/key/index": leaf} of nested dicts and lists."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {k: v for key, value in items for k, v in flat(value, f"{path}/{key}").items()}


def planned(versions: list[str], repeats: int = 1, tokenizer: Any = None) -> Any:
    """As much of a Plan as scoring needs."""
    config = SimpleNamespace(seed=0, pass_at=[1, 3, 20])
    sampling = SimpleNamespace(stop=())
    return SimpleNamespace(
        config=config, sampling=sampling, versions=versions, repeats=repeats, tokenizer=tokenizer
    )


def test_a_results_file_is_the_one_recomputed_from_the_records(tmp_path: Path) -> None:
    """In plain Python, every key; the first grader fills the published fields and pass@k."""
    repeats, ids = 11, [str(q) for q in range(6)]  # repeat-10 after -9
    stored = made_up(len(ids), repeats)
    store = Store(tmp_path / "results", "r")
    for k, repeat in enumerate(stored):
        records.write(store.path("checkpoint-10", "gsm8k", k), repeat)
    prompts = [f"prompt {q}" for q in ids]
    asked = Questions("gsm8k", "math", ids, ids, prompts, [], 0)
    target = Target(store, "checkpoint-10", Path("weights"), {"train_seconds": 12.5})
    plan = planned(GRADERS, repeats)
    assert list(run.missing(plan, [target], [asked])) == []
    run.score(plan, None, [target], [asked])
    found = flat(json.loads(store.summary.read_text()))
    expected = flat({"checkpoint-10": recomputed(stored)})
    ends = {key for key in expected if key.endswith(("/low", "/high"))}
    exact = {key: expected[key] for key in expected.keys() - ends}
    assert {key: found[key] for key in found.keys() - ends} == pytest.approx(exact)
    for key in ends:  # those of 1,000 resamples
        name = key.rpartition("/")[0]
        width = expected[f"{name}/high"] - expected[f"{name}/low"]
        assert found[key] == pytest.approx(expected[key], abs=0.1 * width + 1e-9), key


def recomputed(stored: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The entry of one checkpoint; k = 20 is above the number of repeats."""
    rows = [*zip(*stored, strict=True)]  # [question][repeat]

    def share(good: Callable[[dict], float]) -> list[float]:
        return [np.mean([good(r) for r in repeat]) for repeat in stored]

    def mean(good: Callable[[dict], float]) -> dict[str, float]:
        return over([np.mean([good(r) for r in row]) for row in rows])

    def passed(grader: str, k: int) -> dict[str, float]:
        subsets = [combinations([r["correct"][grader] for r in row], k) for row in rows]
        return over([np.mean([any(some) for some in row]) for row in subsets])

    def graded(grader: str) -> dict[str, Any]:
        correct = lambda r: r["correct"][grader]  # noqa: E731
        metrics = {"answer": mean(correct), "both": mean(lambda r: correct(r) * r["well_formed"])}
        return metrics | {f"pass@{k}": passed(grader, k) for k in (1, 3)}

    by_grader = {grader: graded(grader) for grader in GRADERS}
    details = {name: mean(lambda r, name=name: r[name]) for name in ("tokens", "truncated")}
    details |= {"format": mean(lambda r: r["well_formed"]), "questions": 6, "repeats": 11}
    return {
        "gsm8k": {
            "ans_acc": share(lambda r: r["correct"]["v2"]),
            "for_acc": share(lambda r: r["well_formed"]),
            "both_acc": share(lambda r: r["correct"]["v2"] * r["well_formed"]),
            "lengths": share(lambda r: r["tokens"]),
            "examples": [
                {"prompt": f"prompt {r['id']}", "answer": r["id"], "completion": r["completion"],
                 "correct": str(r["correct"]["v2"]), "format_correct": str(r["well_formed"])}
                for r in stored[0][:5]
            ],
        },
        "meta": {
            "train_seconds": 12.5,
            "pass@k": {"gsm8k": {str(k): by_grader["v2"][f"pass@{k}"]["mean"] for k in (1, 3)}},
            "scores": {"gsm8k": details | {"rewards": by_grader}},
        },
    }  # fmt: skip


def over(values: list[float]) -> dict[str, float]:
    """The mean over questions; its interval from all 6^6 resamples of the questions, or for shares
    (of 6 questions all are rare) Wilson's, the p with |p - mean| = 1.96 sqrt(p (1 - p) / n)."""
    mean = np.mean(values)
    if max(values) <= 1:
        n = len(values) * (mean * (1 - mean) / np.var(values) if np.var(values) else 1)
        z2 = 1.96**2 / n
        low, high = sorted(np.roots([1 + z2, -2 * mean - z2, mean**2]))
    else:
        means = np.mean([*product(values, repeat=len(values))], axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": mean, "low": low, "high": high}


def test_the_records_of_a_repeat_stand_beside_their_questions(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(TINY))
    texts = ["<think></think><answer>5</answer>", "<answer>7</answer>", "<think>"]
    tokens = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    drawn = [Completion(ids, clipped) for ids, clipped in zip(tokens, (0, 0, 1), strict=True)]
    asked = Questions("gsm8k", "math", list("abc"), ["6", "7", "8"], list("xyz"), [[1]] * 3, 0)
    target = Target(Store(tmp_path / "results", "r"), "checkpoint-10", Path("weights"))
    plan = planned(["v2"], tokenizer=tokenizer)
    (work,) = run.missing(plan, [target], [asked])
    engine = SimpleNamespace(generate=lambda works, advance: [(work, [[c] for c in drawn])])
    assert list(run.score(plan, lambda: engine, [target], [asked])) == [("checkpoint-10", "gsm8k")]
    found = records.read(target.store.path("checkpoint-10", "gsm8k", 0))
    assert [(r["id"], r["answer"], r["completion"]) for r in found] == [
        *zip("abc", "678", texts, strict=True)
    ]
    assert [r["tokens"] for r in found] == [len(ids) for ids in tokens]
    assert [r["truncated"] for r in found] == [0, 0, 1]
    assert [r["well_formed"] for r in found] == [1, 0, 0]
    assert [r["correct"] for r in found] == [{"v2": 0}, {"v2": 1}, {"v2": 0}]


def test_a_policy_is_summed_up_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after each of its repeats, which would read all of them again."""
    read, graded = [], run.scores.graded
    monkeypatch.setattr(
        run.scores, "graded", lambda path, *rest: read.append(path) or graded(path, *rest)
    )
    evaluate("repeats=3")
    assert len(read) == len(set(read)) == 9  # base and two checkpoints, three repeats each


def test_checkpoints_are_scored_in_the_order_of_their_steps(tmp_path: Path) -> None:
    folder, digest = tmp_path / "r", hashlib.sha256(b"weights").hexdigest()
    for step in (100, 9, 10):
        path = folder / f"checkpoint-{step}"
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(b"weights")
        noted = {"model.safetensors": {"bytes": 7, "sha256": digest}}
        (path / "meta.json").write_text(json.dumps({"step": step, "files": noted}))
    store = Store(tmp_path / "results", "r")
    found, problems = targets.find(folder, None, "base", store)
    assert ([target.step for target in found], problems) == ([9, 10, 100], [])


def test_the_provenance_of_the_first_scores_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "results", "r")
    store.claim("gsm8k", {"seed": 1}, git_commit="first", host="a")
    store.write_facts()
    again = Store(tmp_path / "results", "r")
    again.claim("math500", {"seed": 2}, git_commit="second", host="b", gpu="new")
    again.write_facts()
    facts = Store(tmp_path / "results", "r").facts
    assert (facts["git_commit"], facts["host"], facts["gpu"]) == ("first", "a", "new")
    assert facts["tasks"] == {"gsm8k": {"seed": 1}, "math500": {"seed": 2}}


# What is not done twice


def test_a_second_command_generates_nothing_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate()
    before = tree(Path("results"))
    no_generation(monkeypatch)
    evaluate()
    assert tree(Path("results")) == before


def test_another_grader_costs_no_generation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate()
    published = results.read("results/fake.json")[2].datasets["gsm8k"]
    no_generation(monkeypatch)
    evaluate("rewards=[v2,v1,strict]")
    again = results.read("results/fake.json")[2]
    assert again.datasets["gsm8k"] == published  # the first grader fills the published fields
    assert list(again.meta["scores"]["gsm8k"]["rewards"]) == ["v2", "v1", "strict"]
    for path in Path("results/fake").rglob("repeat-*.jsonl"):  # each graded once
        for line in path.read_text().splitlines():
            assert json.loads(line)["correct"].keys() == {"v2", "v1", "strict"}


def test_more_repeats_and_tasks_keep_what_is_there(folder: Path) -> None:
    evaluate()
    before = tree(Path("results"))
    evaluate("repeats=3", "tasks=[math500]")
    evaluate("repeats=3", "tasks=[gsm8k,math500]")
    after = tree(Path("results"))
    records = {name: text for name, text in before.items() if name.endswith(".jsonl")}
    assert records.items() <= after.items()
    checkpoint = results.read("results/fake.json")[2]
    assert {n: len(e.ans_acc) for n, e in checkpoint.datasets.items()} == {"gsm8k": 3, "math500": 3}


def test_a_kill_loses_at_most_the_repeat_it_interrupts(folder: Path) -> None:
    """SIGKILL in the middle; the files are valid then, and end as the uninterrupted ones."""
    wanted = ["tasks=[gsm8k,math500]", "repeats=4"]
    keys = ["run=fake", "data_dir=data", *wanted, "results_dir=killed"]
    said = {"script": "evaluate_run.py", "cwd": Path.cwd()}
    process = processes.run(Path("said"), *keys, fault=kill_after_thirteen_repeats, **said)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(list(Path("killed").rglob("repeat-*.jsonl"))) == 13
    for path in Path("killed").glob("*.json"):
        json.loads(path.read_text())
    evaluate(*wanted, "results_dir=killed")
    evaluate(*wanted, "results_dir=whole")
    killed = {n: t for n, t in tree(Path("killed")).items() if not n.endswith(".tmp")}
    assert killed == tree(Path("whole"))


def kill_after_thirteen_repeats() -> None:
    """Of 24, in the middle of a checkpoint's. From inside: on a fast machine, or a busy one, a
    signal from outside could come after the last."""
    paths: list[Path] = []

    def act(path: Path, *_: Any) -> None:
        paths.append(path)
        if len(paths) == 14:
            faults.kill()

    faults.before(records, "write", act)


class Killed(BaseException):
    """Nothing catches it, as nothing catches a signal."""


@pytest.mark.parametrize("writes", [1, 2, 3, 5, 8, 11])
def test_whatever_write_is_the_last_one_the_end_is_the_same(
    folder: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate("results_dir=whole")
    stop_after(writes, Killed(), monkeypatch)
    with pytest.raises(Killed):
        evaluate()
    for path in Path("results").glob("*.json"):
        json.loads(path.read_text())
    monkeypatch.undo()
    monkeypatch.chdir(folder.parents[1])
    evaluate()
    assert tree(Path("results")) == tree(Path("whole"))


def stop_after(writes: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many files be written, then raise."""
    written = []

    def write(path: Path, content: str) -> None:
        written.append(path)
        if len(written) > writes:
            raise error
        files.write_atomic(path, content)

    monkeypatch.setattr("pods.evaluation.records.write_atomic", write)
    monkeypatch.setattr("pods.runs.results.write_atomic", write)


# What is refused, what is skipped


def spoil_adapter(folder: Path) -> None:
    path = folder / "checkpoint-2" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def spoil_meta(folder: Path) -> None:
    (folder / "checkpoint-2" / "meta.json").write_text('{"step": 2')


def other_base(folder: Path) -> None:
    path = folder / "checkpoint-2" / "adapter_config.json"
    adapter = json.loads(path.read_text()) | {"base_model_name_or_path": "somebody/else"}
    path.write_text(json.dumps(adapter))
    meta = json.loads((folder / "checkpoint-2" / "meta.json").read_text())
    del meta["files"]["adapter_config.json"]  # as if it had been saved so
    (folder / "checkpoint-2" / "meta.json").write_text(json.dumps(meta))


def no_number(folder: Path) -> None:
    (folder / "checkpoint-2").rename(folder / "checkpoint-best")


def renamed(folder: Path) -> None:
    (folder / "checkpoint-2").rename(folder / "checkpoint-3")


def no_weights(folder: Path) -> None:
    (folder / "checkpoint-2" / "adapter_model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_adapter, "adapter_model.safetensors has 1000 bytes"),
        (spoil_meta, "meta.json"),
        (other_base, "adapter of another base (somebody/else)"),
        (no_number, "checkpoint-best"),
        (renamed, "of step 2"),
        (no_weights, "adapter_model.safetensors is missing"),
    ],
)
def test_bad_folders_are_named_and_skipped(
    folder: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(folder)
    done = evaluate()
    assert [reason in line for line in done.skipped] == [True]
    assert list(results.read("results/fake.json")) == [4]


def test_skipping_ends_with_exit_code_3(folder: Path, run_command: Any) -> None:
    spoil_adapter(folder)
    arguments = ["run=fake", "tasks=[gsm8k]", "data_dir=data", "repeats=1"]
    done = run_command("evaluate_run.py", *arguments)
    assert done.returncode == 3, done.stderr
    assert "checkpoint-2" in done.stderr.splitlines()[-1]
    assert "checkpoint-4" in done.stdout


def nothing(folder: Path) -> None:
    pass


def only_bad(folder: Path) -> None:
    other_base(folder)
    shutil.rmtree(folder / "checkpoint-4")


def no_checkpoints(folder: Path) -> None:
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)


def published_file(folder: Path) -> None:
    Path("results").mkdir()
    Path("results/fake.json").write_text('{"checkpoint-210": {"gsm8k": {"ans_acc": [0.5]}}}')


def foreign_notes(folder: Path) -> None:
    published_file(folder)
    Path("results/fake.meta.json").write_text('["not", "ours"]')


def no_yaml(folder: Path) -> None:
    (folder / ".hydra" / "config.yaml").write_text("experiment: [")


def other_schema(folder: Path) -> None:
    (folder / ".hydra" / "config.yaml").write_text("model: 3\n")


def out_of_bounds(folder: Path) -> None:
    path = folder / ".hydra" / "config.yaml"
    path.write_text(re.sub(r"(?m)^seed: .*", "seed: -1", path.read_text()))


@pytest.mark.parametrize(
    ("spoil", "overrides", "parts"),
    [
        (nothing, ["run=typo"], ["run=typo", "it has fake"]),
        (nothing, ["run=x", "output_dir=nowhere"], ["it has none"]),
        (nothing, ["run=null"], ["run=null", "experiment=quickstart", "model=<hub id or folder>"]),
        (nothing, ["run=null", "model=tiny", "tasks=null"], ["model=tiny", "tasks=[gsm8k]"]),
        (nothing, ["run=null", "model=./no", "tasks=[gsm8k]"], ["model=./no: no such folder"]),
        (nothing, ["model=tiny"], ["run=fake model=tiny", "needs run=null"]),
        (nothing, ["run=null", "experiment=quickstart", "select_on=validation"], ["set run"]),
        (nothing, ["run=other*"], ["run=other*", "it has fake"]),
        (nothing, ["checkpoints=3"], ["checkpoints=3: no such checkpoint", "it has 2, 4"]),
        (nothing, ["checkpoints=newest"], ["checkpoints=newest: must be all, best, last"]),
        (nothing, ["checkpoints=best"], ["checkpoints=best", "has validation scores on gsm8k"]),
        (nothing, ["questions=0"], ["questions=0", "1 or more"]),
        (no_checkpoints, [], ["no checkpoints", "wait for one"]),
        (only_bad, [], ["no checkpoints", "somebody/else"]),
        (nothing, ["tasks=[gsm8k,typo]"], ["tasks=typo", "math500"]),
        (nothing, ["rewards=v9"], ["rewards=v9", "strict"]),
        (nothing, ["engine=typo"], ["engine=typo", "transformers"]),
        (nothing, ["engine=vllm"], ["engine=vllm", "needs a CUDA device and vllm", "uv sync"]),
        (nothing, ["engine=unsloth"], ["engine=unsloth", "vllm"]),
        (nothing, ["engine=trl"], ["engine=trl", "transformers"]),
        (nothing, ["repeats=0"], ["repeats=0", "1 or more"]),
        (nothing, ["temperature=-1"], ["temperature=-1", "0 or more"]),
        (nothing, ["top_p=0"], ["top_p=0"]),
        (nothing, ["top_k=-1"], ["top_k=-1"]),
        (nothing, ["pass_at=[0]"], ["pass_at=[0]"]),
        (nothing, ["select_on=test"], ["select_on=test", "validation"]),
        (
            nothing,
            ["select_on=validation", "temperature=0", "metric=pass@3", "repeats=3"],
            ["metric=pass@3", "pass@1"],
        ),
        (nothing, ["metric=for_acc"], ["metric=for_acc", "both_acc, pass@1"]),
        (
            nothing,
            ["select_on=validation", "tasks=[math500]"],
            ["tasks=math500: has no validation split", "name another task"],
        ),
        (nothing, ["data_dir=nowhere"], ["nowhere/gsm8k/test.jsonl"]),
        (nothing, ["model_path=./nowhere"], ["model_path=./nowhere: no such folder"]),
        (published_file, [], ["results/fake.json", "not written by", "results_dir"]),
        (foreign_notes, [], ["results/fake.json", "not written by"]),
        (no_yaml, [], [".hydra/config.yaml", "not a config"]),
        (other_schema, [], [".hydra/config.yaml"]),
        (out_of_bounds, [], [".hydra/config.yaml", "seed=-1: must be 0 or more"]),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    folder: Path, spoil: Callable[[Path], None], overrides: list[str], parts: list[str]
) -> None:
    spoil(folder)
    before = tree(Path("results")) if Path("results").exists() else {}
    with pytest.raises(UserError) as mistake:
        evaluate(*overrides)
    assert "\n" not in str(mistake.value)
    for part in parts:
        assert part in str(mistake.value)
    assert (tree(Path("results")) if Path("results").exists() else {}) == before


def test_scores_made_otherwise_are_not_mixed_in(folder: Path) -> None:
    evaluate()
    before = tree(Path("results"))
    for override in ("temperature=0.3", "seed=7", "max_tokens=9"):
        with pytest.raises(UserError, match=override.split("=")[0]):
            evaluate(override)
    assert tree(Path("results")) == before


def test_a_checkpoint_trained_anew_is_not_given_its_old_score(folder: Path) -> None:
    evaluate()
    before = results.read("results/fake.json")
    shutil.rmtree(folder / "checkpoint-4")
    add_checkpoint(folder, 4, scale=0.2)
    done = evaluate()
    assert len(done.skipped) == 1
    assert "other weights" in done.skipped[0]
    assert results.read("results/fake.json") == before


def test_a_full_disk_is_one_line_and_the_next_command_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(3, OSError(errno.ENOSPC, "No space left on device"), monkeypatch)
    with pytest.raises(UserError, match="No space left on device; free some space"):
        evaluate()
    monkeypatch.undo()
    monkeypatch.chdir(folder.parents[1])
    evaluate()
    assert list(results.read("results/fake.json")) == [2, 4]


def test_the_results_file_for_which_the_disk_is_full_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "write", full)
    with pytest.raises(UserError, match=r"^results/fake\.json: No space left on device; free some"):
        evaluate()


# The base model, choosing, watching


def test_the_base_is_scored_once_and_another_runs_settings_leave_it(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    evaluate()
    before = {n: t for n, t in tree(Path("results")).items() if n.startswith("base")}
    make_run(Path("checkpoints"), "second", steps=(2,))
    evaluate("run=second", "seed=5")
    assert "base model not scored" in capsys.readouterr().err
    assert list(results.read("results/second.json")) == [2]
    assert {n: t for n, t in tree(Path("results")).items() if n.startswith("base")} == before


def test_another_base_of_the_same_name_is_not_given_its_scores(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    moved = shutil.copytree(ROOT / "pods" / "tiny_policy", "elsewhere")
    evaluate(f"model_path={moved}")
    evaluate()  # the same base where it lay in training
    assert "base model not scored" not in capsys.readouterr().err
    noted = Path("results/base-tiny.meta.json")
    facts = json.loads(noted.read_text())
    facts["train"]["model"]["path"] = "models/another"
    noted.write_text(json.dumps(facts))
    evaluate("repeats=3")
    said = " ".join(capsys.readouterr().err.split())
    assert "model.name=tiny: results/base-tiny.json has the scores of models/another" in said
    assert len(results.read_base("results/base-tiny.json").datasets["gsm8k"].ans_acc) == 2


def test_run_null_scores_the_experiments_base_model() -> None:
    evaluate("run=null", "experiment=quickstart", "tasks=[gsm8k]")
    base = results.read_base("results/base-tiny.json")
    assert len(base.datasets["gsm8k"].ans_acc) == 2
    assert sorted(path.name for path in Path("results").iterdir()) == [
        "base-tiny",
        "base-tiny.json",
        "base-tiny.meta.json",
    ]


def test_choosing_on_validation_scores_the_test_split_of_one_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    evaluate("select_on=validation")
    validation = results.read("results/fake/validation.json")
    accuracy = {s: sum(c.datasets["gsm8k.validation"].ans_acc) for s, c in validation.items()}
    best = max(accuracy, key=lambda step: (accuracy[step], -step))
    selected = results.read("results/fake/selected.json")
    assert list(selected) == [best]
    assert list(selected[best].datasets) == ["gsm8k"]
    assert not Path("results/fake.json").exists()  # no test score of the others
    assert [p.parent.name for p in Path("results").rglob("gsm8k")] == [f"checkpoint-{best}"]
    table = capsys.readouterr().out
    assert table.count("validation") >= 2
    assert "its score on gsm8k was taken once" in " ".join(table.split())


def test_right_but_ill_formed_answers_do_not_win_where_both_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    evaluate("select_on=validation")  # the records that are graded below
    for path in Path("results/fake").rglob("gsm8k.validation/repeat-*.jsonl"):
        early = "checkpoint-2" in str(path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for i, line in enumerate(lines):
            line["correct"] = {"v2": early or i % 2 == 0}
            line["well_formed"] = not early
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for metric, best in (("ans_acc", 2), ("both_acc", 4)):
        evaluate("select_on=validation", f"metric={metric}")
        assert f"checkpoint-{best}: best {metric}" in " ".join(capsys.readouterr().out.split())


def test_tables_and_errors_go_to_their_streams(folder: Path, capsys: pytest.CaptureFixture) -> None:
    evaluate("tasks=[gsm8k,math500]", "rewards=[v2,strict]")
    shown = capsys.readouterr()
    assert shown.out.count("checkpoint-4") == 4  # two tasks, two graders, in one table
    assert shown.out.count("answer %") == 1
    assert "engine: transformers (no CUDA device)" in shown.err
    assert "checkpoint-4 after 10 s of training: gsm8k " in shown.err
    assert max(map(len, shown.out.splitlines())) <= 100
    wrote = [line.split()[1] for line in shown.out.splitlines() if line.startswith("wrote ")]
    names = ("base-tiny", "fake")
    assert wrote == [
        f"results/{name}{end}" for name in names for end in (".json", ".meta.json", "")
    ]
    assert all(Path(path).exists() for path in wrote)


# A part of the work


def test_a_sample_of_questions_is_kept_apart_and_marked(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    evaluate("questions=2", "checkpoints=last", "repeats=1")
    assert "gsm8k.sample2: a sample of 2 of 5 questions" in capsys.readouterr().out
    evaluate("repeats=1", "checkpoints=[4]")
    found = results.read("results/fake.json")
    assert list(found) == [4]
    assert set(found[4].datasets) == {"gsm8k", "gsm8k.sample2"}
    facts = json.loads(Path("results/fake.meta.json").read_text())["tasks"]["gsm8k.sample2"]
    assert (facts["questions"], facts["sampled_from"]) == (2, 5)


def test_a_larger_sample_contains_the_smaller_and_a_seed_decides(folder: Path) -> None:
    config, tokenizer = configured(), load_tokenizer(str(TINY))
    training = moved(training_config(config), config)

    def ids(count: int, seed: int) -> list[str]:
        return questions.load("gsm8k", "train", training, tokenizer, count, seed).ids

    assert set(ids(5, 0)) < set(ids(9, 0))
    assert len(ids(9, 0)) == 9
    assert ids(5, 0) != ids(5, 1)
    assert questions.load("gsm8k", "test", training, tokenizer, 5).task == "gsm8k"  # all there are


def test_the_best_checkpoint_is_that_of_validation_scores_never_of_test_scores(
    folder: Path,
) -> None:
    evaluate("repeats=1")  # test scores: they choose nothing
    with pytest.raises(UserError, match="has validation scores on gsm8k"):
        evaluate("repeats=1", "checkpoints=best")
    noted = {"checkpoint_best": {"checkpoint": "checkpoint-4", "accuracy": 0.5}}
    (folder / "meta.json").write_text(json.dumps(noted))
    best = partial(evaluate, "tasks=[gsm8k,math500]", "repeats=1", "checkpoints=best")
    best()
    scored = results.read("results/fake.json")
    assert ["math500" in scored[step].datasets for step in (2, 4)] == [False, True]
    evaluate("select_on=validation", "repeats=1")
    facts = json.loads(Path("results/fake.meta.json").read_text())
    assert [f"checkpoint-{step}" for step in results.read("results/fake/selected.json")] == [
        facts["best"]["gsm8k"]
    ]
    facts["best"]["gsm8k"] = "checkpoint-2"  # before that of the training
    Path("results/fake.meta.json").write_text(json.dumps(facts))
    best()
    scored = results.read("results/fake.json")
    assert ["math500" in scored[step].datasets for step in (2, 4)] == [True, True]


def test_rows_with_other_repeats_say_so(folder: Path, capsys: pytest.CaptureFixture) -> None:
    evaluate("repeats=3", "checkpoints=[2]")
    assert "task gsm8k, graded by v2, questions 5 x 3" in capsys.readouterr().out
    evaluate("repeats=2")
    table = capsys.readouterr().out.rpartition("answer %")[2]
    assert [line.split()[:3] for line in table.splitlines() if " x " in line] == [
        ["5", "x", "3"], ["5", "x", "3"], ["5", "x", "2"]
    ]  # fmt: skip


def test_runs_are_matched_and_shown_in_one_table(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(Path("checkpoints"), "fake10", steps=(2,))
    make_run(Path("checkpoints"), "fake9", steps=())
    config = configured("run=[fake*,fake]", "checkpoints=last", "repeats=1")
    assert runs(config) == ["fake", "fake9", "fake10"]
    with pytest.raises(Skipped, match=r"run=fake9: .*no checkpoints to score"):
        evaluate_run.evaluate(config)
    shown = capsys.readouterr().out
    assert shown.count("answer %") == 1
    assert (shown.count("base-tiny "), shown.count(" fake10 "), shown.count(" fake ")) == (1, 1, 1)


def test_any_model_is_scored_without_an_experiment() -> None:
    evaluate("run=null", f"model={TINY}", "tasks=[gsm8k]", "repeats=1", "max_tokens=8")
    (path,) = Path("results").glob("base-*tiny_policy.json")
    assert list(results.read_base(path).datasets) == ["gsm8k"]
    evaluate("run=null", "model=tiny", "tasks=[gsm8k]", "repeats=1", "max_tokens=8")
    assert Path("results/base-tiny.json").is_file()
