"""PODS in any TRL script, by changing two names (pods/__init__.py); train.py uses this class too.

n = rollouts_per_prompt rollouts are sampled and scored, m = num_generations are trained on; with
algorithm="grpo" the weights equal those of GRPOTrainer to the bit.
"""

import json
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import trl
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel as Model
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers import TrainerCallback, set_seed
from trl.trainer.utils import get_config_model_id

from pods import ranks, registry
from pods.batch import Algorithm, AlgorithmError, Prompt, Record, Rollout, Selection, Step, Visit
from pods.dry_run import (
    dry_run_on_first_rows,
    names_of,
    refuse_few_rows,
    refuse_frozen,
    refuse_multi_turn,
    refuse_wrong_gradients,
)
from pods.files import write_atomic
from pods.history import History, remember
from pods.lean_update import Tensors, counted_tokens, fill_micro_batches
from pods.metrics import Metrics, summary
from pods.order import Stream
from pods.pods_config import (
    MEAN_OVER_MICRO_BATCHES,
    MEAN_OVER_ROWS,
    PodsConfig,
)
from pods.rollouts import Driver
from pods.scoring import checked
from pods.trl_adapter import Sampler, TrlAdapter, TrlSampler, changed, unsloth_rewrote_trl

STATE = "pods_state.json"  # of a checkpoint
Rows = Dataset | IterableDataset
TITLE = "Not All Rollouts are Useful: Down-Sampling Rollouts in LLM Reinforcement Learning"
PAPER = {  # of the model card
    "title": TITLE,
    "id": "2504.13818",
    "citation": textwrap.dedent(f"""\
        @article{{xu2025not,
            title   = {{{TITLE}}},
            author  = {{Yixuan Even Xu and Yash Savani and Fei Fang and J. Zico Kolter}},
            journal = {{arXiv preprint arXiv:2504.13818}},
            year    = {{2025}}
        }}"""),
}


