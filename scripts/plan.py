"""Which algorithm and which sizes give your model most signal a second, before you train for hours.

    uv run scripts/plan.py run=<run>                                at its last checkpoint
    uv run scripts/plan.py run=<run> algorithms=[pods,grpo,my.py:f] cells=[[8,16,4],[16,8,2]]
    uv run scripts/plan.py experiment=gsm8k_qwen                    its base, before any training
    uv run scripts/plan.py recorded=<file> clock=l40s json=true     what was recorded, other prices
It records rollouts with the gradient of each, and simulates updates on them: docs/planner.md.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from pods import ranks
from pods.config.command import CONFIG_DIR, command, compose, load_config, typed
from pods.config.errors import UserError
from pods.config.functions import code_of, refuse_code
from pods.config.keys import Location, Prices, Text, TrainConfig, grader, reward_weights
from pods.config.mistakes import validated
from pods.config.prices import read_prices
from pods.evaluation import lookup
from pods.models import locate

if TYPE_CHECKING:
    from pods.signal.compare import CellRanking
    from pods.signal.pool import Pool
    from pods.signal.simulate import Candidate


class PlanConfig(lookup.OneCheckpoint):
    run: Text | None
    experiment: Text | None
    model: Text | None
    recorded: Location | None
    questions: int = Field(ge=2)
    rollouts: int = Field(ge=2)
    sketch: int = Field(ge=2)
    algorithms: list[Text] = Field(min_length=1)
    prompts: list[PositiveInt] | None
    cells: list[list[int]] | None
    clock: Text | None
    data_dir: Text | None
    out_dir: Location
    trust_code: bool
    as_json: bool = Field(alias="json")


@dataclass
class RecordedPolicy:
    """What is recorded: the policy of a training at a checkpoint, or its base."""

    name: str
    training: TrainConfig
    file: Path  # of the recorded rollouts
    weights: Path | None = None  # None: the base
    digest: str = "base"  # of the weights
    step: int = 0


@command("plan", PlanConfig, CONFIG_DIR / "checkpoint")
def main(config: PlanConfig) -> None:
    check(config)
    if config.recorded:
        from pods.signal.pool import load

        pool = load(config.recorded)
        training = trusted(config, validated(TrainConfig, pool.facts["training"]))
    else:
        policy = policy_of(config)
        training = trusted(config, policy.training)
    cells = cells_of(config, training)  # a mistake in these waits for no model
    prices = prices_of(config, training)
    if not config.recorded:
        pool = record(config, policy)
    show(config, training, pool, compare(training, pool, cells, prices))


def check(config: PlanConfig) -> None:
    """Raise UserError with the first value that cannot be used."""
    sources = config.model_dump(include={"run", "experiment", "recorded"})
    asked = [f"{key}={value}" for key, value in sources.items() if value]
    if len(asked) != 1:
        raise UserError(
            f"{' '.join(asked) or 'run=null'}: set one of run=<run>, experiment=<name> and "
            "recorded=<file>"
        )
    if config.model and not config.experiment:
        raise UserError(
            f"model={config.model}: only an experiment takes another model; set experiment=<name>"
        )
    for cell in config.cells or []:
        if len(cell) != 3 or cell[0] < 1 or not 2 <= cell[2] <= cell[1]:
            raise UserError(f"cells: {cell} must be [P,n,m] with P >= 1 and 2 <= m <= n")
    if config.clock:
        read_prices(config.clock)


def trusted(config: PlanConfig, training: TrainConfig) -> TrainConfig:
    """The training; UserError if a step of a saved one would run code that nobody has allowed."""
    if not (config.experiment or config.trust_code):
        refuse_code(f"run={training.run}: its config", code_of(training, step=True))
    return training


def policy_of(config: PlanConfig) -> RecordedPolicy:
    """The policy that the command names. Raises UserError before anything heavy loads."""
    folder = config.output_dir
    if config.experiment:
        group = [f"model={config.model}"] if config.model else []
        composed = compose("train", [f"experiment={config.experiment}", *group])
        training = typed(TrainConfig, composed).moved(config.model_path, config.data_dir)
        locate(training.model.path)
        name = f"{config.experiment}-{training.model.name}"
        return RecordedPolicy(name, training, folder / f"signal-{name}.npz")
    if config.checkpoint == "base":
        folder = lookup.folder_of(config)
        training = load_config(folder / lookup.SAVED).moved(config.model_path, config.data_dir)
        return RecordedPolicy(f"{config.run}-base", training, folder / "signal-base.npz")
    training, target = lookup.find_one(config)
    return RecordedPolicy(
        name=f"{config.run}-{target.name}",
        training=training.moved(None, config.data_dir),
        file=folder / config.run / f"signal-{target.name}.npz",
        weights=target.weights,
        digest=target.digest,
        step=target.step,
    )


def record(config: PlanConfig, policy: RecordedPolicy) -> "Pool":
    """The recorded rollouts of a policy; those that its file holds are not drawn again."""
    from pods.clock import peak_memory
    from pods.engines import choose
    from pods.signal.pool import settings, stored
    from pods.training.check import settle

    training = policy.training
    weights = reward_weights(training.rewards)
    facts = {
        "name": policy.name,
        "digest": policy.digest,
        "training": training.model_dump(),
        "weights": weights,
        "correct": grader(training.rewards),
    }
    pool = stored(policy.file, facts, (config.rollouts, len(weights), config.sketch))
    if len(pool) >= config.questions:
        return pool.first(config.questions, config.rollouts)
    drawing = settings(training, config.rollouts)
    settle(drawing)
    load = choose.loader(drawing)
    from pods.signal import record as recording
    from pods.training import build

    with build.trainer_at(drawing, load, policy.weights, policy.step) as trainer:
        prompts = recording.prompts_of(trainer.train_dataset, config.questions, training.seed)
        at_once = training.rollouts_per_prompt * training.prompts_per_step // config.rollouts
        pool = recording.record(trainer, prompts, pool, policy.file, max(1, at_once))
        gib = peak_memory()
        if gib is not None:
            ranks.say(f"peak memory {gib:.1f} GiB")
    return pool


def prices_of(config: PlanConfig, training: TrainConfig) -> Prices:
    """The seconds of a step: of the price list that is named, the run's steps, or the L40S."""
    from pods.runs import costs

    folder = config.output_dir / training.run
    if not config.clock:
        if isinstance(training.clock, Prices):
            return training.clock
        if (folder / "metrics.jsonl").is_file():
            return costs.of_run(folder)
        ranks.say(f"no step of run={training.run} was measured: seconds are those of clock=l40s")
    return read_prices(config.clock or "l40s")


