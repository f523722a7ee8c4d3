"""scripts/report.py: the page opens, filters and expands in a browser, and runs nothing hostile."""

import contextlib
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from pods.figures import inspector, report
from tests.figures import base_file, in_process, run_file

NAME = "quickstart-pods-max_variance-n32-m16-seed0"
HOSTILE = [
    "<script>window.hacked = 1</script><think>1</think><answer>5</answer>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    "{{data}} ${window.hacked = 1} \u2028 \ud800 <b>bold</b>",
]


def record(step: int, index: int, n: int = 64, texts: bool = True) -> dict[str, Any]:
    """One prompt's rollouts with rewards as v2 gives them; the first texts are hostile."""
    rng = random.Random(1000 * step + index)
    correct = [float(rng.random() < 0.3) for _ in range(n)]
    tags = [rng.choice([0.0, 0.05, 0.1]) for _ in range(n)]
    total = [a + b for a, b in zip(correct, tags, strict=True)]
    order = sorted(range(n), key=lambda i: total[i])
    content = {
        "step": step,
        "group": index,
        "question_id": f"train-{step}-{index}",
        "answer": "5",
        "rewards": {"correctness": correct, "tags": tags},
        "total": total,
        "lengths": [rng.randint(5, 48) for _ in range(n)],
        "kept": sorted(order[: n // 8] + order[-n // 8 :]),
    }
    if texts:
        content["prompt"] = "<user>2+3?<assistant>"
        filler = [f"<think>try {i}</think><answer>{i}</answer>" for i in range(n)]
        content["completions"] = [*HOSTILE, *filler[len(HOSTILE) :]]
    return content


def run_folder(folder: Path, steps: int, groups: int = 2, n: int = 64) -> None:
    """checkpoints/<NAME>/ and results/<NAME>.json as a training and an evaluation leave them."""
    run = folder / "checkpoints" / NAME
    (run / ".hydra").mkdir(parents=True)
    config = "experiment: quickstart\nseed: 0\nrollouts_per_prompt: 64\nkept_per_prompt: 16\n"
    config += "rule: {name: max_variance}\nmodel: {name: '<i>tiny</i>'}\n"
    (run / ".hydra" / "config.yaml").write_text(config)
    meta = {"git_commit": "abc123", "cpu_count": 2, "versions": {"trl": "1.13.0"}}
    (run / "meta.json").write_text(json.dumps(meta))
    lines = [
        {
            "step": step,
            "train_seconds": 0.3 * step,
            "all/reward_mean": step / steps,
            "kept/reward_mean": 0.5,
            "seconds/generate": 0.2,
            "seconds/update": 0.1,
            "tokens/generated": 1000 * step,
        }
        for step in range(1, steps + 1)
    ]
    torn = '{"step": 99, "tra'
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n" + torn)
    rows = (record(step, g, n) for step in range(1, steps + 1) for g in range(groups))
    member = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (run / "rollouts.jsonl.gz").write_bytes(member + member[:20])  # the last is torn by a kill
    results = folder / "results"
    results.mkdir()
    metas = [{"train_seconds": 5.0 * k} for k in (1, 2)]
    run_file(results, NAME, [0.3, 0.6], dataset="arithmetic", metas=metas)
    grpo = NAME.replace("pods-max_variance-n64", "grpo-all-n16")
    run_file(results, grpo, [0.2, 0.3], dataset="arithmetic", metas=metas)
    base_file(results, "base-tiny", 0.02, "arithmetic")


@pytest.mark.parametrize(
    ("rule", "total", "kept", "expected"),
    [
        pytest.param(
            "max_variance",
            [0.1, 1.0, 0.5, 0.0],
            [1, 3],
            ["dropped: between the ends", "kept: top end", None, "kept: bottom end"],
            id="both ends",
        ),
        pytest.param(
            "max_variance",
            [0.5, 0.5],
            [0],
            [inspector.EQUAL_KEPT, inspector.EQUAL_DROPPED],
            id="tie",
        ),
        pytest.param(
            "max_variance",
            [1.0, 0.0, 1.0],
            [0, 1],
            ["kept: top end", "kept: bottom end", inspector.TIED],
            id="a tie at an end",
        ),
        pytest.param(
            "max_reward", [0.1, 1.0], [1], ["dropped: below the m highest", None], id="max_reward"
        ),
        pytest.param("random", [0.1, 1.0], [0], ["kept: drawn at random", None], id="random"),
        pytest.param("mine", [0.1, 1.0], [0], ["kept", "dropped"], id="a rule of the user's own"),
    ],
)
def test_why_a_rollout_was_kept(
    rule: str, total: list[float], kept: list[int], expected: list[str | None]
) -> None:
    found = inspector.reasons(total, kept, rule)
    assert len(found) == len(total)
    assert [text for text, wanted in zip(found, expected, strict=True) if wanted] == [
        wanted for wanted in expected if wanted
    ]


def test_a_long_ledger_is_thinned_to_steps_that_include_the_last() -> None:
    records = [record(step, 0, n=8) for step in range(1, 11)]
    everything, note = inspector.steps(records, "max_variance", most=1e6)
    assert (list(everything), note) == (list(range(1, 11)), "")
    most = 0.6 * len(json.dumps(list(everything.values())))
    shown, note = inspector.steps(records, "max_variance", most)
    assert list(shown) == [2, 4, 6, 8, 10]
    assert len(json.dumps(list(shown.values()))) <= most
    assert note == "Shown: 5 of 10 steps, evenly spaced."
    assert inspector.steps([], "max_variance", most=80) == ({}, "")


def test_no_text_of_a_run_becomes_markup() -> None:
    html = report.page("t", "s", [report.rollouts([record(1, 0)], "max_variance", 1e6)])
    data = re.findall(r'<script type="application/json" id="step-1">(.*?)</script>', html, re.S)
    assert json.loads(data[0])[0]["completions"][: len(HOSTILE)] == HOSTILE
    assert "<" not in data[0]
    hostile = report.card("<u>run</u>", OmegaConf.create(), {"git_commit": "<script>"}, [])
    assert "<u>" not in hostile
    assert "<script>" not in hostile


def test_a_run_without_files_or_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process("scripts/report.py", "run=absent") == 2
    said = capsys.readouterr().err
    assert "run=absent: neither checkpoints/absent nor results/absent.json" in said
    without = report.rollouts([record(1, 0, texts=False)], "random", 1e6)
    assert '"completions":null' in without
    assert "Some have no text: train with ledger.texts=all." in without
    assert "no text:" not in report.rollouts([record(1, 0)], "random", 1e6)
    (tmp_path / "results").mkdir()
    run_file(tmp_path / "results", "Instruct-Run1", [0.1, 0.2])
    assert in_process("scripts/report.py", "run=Instruct-Run1") == 0
    assert "Accuracy" in (tmp_path / "reports" / "Instruct-Run1.html").read_text()


@pytest.fixture(scope="module")
def made_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as the command makes it, once for both colour schemes."""
    folder = tmp_path_factory.mktemp("report")
    run_folder(folder, steps=5)
    keys = [f"run={NAME}", "figure=quickstart"]
    with contextlib.chdir(folder):
        assert in_process("scripts/report.py", *keys) == 0
    (page,) = folder.glob("reports/*.html")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(browser: Any, made_page: Path, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(made_page.as_uri())
    rows = page.locator("#rollouts details")
    assert rows.count() == 50
    assert page.locator(".js-plotly-plot").count() == 5, (
        "arms, learning, phases, accuracy, histogram"
    )
    assert page.locator("#step").input_value() == "5"
    for choice, number in (("kept", 16), ("dropped", 48)):
        page.select_option("#filter", choice)
        assert rows.count() == number
    page.select_option("#filter", "correct")
    assert "64 rollouts, 16 kept" in page.locator("#summary").inner_text()
    assert rows.count() == sum(record(5, 0)["rewards"]["correctness"])
    page.select_option("#filter", "all")
    page.select_option("#order", "index")
    for i, text in enumerate(HOSTILE):
        rows.nth(i).locator("summary").click()
        assert rows.nth(i).locator("pre").text_content() == text
    page.select_option("#order", "down")
    rewards = [
        float(text)
        for text in page.locator("#rollouts summary span:nth-child(2)").all_inner_texts()
    ]
    assert rewards == sorted(rewards, reverse=True)
    page.click("#page-on")
    assert rows.count() == 14
    page.click("#previous")
    assert page.locator("#step").input_value() == "4"
    page.select_option("#group", "1")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#inspector img, #inspector b, #inspector script").count() == 0
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_fifty_thousand_rollouts_stay_a_page_of_fifty(tmp_path: Path, browser: Any) -> None:
    section = report.rollouts([record(1, 0, n=50_000)], "max_variance", 1e8)
    (tmp_path / "page.html").write_text(report.page("t", "s", [section]))
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("#rollouts details").count() == 50
    page.select_option("#filter", "dropped")
    page.select_option("#order", "up")
    assert page.locator("#page").inner_text() == "37500 rollouts, page 1 of 750"
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    assert problems == []
