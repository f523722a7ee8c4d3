"""scripts/report.py: the page of a run, in which nothing hostile becomes markup."""

import functools
import json
import random
import re
from pathlib import Path

import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal

from pods.figures import page
from tests.fake_run import quickstart_config
from tests.figures import (
    base_file,
    facts_file,
    in_process,
    rollout_log_file,
    rollout_record,
    run_file,
)

NAME = "quickstart-pods-max_variance-n8-m4-seed0"
HOSTILE = [
    "<script>window.hacked = 1</script><think>1</think><answer>5</answer>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    "{{sections}} {steps} ${window.hacked = 1} \u2028 \ud800 <b>bold</b>",
]
BLOCK = re.compile(r'<script type="application/json" id="(step-\d+)">(.*?)</script>', re.DOTALL)


def parts(text):
    """The JSON blocks of a page by id, which hold no `<`, and its other tags."""
    blocks = dict(BLOCK.findall(text))
    assert "<" not in "".join(blocks.values())
    return blocks, re.findall(r"<(\w+)", BLOCK.sub("", text))


def record(step, **texts):
    """Eight rollouts of one prompt."""
    correct = [random.Random(step + i).random() < 0.3 for i in range(8)]
    lengths = {"kept": [0, 7], "lengths": [*range(5, 13)]}
    return rollout_record(step, f"<b>{step}</b>", correct, **lengths, **texts)


@functools.cache
def quickstart():
    return quickstart_config().model_dump()


def write_config(run, path="tiny", **changes):
    """The saved config of a quickstart, with another model and other keys."""
    config = quickstart() | changes | {"model": quickstart()["model"] | {"path": path}}
    (run / ".hydra" / "config.yaml").write_text(json.dumps(config))


def run_folder(folder, name, steps):
    """checkpoints/<name>/ and results/<name>.json as a training and an evaluation leave them."""
    run = folder / "checkpoints" / name
    (run / ".hydra").mkdir(parents=True)
    write_config(run, path="<i>tiny</i>")
    (run / "meta.json").write_text(json.dumps({"git_commit": "<script>abc", "versions": {}}))
    same = {"all/clipped_ratio": 0.5, "seconds/generate": 0.25, "seconds/update": 0.125}
    changing = ("entropy", "kept/reward_mean", "all/reward_mean", "eval/accuracy")
    lines = [
        {"step": k, "train_seconds": 0.3 * k, **same, **dict.fromkeys(changing, k / 9)}
        for k in range(1, steps + 1)
    ]
    text = "\n".join([*map(json.dumps, lines), '{"step": 99, "tra'])  # torn by a kill
    (run / "metrics.jsonl").write_text(text)
    texts = {"prompt": "<user>2+3?", "completions": HOSTILE * 2}
    rollout_log_file(run, (record(step, **texts) for step in range(1, steps + 1)))
    (folder / "results").mkdir(exist_ok=True)
    metas = [{"train_seconds": 5.0 * k} for k in (1, 2)]
    run_file(folder / "results", name, [0.3, 0.6], dataset="arithmetic", metas=metas, greedy=1.5)
    base_file(folder / "results", "base-tiny", 0.02, "arithmetic")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path, NAME, steps=5)


def made(key, name):
    """The page <name> that the command makes."""
    assert in_process("scripts/report.py", key, "out_dir=reports") == 0
    return Path(f"reports/{name}.html").read_text()


def test_a_run_has_config_curves_seconds_and_rollouts_and_no_text_becomes_markup():
    blocks, tags = parts(text := made(f"run={NAME}", NAME))
    steps = {name: json.loads(block) for name, block in blocks.items()}
    assert list(steps) == [f"step-{step}" for step in range(1, 6)]
    (group,) = steps["step-5"]
    expected = {"completions": HOSTILE * 2, "question_id": "<b>5</b>", "kept": [0, 7]}
    assert expected.items() <= group.items()
    assert tags.count("script") == 1, "the page's own"
    assert tags.count("svg") == 1
    assert not {"img", "b", "i"} & set(tags)
    assert "&lt;script&gt;abc" in text
    assert "&lt;i&gt;tiny&lt;/i&gt;" in text
    cells = re.findall("<td>(.*?)</td>", text)
    assert cells == ["5", "0.25", "0", "0", "0.125", "0.375"], "the last: a whole step"