class PodsTrainer(TrlAdapter):
    """Trainer for PODS, policy optimization with down-sampled rollouts (arXiv 2504.13818).

    It is [`~trl.GRPOTrainer`] whose update sees only the rollouts that an algorithm keeps. Loss,
    reference model, rewards, vLLM, logging and checkpoints are TRL's.

        PodsTrainer("Qwen/Qwen2.5-0.5B", reward_function, PodsConfig("out"), dataset).train()

    Args:
        model, reward_funcs, train_dataset, eval_dataset, processing_class,
        reward_processing_classes, callbacks, optimizers, quantization_config, peft_config:
            As of [`~trl.GRPOTrainer`]. The column `id` of the data set names a question; without
            it the number of the row does, which in a streamed data set, and with a subclass's
            own sampler or loader, no row has twice.
        args ([`PodsConfig`], *optional*):
            Configuration. If `None`, one with default values is used.
        tools, rollout_func, environment_factory:
            Refused with a ValueError: there are no multi-turn rollouts; use GRPOTrainer.
        algorithm (`Callable`, *optional*):
            A generator function in place of `args.algorithm` (docs/algorithms.md).
        sampler (`Callable`, *optional*):
            Called with the trainer; returns an object whose method `sample` generates rollouts
            (see [`Sampler`]), such as `pods.FastSampler`. If `None`, TRL generates.
        phase (`Callable`, *optional*):
            Name -> a context around each phase of a step: generate, score, select.

    """

    _tag_names = ("trl", "pods")
    _name = "PODS"
    _paper = PAPER

    def __init__(
        self,
        model: str | Model,
        reward_funcs: Any = None,
        args: PodsConfig | None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | dict[str, Rows] | None = None,
        processing_class: Tokenizer | None = None,
        reward_processing_classes: Tokenizer | list[Tokenizer] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: None = None,
        rollout_func: None = None,
        environment_factory: None = None,
        *,
        algorithm: Algorithm | None = None,
        sampler: Callable[[Any], Sampler] | None = None,
        phase: Callable[[str], AbstractContextManager] = nullcontext,
    ) -> None:
        if args is None:
            model_name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = PodsConfig(f"{model_name.split('/')[-1]}-PODS")
        if not isinstance(args, PodsConfig):
            raise ValueError(f"args={type(args).__name__}: must be a PodsConfig, with its fields")
        refuse_multi_turn(
            tools=tools, rollout_func=rollout_func, environment_factory=environment_factory
        )
        function, advantage = registry.algorithm_and_advantage(args, algorithm)
        gives_logprobs = args.use_vllm or sampler is not None
        for problem in args.problems(function):
            raise ValueError(problem)
        if hasattr(sampler, "refuse"):  # before a model loads
            sampler.refuse(args)
        names = names_of(reward_funcs, args.correct)
        dry_run_on_first_rows(
            args, function, advantage, names, train_dataset, eval_dataset, gives_logprobs
        )
        refuse_frozen(args, model, peft_config)
        if not type(self).has_own_order():
            refuse_few_rows(args, train_dataset)
        set_seed(args.seed)  # TRL 1.13 and 1.14 initialise an adapter before they seed
        with engine_slots(args):
            super().__init__(
                model=model,
                reward_funcs=reward_funcs,
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                reward_processing_classes=reward_processing_classes,
                callbacks=callbacks,
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
            )
        refuse_wrong_gradients(args, self.accelerator.unwrap_model(self.model))
        self.reward_funcs = [
            reward
            if isinstance(reward, torch.nn.Module) or hasattr(reward, "is_checked")  # by train.py
            else checked(reward, name)
            for reward, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        # The first argument that has no effect in a step whose advantages are ours.
        self.ignored_argument = next(args.problems(function, keeps_all=False), None)
        self.newest: Record | None = None
        self.metrics: Metrics = {}  # of the newest step
        self.logged: Metrics = {}  # log_metric calls of its rewards
        self.extras = []
        self.history: History = {}
        self.fresh_used = 0  # prompts that step.fresh() has handed out in finished steps
        self.driver = Driver(
            algorithm=function,
            advantage=advantage,
            sample=self.sample,
            score=self.score,
            weights=dict(zip(names, self.reward_weights.tolist(), strict=True)),
            correct=args.correct,
            phase=phase,
        )
        self.sampler = (sampler or TrlSampler)(self)

    def train_batch(self, inputs: list[dict]) -> Tensors:
        """One step, from TRL's rows to TRL's batch: on all ranks the same prompts and rollouts."""
        self.extras = []
        generation = self.generation
        step, stream = self.next_step(ranks.gather(inputs), generation)
        record = self.driver(step)  # generate, score and select, until the algorithm returns
        record = replace(record, extras=self.extras)
        self.metrics = summary(record)
        batch, self.newest = self.build_trl_batch(record)  # TRL updates on it, then saves
        self.fresh_used = stream.next - (generation + 1) * step.P
        remember(self.history, self.newest.visits())
        return batch

    def next_step(self, rows: list[dict], generation: int) -> tuple[Step, Stream]:
        """What the algorithm sees, and where the step is in the data's order."""
        rows = rows[:: self.num_generations]  # TRL's sampler repeats each m times in a row
        if generation == 0:  # of a second training, too
            self.fresh_used = 0
            self.history = {}
        position = generation * len(rows) + self.fresh_used
        stream = Stream(rows, position, self.data_order)
        step = Step(
            number=self.state.global_step,
            P=len(rows),
            n=self.args.rollouts_per_prompt,
            m=self.num_generations,
            prompts=stream.own,
            fresh=stream.fresh,
            history=MappingProxyType(self.history),
            rng=np.random.default_rng([self.args.seed, generation]),
        )
        return step, stream

    def sample(self, prompts: list[Prompt], indices: list[int]) -> list[Rollout]:
        """A rollout of each prompt: each rank samples its share and receives all."""
        return ranks.split(self.sampler.sample, list(zip(prompts, indices, strict=True)))

    def build_trl_batch(self, record: Record) -> tuple[Tensors, Record]:
        """TRL's batch of this rank's share of the kept rollouts, and the record with the advantages
        that are used. Where fewer are kept than the budget, padding rows fill it, which are in no
        loss: the shortest rollout, repeated."""
        kept, shortest = record.selection.kept, np.argmin(record.batch.lengths)
        padding = record.step.budget - len(kept)
        rows = np.array([*kept, *[shortest] * padding], dtype=int)
        batch = self.tensors_of(record, rows)
        record = self.set_advantages(record, batch, padding)
        masked = record.batch.clipped[rows] & self.mask_truncated_completions
        masked[len(kept) :] = True
        if masked.any():  # on all ranks, or on none
            self.mask_rows(batch, torch.tensor(ranks.share(masked)))
        if padding:
            share = max(1, len(kept)) / len(rows)
            batch["rows_counted"] = torch.tensor(share, device=self.accelerator.device)
        return batch, record

    def tensors_of(self, record: Record, rows: np.ndarray) -> Tensors:
        """TRL's batch of this rank's share of these rollouts; those after the kept ones are padding
        and have no scores, so that they are in no mean of TRL's."""
        batch, mine = record.batch, ranks.share(rows)
        scores = np.stack(list(batch.by_function.values()), axis=1)[rows]
        scores[len(record.selection.kept) :] = np.nan
        return self.tensors(
            [record.prompts[batch.prompt[i]].row["prompt"] for i in mine],
            [record.rollouts[i] for i in mine],
            torch.as_tensor(scores, dtype=torch.float32),
            [record.extras[i] for i in mine],
        )

    def set_advantages(self, record: Record, batch: Tensors, padding: int) -> Record:
        """Set the selection's advantages in the batch, 0 for padding rows; those that TRL computed
        stand if the selection has none. Returns the record with the advantages in use."""
        kept, advantages = record.selection.kept, record.selection.advantages
        if advantages is None:
            values = ranks.gather(batch["advantages"].tolist())
            record = replace(record, selection=Selection(kept, np.array(values)))
        else:
            if self.ignored_argument:
                raise AlgorithmError(self.ignored_argument)
            values = [*advantages.tolist(), *[0.0] * padding]
            batch["advantages"] = torch.tensor(ranks.share(values)).to(batch["advantages"])
            self.log_equal_groups(self.metrics.get("kept/zero_variance_groups", np.nan))
        self.log_step(values, self.metrics)
        return record

    @property
    def leaves_out_rows(self) -> bool:
        """Whether args.lean_update is on, and the loss reads no row whose advantage is 0."""
        bonus = self.entropy_coef or self.use_adaptive_entropy or self.aux_loss_enabled
        reads_all = self.beta or bonus or self.top_entropy_quantile < 1
        has_shape = self.args.use_liger_kernel or self.pad_to_multiple_of
        return self.args.lean_update and not (reads_all or has_shape)

    def update_batches(self, micro_batches: list[Tensors]) -> list[Tensors]:
        """The micro-batches without the rows that have no gradient, if these are in no loss."""
        if not self.leaves_out_rows:
            return micro_batches
        return fill_micro_batches(
            micro_batches,
            self.row_weight,
            # Unsloth's prefix grouping needs a prompt's rows side by side.
            by_prompt=self.shares_prompts or unsloth_rewrote_trl(),
            cut_prompts=self.has_relative_positions,
        )

    def row_weight(self, batch: Tensors) -> torch.Tensor | float:
        """What a row counts in the loss of a micro-batch, whose padding rows count in none."""
        share = self.denominators(batch["rows_counted"])[0] if "rows_counted" in batch else 1.0
        if self.loss_type in MEAN_OVER_ROWS:
            return 1 / (share * len(batch["advantages"]))
        if self.loss_type in MEAN_OVER_MICRO_BATCHES:
            return 1 / (share * counted_tokens(batch).sum().clamp(min=1))
        return 1.0

    def compute_loss(self, model: Model, inputs: Tensors, *args: Any, **keys: Any) -> torch.Tensor:
        """TRL's loss; padding rows count in no denominator.

        Unsloth's backward pass ignores a factor on the loss that it returned. So what both trainers
        divide by is scaled, as a tensor, for which Unsloth compiles its loss once.
        """
        if self.loss_type in MEAN_OVER_MICRO_BATCHES:  # else Unsloth takes the mean over tokens
            inputs = {k: value for k, value in inputs.items() if k != "num_items_in_batch"}
        if "rows_counted" not in inputs:
            return super().compute_loss(model, inputs, *args, **keys)
        share, scale = self.denominators(inputs["rows_counted"])
        steps = self.current_gradient_accumulation_steps * share
        inputs = {**inputs, "advantages": inputs["advantages"] * scale}
        with changed(
            self,
            current_gradient_accumulation_steps=steps,
            beta=self.beta * scale,
            router_aux_loss_coef=self.router_aux_loss_coef * share,  # of all rows: a router saw all
        ):
            return super().compute_loss(model, inputs, *args, **keys)

    def denominators(self, rows_counted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Factors for TRL's number of micro-batches, and for its advantages and KL, that exclude
        padding rows. rows_counted: () the share of the rows that are no padding."""
        share = rows_counted
        if self.loss_type not in MEAN_OVER_ROWS:
            share = torch.ones_like(share)  # TRL counts the tokens
        if self.loss_type in MEAN_OVER_MICRO_BATCHES:
            share = share * self.micro_batches_counted()
        has_bonus = self.entropy_coef or self.use_adaptive_entropy
        if not has_bonus:
            return share, 1.0
        # A bonus is a mean over micro-batches, whatever the policy's loss is a mean over.
        micro_batches = torch.full_like(share, self.micro_batches_counted())
        return micro_batches, micro_batches / share

    def write_state(self, folder: Path) -> None:
        """The history, and how far the data's order has moved on."""
        state = {"fresh_drawn": self.fresh_used, "history": self.history}
        write_atomic(folder / STATE, json.dumps(state) + "\n")

    def read_state(self, folder: Path) -> None:
        """Read the state that write_state wrote; a checkpoint of GRPOTrainer has none."""
        if not (folder / STATE).is_file():
            return
        state = json.loads((folder / STATE).read_text())
        self.fresh_used = state["fresh_drawn"]
        self.history = {
            question: tuple(Visit(*values) for values in visits)
            for question, visits in state["history"].items()
        }


@contextmanager
def engine_slots(args: trl.GRPOConfig) -> Iterator[None]:
    """A colocated vLLM that TRL builds in this block runs n x P rollouts at once, not m x P."""
    from trl.trainer import grpo_trainer

    original = grpo_trainer.VLLMGeneration

    def build(max_num_seqs: int, **arguments: Any) -> Any:
        slots = max_num_seqs * args.rollouts_per_prompt // args.num_generations
        return original(**arguments, max_num_seqs=max(slots, max_num_seqs))

    with changed(grpo_trainer, VLLMGeneration=build):
        yield
