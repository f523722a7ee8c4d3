"""GRPOTrainer with public names; the one file with private names of TRL, transformers and Unsloth.
TRL builds the tensors; its calls for generation and rewards return our results.

    overridden      _generate_and_score_completions, _calculate_rewards, _prepare_inputs,
                    compute_loss, _get_per_token_logps_and_entropies,
                    _save_optimizer_and_scheduler, _load_optimizer_and_scheduler,
                    _load_from_checkpoint
    set for a call  _generate, _generate_single_turn, _calculate_rewards, use_vllm,
                    mask_truncated_completions, num_generations_eval, top_k, _metrics;
                    _attn_implementation of a model's config
    set             _last_loaded_step after an evaluation, so that TRL's vLLM gets new weights;
                    _buffered_inputs after a generation, without rows whose gradient is 0
    deleted         Unsloth's notes on packing, after the warm-up"""

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import trl
from accelerate.utils import extract_model_from_parallel, is_peft_model, set_seed
from transformers import AttentionInterface
from trl.trainer.utils import pad

from pods import ranks
from pods.batch import AlgorithmError, Completion, Prompt, Rollout
from pods.lean_update import PackedRows, Tensors, counted_tokens
from pods.metrics import Metrics
from pods.order import DataOrder

PACKED = "pods_packed"  # the attention of a model while its update computes packed rows


