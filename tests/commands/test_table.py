"""scripts/table.py: the numbers of speedup.py, LaTeX, and the sentences that intervals allow."""

import csv
import json

import pytest

from pods.config.paths import RUNS
from pods.figures import paper, speedup
from tests.commands.test_speedup import compare, method
from tests.figures import facts_file, printed, refused, run_file

TABLE = "scripts/table.py"


def runs_of(folder, name, accuracies, **train):
    for seed, values in enumerate(accuracies):
        metas = [{"train_seconds": 1800.0 * (i + 1)} for i in range(len(values))]
        run_file(folder, f"{name}-{seed}", values, metas=metas)
        facts_file(folder, f"{name}-{seed}", seed=seed, budget={"train_seconds": 7200.0}, **train)


def test_a_table_has_the_numbers_of_speedup(tmp_path, capsys):
    runs_of(tmp_path, "a", [[0.2, 0.3, 0.4, 0.5], [0.1, 0.3, 0.5, 0.5], [0.2, 0.2, 0.4, 0.6]])
    runs_of(tmp_path, "b", [[0.3, 0.5, 0.5, 0.6], [0.3, 0.4, 0.6, 0.7], [0.2, 0.5, 0.7, 0.7]])
    keys = ["runs={A_1: [a-*], B: [b-*]}", f"results_dir={tmp_path}", "figure=gsm8k_main"]
    out, _ = printed(capsys, TABLE, *keys, f"out_dir={tmp_path / 'out'}")
    folder = tmp_path / "out" / "runs"
    assert out == (folder / "main.txt").read_text() + f"{folder}\n"
    with (folder / "main.csv").open() as file:
        baseline, row = csv.DictReader(file)
    (pair,) = json.loads(printed(capsys, "scripts/speedup.py", *keys, "json=true").out)["runs"][
        "pairs"
    ]
    for name in ("mean_accuracy", "level"):
        wanted = [pair[name]["difference"], *pair[name]["ci95"]]
        found = [float(row[f"{name}_minus_baseline{end}"]) for end in ("", "_low", "_high")]
        assert found == pytest.approx(wanted, abs=1e-9)
        assert baseline[f"{name}_minus_baseline"] == ""
    assert (row["seeds"], row["questions"], row["runs"]) == ("0 1 2", "256", "3")
    tex = (folder / "main.tex").read_text()
    assert "Accuracy (correct). Final accuracy: mean" in " ".join(tex.split())
    assert all(word in tex for word in (r"\toprule", r"A\_1", r"accuracy, \%", r"95\%", "tiny"))


def test_the_settings_of_a_sweep_are_the_methods(tmp_path, capsys):
    for algorithm in ("pods", "grpo"):
        runs_of(tmp_path, algorithm, [[0.2, 0.3], [0.1, 0.3], [0.2, 0.2]], algorithm=algorithm)
    sweep = tmp_path / "sweep-algorithm-0"
    sweep.mkdir()
    names = [f"{algorithm}-{seed}\n" for algorithm in ("pods", "grpo") for seed in range(3)]
    (sweep / RUNS).write_text("".join(names))
    keys = [f"results_dir={tmp_path}", "figure=gsm8k_main", f"out_dir={tmp_path / 'out'}"]
    out = printed(capsys, TABLE, *keys, f"runs={sweep}").out
    by_hand = printed(capsys, TABLE, *keys, "runs={grpo: grpo-*, pods: [pods-*]}").out
    assert "pods minus grpo" in out
    assert by_hand == out
    assert "evaluate_run.py first" in refused(capsys, TABLE, *keys, "runs=sweep-other")


