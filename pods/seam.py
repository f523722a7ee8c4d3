"""The one file with private names of TRL, transformers' Trainer and Unsloth: GRPOTrainer, opened at
three methods. TRL's own code builds the tensors of the rows that are handed to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from accelerate.utils import set_seed

from pods import ranks
from pods.batch import AlgorithmError, Completion, Prompt, Rollout
from pods.order import DataOrder

Tensors = dict[str, torch.Tensor]  # TRL's batch of a generation


class TrlSeam(trl.GRPOTrainer):
    """GRPOTrainer with public names for what PodsTrainer needs of it; train_batch, write_state and
    read_state are PodsTrainer's."""

    _handed: tuple[tuple, torch.Tensor] | None = None  # rollouts and scores that TRL is answered
    _earlier = 0  # micro-steps before the first that TRL counts

    def _generate_and_score_completions(self, inputs: list[dict]) -> Tensors:
        if self.model.training:
            return self.train_batch(inputs)
        return super()._generate_and_score_completions(inputs)

    def _generate(self, prompts: list) -> tuple:
        return super()._generate(prompts) if self._handed is None else self._handed[0]

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        return super()._calculate_rewards(*args) if self._handed is None else self._handed[1]

    def tensors(self, prompts: list, rollouts: list[Rollout], scores: torch.Tensor) -> Tensors:
        """TRL's batch of this rank's rollouts; `scores`: (rows, functions) of all ranks."""
        ids, texts = [r.completion.token_ids for r in rollouts], [r.text for r in rollouts]
        logprobs = [r.completion.logprobs for r in rollouts]
        logprobs = None if None in logprobs else logprobs
        if self.vllm_importance_sampling_correction and logprobs is not None:
            self.use_vllm = True  # else TRL corrects for no engine; it does not generate here
        answer = [r.prompt_ids for r in rollouts], ids, None, texts, logprobs, {}, None, []
        self._handed = answer, scores.to(self.accelerator.device)
        # TRL takes whatever does not end with the tokenizer's own end token for truncated.
        masking, self.mask_truncated_completions = self.mask_truncated_completions, False
        try:
            return super()._generate_and_score_completions([{"prompt": p} for p in prompts])
        finally:
            self._handed, self.mask_truncated_completions = None, masking

    def rollouts_by_trl(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        """A rollout of each prompt by TRL's own generation."""
        prompts, m = [prompt for prompt, _ in wanted], self.num_generations
        whole = prompts == [prompt for prompt in prompts[::m] for _ in range(m)]
        by_server = self.use_vllm and self.vllm_mode == "server"
        if by_server and not all(ranks.gather([whole])):  # all ranks raise, or none
            rule = f"a vLLM server draws num_generations={m} rollouts of a prompt at once"
            raise AlgorithmError(f"{rule}; ask for a multiple of them, or set vllm_mode=colocate")
        if self._is_vlm:
            raise AlgorithmError("PodsTrainer trains only on texts; use GRPOTrainer for images")
        texts = [prompt.row["prompt"] for prompt in prompts]
        prompt_ids, ids, _, completions, logprobs, *_ = super()._generate(texts)
        ends = (self._tokenizer.eos_token_id, self._tokenizer.pad_token_id)
        rows = zip(prompt_ids, ids, completions, logprobs or [None] * len(ids), strict=True)
        return [
            Rollout(prompt, Completion(tokens, tokens[-1] not in ends, values), text)
            for prompt, tokens, text, values in rows
        ]

    def score(self, prompts: list[Prompt], rollouts: list[Rollout]) -> np.ndarray:
        """(rollouts, functions) rewards, NaN for None: each rank scores its share."""
        pairs = ranks.share(list(zip(prompts, rollouts, strict=True)))
        table = super()._calculate_rewards(
            [prompt.row for prompt, _ in pairs],
            [prompt.row["prompt"] for prompt, _ in pairs],
            [rollout.text for _, rollout in pairs],
            [rollout.completion.token_ids for _, rollout in pairs],
        )
        self._pending_extra_logs.clear()  # columns of n rollouts, where TRL's table has m
        return table[: len(prompts)].float().cpu().numpy()

    def log_step(self, advantages: list[float], metrics: dict[str, float]) -> None:
        """What TRL logs of a step: advantages of all ranks, in place of its own, and metrics."""
        self._logs["advantages"].extend(advantages)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    @property
    def generation(self) -> int:
        """How many generations of rollouts came before this one."""
        micro_steps = self._earlier + self._step
        return micro_steps // (self.args.steps_per_generation * self.num_iterations)

    @cached_property
    def data_order(self) -> DataOrder | None:
        """TRL's order of the training rows; None for a streamed data set."""
        sized = hasattr(self.train_dataset, "__len__")
        return DataOrder(self.train_dataset, super()._get_train_sampler()) if sized else None

    def mask_rows(self, batch: Tensors, rows: torch.Tensor) -> None:
        """These rows leave the loss and its number of tokens."""
        mask = batch["completion_mask"]
        mask[rows.to(mask.device)] = 0
        batch["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()

    def micro_batches_counted(self) -> tuple[int, int]:
        """This rank's micro-batches of the generation with rows that count, and all of them."""
        parts = self._buffered_inputs
        return sum(bool(part["completion_mask"].any()) for part in parts), len(parts)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if ranks.is_main():
            self.write_state(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            step, order = self.state.global_step, self.data_order
            before = step * self.args.gradient_accumulation_steps
            before = before if order is None else order.micro_steps(step, self.args)
            self._earlier = before - self._step
            self.read_state(Path(checkpoint))

    def save_state(self, folder: Path) -> None:
        """Adapter or weights, tokenizer, optimiser, scheduler and random states of this rank."""
        self.save_model(str(folder), _internal_call=True)
        self._save_optimizer_and_scheduler(str(folder))
        self._save_rng_state(str(folder))

    def generate_ids(
        self, prompts: list[list[int]], evaluation: bool = False, greedy: bool = False
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """A completion of each prompt by TRL's own generation; an evaluation's prompts differ."""
        if not evaluation:
            return self._generate_single_turn(prompts, None, {})
        training, count = self.model.training, self.num_generations_eval
        sampler = self.vllm_generation if self.use_vllm else self.generation_config
        top_k = sampler.top_k
        sampler.top_k = 1 if greedy else top_k
        self.model.eval()
        self.num_generations_eval = 1
        try:
            return self._generate_single_turn(prompts, None, {})
        finally:
            self.model.train(training)
            self.num_generations_eval, sampler.top_k = count, top_k
            self._last_loaded_step = -1  # the next training step loads and pays for its weights

    @torch.no_grad()
    def token_logprobs(self, prompt: list[int], completion: list[int]) -> torch.Tensor:
        """(tokens,) log-probabilities of a completion, as the loss computes them."""
        training = self.model.training
        tokens = torch.tensor([[*prompt, *completion]], device=self.accelerator.device)
        logprobs, *_ = self._get_per_token_logps_and_entropies(
            self.model, tokens, torch.ones_like(tokens), len(completion), 1
        )
        self.model.train(training)  # Unsloth changes the mode
        return logprobs[0].float().cpu()

    def rehearse(self, batch: Tensors) -> None:
        """Forward and backward of one micro-batch beside Adam's moments; nothing of it stays."""
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self.model.train()
        size, optimizer = self.args.per_device_train_batch_size, str(self.args.optim).lower()
        rows = {k: v[:size] for k, v in batch.items() if getattr(v, "ndim", 0) > 0}
        trained = [p for p in self.model.parameters() if p.requires_grad]
        moments = 2 if "adam" in optimizer and not self.optimizer.state else 0
        kind = torch.uint8 if "8bit" in optimizer else None  # None: the parameter's
        held = [torch.empty_like(p, dtype=kind) for p in trained * moments]
        self.accelerator.backward(self.compute_loss(self.model_wrapped, {**batch, **rows}))
        held.clear()
        self.model.zero_grad()
        self.forget_refused_packing()
        self._metrics["train"].clear()
        set_seed(self.args.seed, device_specific=True)  # as TRL leaves it before the first step

    def forget_refused_packing(self) -> None:
        """Real rollouts decide again: Unsloth's self-check refused tokens that nobody sampled."""
        known = {k: v for k, v in vars(self.model).items() if k.startswith("_unsloth_seq_packing")}
        if any(value is False or "unsafe" in name for name, value in known.items()):
            for name in known:
                delattr(self.model, name)

    def packing(self) -> dict[str, float]:
        """Whether Unsloth's update packs a micro-batch into one sequence; empty elsewhere."""
        packed = getattr(self.model, "_unsloth_seq_packing_grad_ok", None)
        return {} if packed is None else {"update/packed": float(packed)}


@contextmanager
def engine_slots(args: trl.GRPOConfig) -> Iterator[None]:
    """A colocated vLLM that TRL builds in this block runs n x P rollouts at once, not m x P."""
    from trl.trainer import grpo_trainer

    original = grpo_trainer.VLLMGeneration

    def build(max_num_seqs: int, **arguments: Any) -> Any:
        slots = max_num_seqs * args.rollouts_per_prompt // args.num_generations
        return original(**arguments, max_num_seqs=max(slots, max_num_seqs))

    grpo_trainer.VLLMGeneration = build
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = original
