"""PODS in any TRL script, by changing two names (pods/__init__.py); train.py uses this class too.

n = rollouts_per_prompt rollouts are drawn and scored, m = num_generations are trained on; with
algorithm="grpo" the weights equal those of GRPOTrainer to the bit.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from accelerate.utils import set_seed
from transformers import PreTrainedModel as Model

from pods import ranks
from pods.algorithms import DRAWS_M, OWN_ADVANTAGES, Algorithm, prepared
from pods.batch import Prompt, Rollout, Selection, Step, Visit, seed_of
from pods.clock import Clock
from pods.files import write_atomic
from pods.order import Stream
from pods.rollouts import Driver, Record
from pods.seam import Tensors, TrlSeam, engine_slots

STATE = "pods_state.json"  # of a checkpoint
# What a loss divides by, for the rows that only fill a step: TRL 1.13 to 1.16 have these eight.
MEAN_OVER_ROWS = ("grpo", "dr_grpo", "sapo", "luspo")
MEAN_OVER_MICRO_BATCHES = ("bnpo",)
MEAN_OVER_TOKENS = ("dapo", "cispo", "vespo")  # that count; other rows have none
LOSSES = (*MEAN_OVER_ROWS, *MEAN_OVER_MICRO_BATCHES, *MEAN_OVER_TOKENS)
Parameters = dict[str, Any] | None


@dataclass(init=False)
class PodsConfig(trl.GRPOConfig):
    """GRPOConfig with the choice of rollouts; num_generations is m. ValueError if values clash."""

    rollouts_per_prompt: int = field(default=64, metadata={"help": "n, at least num_generations"})
    algorithm: str = field(default="pods", metadata={"help": "a name, or path/to/file.py:function"})
    algorithm_kwargs: Parameters = field(default=None, metadata={"help": "its parameters"})
    rule: str = field(default="max_variance", metadata={"help": "of algorithm pods"})
    rule_kwargs: Parameters = field(default=None, metadata={"help": "its parameters"})
    advantage: str = field(default="kept", metadata={"help": "a name, or path/to/file.py:function"})
    advantage_kwargs: Parameters = field(default=None, metadata={"help": "its parameters"})
    correct: str | None = field(default=None, metadata={"help": "the reward function that grades"})
    max_rounds: int = field(default=16, metadata={"help": "of generation in one step"})
    engine: str = field(default="trl", metadata={"help": "trl: TRL's own generation"})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in PodsConfig.__annotations__:
            setattr(self, name, kwargs.pop(name, getattr(PodsConfig, name)))
        self.typed_scale_rewards = kwargs.get("scale_rewards", "group")
        super().__init__(*args, **kwargs)  # not the generated one: Unsloth's sets more than fields

    def __post_init__(self) -> None:
        self.scale_rewards = self.typed_scale_rewards  # for dr_grpo Unsloth turns it off
        super().__post_init__()
        for problem in self.problems():
            raise ValueError(problem)

    def problems(self) -> Iterator[str]:
        """One line for each value that does not fit."""
        n, m, algorithm = self.rollouts_per_prompt, self.num_generations, self.algorithm
        if n < m and algorithm not in DRAWS_M:
            yield f"rollouts_per_prompt={n}: must be num_generations={m} or more; set {m}"
        if algorithm == "grpo_ga" and n != m:
            yield f"rollouts_per_prompt={n}: grpo_ga trains on all; set num_generations={n}"
        if algorithm in OWN_ADVANTAGES and self.advantage != "kept":
            yield f"advantage={self.advantage}: {algorithm} has its own; leave advantage=kept"
        if self.loss_type not in LOSSES:
            yield f"loss_type={self.loss_type}: must be one of {', '.join(LOSSES)}"
        if self.n_gpu > 1 and not trl.GRPOTrainer.__name__.startswith("Unsloth"):  # it takes one
            yield (
                f"n_gpu={self.n_gpu}: a process on several GPUs draws and trains that many times "
                "the rollouts; start one process a GPU with accelerate launch, or set "
                "CUDA_VISIBLE_DEVICES=0"
            )
        if self.engine != "trl":
            yield f"engine={self.engine}: must be trl; other engines belong to train.py"
        if algorithm in ("grpo", "grpo_ga") and self.advantage == "kept":
            return  # TRL's own advantages
        scaling = self.scale_rewards, self.multi_objective_aggregation
        if scaling != ("group", "sum_then_normalize"):
            names = "scale_rewards={} multi_objective_aggregation={}".format(*scaling)
            yield f"{names}: algorithm={algorithm} uses neither; set advantage=dr_grpo or gdpo"


class PodsTrainer(TrlSeam):
    """GRPOTrainer whose update sees what an algorithm keeps.

    Beside the arguments of GRPOTrainer: `algorithm`, a function in place of args.algorithm;
    `sampler`, from the finished trainer to who draws rollouts in place of TRL, every random state
    being a function of seed, step and rank; `clock`, which times the phases of a step;
    `schedule_seconds` of training that the learning-rate schedule spans in place of max_steps.
    """

    def __init__(
        self,
        model: str | Model,
        reward_funcs: Any = None,
        args: PodsConfig | None = None,
        *rest: Any,
        algorithm: Algorithm | None = None,
        sampler: Callable[["PodsTrainer"], Callable[..., list[Rollout]]] | None = None,
        clock: Clock | None = None,
        schedule_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or PodsConfig()
        if not isinstance(args, PodsConfig):
            raise ValueError(f"args={type(args).__name__}: must be a PodsConfig, with its fields")
        for name in ("tools", "rollout_func", "environment_factory"):
            if kwargs.get(name) is not None:
                raise ValueError(f"{name}: PodsTrainer has no multi-turn rollouts; use GRPOTrainer")
        rule = prepared("rule", args.rule, args.rule_kwargs)
        algorithm = prepared("algorithm", algorithm or args.algorithm, args.algorithm_kwargs, rule)
        advantage = prepared("advantage", args.advantage, args.advantage_kwargs)
        self.clock, self.schedule_seconds = clock or Clock(), schedule_seconds
        with engine_slots(args):
            super().__init__(model, reward_funcs, args, *rest, **kwargs)
        self.newest: Record | None = None
        self.history: dict[str, list[Visit]] = {}
        self.fresh_drawn = 0  # prompts that step.fresh() has handed out in finished steps
        parts = algorithm, advantage, self.draw, self.score, self.weights_by_name()
        self.driver = Driver(*parts, args.correct, args.max_rounds, self.clock)
        self.sampler = sampler(self) if sampler else None

    def weights_by_name(self) -> dict[str, float]:
        """Weight of every reward function; functions of one name are numbered."""
        names = self.reward_func_names
        names = [f"{name}_{i}" if names.count(name) > 1 else name for i, name in enumerate(names)]
        if (correct := self.args.correct) not in (None, *names):
            known = ", ".join(names)
            raise ValueError(f"correct={correct}: no reward function; one of {known}, or None")
        return dict(zip(names, self.reward_weights.tolist(), strict=True))

    def train_batch(self, inputs: list[dict]) -> Tensors:
        """A step of the algorithm, and TRL's batch of the rows that it trains on."""
        number, seed = self.state.global_step, self.args.seed
        if self.sampler:  # TRL shuffles rows, and its generation samples, from torch's state
            set_seed(seed_of(seed, number, ranks.rank()) % 2**32)
        rows = ranks.gather(inputs)[:: self.num_generations]  # each comes m times in a row
        place = self.generation * len(rows)
        stream = Stream(rows, place + self.fresh_drawn, self.data_order)
        own, n, m = stream.own, self.args.rollouts_per_prompt, self.num_generations
        rng = np.random.default_rng([seed, self.generation])
        step = Step(number, len(own), n, m, own, stream.fresh, self.history, rng)
        batch, self.newest = self.hand_over(self.driver(step))
        self.fresh_drawn = stream.next - place - len(rows)
        for prompt, visit in self.newest.visits():
            self.history.setdefault(str(prompt), []).append(visit)
        return batch

    def draw(self, prompts: list[Prompt], indices: list[int]) -> list[Rollout]:
        """A rollout of each prompt: each rank draws its share."""
        work = self.rollouts_by_trl if self.sampler is None else self.sampler
        return ranks.split(work, list(zip(prompts, indices, strict=True)))

    def hand_over(self, record: Record) -> tuple[Tensors, Record]:
        """TRL's batch of this rank's share of the kept rollouts, and the record with the advantages
        that are used. Where fewer are kept than the budget, rows fill it that no loss counts."""
        kept, batch = record.selection.kept, record.batch
        filling = record.step.budget - len(kept)
        places = [*kept.tolist(), *[int(np.argmin(batch.lengths))] * filling]
        mine = ranks.share(places)
        scores = np.stack(list(batch.by_function.values()), axis=1)[places]
        tensors = self.tensors(
            [record.prompts[batch.prompt[i]].row["prompt"] for i in mine],
            [record.rollouts[i] for i in mine],
            torch.as_tensor(scores, dtype=torch.float32),
        )
        if record.selection.advantages is None:  # TRL's own stand
            values = ranks.gather(tensors["advantages"].tolist())
            record = replace(record, selection=Selection(kept, np.array(values)))
        else:
            values = [*record.selection.advantages.tolist(), *[0.0] * filling]
            tensors["advantages"] = torch.tensor(ranks.share(values)).to(tensors["advantages"])
        self.log_step(values, record.summary())
        masked = np.array(ranks.share([False] * len(kept) + [True] * filling))
        if self.mask_truncated_completions:
            masked |= batch.clipped[mine]
        if filling or self.mask_truncated_completions:  # on all ranks, or on none
            self.mask_rows(tensors, torch.as_tensor(masked))
        if filling:
            share = torch.tensor(max(1, len(kept)) / len(places), device=self.accelerator.device)
            if self.loss_type in MEAN_OVER_ROWS and self.args.entropy_coef and not self.beta:
                tensors["advantages"] /= share  # not the entropy bonus, which has no rows
                share = torch.ones_like(share)
            tensors["share_counted"] = share
        return tensors, record

    def compute_loss(self, model: Model, inputs: Tensors, *args: Any, **keys: Any) -> torch.Tensor:
        """TRL's loss; rows that only fill the step count in no denominator.

        Unsloth's backward pass ignores a factor on the loss that it returned. So what both trainers
        divide by is scaled, as a tensor, for which Unsloth compiles its loss once.
        """
        if self.loss_type in MEAN_OVER_MICRO_BATCHES:  # else Unsloth takes the mean over tokens
            inputs = {k: value for k, value in inputs.items() if k != "num_items_in_batch"}
        if "share_counted" not in inputs:
            return super().compute_loss(model, inputs, *args, **keys)
        steps, masking = self.current_gradient_accumulation_steps, self.mask_truncated_completions
        self.current_gradient_accumulation_steps = steps * self.share_counted(inputs)
        self.mask_truncated_completions = True  # else Unsloth counts every token that is no pad
        try:
            return super().compute_loss(model, inputs, *args, **keys)
        finally:
            self.current_gradient_accumulation_steps = steps
            self.mask_truncated_completions = masking

    def share_counted(self, inputs: Tensors) -> torch.Tensor:
        """() the share of what the loss is a mean over that counts."""
        if self.loss_type in MEAN_OVER_ROWS:
            return inputs["share_counted"]
        if self.loss_type in MEAN_OVER_TOKENS:
            return torch.ones_like(inputs["share_counted"])
        parts = ranks.gather([self.micro_batches_counted()])
        counted, every = map(sum, zip(*parts, strict=True))
        return torch.full_like(inputs["share_counted"], max(1, counted) / every)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """transformers' schedule over steps, or over the milliseconds of training by the clock."""
        if self.schedule_seconds is None:
            return super().create_scheduler(num_training_steps, optimizer)
        schedule = super().create_scheduler(round(1000 * self.schedule_seconds), optimizer)
        factor, groups = schedule.lr_lambdas[0], len(schedule.lr_lambdas)  # of parameters
        schedule.lr_lambdas = [lambda _: factor(1000 * self.clock.train_seconds)] * groups
        return schedule

    def write_state(self, folder: Path) -> None:
        """The history, and how far the data's order has moved on."""
        state = {"fresh_drawn": self.fresh_drawn, "history": self.history}
        write_atomic(folder / STATE, json.dumps(state) + "\n")

    def read_state(self, folder: Path) -> None:
        if (folder / STATE).is_file():  # else it is a checkpoint of GRPOTrainer
            state = json.loads((folder / STATE).read_text())
            self.fresh_drawn = state["fresh_drawn"]
            history = state["history"].items()
            self.history = {name: [Visit(*visit) for visit in visits] for name, visits in history}
