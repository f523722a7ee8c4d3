"""The vLLM engine, on a vLLM that records its calls; tests/nightly/test_vllm.py runs a real one."""

import itertools
import os
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from pods.config.errors import EngineError, OutOfMemory
from pods.engines import Limits, LivePolicy, Request, Sampling, Work, choose
from pods.models import policy
from tests.fake_run import TINY, add_checkpoint, live_model, quickstart_config

SAMPLING = Sampling(temperature=0.9, top_p=1.0, top_k=0, max_tokens=4, max_prompt_length=8)
TOKENIZER = policy.load_tokenizer(str(TINY))
NAMES = (
    "vllm",
    "vllm.lora.request",
    "vllm.v1.engine.core_client",
    "vllm.v1.engine.exceptions",
)
REASONS = {7: "length", 8: "abort"}  # by a seed's last digit, else "stop"


class RecordingLLM:
    """Answers each prompt with its seed's last digit and an end token; dies at seed 9."""

    def __init__(self, **arguments):
        self.arguments, self.environment = arguments, dict(os.environ)
        self.calls, self.ended = [], []
        core = SimpleNamespace(shutdown=lambda timeout: self.ended.append(timeout))
        self.llm_engine = SimpleNamespace(engine_core=core)

    def generate(self, prompts, params, lora_request, use_tqdm):
        self.calls.append(SimpleNamespace(prompts=prompts, params=params, loras=lora_request))
        return [SimpleNamespace(outputs=[self._answer(p)]) for p in params]

    def _answer(self, params):
        ids, reason = (params.seed % 10, 1), REASONS.get(params.seed, "stop")
        if params.seed == 9:
            raise RuntimeError("EngineCore encountered an issue")
        likely = [{i: SimpleNamespace(logprob=-0.5)} for i in ids]
        logprobs = None if params.logprobs is None else likely
        return SimpleNamespace(token_ids=ids, finish_reason=reason, logprobs=logprobs)


@pytest.fixture
def engines(monkeypatch):
    """A package `vllm` that records, and what was started of it."""
    started: list[RecordingLLM] = []

    def llm(**arguments):
        started.append(RecordingLLM(**arguments))
        return started[-1]

    fakes = {name: ModuleType(name) for name in NAMES}
    fakes["vllm"].LLM, fakes["vllm"].SamplingParams = llm, SimpleNamespace
    fakes["vllm"].RequestOutput = SimpleNamespace
    fakes["vllm.v1.engine.core_client"].SyncMPClient = ModuleType  # no engine here is one
    fakes["vllm.v1.engine.exceptions"].EngineDeadError = RuntimeError
    fakes["vllm.lora.request"].LoRARequest = namedtuple("LoRA", "lora_name lora_int_id lora_path")
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield started
    sys.modules.pop("pods.engines.vllm", None)  # it holds the fakes


def build(sampling=SAMPLING, limits=None, *overrides):
    limits = limits or Limits()
    return choose.build("vllm", quickstart_config(*overrides), TOKENIZER, sampling, limits, 20)


def work(weights=None, seeds=(3, 4)):
    return Work([Request([5, 6], seeds), Request([7], seeds[:1])], weights)


def test_works_are_handed_over_in_windows_and_come_back_in_their_places(
    engines, monkeypatch, tmp_path
):
    first, second = (add_checkpoint(tmp_path, step) for step in (1, 2))
    works = [work(first), work(second), work(), work(first, (7,))]
    with build() as engine:
        monkeypatch.setattr("pods.engines.vllm.WINDOW", 4)
        done = list(engine.generate(works))
    (llm,) = engines
    assert [len(call.params) for call in llm.calls] == [6, 5]  # windows of 4 completions or more
    assert [w for w, _ in done] == works
    completions = [[*itertools.chain(*groups)] for _, groups in done]
    answers = [[(c.token_ids[0], c.clipped) for c in of_work] for of_work in completions]
    assert answers == [[(3, False), (4, False), (3, False)]] * 3 + [[(7, True), (7, True)]]
    loras = [lora and lora.lora_int_id for call in llm.calls for lora in call.loras]
    assert loras == [1, 1, 1, 2, 2, 2, None, None, None, 1, 1]
    assert llm.ended == [2.0]


@pytest.mark.parametrize(("seed", "reason"), [(8, "ended with 'abort'"), (9, "its process ended")])
def test_a_cut_completion_and_a_dead_engine_are_errors(engines, seed, reason):
    with build() as engine, pytest.raises(EngineError, match=reason):
        list(engine.generate([work(seeds=(seed,))]))


@pytest.mark.parametrize(
    ("changes", "mode", "given"),
    [
        ({"temperature": 0.9}, "processed_logprobs", True),
        ({"temperature": 1.0, "top_p": 0.5}, "raw_logprobs", True),
        ({"temperature": 0.0, "top_k": 5}, "processed_logprobs", True),
        ({"temperature": 0.9, "top_k": 5}, "processed_logprobs", False),  # after top-k: not TRL's
    ],
)
def test_logprobs_are_given_where_they_are_those_of_the_temperature_alone(
    engines, changes, mode, given
):
    with build(replace(SAMPLING, **changes)) as engine:
        ((_, groups),) = engine.generate([work()], logprobs=True)
        ((_, silent),) = engine.generate([work()])
    assert engines[0].arguments["logprobs_mode"] == mode
    assert groups[0][0].logprobs == ([-0.5, -0.5] if given else None)
    assert silent[0][0].logprobs is None


