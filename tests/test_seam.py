"""Private names of TRL, transformers' Trainer and Unsloth stand in pods/seam.py alone."""

import inspect
import re

import trl
from transformers import Trainer

from tests.conftest import ROOT

FILES = [
    p for glob in ("*.py", "pods/**/*.py", "rewards/*.py", "scripts/*.py") for p in ROOT.glob(glob)
]
SEAM = ROOT / "pods" / "seam.py"


def private_names() -> set[str]:
    """Every private attribute of the two trainers: methods, and what their methods assign."""
    names = {name for kind in (trl.GRPOTrainer, Trainer) for name in dir(kind)}
    for kind in (trl.GRPOTrainer, Trainer):
        names |= set(re.findall(r"\bself\.(\w+)", inspect.getsource(inspect.getmodule(kind))))
    return {name for name in names if re.match("_[a-z]", name)}


def test_private_names_stand_in_the_seam_alone_and_exist():
    names = private_names()
    assert {"_generate_and_score_completions", "_save_rng_state", "_last_loaded_step"} <= names
    for path in set(FILES) - {SEAM}:
        used = set(re.findall(r"(?<!\bself)(?<!\bcls)\.(_[a-z]\w*)", path.read_text()))
        own = {name for name in used if "unsloth_" in name} | used & names
        assert own == set(), path.name
        assert "_internal_call" not in path.read_text(), path.name
    private = set(re.findall(r"\.(_[a-z]\w*)", SEAM.read_text()))
    assert private - {"_handed", "_earlier"} <= names  # its own