def test_accuracy_begins_with_the_base_where_it_was_asked_in_the_same_way(tmp_path):
    results = tmp_path / "results"
    config = quickstart_config(f"run={NAME}", "evaluation.split=test")
    assert page.base_scores(config, results) == [], "nothing says how this base was scored"
    facts_file(results, "base-tiny", {"temperature": 1.0}, "arithmetic")
    row = {"step": 0, "train_seconds": 0.0, "eval/accuracy": 0.02}
    assert page.base_scores(config, results) == [row]
    facts_file(results, "base-tiny", {"temperature": 0.5}, "arithmetic")
    assert page.base_scores(config, results) == []


def test_a_long_rollout_log_is_thinned_to_steps_that_include_the_last():
    records = [record(step) for step in range(1, 11)]
    whole = page.page("", [page.rollouts_section(lambda: records, 1e6)])
    assert (len(parts(whole)[0]), "evenly spaced" in whole) == (10, False)
    size = sum(map(len, parts(whole)[0].values()))
    thinned = page.page("", [page.rollouts_section(lambda: records, 0.6 * size)])
    assert list(parts(thinned)[0]) == [f"step-{step}" for step in (2, 4, 6, 8, 10)]
    assert "5 of 10 steps are shown, evenly spaced" in thinned


def test_a_long_run_is_drawn_by_means_of_its_steps(monkeypatch):
    """Every evaluation stays; the table of seconds counts every step, and the page says it."""
    run = Path("checkpoints/long")
    (run / ".hydra").mkdir(parents=True)
    write_config(run)
    lines = [{"step": k, "train_seconds": k, "entropy": k % 7} for k in range(1, 4004)]
    lines[998] |= {"eval/accuracy": 0.25}
    lines[-1] |= {"eval/accuracy": 0.75}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    drawn = []
    figure = page.drawing.training_figure
    monkeypatch.setattr(
        page.drawing, "training_figure", lambda steps: drawn.append(steps) or figure(steps)
    )
    text = made("run=long", "long")
    (steps,) = drawn
    assert steps["eval/accuracy"].dropna().tolist() == [0.25, 0.75]
    assert len(steps) <= 500
    assert steps["entropy"].mean() == pytest.approx(3, abs=0.01)
    assert "<td>4,003</td>" in text
    assert "mean of 9 steps" in text
    assert len(text) < 500_000


def test_seconds_of_a_price_list_are_said_to_be_priced():
    assert "are priced" not in made(f"run={NAME}", NAME)
    write_config(
        Path("checkpoints") / NAME, clock=quickstart_config("clock=l40s").clock.model_dump()
    )
    assert made(f"run={NAME}", NAME).count("<p>Seconds are priced: l40s.</p>") == 2


def test_accuracy_of_validation_questions_is_said_to_be_so():
    assert "validation questions" not in made(f"run={NAME}", NAME)
    evaluation = quickstart()["evaluation"] | {"split": "validation"}
    write_config(Path("checkpoints") / NAME, evaluation=evaluation)
    assert "Accuracy is of validation questions." in made(f"run={NAME}", NAME)


def test_a_panel_has_a_line_for_each_metric():
    same = {"kept/reward_mean": 0.5, "all/own_mean": 1}
    lines = [{"train_seconds": k, "all/reward_mean": k, **same} for k in (1.0, 2.0)]
    rewards, own = page.drawing.training_figure(DataFrame(lines)).axes
    assert [tuple(line.get_ydata()) for line in rewards.lines] == [(1, 2), (0.5, 0.5)]
    assert own.get_title() == "all/own_mean"


def test_names_are_data():
    hostile = "_<b>$x$</b>"
    part = {"title": hostile, "note": hostile, "rows": [{hostile: hostile}]}
    assert "<b>" not in page.page(hostile, [part])


def test_a_table_of_many_steps_is_that_of_all_records():
    records = [{"step": i} | ({"eval/accuracy": 0.5} if i > 1500 else {}) for i in range(2500)]
    assert_frame_equal(page.table_of(iter(records)), DataFrame(records))
    assert page.table_of(iter([])).empty
