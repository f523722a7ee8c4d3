"""The metric lines of a run: the numbers of a step, seconds and memory by phase, counters."""

from statistics import mean
from typing import Any

from pods import ranks
from pods.clock import Clock
from pods.rollouts import Record
from pods.trainer import PodsTrainer
from rewards import Scorer

# Of an update, as TRL names them; averaged over the updates of a generation.
OF_UPDATE = ("loss", "grad_norm", "learning_rate", "kl", "entropy", "clip_ratio/region_mean")
COUNTERS = ("tokens/generated", "tokens/trained", "rollouts/generated", "rollouts/trained")


class Meter:
    """The metric lines of a run, and what they count up over it."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.updates: list[dict[str, float]] = []  # TRL's metrics of each on the newest generation
        self.warmup_peak: dict[str, float] = {}  # GiB by phase, for the first line
        self._packed = True  # as far as is known

    def restore(self, meta: dict[str, Any]) -> None:
        """The counters of a checkpoint's meta.json."""
        self.counters = {name: meta[name.replace("/", "_")] for name in COUNTERS}

    def line(self, trainer: PodsTrainer) -> dict[str, Any]:
        """All rollouts, those trained on, seconds and memory by phase, cumulative counters."""
        updates, self.updates = self.updates, []
        clock, engine = trainer.clock, trainer.sampler.engine
        self.count(trainer.newest)
        return {
            "train_seconds": clock.train_seconds,
            "wall_seconds": clock.wall_seconds,
            **{f"seconds/{phase}": seconds for phase, seconds in clock.step.items()},
            **{f"peak_memory_gib/{phase}": gib for phase, gib in self._peaks(clock).items()},
            **self._packing(trainer),
            **trainer.newest.summary(),
            **self.counters,
            "score_timeouts": sum(ranks.gather([self.scorer.timeouts])),
            **getattr(engine, "metrics", {}),  # of the guard
            **{name: mean(values) for name in OF_UPDATE
               if (values := [u[name] for u in updates if u.get(name) is not None])},
        }  # fmt: skip

    def count(self, record: Record) -> None:
        lengths, kept = record.batch.lengths, record.selection.kept
        step = (lengths.sum(), lengths[kept].sum(), len(lengths), len(kept))
        for name, count in zip(COUNTERS, step, strict=True):
            self.counters[name] += int(count)

    def _peaks(self, clock: Clock) -> dict[str, float]:
        """GiB by phase of the newest step; the first step also gives those of the warm-up."""
        warmup, self.warmup_peak = self.warmup_peak, {}
        return clock.step_peak | {f"warmup_{phase}": gib for phase, gib in warmup.items()}

    def _packing(self, trainer: PodsTrainer) -> dict[str, float]:
        """Unsloth's packing of the update, with one warning where it has turned it off."""
        packing = trainer.packing()
        if self._packed and packing.get("update/packed") == 0.0:
            self._packed = False
            ranks.say(
                "warning: Unsloth no longer packs the rows of an update: updates take longer from "
                "here on; UNSLOTH_ENABLE_LOGGING=1 prints the reason"
            )
        return packing