def test_what_vllm_is_told(engines):
    sampling = Sampling(0.9, 0.8, 7, 4, 8, ("x",), (1, 2))
    with build(sampling, Limits(max_sequences=5, gpu_memory_utilization=0.4)) as one:
        list(one.generate([work(), replace(work(), full_length=True)]))  # the warm-up's
    (call,) = engines[0].calls
    first, *_, endless = (vars(params) for params in call.params)
    asked = {"temperature": 0.9, "top_p": 0.8, "top_k": 7, "max_tokens": 4, "seed": 3}
    asked |= {"stop_token_ids": [1, 2], "stop": ["x"], "detokenize": True, "ignore_eos": False}
    assert first.items() >= asked.items()
    assert endless.items() >= {"ignore_eos": True, "stop_token_ids": None, "stop": None}.items()
    assert call.prompts[0] == {"prompt_token_ids": [5, 6]}
    told = {
        "dtype": "float32",
        "quantization": None,
        "max_model_len": 12,
        "gpu_memory_utilization": 0.4,
        "generation_config": "vllm",  # not the model's own, which would change the sampling
        "max_lora_rank": 32,  # the next that vLLM has kernels for
        "max_num_seqs": 5,
    }
    assert told.items() <= engines[0].arguments.items()


def test_vllm_makes_no_text_where_no_stop_string_needs_one_and_reads_4_bits(engines):
    with build(SAMPLING, None, "model.load_in_4bit=true") as one:
        list(one.generate([work()]))
    params = engines[0].calls[0].params[0]
    assert (params.stop, params.detokenize) == (None, False)
    assert params.stop_token_ids == [TOKENIZER.eos_token_id]
    assert engines[0].arguments["quantization"] == "bitsandbytes"


def test_the_live_adapter_is_handed_over_in_the_models_type(engines, tmp_path):
    live = LivePolicy(live_model(add_checkpoint(tmp_path, 1)), 1)
    with build(SAMPLING, None, "model.dtype=bfloat16") as engine:
        list(engine.generate([work(live)]))
        folder = Path(engines[0].calls[0].loras[0].lora_path)
        tensors = load_file(folder / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert not folder.exists()


def test_unsloths_engine_gets_each_version_of_the_adapter_once_and_sleeps_after_work(engines):
    llm, loaded = RecordingLLM(), itertools.count(1)
    llm.sleep = lambda: llm.ended.append(len(llm.calls))
    config = quickstart_config("engine=unsloth", "vllm.standby=true")
    model = SimpleNamespace(vllm_engine=llm, load_lora=lambda _, load_tensors: next(loaded))
    parts = SimpleNamespace(model=model, tokenizer=TOKENIZER, end_tokens=[1, 0])
    with choose.build_for_training(config, parts) as engine:
        for version in (0, 0, "probe", 0):
            list(engine.generate([work(LivePolicy(model, version))]))
    assert engines == []  # none is started
    assert [call.loras for call in llm.calls] == [[number] * 3 for number in (1, 1, 2, 3)]
    params = llm.calls[0].params
    assert [p.seed for p in params] == [3, 4, 3]
    assert params[0].stop_token_ids == [1, 0]
    assert llm.ended == [1, 2, 3, 4]  # and never shut down


@pytest.mark.parametrize("merges", [False, True])
def test_merged_rollouts_that_unsloth_does_not_merge_end_the_run(engines, merges):
    """It falls back to requests of vLLM's own class; the name of the run says merged."""
    config = quickstart_config("engine=unsloth", "vllm.merged_rollouts=true")
    vllms = sys.modules["vllm.lora.request"].LoRARequest("x", 1, "x")
    request = "of Unsloth's class" if merges else vllms
    llm = RecordingLLM()
    model = SimpleNamespace(vllm_engine=llm, load_lora=lambda _, load_tensors: request)
    parts = SimpleNamespace(model=model, tokenizer=TOKENIZER, end_tokens=[1, 0])
    with choose.build_for_training(config, parts) as engine:
        if merges:
            list(engine.generate([work(LivePolicy(model, 0))]))
            assert llm.calls[0].loras == [request] * 3
        else:
            with pytest.raises(EngineError, match=r"^vllm\.merged_rollouts=true: Unsloth does not"):
                list(engine.generate([work(LivePolicy(model, 0))]))


def card(monkeypatch, free):
    """A card of 40 GiB."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free * 2**30, 40 * 2**30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def test_the_engine_is_started_apart_from_the_launcher(engines, monkeypatch):
    ranks = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "1234"}
    ranks |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in (ranks | {"CUDA_VISIBLE_DEVICES": "4,6"}).items():
        monkeypatch.setenv(name, value)
    card(monkeypatch, free=30)
    before = dict(os.environ)
    with build():
        started = engines[0].environment
    assert not ranks.keys() & started.keys()
    assert started["CUDA_VISIBLE_DEVICES"] == "6"
    assert before.items() <= dict(os.environ).items()


@pytest.mark.parametrize(
    ("wanted", "free", "share"),
    [(None, 39, 0.85), (None, 20, 0.47), (0.4, 20, 0.4), (0.9, 20, None), (None, 1, None)],
)
def test_the_share_of_a_card_is_what_is_free_unless_it_is_set(
    engines, monkeypatch, wanted, free, share
):
    card(monkeypatch, free)
    limits = Limits(gpu_memory_utilization=wanted)
    if share is None:
        with pytest.raises(OutOfMemory, match=f"gpu_memory_utilization={wanted}: {free}.0 GiB"):
            build(SAMPLING, limits)
    else:
        with build(SAMPLING, limits):
            assert engines[0].arguments["gpu_memory_utilization"] == pytest.approx(share)
