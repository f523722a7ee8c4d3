"""scripts/best.py: a setting is chosen by validation questions, and reported by fresh seeds."""

import functools
import json
import re
import shlex

import pytest
import yaml

from pods.config import sweeps
from pods.figures import selection
from tests.fake_run import quickstart_config
from tests.figures import facts_file, printed, refused, run_file

BEST = "scripts/best.py"


@functools.cache
def quickstart_dump():
    return quickstart_config().model_dump()


def run_of(folder, name, seed, accuracy, typed=(), dataset="gsm8k.validation", **train):
    """A run of two checkpoints with scores and the overrides that were typed for it."""
    run_file(folder, f"{name}-seed{seed}", [accuracy, accuracy], dataset=dataset)
    facts_file(folder, f"{name}-seed{seed}", seed=seed, **train)
    hydra = folder / "runs" / f"{name}-seed{seed}" / ".hydra"
    hydra.mkdir(parents=True)
    saved = quickstart_dump()
    saved["rewards"]["functions"] = train.get("rewards", {}).get("functions", {})
    (hydra / "config.yaml").write_text(json.dumps(saved))
    (hydra / "overrides.yaml").write_text(yaml.safe_dump([*typed, f"seed={seed}"]))


RATES = {"1e-3": (0.2, 0.3, 0.4), "2e-3": (0.6, 0.7, 0.8), "3e-3": (0.7, 0.6, 0.7)}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Three rates of PODS and one of GRPO, seeds 0 to 2: 2e-3 is best, 3e-3 is close to it."""
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        for rate, accuracies in RATES.items():
            train = {"algorithm": "pods", "optimizer": {"learning_rate": float(rate)}}
            typed = ["algorithm=pods", f"optimizer.learning_rate={rate}"]
            run_of(tmp_path, f"pods-{rate}", seed, accuracies[seed], typed, **train)
        typed = ["algorithm=grpo", "hydra.sweep.dir=x"]
        run_of(tmp_path, "grpo", seed, 0.3 + seed / 100, typed, algorithm="grpo")
    return ["runs=[pods-*,grpo-*]", f"results_dir={tmp_path}", f"output_dir={tmp_path / 'runs'}"]


def test_the_best_setting_is_named_with_those_that_cannot_be_told_from_it(sweep, capsys):
    result = json.loads(printed(capsys, BEST, *sweep, "json=true").out)
    assert result["best"]["runs"] == [f"pods-2e-3-seed{seed}" for seed in range(3)]
    assert result["best"]["validation_accuracy"] == pytest.approx(0.7)
    low, high = result["best"]["ci95"]
    assert high - 0.7 == pytest.approx(0.7 - low) == pytest.approx(4.303 * 0.1 / 3**0.5, abs=1e-4)
    (close,) = result["not_told_apart"]
    assert "0.003" in close


def test_the_commands_train_fresh_seeds_of_the_baseline_and_of_the_best(sweep, capsys):
    out = printed(capsys, BEST, *sweep).out
    commands = json.loads(printed(capsys, BEST, *sweep, "json=true").out)["commands"]
    assert commands == [line.strip() for line in out.splitlines()[-4:]]
    baseline, best, evaluate, table = (line.strip() for line in out.splitlines()[-4:])
    assert baseline == "uv run train.py -m algorithm=grpo seed=3,4,5,6,7"
    assert best.endswith("-m algorithm=pods optimizer.learning_rate=2e-3 seed=3,4,5,6,7")
    folders = [
        sweeps.folder(shlex.split(line)[4:], sweep[2].partition("=")[2])
        for line in (baseline, best)
    ]
    assert [re.sub("-[^-]*$", "", folder.name) for folder in folders] == [
        "sweep-grpo-seed",
        "sweep-pods-lr0.002-seed",
    ]
    assert f"run=[{folders[0]},{folders[1]}]" in evaluate
    assert f"{{baseline: {folders[0]}, best: {folders[1]}}}" in table
    assert f"results_dir={sweep[1].partition('=')[2]}" in table


def test_the_settings_of_a_sweep_are_labelled_by_what_tells_them_apart(sweep, tmp_path):
    labels = [one.label for one in selection.read(tmp_path, ["pods-*", "grpo-*"])]
    rates = [f"pods, learning_rate={rate}" for rate in (0.001, 0.002, 0.003)]
    assert labels == [
        "grpo, learning_rate=0.001",
        *rates,
    ]  # that of GRPO is the baseline of a figure
    assert [one.label for one in selection.read(tmp_path, ["grpo-*"])] == ["grpo"]


def test_a_sweep_with_an_own_reward_and_without_grpo(sweep, tmp_path, capsys):
    """Its evaluation runs the user's file; that there is no baseline is said."""
    for seed in range(3):
        own = {"rewards": {"functions": {"close": "my.py:close"}}, "algorithm": "thin"}
        run_of(tmp_path, "own", seed, 0.9, ["algorithm=thin"], **own)
        run_of(tmp_path, "other", seed, 0.1, ["algorithm=dapo"], algorithm="dapo")
    out, err = printed(capsys, BEST, "runs=[own-*,other-*]", *sweep[1:])
    train, evaluate, _ = out.splitlines()[-3:]
    assert "algorithm=thin" in train
    assert evaluate.endswith(" trust_code=true")
    assert "baseline=null" in err


