# %% [markdown]
# # PODS: train, look, change, compare
#
# GRPO samples many completions of a question and trains on all of them. PODS samples *n*, keeps the
# *m* whose rewards vary most, and trains on those. In this notebook you train both for a minute,
# look at the rollouts that were kept and dropped, write a rule and a reward of your own, and
# compare two policies with an interval.
#
# Run it inside a checkout of the repository (`uv sync` first, then choose that environment as the
# kernel).

# %%
import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

GPU = False  # True: Qwen2.5-3B-Instruct on GSM8K, sized for a card of 16 GB. No GPU has run it yet.
SECONDS = float(os.environ.get("PODS_NOTEBOOK_SECONDS", 600 if GPU else 60))  # of training, each

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "train.py").is_file())
sys.path.insert(0, str(ROOT))
WORK = Path(os.environ.get("PODS_NOTEBOOK_FOLDER", "notebook")).absolute()
WORK.mkdir(exist_ok=True)

SMALL_CARD = ["experiment=gsm8k_qwen", "rollouts_per_prompt=32", "kept_per_prompt=8",
              "micro_batch_size=4", "sampling.max_completion_length=256"]  # fmt: skip
SETTING = SMALL_CARD if GPU else ["experiment=quickstart"]

# %% [markdown]
# ## Train
#
# `train.py` takes any key of `config/train.yaml`. Both runs have the same seed, so they start with
# the same rollouts, and the same training time. Every quarter of it the policy answers 256 held-out
# questions, off the clock.


# %%
def train(name: str, *keys: str) -> Path:
    """A training in a process of its own; its folder."""
    command = [sys.executable, str(ROOT / "train.py"), *SETTING, *keys, f"run={name}"]
    command += [f"budget.train_seconds={SECONDS}", f"evaluation.every_seconds={SECONDS / 4}"]
    command += ["ledger.texts=all", f"output_dir={WORK}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=WORK)
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stderr.strip().splitlines()[-1])
    return WORK / name


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


grpo = train("grpo", "algorithm=grpo")
pods = train("pods", "algorithm=pods")

# %% [markdown]
# ## Watch the reward
#
# Against training time, not steps: a PODS step costs more, because it generates more.
# `all/reward_mean` counts every rollout that was sampled; the mean over the kept ones is biased by
# the choice and says little.

# %%
for run in (grpo, pods):
    steps = lines(run / "metrics.jsonl")
    seconds = [step["train_seconds"] for step in steps]
    reward = np.array([step["all/reward_mean"] for step in steps])
    window = min(20, len(reward))
    smooth = np.convolve(reward, np.ones(window) / window, mode="valid")
    plt.plot(seconds[window - 1 :], smooth, label=run.name)
plt.xlabel("training time, s")
plt.ylabel("mean reward of all rollouts (20 steps)")
plt.legend()
plt.show()

# %% [markdown]
# ## Kept and dropped
#
# The ledger holds every rollout with its rewards. Here is the prompt of the PODS run whose rewards
# varied most: the kept ones come from both ends, and what lies between is dropped.

# %%
from pods.runs import ledger

records = list(ledger.read(pods / "rollouts.jsonl.zst"))
record = max(records, key=lambda r: np.var(r["total"]))
print(f"step {record['step']}, question {record['question_id']}, right answer {record['answer']}\n")
for i in np.argsort(record["total"]):
    mark = "kept   " if i in record["kept"] else "dropped"
    print(f"{mark} {record['total'][i]:5.2f}  {record['completions'][i][:80]!r}")

# %% [markdown]
# ## A rule of your own
#
# A rule gets the rewards of one prompt and the number to keep, and returns indices. This one keeps
# the best half and the worst half of m, which is not always what varies most. Try it on numbers,
# then train with it.

# %%
(WORK / "my_rules.py").write_text('''
import numpy as np

def both_ends(rewards, m, rng):
    """m // 2 of the lowest and the rest of the highest."""
    order = np.argsort(rewards, kind="stable")
    return np.r_[order[: m // 2], order[len(order) - (m - m // 2) :]]
''')

from pods.rules import select

rewards = np.array([0.0, 0.1, 0.1, 0.2, 1.0, 1.2, 0.1, 0.0])
for rule in ("max_variance", f"{WORK}/my_rules.py:both_ends"):
    kept = select(rule, rewards, 4)
    print(f"{rule.rpartition('/')[2]:24} keeps {kept}, variance {np.var(rewards[kept]):.3f}")

# %% [markdown]
# ## A reward of your own
#
# A reward has TRL's signature: completions as texts, every column of the data as a keyword, one
# number each. It is added to those that the config has. This one likes short answers.

# %%
(WORK / "my_rewards.py").write_text('''
def brevity(completions, **columns):
    """0.1 for an empty answer, 0 from 200 characters on."""
    return [0.1 * max(0.0, 1 - len(text) / 200) for text in completions]
''')

own = train(
    "own",
    "algorithm=pods",
    "rule.name=my_rules.py:both_ends",
    "rewards.functions.brevity=my_rewards.py:brevity",
)

# %% [markdown]
# ## Compare two policies
#
# One run each: the interval below is over the questions. It says how sure the difference between
# *these two policies* is. To compare *methods*, train several seeds of each (`train.py -m
# seed=1,2,3`) and use `scripts/speedup.py`, whose intervals are over runs; those are wider.

# %%
from pods.figures.statistics import difference


def answers(run: Path) -> np.ndarray:
    """1 for each held-out question that is right and well formed at the end."""
    last = lines(run / "evaluations.jsonl")[-1]
    return np.array(last["correct"]) * np.array(last["well_formed"])


for one, other in ((grpo, pods), (pods, own)):
    found = difference(answers(one), answers(other), paired=True)
    low, high = (100 * end for end in found.ci95)
    right = ", ".join(f"{run.name} {answers(run).mean():.1%}" for run in (one, other))
    points = f"{100 * found.difference:+.1f} points [{low:+.1f}, {high:+.1f}]"
    print(f"{other.name} minus {one.name}: {points}; {right}")

# %% [markdown]
# ## Where next
#
# `docs/rules.md`: every other way to choose. `docs/planner.md`: which n and m pay on your machine.
# `docs/extending.md`: your own data set, advantage or engine. `uv run scripts/report.py run=<run>`:
# one page about a run, with every rollout.
