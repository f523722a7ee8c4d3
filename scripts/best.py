"""The best setting of a sweep by validation questions; then fresh seeds, which alone are reported.

    uv run evaluate_run.py run=<folder of the sweep> split=validation
    uv run scripts/best.py runs=<folder of the sweep>    # prints the commands of five fresh seeds
A setting that is chosen by its scores has scores that are too high: no run of the sweep enters the
result, and <results_dir>/selections.json lets plot.py and table.py warn if one does.
"""

import json
import re
import shlex
import sys
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from pods.config import sweeps
from pods.config.command import command, load_config
from pods.config.errors import UserError
from pods.config.functions import code_of
from pods.config.keys import Location, Section, Text, listed, typed_list, with_quotes
from pods.config.paths import as_typed
from pods.evaluation.lookup import SAVED
from pods.figures.figure import ACCURACIES, with_folders

FRESH = 5  # seeds in the commands


class BestConfig(Section):
    runs: Annotated[list[Text], BeforeValidator(listed), Field(min_length=1)]
    baseline: Text | None
    metric: Literal[*ACCURACIES]
    output_dir: Location
    results_dir: Location
    as_json: bool = Field(alias="json")


@command("best", BestConfig)
def main(config: BestConfig) -> None:
    from pods.figures import selection  # pandas: --help does not wait for it

    runs = with_folders(config.runs, config.output_dir)
    places = {"output_dir": config.output_dir, "results_dir": config.results_dir}
    score_all = sweeps.evaluate_command(typed_list("run", runs), "split=validation", **places)
    settings = selection.choose_among(config.results_dir, runs, config.metric, score_all)
    best, *others = settings
    baseline = baseline_of(config, settings)
    compared = {"baseline": baseline, "best": best}
    if baseline in (None, best):
        del compared["baseline"]
    first = 1 + max(seed for setting in settings for seed in setting.seeds)
    seeds = range(first, first + FRESH)
    fresh = {
        label: [*overrides(config, setting.runs[0]), f"seed={','.join(map(str, seeds))}"]
        for label, setting in compared.items()
    }
    commands = [f"uv run train.py -m {shlex.join(words)}" for words in fresh.values()]
    saved = [load_config(config.output_dir / s.runs[0] / SAVED) for s in compared.values()]
    commands += results_of(config, fresh, trust=any(map(code_of, saved)))
    commands = [*map(as_typed, commands)]
    close = selection.not_told_apart(best, others)
    if config.as_json:
        content = {"best": best.facts(), "others": [other.facts() for other in others]}
        print(json.dumps(content | {"not_told_apart": close, "commands": commands}, indent=1))
    else:
        print(selection.table(settings))
        print(
            f"{best.label}: best by validation questions. Its accuracy here is too high, because "
            f"it was chosen by it. Settings that cannot be told from it, of {len(others)}: "
            f"{'; '.join(close) or 'none'}"
        )
        print("next, with fresh seeds:", *commands, sep="\n  ")
    selection.note(config.results_dir, [name for s in settings for name in s.runs])
    if baseline is None:
        print(
            "baseline=null: no run of the sweep has algorithm=grpo, so the best setting is trained "
            "alone; set baseline=<a run of the sweep>",
            file=sys.stderr,
        )


def baseline_of(config: BestConfig, settings: list[Any]) -> Any | None:
    """The setting to compare with; None if no run of the sweep has algorithm=grpo."""
    if config.baseline is None:
        return next((s for s in settings if s.config["algorithm"] == "grpo"), None)
    for setting in settings:
        if config.baseline in setting.runs:
            return setting
    raise UserError(f"baseline={config.baseline}: is none of the runs; name one of them")


def overrides(config: BestConfig, run: str) -> list[str]:
    """The overrides that were typed for a run of the sweep, without its seed and Hydra's own."""
    file = config.output_dir / run / ".hydra" / "overrides.yaml"
    try:
        typed = yaml.safe_load(file.read_text())
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}); set output_dir") from None
    return [word for word in typed if not re.match(r"\+*(seed|hydra\b.*)=", word)]


def results_of(config: BestConfig, fresh: dict[str, list[str]], trust: bool) -> list[str]:
    """The commands that score the fresh runs on test questions, and compare them. fresh: what is
    typed for the sweep over the seeds of a setting."""
    places = {"output_dir": config.output_dir, "results_dir": config.results_dir}
    folders = {
        label: str(sweeps.folder(words, config.output_dir)) for label, words in fresh.items()
    }
    methods = ", ".join(f"{label}: {with_quotes(folder)}" for label, folder in folders.items())
    runs = typed_list("run", [*folders.values()])
    compare = ["uv run scripts/table.py", shlex.quote(f"runs={{{methods}}}")]
    compare += sweeps.typed_folders(results_dir=config.results_dir)
    return [sweeps.evaluate_command(runs, trust=trust, **places), " ".join(compare)]


if __name__ == "__main__":
    main()