def test_a_figure_with_runs_of_the_sweep_says_so(sweep, tmp_path, capsys):
    printed(capsys, BEST, *sweep)
    for seed in (3, 4):
        run_of(tmp_path, "fresh", seed, 0.5, dataset="gsm8k.validation", algorithm="grpo")
    folders = [f"results_dir={tmp_path}", f"out_dir={tmp_path / 'figures'}"]
    keys = [*folders, "figure=gsm8k_main", "dataset=gsm8k.validation"]
    table = ("scripts/table.py", *keys)
    mixed = printed(capsys, *table, "runs={A: [fresh-*], B: [pods-2e-3-*]}").err
    assert "B: 3 of 3 runs are those that a setting was chosen among" in mixed
    assert "A: " not in re.sub("runs=.*", "", mixed)
    assert "chosen among" not in printed(capsys, *table, "runs={A: [fresh-*]}").err


def test_a_table_of_rates_says_that_the_best_of_them_is_no_result(sweep, tmp_path, capsys):
    keys = [f"results_dir={tmp_path}", "figure=gsm8k_main", "dataset=gsm8k.validation"]
    table = ("scripts/speedup.py", *keys)  # of the tables the quickest
    rates = printed(capsys, *table, "runs={G: [grpo-*], A: [pods-1e-3-*], B: [pods-2e-3-*]}").err
    assert "A, B differ in keys of the optimiser only" in rates
    methods = printed(capsys, *table, "runs={A: [grpo-*], B: [pods-2e-3-*]}").err
    assert "of the optimiser only" not in methods
    selection.note(tmp_path, ["grpo-seed0"])  # a warning about one method hides none about others
    rates = printed(capsys, *table, "runs={G: [grpo-*], A: [pods-1e-3-*], B: [pods-2e-3-*]}").err
    assert "G: 1 of 3 runs are those that a setting was chosen among" in rates
    assert "A, B differ in keys of the optimiser only" in rates


def test_a_sweep_is_found_by_the_name_of_its_folder(sweep, tmp_path, capsys):
    names = [f"{method}-seed{seed}" for method in ("grpo", "pods-2e-3") for seed in range(3)]
    (tmp_path / "runs" / "sweep-x").mkdir()
    (tmp_path / "runs" / "sweep-x" / "runs.txt").write_text("\n".join(names))
    result = json.loads(printed(capsys, BEST, "runs=sweep-x", *sweep[1:], "json=true").out)
    assert result["best"]["runs"] == names[3:]
    keys = ["dataset=gsm8k.validation", *sweep[1:]]
    assert "runs: gsm8k.val" in printed(capsys, "scripts/speedup.py", "runs=sweep-x", *keys).err


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (["runs=[nothing-*]"], "runs"),
        (["runs=[grpo-*]"], "one setting"),
        (["baseline=fresh"], "baseline=fresh"),
        (["output_dir=elsewhere"], "overrides.yaml"),
    ],
)
def test_what_cannot_be_chosen_is_one_line(sweep, capsys, changes, key):
    assert key in refused(capsys, BEST, *sweep, *changes)


def test_fresh_seeds_that_match_too_do_not_enter_the_choice(sweep, tmp_path, capsys):
    """The same command says the same after the fresh seeds are scored."""
    chosen = printed(capsys, BEST, *sweep).out
    assert "cannot be told from it, of 3: pods, learning_rate=0.003\n" in chosen
    run_of(tmp_path, "grpo", 3, 0.9, dataset="gsm8k", algorithm="grpo")
    assert printed(capsys, BEST, *sweep).out == chosen


def test_a_setting_that_is_added_later_is_chosen_among_too(sweep, tmp_path, capsys):
    printed(capsys, BEST, *sweep)
    for seed in range(3):
        train = {"algorithm": "pods", "optimizer": {"learning_rate": 9e-3}}
        typed = ["algorithm=pods", "optimizer.learning_rate=9e-3"]
        run_of(tmp_path, "pods-9e-3", seed, 0.9, typed, **train)
    run_of(tmp_path, "grpo", 3, 0.9, dataset="gsm8k", algorithm="grpo")
    out, err = printed(capsys, BEST, *sweep, "json=true")
    assert json.loads(out)["best"]["runs"][0] == "pods-9e-3-seed0"
    assert err.splitlines()[0] == "without validation scores, left out: grpo-seed3"


def test_a_choice_by_test_questions_is_refused(sweep, tmp_path, capsys):
    run_of(tmp_path, "pods-9e-3", 0, 0.9, dataset="gsm8k", optimizer={"learning_rate": 9e-3})
    line = refused(capsys, BEST, *sweep)
    words = ['run=["pods-*","grpo-*"]', "split=validation", *sweep[:0:-1]]
    assert shlex.split(line.partition("uv run evaluate_run.py ")[2]) == words