def cells_of(config: PlanConfig, training: TrainConfig) -> "dict[Candidate, tuple]":
    """The cells to simulate, each with its algorithm and its advantage function; among them GRPO at
    the run's own sizes, and the run's own cell."""
    from pods.by_name import chosen
    from pods.needs import needs_of
    from pods.signal.simulate import Candidate

    P, n, m = training.prompts_per_step, training.rollouts_per_prompt, training.kept_per_prompt
    every = config.cells or grid(config, P)
    rule = None if training.rule == "all" else training.rule  # all has no m below n
    cells = {}
    for name in dict.fromkeys(["grpo", training.algorithm, *config.algorithms]):
        changes = {"algorithm": name, "rule": rule}
        sizes = every if name in config.algorithms else []
        if name == training.algorithm:
            sizes = [[P, n, m], *sizes]
        else:
            changes["algorithm_kwargs"] = {}
        if name == "grpo":
            sizes = [[P, m, m], *sizes]
        try:
            functions = chosen(training.model_copy(update=changes))
        except ValueError as error:
            raise UserError(f"algorithms: {error}") from None
        needs = needs_of(functions[0])
        for P_, n_, m_ in sizes:
            if m_ == n_ or not (needs.draws_m or needs.keeps_all):
                cells[Candidate(name, P_, n_, m_)] = functions
    return cells


def grid(config: PlanConfig, P: int) -> list[list[int]]:
    """n and m in powers of 2 up to the recorded rollouts, at each P."""
    prompts = config.prompts or [P, 2 * P]
    powers = [2**k for k in range(1, 12) if 2**k <= config.rollouts]
    return [[count, n, m] for count in prompts for n in powers for m in powers if m <= n]


def compare(
    training: TrainConfig, pool: "Pool", cells: "dict[Candidate, tuple]", prices: Prices
) -> "CellRanking":
    """Simulate every cell."""
    from tqdm import tqdm

    from pods.signal.compare import CellRanking
    from pods.signal.simulate import Candidate, Loss, Simulator

    simulator = Simulator(pool, Loss.of(training))
    updates = {
        cell: simulator.updates(*cells[cell], cell, prices)
        for cell in tqdm(cells, "simulated", unit=" cells", disable=None)
    }
    m = training.kept_per_prompt
    reference = Candidate("grpo", training.prompts_per_step, m, m)
    return CellRanking(updates, simulator.whole(cells[reference][1], prices), reference)


def show(
    config: PlanConfig, training: TrainConfig, pool: "Pool", comparison: "CellRanking"
) -> None:
    """Print the table and the verdict, or JSON, and draw the pictures; steps: of the run's
    budget."""
    import pandas

    from pods.figures import drawing, signal

    rows = {}
    seconds = training.budget.train_seconds
    for cell in comparison.updates:
        row = comparison.row(cell)
        steps = int(seconds / row["seconds_per_step"]) if seconds else training.max_steps
        rows[cell] = row | {"steps": steps}
    cells = list(rows.values())
    name = f"{pool.facts['name']}: {len(pool)} questions x {pool.lengths.shape[1]} rollouts"
    folder = config.out_dir / f"signal-{pool.facts['name']}"
    reference = str(comparison.reference)
    drawing.save(signal.sizes(cells, reference, name), folder / "sizes")
    drawing.save(signal.algorithms(cells, reference, name), folder / "algorithms")
    if config.as_json:
        answer = {
            "cells": cells,
            "best": rows.get(next(iter(comparison.ranking), None)),
            "policy": name,
            "verdict": comparison.verdict(),
        }
        print(json.dumps(answer, indent=1))
        return
    shown = dict.fromkeys([*comparison.firsts, comparison.reference])
    print(name)
    print(pandas.DataFrame([signal.printed(rows[cell]) for cell in shown]).to_string(index=False))
    print(*comparison.verdict(), f"pictures: {folder}", sep="\n")


if __name__ == "__main__":
    main()
