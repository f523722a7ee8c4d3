"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the stored results, as docs/board.md
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
    uv run benchmarks/board.py stage=tune               # the grid of every arm: hours, resumes
Trainings are processes of one thread, in shuffled order; what is stored is not repeated.
"""

import io
import json
import random
import re
import runpy
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from rich.console import Console
from rich.progress import track

from pods import files
from pods.config.command import CONFIG_DIR, command
from pods.config.errors import UserError
from pods.config.keys import Section, Text
from pods.figures import board, drawing
from pods.figures.board import Cell
from pods.runs.folder import provenance

TUNING, UNSEEN = range(100), range(100, 200)  # seeds
FINALISTS = 3  # cells of an arm that are tuned on more seeds than the first
PRELOADED = ["pods.training.build", "pods.training.loop", "pods.evaluation.midrun"]


class Arm(Section):
    sizes: list[list[int]]
    what: Text
    overrides: list[Text] | None = None


class BoardConfig(Section):
    algorithm: Text | None
    cell: Cell | None
    stage: Literal["tune", "report"]
    seeds: int = Field(ge=1, le=len(UNSEEN))
    budget: float = Field(gt=0)
    clock: Text
    jobs: int = Field(ge=1)
    output_dir: Text
    results_dir: Text
    out_dir: Text
    as_json: bool = Field(alias="json")
    settings: list[Text]
    prompts: list[int]
    learning_rates: list[float]
    arms: dict[Text, Arm]


class Training(NamedTuple):
    """One run: of an arm at a cell, with a seed and a budget at some prices."""

    arm: str
    cell: Cell
    seed: int
    budget: float
    clock: str

    @property
    def run(self) -> str:
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, [self.arm, *self.cell, *self[2:]])))


Results = dict[Training, dict[str, list[float]]]  # -> accuracies at the marks, by metric


@command("board", BoardConfig, CONFIG_DIR / "benchmarks")
def main(config: BoardConfig) -> None:
    arms = [config.algorithm] if config.algorithm else list(config.arms)
    if config.stage == "tune":
        return tune(config, arms)
    cells = {arm: cell_of(config, arm) for arm in dict.fromkeys([*board.RIVALS, *arms])}
    seeds = UNSEEN[: config.seeds]
    wanted = trainings(config, {arm: [cell] for arm, cell in cells.items()}, seeds)
    results = run(config, wanted)
    marks = {
        metric: {a: np.array([results[t][metric] for t in wanted if t.arm == a]) for a in cells}
        for metric in board.METRICS
    }
    print(board.text(cells, marks))
    seconds = config.budget / board.MARKS * np.arange(1, board.MARKS + 1)
    panels = {board.TITLES[name]: board.shown(marks, name) for name in board.METRICS}
    picture = drawing.panels(panels, seconds, f"seconds of training, priced: {config.clock}")
    drawing.save(picture, Path(config.out_dir) / "board")
    if config.as_json and config.algorithm:
        against, greedy = (board.against_rivals(config.algorithm, own) for own in marks.values())
        facts = {"arm": config.algorithm, "seeds": list(seeds)}
        print(json.dumps(facts | {"against": against, "greedy": greedy}))


def tune(config: BoardConfig, arms: list[str]) -> None:
    """Every cell of these arms on the first seed, then the best of each arm on the others."""
    cells = {arm: grid(config, arm) for arm in arms}
    first, *others = TUNING[: config.seeds]
    run(config, trainings(config, cells, [first]))
    best = {arm: ranked(config, arm)[:FINALISTS] for arm in arms}
    run(config, trainings(config, best, others))


def grid(config: BoardConfig, arm: str) -> list[Cell]:
    """The cells of an arm; one's own algorithm is tuned over the sizes of PODS."""
    sizes = config.arms[arm if arm in config.arms else "pods"].sizes
    every = product(config.prompts, sizes, config.learning_rates)
    return [Cell(P, n, m, rate) for P, (n, m), rate in every]


def trainings(
    config: BoardConfig, cells: dict[str, list[Cell]], seeds: Iterable[int]
) -> list[Training]:
    """Each arm at each of its cells with each seed."""
    every = ((arm, cell) for arm, own in cells.items() for cell in own)
    return [Training(*a, s, config.budget, config.clock) for a, s in product(every, seeds)]


