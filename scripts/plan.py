"""Which algorithm and which sizes give your model most signal a second, before you train for hours.

    uv run scripts/plan.py run=<run>                            at its last checkpoint
    uv run scripts/plan.py run=<run> algorithms=[pods,grpo,my.py:f] cells=[[8,16,4],[16,8,2]]
    uv run scripts/plan.py run=<run> clock=l40s json=true       other prices; samples nothing again
It records rollouts with the gradient of each, and simulates updates on them: docs/planner.md.
"""

import json
from typing import TYPE_CHECKING

from pydantic import Field

from pods import ranks
from pods.config.command import CONFIG_DIR, command
from pods.config.errors import UserError
from pods.config.functions import code_of, refuse_code
from pods.config.keys import Prices, Text, TrainConfig, grader, reward_weights
from pods.config.prices import read_prices
from pods.evaluation import lookup
from pods.evaluation.targets import Target

if TYPE_CHECKING:
    from pods.signal.pool import Pool
    from pods.signal.simulate import Candidate


class PlanConfig(lookup.OneCheckpoint):
    questions: int = Field(ge=2)
    rollouts: int = Field(ge=2)
    sketch: int = Field(ge=2)
    algorithms: list[Text] = Field(min_length=1)
    cells: list[list[int]] | None
    clock: Text | None
    data_dir: Text | None
    trust_code: bool
    as_json: bool = Field(alias="json")


@command("plan", PlanConfig, CONFIG_DIR / "checkpoint")
def main(config: PlanConfig) -> None:
    training, target = lookup.find_one(config)
    training = training.moved(None, config.data_dir)
    if not config.trust_code:
        refuse_code(f"run={config.run}: its config", code_of(training, step=True))
    cells = cells_of(config, training)  # a mistake in these waits for no model
    prices = prices_of(config, training)
    pool = record(config, training, target)
    show(config, training, pool, cells, prices)


def record(config: PlanConfig, training: TrainConfig, target: Target) -> "Pool":
    """The recorded rollouts of a checkpoint; those that its file holds are not sampled again."""
    from pods.engines import choose
    from pods.signal.pool import settings, stored
    from pods.training.check import resolve_defaults

    file = config.output_dir / config.run / f"signal-{target.name}.npz"
    facts = {
        "name": f"{config.run}-{target.name}",
        "digest": target.digest,
        "training": training.model_dump(),
        "weights": reward_weights(training.rewards),
        "correct": grader(training.rewards),
        "rollouts": config.rollouts,
        "sketch": config.sketch,
    }
    pool = stored(file, facts)
    if len(pool.rows) >= config.questions:
        return pool
    sampling = settings(training, config.rollouts)
    resolve_defaults(sampling)
    load = choose.loader(sampling)
    from pods.signal import record as recording
    from pods.training import build

    with build.trainer_at(sampling, load, target.weights, target.step) as trainer:
        prompts = recording.prompts_of(trainer.train_dataset, config.questions, training.seed)
        at_once = training.rollouts_per_prompt * training.prompts_per_step // config.rollouts
        recording.record(trainer, prompts, pool, file, max(1, at_once))
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
    """The cells to simulate, each with its algorithm and its advantage function; first GRPO at the
    run's own sizes, and the run's own cell."""
    from pods.registry import algorithm_and_advantage
    from pods.requirements import requirements_of
    from pods.signal.simulate import Candidate

    P, n, m = training.prompts_per_step, training.rollouts_per_prompt, training.kept_per_prompt
    for cell in config.cells or []:
        if len(cell) != 3 or cell[0] < 1 or not 2 <= cell[2] <= cell[1]:
            raise UserError(f"cells: {cell} must be [P,n,m] with P >= 1 and 2 <= m <= n")
    powers = [2**k for k in range(1, 12) if 2**k <= config.rollouts]
    grid = [[count, a, b] for count in (P, 2 * P) for a in powers for b in powers if b <= a]
    sizes = dict.fromkeys(config.algorithms, config.cells or grid)
    sizes[training.algorithm] = [[P, n, m], *sizes.get(training.algorithm, [])]
    sizes = {"grpo": [[P, m, m], *sizes.pop("grpo", [])], **sizes}
    cells = {}
    for name, own in sizes.items():
        changes = {"algorithm": name}
        if training.rule == "all":
            changes["rule"] = None  # it has no m below n
        if name != training.algorithm:
            changes["algorithm_kwargs"] = {}
        try:
            functions = algorithm_and_advantage(training.model_copy(update=changes))
        except ValueError as error:
            raise UserError(f"algorithms: {error}") from None
        requirements = requirements_of(functions[0])
        for size in own:
            if size[1] == size[2] or not (requirements.samples_m or requirements.keeps_all):
                cells[Candidate(name, *size)] = functions
    return cells


def show(
    config: PlanConfig,
    training: TrainConfig,
    pool: "Pool",
    cells: "dict[Candidate, tuple]",
    prices: Prices,
) -> None:
    """Simulate every cell, and print the best one of each algorithm and the verdict, or JSON."""
    import pandas
    from tqdm import tqdm

    from pods.signal.compare import CellRanking
    from pods.signal.simulate import Simulator

    simulator = Simulator(
        pool,
        training.loss.type,
        training.micro_batch_size,
        training.loss.mask_truncated_completions,
    )
    updates = {
        cell: simulator.updates(*cells[cell], cell, prices)
        for cell in tqdm(cells, "simulated", unit=" cells", disable=None)
    }
    reference = next(iter(cells))
    ranking = CellRanking(updates, simulator.whole(cells[reference][1], prices), reference)
    policy = f"{pool.facts['name']}: {len(pool.rows)} questions x {simulator.count} rollouts"
    if config.as_json:
        answer = {
            "cells": [ranking.row(cell) for cell in cells],
            "best": ranking.row(ranking.ranking[0]) if ranking.ranking else None,
            "has_signal": ranking.has_signal,
            "policy": policy,
        }
        print(json.dumps(answer, indent=1))
        return
    print(policy)
    table = pandas.DataFrame([ranking.row(cell) for cell in ranking.ranking])
    if not ranking.has_signal:
        table = table.drop(columns=["rate", "relative", "relative_ci95"], errors="ignore")
    if len(table):
        print(table.drop_duplicates("algorithm").to_string(index=False, float_format="%.3g"))
    print(*ranking.verdict(), sep="\n")


if __name__ == "__main__":
    main()
