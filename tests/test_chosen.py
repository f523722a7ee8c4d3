"""pods/figures/figure.py: any runs on a figure's axes, and exit 3 where one is left out."""

import itertools
import json

import pytest

from pods.figures import drawing
from tests.figures import base_file, facts_file, in_process, published_files, run_file


def test_any_runs_are_compared_on_the_axes_of_a_figure(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(drawing, "save", lambda *_: None)  # takes seconds
    for (arm, slope), seed in itertools.product((("mine", 0.1), ("yours", 0.15)), (0, 1, 2)):
        metas = [{"train_seconds": 10 * k + 0.2} for k in (1, 2, 3, 4)]
        values = [slope * k + 0.01 * seed for k in (1, 2, 3, 4)]
        run_file(tmp_path, f"{arm}-seed{seed}", values, metas=metas)
        facts_file(tmp_path, f"{arm}-seed{seed}", seed=seed)
    base_file(tmp_path, "base-tiny", 0.02)
    where = (f"results_dir={tmp_path}", "runs={Mine:[mine-*],Yours:[yours-*]}")
    axes = ("figure=quickstart", "figure.grid_seconds=10", "dataset=gsm8k", "metric=ans_acc")
    assert in_process("scripts/speedup.py", *where, *axes, "format=json") == 0
    pair = json.loads(capsys.readouterr().out)["runs"]
    assert (pair["baseline"], pair["pods"]) == ("Mine", "Yours")
    assert pair["compared_hours"] == pytest.approx(40 / 3600)
    assert pair["mean_accuracy"]["runs"] == [3, 3]
    assert pair["mean_accuracy"]["paired"]
    assert in_process("scripts/plot.py", *where, *axes, f"out_dir={tmp_path}/out") == 0
    curves = json.loads((tmp_path / "out" / "runs" / "curves.json").read_text())["series"]
    assert curves["Yours"]["mean"] == pytest.approx([0.02, 0.16, 0.31, 0.46, 0.61])
    assert curves["Yours"]["time_hours"] == pytest.approx([10 * k / 3600 for k in range(5)])
    capsys.readouterr()
    assert in_process("scripts/speedup.py", *where) == 2, "the quickstart's data set"
    assert "no arithmetic both_acc" in capsys.readouterr().err


def test_what_is_left_out_ends_with_exit_code_3_after_the_rest(capsys, tmp_path):
    published_files(tmp_path)
    (tmp_path / "Instruct-GSM8K-512-64-16-Run2.json").write_text('{"checkpoint-100": {"gsm')
    run_file(tmp_path, "math_qwen-grpo-seed0", [0.1], dataset="math500")
    run_file(tmp_path, "math_qwen-grpo-seed1", [0.1], dataset="math500")
    for seed in (0, 1):
        facts_file(tmp_path, f"math_qwen-grpo-seed{seed}", seed=seed, prompts_per_step=seed + 1)
    for path in tmp_path.glob("Instruct-MATH-NF-512-8-8-*.json"):
        path.unlink()
    arguments = (f"results_dir={tmp_path}", "figure=all", "json=true")
    assert in_process("scripts/speedup.py", *arguments) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out).keys() == {"a100s", "gsm8k_main", "llama_main", "n_scaling"}
    assert "runs of GRPO differ in prompts_per_step: 1 in" in printed.err
    last = printed.err.splitlines()[-1]
    assert "left out, for the reasons above: Instruct-GSM8K-512-64-16-Run2.json, math_main" in last
    assert in_process("scripts/speedup.py", *arguments[:1], "figure=math_main") == 2
