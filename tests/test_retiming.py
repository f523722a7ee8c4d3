"""time=<cost file>: recorded steps on another machine's time axis."""

import json

import numpy as np
import pytest

from pods.config.errors import UserError
from pods.figures import curves, retiming, speedup
from pods.figures.definition import Comparison, Figure, FigureSeries
from pods.runs import results
from pods.runs.results import Checkpoint, Entry

HOW = Comparison(fraction_of_best=0.99, target=None, resamples=100, seed=0)


def write(folder, name, n, m, steps, values, updates=1):
    scored = {
        step: Checkpoint({"sums": Entry(ans_acc=[value])}, {"train_seconds": float(i + 1)})
        for i, (step, value) in enumerate(zip(steps, values, strict=True))
    }
    results.write(folder / f"{name}.json", scored)
    sizes = {"prompts_per_step": 2, "rollouts_per_prompt": n, "kept_per_prompt": m}
    train = {**sizes, "updates_per_generation": updates, "seed": int(name[-1])}
    (folder / f"{name}.meta.json").write_text(json.dumps({"train": train}))


def figure(time):
    return Figure(
        "mine", "Mine", "sums", "ans_acc", 1.0, 10.0, None, "seconds", 1, [], "GRPO", "PODS", None,
        [], {"GRPO": FigureSeries(["a-*"]), "PODS": FigureSeries(["b-*"])}, time,
    )  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    for seed in (0, 1):
        write(tmp_path, f"a-seed{seed}", 4, 4, (10, 20, 30), (0.1, 0.2, 0.3 + seed / 100))
        write(tmp_path, f"b-seed{seed}", 16, 4, (7, 14, 21), (0.2, 0.3, 0.4))
    (tmp_path / "card.yaml").write_text("fixed: 3\ngenerate: 0.5\nupdate: 1.25\nprompt: 0.25\n")
    return tmp_path


def test_seconds_are_those_of_the_cost_file(runs, capsys):
    mine = figure(str(runs / "card.yaml"))
    grpo, pods = curves.load(mine, runs)
    # 3 + 2 (0.25 + 0.5 n + 1.25 m)
    assert 17.5 == 3 + 2 * (0.25 + 0.5 * 4 + 1.25 * 4)
    assert 29.5 == 3 + 2 * (0.25 + 0.5 * 16 + 1.25 * 4)
    last = [arm.quantities["seconds"][0][np.isfinite(arm.quantities["seconds"][0])][-1]
            for arm in (grpo, pods)]  # fmt: skip
    assert last == [17.5 * 30, 29.5 * 21]
    assert mine.title == "Mine; time simulated: card"
    assert "between the marks" not in capsys.readouterr().err
    assert mine.time_unit == "minutes"
    assert mine.grid_seconds == max(17.5 * 10, 29.5 * 7)  # the slower run's spacing
    (pair,) = speedup.pairs(mine, [grpo, pods], HOW)
    assert pair.time == str(runs / "card.yaml")
    assert pair.compared_hours == pytest.approx(17.5 * 30 / 3600)


def test_several_updates_share_one_generation(runs):
    for seed in (0, 1):
        write(runs, f"b-seed{seed}", 16, 4, (7, 14, 21), (0.2, 0.3, 0.4), updates=2)
    _, pods = curves.load(figure(str(runs / "card.yaml")), runs)
    assert np.nanmax(pods.quantities["seconds"]) == 29.5 / 2 * 21


def test_the_published_card_and_measured_time(runs):
    cost = retiming.read("l40s")
    # published on an L40S: GRPO 16/16 7.6 s a step, PODS 64/16 10.1 s
    assert cost.of(1, 16, 16) == pytest.approx(7.6, abs=0.2)
    assert cost.of(1, 64, 16) == pytest.approx(10.1, abs=0.3)
    plain = figure("measured")
    assert curves.load(plain, runs)[0].quantities["seconds"][0][:3].tolist() == [1, 2, 3]
    assert plain.title == "Mine"


@pytest.mark.parametrize(
    ("time", "text", "message"),
    [
        ("h200", None, "must be measured, one of l40s, or a YAML file"),
        ("bad.yaml", "fixed: 1\ngenerate: -1\nupdate: 1\n", "generate=-1.0: must be 0 or more"),
        ("bad.yaml", "fixed: 1\nspeed: 2\n", "speed"),
        ("bad.yaml", "fixed: fast\n", "fast"),
        ("bad.yaml", "fixed: [1\n", "parsing"),
        ("bad.yaml", "7\n", ""),
    ],
)
def test_a_wrong_cost_file_is_one_line(tmp_path, monkeypatch, time, text, message):
    monkeypatch.chdir(tmp_path)
    if text:
        (tmp_path / time).write_text(text)
    with pytest.raises(UserError, match=f"time={time}: .*{message}") as error:
        retiming.read(time)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("key", "value"), [("plan", "auto"), ("resample", {"name": "dapo"})])
def test_runs_whose_steps_differ_in_size_cannot_be_retimed(runs, key, value):
    path = runs / "a-seed0.meta.json"
    facts = json.loads(path.read_text())
    facts["train"][key] = value
    path.write_text(json.dumps(facts))
    with pytest.raises(UserError, match="a-seed0 has steps of several sizes"):
        curves.load(figure("l40s"), runs)


def test_runs_without_sizes_cannot_be_retimed(runs):
    (runs / "a-seed0.meta.json").unlink()
    with pytest.raises(UserError, match="a-seed0 has no n, m and prompts a step"):
        curves.load(figure("l40s"), runs)
