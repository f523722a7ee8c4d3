"""The authors' published results as results files that plot.py, speedup.py and table.py read.

    uv run scripts/import_published.py folder=<the authors' results>
    uv run scripts/plot.py figure=gsm8k_main results_dir=results/published
docs/paper.md says where the authors' folder is. Their files of runs hold no times: the i-th of
twelve checkpoints is taken to be i intervals old. A wandb export becomes a file for each run.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Location, Section
from pods.figures.figure import warn
from pods.files import few, write_atomic
from pods.runs import results
from pods.runs.results import Published, Results, Scores

if TYPE_CHECKING:
    import pandas

CHECKPOINTS = 12  # of a run
# What the published files lack, seen in the increments of their steps, which are nearly equal.
ABORTED = {  # run -> steps of an aborted attempt
    "Instruct-GSM8K-512-64-2-Run9": (171, 351),
    "Instruct-GSM8K-512-64-2-Run10": (181, 359),
}
LOST = {"Instruct-Llama-512-64-16-0.04-Run4": 603}  # run -> step of the checkpoint after a lost one
# A run's column in an export is data/<run> - <metric>; there are copies that end with __MIN, __MAX.
ACCURACY, LENGTH = " - eval/rewards/accuracy_reward/mean", " - eval/completions/mean_length"
DATASET = "gsm8k"  # of the exports
EXPORT_REACH = 420.0  # s, the longest pause between exported samples
Imported = tuple[str, Results | Scores, Published]  # name of the file, its content, its times


class ImportConfig(Section):
    """The keys of config/import_published.yaml."""

    folder: Location
    results_dir: Location


@command("import_published", ImportConfig)
def main(config: ImportConfig) -> None:
    """Read all files, then write them."""
    imported = [*read_all(config.folder)]
    if not imported:
        raise UserError(
            f"folder={config.folder}: has none of the authors' files; docs/paper.md says where "
            "they are"
        )
    for name, _, _ in imported:
        path = config.results_dir / f"{name}.json"
        if path.exists() and results.read_settings(path).published is None:
            raise UserError(
                f"results_dir={config.results_dir}: {path.name} is not of an import; set another"
            )
    for name, content, published in imported:
        path = config.results_dir / f"{name}.json"
        facts = {"published": published.model_dump()}
        write_atomic(path.with_suffix(".meta.json"), json.dumps(facts) + "\n")
        results.write(path, content)
    print(
        f"{config.results_dir}: {len(imported)} files; "
        f"next: uv run scripts/plot.py figure=all results_dir={config.results_dir}"
    )


def read_all(folder: Path) -> Iterator[Imported]:
    """Base models, runs and exports of the folder."""
    for path in sorted(folder.glob("base-*.json")):
        yield path.stem, results.read_base(path), Published()
    for path in sorted(folder.glob("Instruct-*.json")):
        yield path.stem, timed(path), Published(by_index=True)
    for path in sorted(folder.glob("*-acc.csv")):
        for run, content in exported(path):
            yield run, content, Published(reach=EXPORT_REACH)


def timed(path: Path) -> Results:
    """The checkpoints of one attempt, with their train_seconds."""
    run = path.stem
    content = results.read(path)
    for step in ABORTED.get(run, ()):
        content.pop(step, None)
        warn(f"{run}: step {step} is of an aborted attempt and is dropped")
    interval = 600.0 if run.startswith("Instruct-Llama-") else 1800.0
    number = 0
    for step, scores in content.items():
        number += 1
        if step == LOST.get(run):
            number += 1
            warn(f"{run}: the checkpoint before step {step} is lost; its point stays empty")
        scores.meta = {"train_seconds": interval * number}
    if number != CHECKPOINTS:
        raise UserError(
            f"{path}: has {number} of {CHECKPOINTS} checkpoints, so its times are unknown; "
            "import the files of the commit in docs/paper.md"
        )
    return content


def exported(path: Path) -> Iterator[tuple[str, Results]]:
    """Runs and their samples as checkpoints. The first sample is also checkpoint-0, because the
    published curves begin with it. `_step` counts micro-steps, <ga> of them an optimiser step."""
    import pandas  # --help does not wait for it

    accuracies = read_export(path)
    lengths = read_export(path.with_name(path.name.replace("-acc.csv", "-length.csv")))
    runs, other = (
        {name.removesuffix(end) for name in table if name.endswith(end)}
        for table, end in ((accuracies, ACCURACY), (lengths, LENGTH))
    )
    if runs != other:
        warn(f"{few(sorted(runs ^ other))}: only in one file of the export; left out")
    for run in sorted(runs & other):
        try:
            micro_steps_of_one = int(run.rpartition("-ga")[2])
            steps = accuracies[f"{run} - _step"]
        except (KeyError, ValueError):
            raise UserError(
                f"{path}: {run}: must end with -ga<micro-steps of a step>, and have the column "
                f"'{run} - _step'; export it again, or remove its columns"
            ) from None
        columns = steps, accuracies[run + ACCURACY], lengths[run + LENGTH]
        samples = pandas.concat([column.dropna() for column in columns], axis=1, join="inner")
        content: Results = {}
        for seconds, micro_steps, accuracy, length in samples.itertuples(name=None):
            scores = {DATASET: {"ans_acc": [accuracy], "lengths": [length]}}
            if not content:
                content[0] = Scores.model_validate(scores | {"meta": {"train_seconds": 0.0}})
            step = round(micro_steps / micro_steps_of_one)
            content[step] = Scores.model_validate(scores | {"meta": {"train_seconds": seconds}})
        yield run.removeprefix("data/"), content


def read_export(path: Path) -> "pandas.DataFrame":
    """Its columns `data/<run> - <metric>` by seconds."""
    import pandas

    try:
        return pandas.read_csv(path, index_col="eval/time").sort_index()  # exact from pandas 3.1 on
    except (FileNotFoundError, ValueError) as error:
        raise UserError(
            f"{path}: is no export of wandb ({error}); import the files of the commit in "
            "docs/paper.md"
        ) from None


if __name__ == "__main__":
    main()
