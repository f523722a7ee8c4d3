"""The numbers of a step: `all/*` over the n generated, `kept/*` over the m trained on; counters."""

from statistics import mean
from typing import Any

import numpy as np

from pods import ranks, seam
from pods.clock import Clock
from pods.resampling import without_signal
from pods.rollouts import Rollouts, Step

# Of an update, as TRL names them; averaged over the updates of a generation.
OF_UPDATE = ("loss", "grad_norm", "learning_rate", "kl", "entropy", "clip_ratio/region_mean")
COUNTERS = ("tokens/generated", "tokens/trained", "rollouts/generated", "rollouts/trained")


class Meter:
    """The metric lines of a run, and what they count up over it."""

    def __init__(self) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.updates: list[dict[str, float]] = []  # TRL's metrics of each on the newest generation
        self.warmup_peak: dict[str, float] = {}  # GiB by phase, for the first line
        self._packed = True  # as far as is known

    def restore(self, meta: dict[str, Any]) -> None:
        """The counters of a checkpoint's meta.json."""
        self.counters = {name: meta[name.replace("/", "_")] for name in COUNTERS}

    def line(self, trainer: Any, rollouts: Rollouts, clock: Clock) -> dict[str, Any]:
        """All n, the m kept, seconds and memory by phase, cumulative counters."""
        step, guard = rollouts.newest, rollouts.guard
        summary, updates = summarize(step), self.updates
        self.updates = []
        self.counters["tokens/generated"] += int(summary.pop("step_tokens/generated"))
        self.counters["tokens/trained"] += int(summary.pop("step_tokens/trained"))
        self.counters["rollouts/generated"] += step.all_drawn.rewards.size
        self.counters["rollouts/trained"] += len(step.selection.kept)
        return {
            "train_seconds": clock.train_seconds,
            "wall_seconds": clock.wall_seconds,
            **{f"seconds/{phase}": seconds for phase, seconds in clock.step.items()},
            **{f"peak_memory_gib/{phase}": gib for phase, gib in self._peaks(clock).items()},
            **self._packing(trainer),
            **summary,
            **self.counters,
            "score_timeouts": sum(ranks.gather([rollouts.rewards.scorer.timeouts])),
            **(guard.metrics if guard else {}),
            **rollouts.noise,
            **{name: mean(values) for name in OF_UPDATE
               if (values := [u[name] for u in updates if u.get(name) is not None])},
        }  # fmt: skip

    def _peaks(self, clock: Clock) -> dict[str, float]:
        """GiB by phase of the newest step; the first step also gives those of the warm-up."""
        warmup, self.warmup_peak = self.warmup_peak, {}
        return clock.step_peak | {f"warmup_{phase}": gib for phase, gib in warmup.items()}

    def _packing(self, trainer: Any) -> dict[str, float]:
        """Unsloth's packing of the update, with one warning where it has turned it off."""
        found = seam.packing(trainer)
        if self._packed and found.get("update/packed") == 0.0:
            self._packed = False
            ranks.say(
                "warning: Unsloth no longer packs the rows of an update: updates take longer from "
                "here on; UNSLOTH_ENABLE_LOGGING=1 prints the reason"
            )
        return found


def summarize(step: Step) -> dict[str, float]:
    """Metrics of one step; `step_tokens/*` are counts of this step alone."""
    batch, kept = step.all_drawn, step.selection.kept
    chosen = np.asarray(step.batch.rewards, dtype=np.float64)  # (P, n)
    groups = [chosen[p, step.kept_of(p)] for p in range(len(chosen))]
    kept_lengths = step.batch.lengths.reshape(-1)[kept]
    rewards = np.asarray(batch.rewards, dtype=np.float64)  # (P, n), or more with further rounds
    metrics = {
        "all/reward_mean": rewards.mean(),
        "all/reward_std": rewards.std(axis=1).mean(),  # within a prompt
        "all/reward_variance": rewards.var(axis=1).mean(),
        "all/reward_min": rewards.min(),
        "all/reward_max": rewards.max(),
        "all/zero_variance_groups": (np.ptp(rewards, axis=1) == 0).mean(),
        "all/completion_length_mean": batch.lengths.mean(),
        "all/completion_length_max": batch.lengths.max(),
        "all/clipped_ratio": batch.clipped.mean(),
        "kept/reward_mean": chosen.reshape(-1)[kept].mean(),
        "kept/reward_variance": np.mean([group.var() for group in groups if len(group)]),
        "kept/completion_length_mean": kept_lengths.mean(),
        **{f"all/{name}_mean": values.mean() for name, values in batch.by_function.items()},
        "step_tokens/generated": batch.lengths.sum(),
        "step_tokens/trained": kept_lengths.sum(),
    }
    if step.drawn is not None:
        metrics["generate/rounds"] = step.rounds
        metrics["select/padded"] = without_signal(step.batch)[kept // chosen.shape[1]].sum()
    return {name: float(value) for name, value in metrics.items()}