def test_a_table_and_a_figure_by_a_column_of_the_data(tmp_path, capsys):
    """The numbers of a value are those of its data set alone."""
    for name, high in (("a", 0.5), ("b", 0.7)):
        for seed in range(3):
            metas = [{"train_seconds": 1800.0}, {"train_seconds": 3600.0}]
            run_file(tmp_path, f"{name}-{seed}", [0.2, high], metas=metas)
            facts_file(tmp_path, f"{name}-{seed}", seed=seed, budget={"train_seconds": 7200.0})
            path, facts = tmp_path / f"{name}-{seed}.json", tmp_path / f"{name}-{seed}.meta.json"
            content, noted = json.loads(path.read_text()), json.loads(facts.read_text())
            for value, add in (("10", 0.0), ("9", 0.1)):
                part = f"gsm8k/level={value}"
                noted["tasks"][part] = noted["tasks"]["gsm8k"] | {"questions": int(value)}
                for scores in content.values():
                    entry = dict(scores["gsm8k"])
                    entry["ans_acc"] = [x + add + seed / 50 for x in entry["ans_acc"]]
                    scores[part] = entry
            path.write_text(json.dumps(content))
            facts.write_text(json.dumps(noted))
    keys = ["runs={A: [a-*], B: [b-*]}", f"results_dir={tmp_path}", "figure=gsm8k_main"]
    keys += [f"out_dir={tmp_path / 'out'}"]
    text = printed(capsys, TABLE, *keys, "by=level").out
    with (tmp_path / "out" / "runs" / "main.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [row["where"] for row in rows] == ["", "", "level=9", "level=9", "level=10", "level=10"]
    assert [row["questions"] for row in rows[::2]] == ["256", "9", "10"]
    assert "on questions with level=9" in text
    assert "Holm's correction for 6 comparisons" in text
    printed(capsys, TABLE, *keys, 'dataset="gsm8k/level=9"')
    with (tmp_path / "out" / "runs" / "main.csv").open() as file:
        alone = [*csv.DictReader(file)]
    for row, part in zip(alone, rows[2:4], strict=True):
        assert row | {"where": "level=9"} == part
    printed(capsys, "scripts/plot.py", *keys, "by=level")
    drawn = json.loads((tmp_path / "out" / "runs" / "curves.json").read_text())["by"]
    assert [*drawn] == ["level=9", "level=10"]
    assert drawn["level=9"]["B"]["mean"] == pytest.approx([0.32, 0.82])
    assert (tmp_path / "out" / "runs" / "by.png").stat().st_size > 10_000
    missing = printed(capsys, TABLE, *keys, "by=subject", code=2).err
    assert f"uv run evaluate_run.py run=<run> by=subject results_dir={tmp_path}\n" in missing


def test_a_value_without_scores_is_skipped_and_a_missing_difference_is_a_dash(tmp_path, capsys):
    """Of level=1 one method has scores, of level=2 none."""
    for name in "ab":
        runs_of(tmp_path, name, [[0.2, 0.3], [0.1, 0.3], [0.2, 0.2]])
    for path in tmp_path.glob("?-?.json"):
        content = json.loads(path.read_text())
        for scores in content.values():
            scores["gsm8k/level=2"] = scores["gsm8k"] | {"ans_acc": []}
            if path.name.startswith("b"):
                scores["gsm8k/level=1"] = scores["gsm8k"]
        path.write_text(json.dumps(content))
    keys = ["runs={A: [a-*], B: [b-*]}", f"results_dir={tmp_path}", "figure=gsm8k_main"]
    out, err = printed(capsys, TABLE, *keys, "by=level", f"out_dir={tmp_path / 'out'}")
    assert "level=2 has no scores at an evaluation point; skipped" in err
    (row,) = (line for line in out.splitlines() if "level=1" in line)
    assert row.split()[-2:] == ["-", "-"]
    assert "NaN" not in out + (tmp_path / "out" / "runs" / "main.tex").read_text()


@pytest.mark.parametrize(
    ("values", "margin", "beginning"),
    [
        ([[0.5], [0.6], [0.7]], None, "B has a higher final accuracy than A: B minus A is +20.0"),
        ([[0.1], [0.2], [0.3]], None, "B has a lower final accuracy than A: B minus A is -20.0"),
        ([[0.31], [0.39], [0.51]], None, "No difference in final accuracy is established: B minus"),
        ([[0.31], [0.39], [0.51]], 5, "No difference in final accuracy is larger than 5 points"),
        ([[0.31], [0.39], [0.51]], 1, "No difference in final accuracy is established"),
        ([[0.9]], None, "Nothing is known of B and A in final accuracy"),
    ],
)
def test_a_sentence_claims_what_the_interval_allows(values, margin, beginning):
    paired = {"seeds": [0, 1, 2], "base": 0.1}
    spread = [[0.301], [0.4], [0.499]]
    pods = method("B", values, **(paired | {"seeds": [0, 1, 2][: len(values)]}))
    pair = compare(method("A", spread, **paired), pods)
    _, sentence = paper.sentences([pair], margin)
    assert sentence.startswith(beginning)


def test_p_values_are_corrected_for_every_comparison_of_the_table():
    paired = {"seeds": [0, 1, 2], "base": 0.1}
    a = method("A", [[0.30], [0.40], [0.50]], **paired)
    b = method("B", [[0.33], [0.44], [0.55]], **paired)
    alone = paper.sentences([compare(a, b)])
    assert alone[1].startswith("B has a higher")
    same = [compare(a, method(name, [[0.31], [0.37], [0.52]], **paired)) for name in "CD"]
    assert paper.sentences([compare(a, b), *same])[1].startswith("No difference")


def test_a_null_comparison_establishes_nothing(shared, tmp_path, capsys):
    """Two halves of the published runs of GRPO."""
    theirs, results = shared / "reference" / "results", f"results_dir={tmp_path}"
    printed(capsys, "scripts/import_published.py", f"folder={theirs}", results)
    halves = "runs={A: ['*512-16-16-Run[1-5]'], B: ['*512-16-16-Run[6-9]', '*512-16-16-Run10']}"
    keys = ["figure=gsm8k_main", results, f"out_dir={tmp_path}", halves]
    text = printed(capsys, TABLE, *keys).out
    assert text.count("is established") == 2
    assert max(map(len, text.splitlines())) <= speedup.WIDTH