class Generation(NamedTuple):
    """What GRPOTrainer._generate returns: for each prompt of this rank one value of each list."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    tool_mask: list[list[int]] | None
    completions: list  # texts, or messages of a chat
    logprobs: list[list[float]] | None
    extra_fields: dict[str, list]
    images: list | None
    tool_images: list


class TrlAdapter(trl.GRPOTrainer):
    """GRPOTrainer with public names, which trains the same. A subclass may say what a step is and
    what a checkpoint adds: train_batch, write_state, read_state."""

    _earlier = 0  # micro-steps before the first that TRL counts
    extras: list[dict[str, Any]]  # column -> value of log_extra, of each rollout of the step so far
    logged: Metrics  # of log_metric, in the newest step

    def train_batch(self, inputs: list[dict]) -> Tensors:
        """TRL's batch of a generation; inputs: a row for each rollout of this rank."""
        return super()._generate_and_score_completions(inputs)

    def update_batches(self, micro_batches: list[Tensors]) -> list[Tensors]:
        """The micro-batches of one update, as many; a loss is not computed for an empty one."""
        return micro_batches

    def write_state(self, folder: Path) -> None:
        """Add to a checkpoint; called on the main rank."""

    def read_state(self, folder: Path) -> None:
        """Read what write_state wrote; called on every rank."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As TRL's; a second training starts again from the first prompts, whatever the data
        set."""
        self._earlier = -self._step
        vars(self).pop("data_order", None)
        return super().train(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict]) -> Tensors:
        if self.model.training:
            return self.train_batch(inputs)
        batch = super()._generate_and_score_completions(inputs)
        for values in self._logs["extra"].values():  # a new column has none of earlier prompts
            values.extendleft([None] * (len(self._logs["prompt"]) - len(values)))
        return batch

    def _calculate_rewards(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids_list: list
    ) -> torch.Tensor:
        """Columns of log_extra have a value for each completion: None in those that TRL's table has
        already, and no function logged now."""
        table = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        pending = self._pending_extra_logs
        for column in {*pending, *self._logs["extra"]}:
            if len(pending[column]) != len(prompts):
                if pending[column]:
                    text = f"log_extra({column!r}) needs a value for each completion; not logged"
                    warnings.warn(text, stacklevel=1)  # Python shows it once
                pending[column] = [None] * len(prompts)
        return table

    def _prepare_inputs(self, generation_batch: Any) -> Tensors:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:  # of an earlier micro-batch, or an evaluation
            return inputs
        batches = self._buffered_inputs
        # Micro-batches of one update: a generation may be of several, or a part of one. Without
        # TRL's order of the data an epoch may end, and with it an update, after any of them.
        size = math.gcd(len(batches), self.args.gradient_accumulation_steps)
        size = 1 if self.data_order is None else size
        updates = [batches[i : i + size] for i in range(0, len(batches), size)]
        self._buffered_inputs = [x for update in updates for x in self.update_batches(update)]
        return self._buffered_inputs[self._step % len(batches)]

    def compute_loss(self, model: Any, inputs: Tensors, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not inputs:
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        # TRL's loss reads use_vllm for this correction only; Unsloth's also reads it, and then
        # computes a prompt once for each completion.
        corrects = self.vllm_importance_sampling_correction and "sampling_per_token_logps" in inputs
        logs = self._metrics
        filled = "rows_counted" in inputs
        unlogged = filled and not any(ranks.gather([bool(counted_tokens(inputs).any())]))
        if unlogged or "unlogged" in inputs:
            logs = {"train": defaultdict(list)}  # what TRL logs of no rows is 0, and left out
        with changed(self, use_vllm=corrects, _metrics=logs):
            return super().compute_loss(model, inputs, *args, **kwargs)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        *further: Any,  # Unsloth gives TRL's keywords by position
        **keys: Any,
    ) -> tuple:
        """As TRL's; with args.lean_update each prompt is computed once, if the model can."""
        compute = super()._get_per_token_logps_and_entropies
        one_token = logits_to_keep + 1 == input_ids.shape[1]  # of each prompt: nothing is shared
        # In an evaluation TRL masks completions that are cut off, all of their tokens.
        empty = not attention_mask[:, -logits_to_keep:].any(dim=1).all()
        if one_token or empty or not self.shares_prompts:
            further = (batch_size, *further)
            return compute(model, input_ids, attention_mask, logits_to_keep, *further, **keys)
        size = batch_size or len(input_ids)
        logprobs, entropies = [], []
        for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True):
            rows = PackedRows.of(ids, mask, logits_to_keep)
            with packed(model, rows) as call:
                values, entropy, _ = compute(
                    call,
                    rows.targets,
                    torch.ones_like(rows.targets),
                    int(rows.completion_mask.sum()),
                    None,
                    *further,
                    **keys,
                )
            logprobs.append(rows.unpacked(values))
            if entropy is not None:
                entropies.append(rows.unpacked(entropy))
        return torch.cat(logprobs), torch.cat(entropies) if entropies else None, None

    @cached_property
    def shares_prompts(self) -> bool:
        """Whether the update computes each prompt once, which needs a model whose attention can be
        exchanged and looks at all tokens before one."""
        model = self.accelerator.unwrap_model(self.model)
        config = model.config.get_text_config()
        base = model.get_base_model() if is_peft_model(model) else model
        kinds = {*(getattr(config, "layer_types", None) or [])} - {"full_attention"}
        return (
            self.args.lean_update
            and not (self.args.gradient_checkpointing or base.is_gradient_checkpointing)
            and not self.is_fsdp_enabled  # which may recompute, too
            and not unsloth_rewrote_trl()
            and not (self._is_vlm or self.aux_loss_enabled or self.args.use_liger_kernel)
            and base.is_backend_compatible()
            and config._attn_implementation == "sdpa"
            and not (kinds or getattr(config, "sliding_window", None))
            and not base._is_stateful
        )

    def tensors(
        self,
        prompts: list,
        rollouts: list[Rollout],
        scores: torch.Tensor,
        extras: Sequence[dict[str, Any]] = (),
    ) -> Tensors:
        """TRL's batch of this rank's rollouts; `scores`: (rows, functions) of all ranks. extras: of
        each rollout what its table has beside it."""
        columns = ranks.gather([name for row in extras for name in row])
        for name in {*columns, *self._logs["extra"]}:
            self._pending_extra_logs[name] = [row.get(name) for row in extras]
        logprobs = [rollout.completion.logprobs for rollout in rollouts]
        if None in logprobs:
            logprobs = None
        generation = Generation(
            prompt_ids=[rollout.prompt_ids for rollout in rollouts],
            completion_ids=[rollout.completion.token_ids for rollout in rollouts],
            tool_mask=None,
            completions=[rollout.text for rollout in rollouts],
            logprobs=logprobs,
            extra_fields={},
            images=None,
            tool_images=[],
        )
        corrects = self.vllm_importance_sampling_correction and logprobs is not None
        with changed(
            self,
            _generate=lambda _: generation,
            _calculate_rewards=lambda *_: scores.to(self.accelerator.device),
            # TRL takes whatever does not end with the tokenizer's own end token for truncated.
            mask_truncated_completions=False,
            # TRL corrects for the engine that gave log-probabilities only with it, whichever it is.
            use_vllm=corrects,
        ):
            rows = [{"prompt": prompt} for prompt in prompts]
            names = sorted(self._pending_metrics)  # TRL logs their means
            batch = super()._generate_and_score_completions(rows)
        self.logged = {
            f"log_metric/{name}": value
            for name in names
            if math.isfinite(value := self._metrics["train"][name][-1])
        }
        return batch

    def score(self, prompts: list[Prompt], rollouts: list[Rollout]) -> np.ndarray:
        """(rollouts, functions) rewards, NaN for None: each rank scores its share."""
        my_prompts = ranks.share(prompts)
        my_rollouts = ranks.share(rollouts)
        table = self._calculate_rewards(
            [prompt.row for prompt in my_prompts],
            [prompt.row["prompt"] for prompt in my_prompts],
            [rollout.text for rollout in my_rollouts],
            [rollout.completion.token_ids for rollout in my_rollouts],
        )
        extras = [
            {name: values[i] for name, values in self._pending_extra_logs.items()}
            for i in range(len(my_prompts))
        ]
        self.extras += ranks.gather(extras)[: len(prompts)]
        self._pending_extra_logs.clear()  # TRL's table has rows of the kept rollouts
        return table[: len(prompts)].float().cpu().numpy()

    def log_step(self, advantages: list[float], metrics: Metrics) -> None:
        """Add to TRL's logs of a step: the advantages of all ranks, and metrics."""
        self._logs["advantages"].extend(advantages)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def log_equal_groups(self, share: float) -> None:
        """Log the equal groups in place of TRL, which takes each m rows for a group; NaN is left
        out."""
        self._metrics["train"]["frac_reward_zero_std"][-1] = share

    @property
    def generation(self) -> int:
        """How many generations of rollouts came before this one."""
        micro_steps = self._earlier + self._step
        return micro_steps // (self.args.steps_per_generation * self.num_iterations)

    @classmethod
    def has_own_order(cls) -> bool:
        """Whether a subclass chooses the rows of a step itself."""
        names = ("_get_train_sampler", "get_train_dataloader")
        return any(getattr(cls, name) is not getattr(TrlAdapter, name) for name in names)

    @cached_property
    def data_order(self) -> DataOrder | None:
        """TRL's order of the training rows; None for a streamed data set, and for a subclass's."""
        if self.has_own_order() or not hasattr(self.train_dataset, "__len__"):
            return None
        return DataOrder(self.train_dataset, self._get_train_sampler())

    def mask_rows(self, batch: Tensors, rows: torch.Tensor) -> None:
        """Take these rows out of the loss and its number of tokens. The model still reads them, as
        it does for the reference's log-probabilities: otherwise their KL would overflow to NaN."""
        mask = torch.ones_like(batch["completion_mask"])
        mask[rows.to(mask.device)] = 0
        batch["tool_mask"] = mask
        batch["num_items_in_batch"] = self.accelerator.gather(counted_tokens(batch).sum()).sum()

    @cached_property
    def has_relative_positions(self) -> bool:
        """Whether the model's positions are rotary, so that only their differences matter."""
        config = self.accelerator.unwrap_model(self.model).config.get_text_config()
        return bool(getattr(config, "rope_parameters", None))

    def micro_batches_counted(self) -> float:
        """The share of the generation's micro-batches in which a token counts; of one at least."""
        parts = ranks.gather([bool(counted_tokens(x).any()) for x in self._buffered_inputs])
        return max(1, sum(parts)) / len(parts)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """transformers loads only the adapters in subfolders, if there is one: that of the
        reference, "ref", of a PeftModel that was handed over. The trained one lies beside it."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        model = model or self.model
        folder = Path(resume_from_checkpoint)
        if is_peft_model(model) and any(folder.glob("*/adapter_config.json")):
            model.load_adapter(str(folder), model.active_adapter, is_trainable=True)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if ranks.is_main():
            self.write_state(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            if self.data_order is None:
                micro_steps = self.state.global_step * self.args.gradient_accumulation_steps
            else:
                micro_steps = self.data_order.micro_steps(self.state.global_step, self.args)
            self._earlier = micro_steps - self._step
            self.read_state(Path(checkpoint))

    def save_state(self, folder: Path) -> None:
        """Adapter or weights, tokenizer, optimiser, scheduler. Random states are set anew in each
        step (pods.training.loop.seed_step)."""
        self.save_model(str(folder), _internal_call=True)
        self._save_optimizer_and_scheduler(str(folder))

    def generate_ids(
        self, prompts: list[list[int]], evaluation: bool = False, greedy: bool = False
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """A completion of each prompt by TRL's own generation; an evaluation's prompts differ."""
        sample = self._generate_single_turn
        if "num_generations" in inspect.signature(sample).parameters:  # from TRL 1.16 on
            sample = partial(sample, num_generations=1)  # each is asked for by itself
        if not evaluation:
            return sample(prompts, None, {})
        training = self.model.training
        sampler = self.vllm_generation if self.use_vllm else self.generation_config
        top_k = 1 if greedy else sampler.top_k
        self.model.eval()
        with changed(self, num_generations_eval=1), changed(sampler, top_k=top_k):
            sampled = sample(prompts, None, {})
        self.model.train(training)
        self._last_loaded_step = -1  # the next training step loads and pays for its weights
        return sampled

    @property
    def end_tokens(self) -> list[int]:
        """The tokens that end a completion: the tokenizer's, from TRL 1.16 on the model's too."""
        return list(getattr(self, "eos_token_ids", [self._tokenizer.eos_token_id]))

    def generating(
        self, generate: Callable[[list[list[int]]], tuple]
    ) -> AbstractContextManager[None]:
        """In this block `generate` answers in place of TRL's generation, between its tokenizer and
        its metrics: prompts as token ids -> token ids of each completion, log-probabilities or
        None."""
        return changed(self, _generate_single_turn=lambda prompts, *_, **__: generate(prompts))

    @torch.no_grad()
    def token_logprobs(
        self, prompts: list[list[int]], completions: list[list[int]]
    ) -> list[torch.Tensor]:
        """(tokens,) log-probabilities of each completion, as in the loss but for dropout."""
        training = self.model.training
        self.model.eval()  # dropout would be a gap, and sample from the generator of the training
        ids, mask = [], []
        for rows, side in (prompts, "left"), (completions, "right"):
            tokens = [torch.tensor(row, device=self.accelerator.device) for row in rows]
            ids.append(pad(tokens, self._tokenizer.pad_token_id, side))
            mask.append(pad([torch.ones_like(row) for row in tokens], 0, side))
        logprobs, *_ = self._get_per_token_logps_and_entropies(
            self.model,
            torch.cat(ids, dim=1),
            torch.cat(mask, dim=1),
            ids[1].shape[1],
            batch_size=self.args.per_device_train_batch_size,  # it fits into the memory
        )
        self.model.train(training)  # Unsloth changes the mode
        lengths = map(len, completions)
        return [row[:size].float().cpu() for row, size in zip(logprobs, lengths, strict=True)]

    def dry_run_update(self, batch: Tensors) -> None:
        """Forward and backward of one micro-batch beside Adam's moments; nothing of it stays."""
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self.model.train()
        size = self.args.per_device_train_batch_size
        rows = {k: v[:size] for k, v in batch.items() if getattr(v, "ndim", 0) > 0}
        moments = self.first_moments()
        self.accelerator.backward(self.compute_loss(self.model_wrapped, {**batch, **rows}))
        moments.clear()
        self.model.zero_grad()
        self.forget_refused_packing()
        self._metrics["train"].clear()
        set_seed(self.args.seed, device_specific=True)  # as TRL leaves it before the first step

    @property
    def may_recompute(self) -> bool:
        """Whether gradient_checkpointing can change after loading; Unsloth's loader sets it."""
        model = self.accelerator.unwrap_model(self.model)
        return model.supports_gradient_checkpointing and not unsloth_rewrote_trl()

    @contextmanager
    def recomputation(self, on: bool) -> Iterator[None]:
        """In this block gradient_checkpointing is on or off, whatever args say."""
        before = self.args.gradient_checkpointing
        with changed(self.args, gradient_checkpointing=on):
            self.set_recomputation(on)
            try:
                yield
            finally:
                self.set_recomputation(before)

    def set_recomputation(self, on: bool) -> None:
        vars(self).pop("shares_prompts", None)  # which depends on it
        model = self.accelerator.unwrap_model(self.model)
        if on:
            model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
        else:
            model.gradient_checkpointing_disable()

    def first_moments(self) -> list[torch.Tensor]:
        """Memory for the two moments of Adam, which come with the first optimiser step."""
        name = str(self.args.optim).lower()
        if "adam" not in name or self.optimizer.state:
            return []
        dtype = torch.uint8 if "8bit" in name else None  # None: the parameter's
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return [torch.empty_like(p, dtype=dtype) for p in trained * 2]

    def forget_refused_packing(self) -> None:
        """Let real rollouts decide again: Unsloth's self-check refused tokens that nobody
        sampled."""
        checked = ("_unsloth_seq_packing", "_unsloth_prefix_grouper")
        notes = {k: v for k, v in vars(self.model).items() if k.startswith(checked)}
        refused = any(value is False or "unsafe" in name for name, value in notes.items())
        for name in notes if refused else ():
            delattr(self.model, name)

    def packing(self) -> Metrics:
        """Whether Unsloth's update packs a micro-batch into one sequence; empty elsewhere."""
        packed = getattr(self.model, "_unsloth_seq_packing_grad_ok", None)
        return {} if packed is None else {"update/packed": float(packed)}


