#!/usr/bin/env bash
# lm-eval 0.4.13 changes answers before it compares them. "strict-match" of bbh_cot_zeroshot cuts the last character off,
# be it a full stop or not: "The answer is 24" is read as 2. MGSM removes points and minus signs from numbers.
# Guess: 24 is right for 24 and wrong for 2, with a full stop or without; 7.2 and -72 are wrong for 72.
# Seen: the contrary without a full stop, and 1.0 for 7.2 and -72. A model that ends without a full stop loses in
# "strict-match" of BBH; "flexible-extract" of the same run reads it right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "lm-eval==0.4.13" "datasets==4.8.5"
cd "$folder"
HF_HUB_OFFLINE=1 HF_DATASETS_CACHE="$folder/cache" env/bin/python - 2>progress <<'PY'
import json
from pathlib import Path

import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager


class Speaker(LM):  # says what the row tells it to
    loglikelihood = loglikelihood_rolling = None

    def generate_until(self, requests):
        return [request.doc["says"] for request in requests]


def scores(task: str, metric_filter: str, pairs: list[tuple[str, str]]) -> list[float]:
    empty = {"input": "", "question": "", "answer": None}
    rows = [empty | {"target": gold, "answer_number": gold, "says": says} for gold, says in pairs]
    Path("rows.json").write_text(json.dumps(rows))  # in place of the data set; the rest is the task's own
    files = {"data_files": {"test": "rows.json", "train": "rows.json"}}
    source = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": files}
    own = {"include": str(Path(lm_eval.__file__).parent / "tasks" / task), "task": "here"}
    Path("tasks").mkdir(exist_ok=True)
    Path("tasks/here.yaml").write_text(json.dumps(own | source))
    manager = TaskManager(include_path="tasks", include_defaults=False)
    run = lm_eval.simple_evaluate(Speaker(), tasks=["here"], task_manager=manager, num_fewshot=0, bootstrap_iters=0)
    return [float(row["exact_match"]) for row in run["samples"]["here"] if row["filter"] == metric_filter]


bbh = [("24", "The answer is 24."), ("24", "The answer is 24"), ("2", "The answer is 24")]
mgsm = [("72", "The answer is 73."), ("72", "The answer is 7.2."), ("72", "The answer is -72.")]
multistep = "bbh/cot_zeroshot/multistep_arithmetic_two.yaml"
seen = {
    "bbh strict-match": (scores(multistep, "strict-match", bbh), [1, 0, 1]),
    "bbh flexible-extract": (scores(multistep, "flexible-extract", bbh), [1, 1, 0]),
    "mgsm strict-match": (scores("mgsm/native_cot/mgsm_native_cot_en.yaml", "strict-match", mgsm), [0, 1, 1]),
}
for name, (values, expected) in seen.items():
    print(name, list(zip(mgsm if "mgsm" in name else bbh, values)))
    assert values == expected, "the behaviour has changed"
PY
