"""vLLM as the engine: adapters are LoRA requests; the one in training is handed over as a folder.

It runs in another process (not Unsloth's), apart from the trainer's generators and process group.
Seeds are per request, but another schedule can change a completion where two tokens nearly tie.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count, groupby, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase as Tokenizer

from pods import ranks
from pods.config.errors import EngineError, OutOfMemory
from pods.config.keys import TrainConfig
from pods.engines import Answers, Completion, Limits, LivePolicy, Sampling, Weights, Work
from pods.models import FALLBACK, is_adapter, locate, named_loading_errors
from pods.models.policy import end_tokens

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read when vllm is imported
if not torch.cuda.is_available():
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; else half of the memory
    # Threads pinned to their cores wait for each other if another process has one of them.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) - 1)))

from vllm import LLM, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.v1.engine.core_client import SyncMPClient
from vllm.v1.engine.exceptions import EngineDeadError

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values vLLM has kernels for
SHARE = 0.85  # of the card's memory, if nothing else uses it
WINDOW = 4096  # completions that are handed over at once: a kill loses as many at most
RESERVE = 0.03  # of the card's memory, not counted by vLLM


class VllmEngine(AbstractContextManager):
    """Serves one base model with any number of adapters, or full checkpoints one after another."""

    def __init__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        sampling: Sampling,
        limits: Limits,
        lora_rank: int | None,
        llm: "LLM | None" = None,
    ) -> None:
        """lora_rank: the largest rank to come, None without adapters. llm: a running one.

        Raises OutOfMemory, UserError or RunFailed if vLLM does not start.
        """
        self._config = config
        self._sampling = sampling
        self._limits = limits
        self._lora_rank = lora_rank
        self._base = locate(config.model.path)
        self._ends = list(sampling.ends) or end_tokens(config.model.path, tokenizer)
        self._adapters: dict[Path, LoRARequest] = {}
        self._live: LoRARequest | None = None
        self._version: Hashable = None
        self._numbers = count(1)  # vLLM wants another one for each adapter
        self._folder = tempfile.TemporaryDirectory(prefix="pods-adapter-")
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # the engine would outlive us
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self._model = self._base
        self._llm = llm or self._start(self._base)

    def generate(self, works: Iterable[Work], *, logprobs: bool = False) -> Answers:
        """See Engine. Works of one model are handed over together, about WINDOW completions at
        once. No log-probabilities if the sampling is narrowed."""
        for _, of_model in groupby(works, self._model_of):
            window: list[Work] = []
            for work in of_model:
                window.append(work)
                if sum(len(r.seeds) for work in window for r in work.requests) >= WINDOW:
                    yield from self._together(window, logprobs)
                    window = []
            if window:
                yield from self._together(window, logprobs)

    def _together(self, works: Sequence[Work], logprobs: bool) -> Answers:
        """The completions of works of one model, by one call of vLLM."""
        model = self._model_of(works[0])
        if model != self._model:
            self._stop()  # free it before the next one loads
            self._llm = self._start(model)
            self._model = model
        prompts, params, adapters = [], [], []  # one entry a completion
        for work in works:
            adapter = self._adapter(work.weights)
            for request in work.requests:
                for seed in request.seeds:
                    prompts.append({"prompt_token_ids": list(request.prompt)})
                    params.append(self._params(seed, logprobs, work))
                    adapters.append(adapter)
        try:
            outputs = self._llm.generate(
                prompts,
                params,
                lora_request=adapters if self._lora_rank else None,
                use_tqdm=False,
            )
        except EngineDeadError as error:
            raise EngineError(
                f"engine=vllm: its process ended; its own messages say why. {FALLBACK}"
            ) from error
        completions = map(_completion, outputs)
        for work in works:
            yield work, [list(islice(completions, len(r.seeds))) for r in work.requests]

    def _params(self, seed: int, logprobs: bool, work: Work) -> SamplingParams:
        """vLLM's settings of one completion."""
        sampling = self._sampling
        full = work.full_length
        # vLLM gives log-probabilities before the temperature, or after it and top-k and top-p; the
        # trainer's are after the temperature only.
        logprobs = logprobs and not sampling.narrowed
        return SamplingParams(
            temperature=0.0 if work.greedy else sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            seed=seed,
            ignore_eos=full,
            stop_token_ids=None if full else self._ends,
            stop=None if full else list(sampling.stop) or None,
            detokenize=bool(sampling.stop),  # else only the caller decodes texts
            logprobs=0 if logprobs else None,  # 0: the sampled token's
        )

    def _adapter(self, weights: Weights) -> LoRARequest | None:
        """The adapter of `weights` as vLLM knows it; None for the base and a full checkpoint."""
        if isinstance(weights, LivePolicy):
            if weights.version != self._version:
                self._live = self._hand_over(weights.model)
                self._version = weights.version
            return self._live
        if weights is None or not is_adapter(weights):
            return None
        if weights not in self._adapters:
            folder = str(weights.resolve())
            self._adapters[weights] = LoRARequest(folder, next(self._numbers), folder)
        return self._adapters[weights]

    def _hand_over(self, model: PeftModel) -> LoRARequest:
        """The adapter as it is now, saved once a version under a new name and a new id, in the
        model's type: vLLM would cast it on every load.

        vLLM keys its prefix cache by the name: an old name would return keys and values of older
        weights. With one id, `load_inplace` would read the folder again at every scheduling step.
        The adapter before leaves the engine: memory stays constant.
        """
        number = next(self._numbers)
        folder = Path(self._folder.name) / f"live-{number}"
        model.peft_config[model.active_adapter].save_pretrained(str(folder))
        # Embeddings are never part of the adapter; "auto" would ask the hub about them.
        state = get_peft_model_state_dict(model, save_embedding_layers=False)
        dtype = getattr(torch, self._config.model.dtype)
        tensors = {name: v.detach().to(dtype).cpu().contiguous() for name, v in state.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        if self._live:
            shutil.rmtree(self._live.lora_path)
        return LoRARequest(folder.name, number, str(folder))

    def _model_of(self, work: Work) -> str:
        """The model that the engine must hold: the base below an adapter, or a full checkpoint."""
        if isinstance(work.weights, Path) and not is_adapter(work.weights):
            return str(work.weights)
        return self._base

    def _start(self, model: str) -> LLM:
        """A vLLM with `model`, in a process of its own."""
        sampling = self._sampling
        share = self._share()
        key = f"gpu_memory_utilization={share:.2f}"
        lora_rank = self._lora_rank or 1
        with named_loading_errors(model, key), apart_from_the_launcher():
            llm = LLM(
                model=model,
                enable_lora=bool(self._lora_rank),
                max_lora_rank=next((rank for rank in RANKS if rank >= lora_rank), lora_rank),
                max_loras=1,
                max_num_seqs=self._limits.max_sequences,  # None: vLLM's default
                tokenizer=self._base,
                dtype=self._config.model.dtype,
                quantization="bitsandbytes" if self._config.model.load_in_4bit else None,
                max_model_len=sampling.max_prompt_length + sampling.max_tokens,
                gpu_memory_utilization=share,
                enforce_eager=not torch.cuda.is_available(),  # compiling does not pay on a CPU
                # Otherwise vLLM captures each graph a second time, for requests without an
                # adapter, of which there are few.
                compilation_config={"cudagraph_specialize_lora": False},
                generation_config="vllm",  # not the model's own repetition penalty and top-k
                logprobs_mode="raw_logprobs" if sampling.temperature == 1 else "processed_logprobs",
            )
        core = llm.llm_engine.engine_core
        if isinstance(core, SyncMPClient):  # else VLLM_ENABLE_V1_MULTIPROCESSING=0
            Thread(target=fail_at_its_end, args=[core], daemon=True).start()
        return llm

    def _share(self) -> float:
        """Share of the card's memory: as configured, else the free share, at most SHARE."""
        wanted = self._limits.gpu_memory_utilization
        free = total = 1
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()  # bytes
        share = wanted or min(SHARE, free / total - RESERVE)
        if not 0 < share <= free / total:
            raise OutOfMemory(
                f"gpu_memory_utilization={wanted}: {free / 2**30:.1f} GiB of the card's "
                f"{total / 2**30:.0f} are free; "
                "lower it, or lower that of the process beside it"
            )
        return share

    def _stop(self) -> None:
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown(timeout=2.0)  # then killed
        self._llm = None
        gc.collect()
        torch.cuda.empty_cache()

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._folder.cleanup()


class UnslothEngine(VllmEngine):
    """Unsloth's vLLM, given as `llm`: in this process, with the base weights of the policy."""

    def _hand_over(self, model: PeftModel) -> LoRARequest:
        """Under a new id and name, as Unsloth's trainer does it; the tensors stay on the card. With
        vllm.merged_rollouts Unsloth's own request, for which it adds them to the weights."""
        request = model.load_lora(self._folder.name, load_tensors=True)
        if self._config.vllm.merged_rollouts and isinstance(request, LoRARequest):
            raise EngineError(
                "vllm.merged_rollouts=true: Unsloth does not merge this adapter; its own line says "
                "why. Set vllm.merged_rollouts=false"
            )
        return request

    def generate(self, works: Iterable[Work], **settings: Any) -> Answers:
        yield from super().generate(works, **settings)  # wakes one that sleeps: Unsloth's patch
        if self._config.vllm.standby:
            self._llm.sleep()

    def _stop(self) -> None:
        self._llm = None  # it ends with the policy


@contextmanager
def apart_from_the_launcher() -> Iterator[None]:
    """The engine's process sees one GPU and no process group (ranks.hidden). Nor does it see SIGINT
    and SIGTERM to the whole group: it would cut its completions, but a run finishes its step."""
    gpu = None  # the number of the only one that it sees
    if torch.cuda.is_available() and ranks.world_size() > 1:
        gpu = str(ranks.local_rank())
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible:
            gpu = visible.split(",")[ranks.local_rank()]
    resource_tracker.ensure_running()  # where it starts later, it unblocks the signals again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with ranks.hidden():
            if gpu is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = gpu
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def fail_at_its_end(core: SyncMPClient) -> None:
    """Whoever waits for completions hears that the engine's process ended. vLLM tells it only at
    the next request: if the kernel, short of memory, kills the process, it waits for ever."""
    wait(core.resources.engine_manager.sentinels())
    core.outputs_queue.put(EngineDeadError())


def _completion(output: RequestOutput) -> Completion:
    """Of a request for one completion."""
    (answer,) = output.outputs
    if answer.finish_reason not in ("stop", "length"):  # "abort": its tokens are cut
        raise EngineError(f"vLLM: a completion ended with {answer.finish_reason!r}")
    ids = list(answer.token_ids)
    logprobs = None
    if answer.logprobs is not None:
        logprobs = [place[i].logprob for place, i in zip(answer.logprobs, ids, strict=True)]
    return Completion(ids, answer.finish_reason == "length", logprobs)