def unsloth_rewrote_trl() -> bool:
    """Whether Unsloth has replaced TRL's trainer by its own."""
    return trl.GRPOTrainer.__name__.startswith("Unsloth")


class Sampler(Protocol):
    """Samples the rollouts of a step."""

    def sample(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        """A rollout of each prompt of this rank; the number is its index among the rollouts of the
        question in this step."""


class TrlSampler:
    """TRL's own generation, whichever it is: transformers' generate or vLLM."""

    def __init__(self, trainer: TrlAdapter) -> None:
        self.trainer = trainer

    def sample(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        trainer = self.trainer
        if trainer._is_vlm:
            raise AlgorithmError("PodsTrainer trains only on texts; use GRPOTrainer for images")
        prompts = [prompt for prompt, _ in wanted]
        if trainer.use_vllm and trainer.vllm_mode == "server":
            self.check_multiples(prompts)
        generation = Generation(*trainer._generate([prompt.row["prompt"] for prompt in prompts]))
        ends = {*trainer.end_tokens, trainer._tokenizer.pad_token_id}
        logprobs = generation.logprobs or [None] * len(prompts)
        completions = [
            Completion(token_ids, token_ids[-1] not in ends, values)
            for token_ids, values in zip(generation.completion_ids, logprobs, strict=True)
        ]
        return list(map(Rollout, generation.prompt_ids, completions, generation.completions))

    def check_multiples(self, prompts: list[Prompt]) -> None:
        """A vLLM server samples m rollouts of a prompt at once. All ranks raise, or none."""
        m = self.trainer.num_generations
        whole = prompts == [prompt for prompt in prompts[::m] for _ in range(m)]
        if not all(ranks.gather([whole])):
            raise AlgorithmError(
                f"a vLLM server samples num_generations={m} rollouts of a prompt at once; ask for "
                "a multiple of them, or set vllm_mode=colocate"
            )


@contextmanager
def packed(model: Any, rows: PackedRows) -> Iterator[Callable[..., Any]]:
    """The model as TRL calls it, whose input in this block are the packed rows instead of TRL's."""
    config = extract_model_from_parallel(model).config
    inputs = {"input_ids": rows.tokens, "position_ids": rows.positions, "attention_mask": None}
    attention = partial(rows.attention, AttentionInterface()["sdpa"])
    AttentionInterface.register(PACKED, attention)
    with changed(config, _attn_implementation=PACKED):
        yield lambda **theirs: model(**theirs | inputs)


@contextmanager
def changed(owner: Any, **values: Any) -> Iterator[None]:
    """In this block the attributes of an object have these values."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
