"""Other selection rules on the recorded rollouts of a run, without a GPU.

    uv run scripts/replay.py run=<run>                    every built-in rule
    uv run scripts/replay.py run=<run> rule=max_reward    one rule beside the run's own choice
    uv run scripts/replay.py run=<run> rule=my_rules.py:longest kept_per_prompt=8
Each rule selects again from the rollouts of every prompt.
"""

from typing import Any

import numpy as np
from pydantic import Field

from pods import files
from pods.by_name import prepared
from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Parameters, Section, Text
from pods.rules import RULES, select
from pods.runs import ledger


class ReplayConfig(Section):
    run: Text
    output_dir: Text
    kept_per_prompt: int | None = Field(gt=0)
    seed: int = Field(ge=0)
    rule: Text | None
    rule_kwargs: Parameters


@command("replay", ReplayConfig)
def main(config: ReplayConfig) -> None:
    path = ledger.find(config.output_dir, config.run)
    import pandas  # a wrong run= waits for nothing

    records = [record for record in files.read_lines(path) if record["kept"]]
    if not records:
        raise UserError(f"run={config.run}: {path} holds no complete record yet")
    rows = {"the run": row(records, [record["kept"] for record in records])}
    for rule in [config.rule] if config.rule else RULES:
        try:
            rows[rule] = row(records, again(rule, records, config))
        except ValueError as error:  # an unknown rule, or one that does not fit the rollouts
            if config.rule:
                raise UserError(f"rule={rule}: {error}") from None
    print(f"{config.run}: {len(records)} prompts")
    print(pandas.DataFrame(rows).T.to_string(float_format="%.4f"))


def again(rule: str, records: list[dict[str, Any]], config: ReplayConfig) -> list[np.ndarray]:
    """The indices that the rule keeps of each prompt's rollouts."""
    function = prepared("rule", rule, config.rule_kwargs)
    choices = []
    for number, record in enumerate(records):
        n = len(record["total"])
        m = config.kept_per_prompt or len(record["kept"])
        if m > n:
            raise UserError(f"kept_per_prompt={m}: a prompt has {n} rollouts; lower it")
        rng = np.random.default_rng([config.seed, number])
        choices.append(select(function, np.array(record["total"]), m, rng=rng))
    return choices


def row(records: list[dict[str, Any]], choices: list[Any]) -> dict[str, float]:
    """Means over the prompts; `as the run`: share of the kept rollouts that the run kept too."""
    rewards = []  # of the rollouts kept of each prompt
    shared = []
    for record, kept in zip(records, choices, strict=True):
        rewards.append(np.array(record["total"])[kept])
        shared.append(np.isin(kept, record["kept"]).mean())
    return {
        "kept a prompt": np.mean([len(group) for group in rewards]),
        "mean reward": np.concatenate(rewards).mean(),
        "variance": np.mean([group.var() for group in rewards]),
        "no signal": np.mean([np.ptp(group) == 0 for group in rewards]),
        "as the run": np.mean(shared),
    }


if __name__ == "__main__":
    main()