def ranked(config: BoardConfig, arm: str) -> list[Cell]:
    """An arm's cells, those of most seeds first, among equals by mean accuracy in tuning; of other
    budgets and clocks where it was never tuned at these."""
    means: dict[Cell, list[float]] = {}
    every = {t: marks for t, marks in stored(config, "tune").items() if t.arm == arm}
    same = {t: marks for t, marks in every.items() if t[3:] == (config.budget, config.clock)}
    for training, marks in (same or every).items():
        means.setdefault(training.cell, []).append(np.mean(marks["accuracy"]))
    return sorted(means, key=lambda cell: (-len(means[cell]), -np.mean(means[cell])))


def cell_of(config: BoardConfig, arm: str) -> Cell:
    """The best cell of tuning; of one's own algorithm, untuned, that of PODS."""
    if config.cell and arm == config.algorithm:
        return config.cell
    cells = ranked(config, arm) or (ranked(config, "pods") if arm not in config.arms else [])
    if not cells:
        raise UserError(f"algorithm={arm}: no result of tuning; run stage=tune, or set cell")
    return cells[0]


def run(config: BoardConfig, trainings: list[Training]) -> Results:
    """Their results; those that are not stored are trained, and stored one by one."""
    results = stored(config, config.stage)
    missing = [training for training in trainings if training not in results]
    random.Random(0).shuffle(missing)
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    facts = {"commit": provenance()["git_commit"]}
    with ProcessPoolExecutor(config.jobs, context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(train, config, training): training for training in missing}
        done = track(as_completed(futures), "", len(futures), console=Console(stderr=True))
        for future in done if futures else ():
            training = futures[future]
            results[training] = future.result()
            file = result_files(config, config.stage)[config.algorithm not in (None, *config.arms)]
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as lines:
                lines.write(json.dumps(training._asdict() | results[training] | facts) + "\n")
    return results


def result_files(config: BoardConfig, stage: str) -> list[Path]:
    """Results of the arms; of the trainings of commands with one's own algorithm."""
    return [Path(folder) / f"{stage}.jsonl" for folder in (config.results_dir, config.output_dir)]


def stored(config: BoardConfig, stage: str) -> Results:
    """The results in the files of a stage, one a line."""
    results: Results = {}
    for file in result_files(config, stage):
        for line in files.read_lines(file):
            line["cell"] = Cell(*line["cell"])
            training = Training(**{name: line[name] for name in Training._fields})
            results[training] = {name: line[name] for name in board.METRICS}
    return results


def command_line(config: BoardConfig, training: Training, run: str) -> list[str]:
    """The keys of a training."""
    arm, (P, n, m, rate) = config.arms.get(training.arm), training.cell
    own = arm.overrides if arm and arm.overrides else [f"algorithm={training.arm}"]
    return [
        *own,
        *config.settings,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"micro_batch_size={min(P * m, 64)}",
        f"optimizer.learning_rate={rate}",
        f"clock={training.clock}",
        f"budget.train_seconds={training.budget}",
        f"evaluation.every_seconds={training.budget / board.MARKS}",
        f"evaluation.split={'validation' if config.stage == 'tune' else 'test'}",
        f"seed={training.seed}",
        f"run={run}",
        f"output_dir={config.output_dir}",
    ]


def train(config: BoardConfig, training: Training) -> dict[str, list[float]]:
    """train.py in this process, and the accuracies at the marks, 0 from where the loss diverged.
    Raises UserError with the line of any other failure."""
    run, said, diverged = f"{config.stage}-{training.run}", io.StringIO(), None
    sys.argv = ["train.py", *command_line(config, training, run)]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            runpy.run_path(str(CONFIG_DIR.parent / "train.py"), run_name="__main__")
    except SystemExit as error:
        diverged = re.search(r"(loss|grad_norm) is (nan|inf)", said.getvalue())
        if not diverged:
            line = (said.getvalue().splitlines() or [f"exit code {error.code}"])[-1]
            raise UserError(f"{training.run}: {line}") from error
    lines = files.read_lines(Path(config.output_dir) / run / "evaluations.jsonl")
    seconds = [line["train_seconds"] for line in lines]
    marks = training.budget / board.MARKS * np.arange(1, board.MARKS + 1)
    after = np.searchsorted(seconds, marks)  # one step may pass two marks
    if not diverged:
        after = np.minimum(after, len(lines) - 1)
    lines = [*lines, dict.fromkeys(board.METRICS.values(), 0.0)]
    return {metric: [lines[i][name] for i in after] for metric, name in board.METRICS.items()}


def noise(completions: list[str], **columns: Any) -> list[float]:
    """A reward that knows nothing: a coin tossed by the text."""
    return [float(random.Random(text).random() < 0.5) for text in completions]


if __name__ == "__main__":
    sys.argv[1:] = [f"algorithm={a}" if re.match(r"[^=-][^=]*$", a) else a for a in sys.argv[1:]]
    main()
