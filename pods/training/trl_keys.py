"""Values that only TRL and transformers can judge: the dictionary `trl` of a config, which may
hold what GRPOConfig knows and no key sets, and the optimiser."""

import re
from dataclasses import fields
from typing import get_type_hints

import yaml
from pydantic import create_model
from transformers.training_args import OptimizerNames
from trl import GRPOConfig

from pods.config.errors import UserError, meant
from pods.config.keys import FACTS, Section, TrainConfig, written
from pods.config.mistakes import validated
from pods.config.paths import CONFIG_DIR
from pods.files import few

WITHOUT_KEY = {
    "use_cpu": "the machine decides it",
    "ddp_backend": "the machine decides it",
    "dataloader_pin_memory": "the machine decides it",
    "deepspeed": "accelerate launch --config_file config/accelerate/zero2.yaml sets it",
    "sync_ref_model": "no checkpoint holds the reference model, so the run could not be resumed",
}


def refuse_unknown(config: TrainConfig) -> None:
    """Raise UserError for an optimiser that transformers lacks, and for an argument in `config.trl`
    that GRPOConfig lacks, that has another type there, or that a key of ours sets. Imports TRL, and
    so comes after Unsloth."""
    optimizers = ["auto", *(name.value for name in OptimizerNames)]
    optimizer = config.optimizer.name
    if optimizer not in optimizers:
        raise UserError(
            f"optimizer.name={optimizer}: transformers has no such optimiser; it has "
            f"{few(optimizers)} (its OptimizerNames){meant(optimizer, optimizers)}"
        )
    table = yaml.safe_load((CONFIG_DIR / "_trl.yaml").read_text())
    hints = get_type_hints(GRPOConfig)
    allowed = {field.name: (hints[field.name], None) for field in fields(GRPOConfig)}
    ours = {name: key for key, facts in FACTS for name in facts.trl}
    for name, value in config.trl.items():
        setting = f"trl.{name}={written(value)}"
        keys = re.findall(r"\$\{([\w.]+)", str(table.get(name, "")))
        key = ours.get(name) or ", ".join(keys)
        if key:
            raise UserError(f"{setting}: has a key of its own; set {key}")
        if name in table:
            raise UserError(f"{setting}: train.py needs {written(table[name])}; leave it out")
        if name in WITHOUT_KEY:
            raise UserError(f"{setting}: {WITHOUT_KEY[name]}; leave it out")
        if name not in allowed:
            raise UserError(
                f"{setting}: TRL's GRPOConfig has no such argument"
                f"{meant(name, allowed) or '; see its documentation'}"
            )
    validated(create_model("GRPOConfig", __base__=Section, **allowed), config.trl, "trl.")
