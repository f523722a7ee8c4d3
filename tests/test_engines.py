"""The transformers engine on the tiny policy: completions depend on weights and seed alone."""

import gc
import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pods.config.keys import TrainConfig
from pods.engines import (
    Completion,
    Limits,
    LivePolicy,
    Request,
    Sampling,
    Weights,
    Work,
    seed_of,
    texts,
)
from pods.engines.decoding import TokenSampler, grouped_attention
from pods.engines.transformers import TransformersEngine, can_be_merged
from pods.models import policy, same_model
from pods.tasks import encode_prompt
from tests.fake_run import TINY, add_checkpoint, live_model, make_run, quickstart_config

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=48, max_prompt_length=512)
GREEDY = replace(SAMPLING, temperature=0.0)
QUESTIONS = [f"{a}+{b}-{c}{'+1' * (a % 3)}=?" for a in range(1, 9) for b in (3, 7) for c in (1, 2)]
TOKENIZER = policy.load_tokenizer(str(TINY))
PROMPTS = [encode_prompt(f"<user>{q}<assistant>", TOKENIZER) for q in QUESTIONS]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    run = make_run(tmp_path_factory.mktemp("run"), steps=(2, 4, 6), scale=0.05)
    return sorted(run.glob("checkpoint-*"))


def engine(
    sampling: Sampling = SAMPLING,
    max_sequences: int | None = None,
    config: TrainConfig | None = None,
) -> TransformersEngine:
    limits = Limits(max_sequences=max_sequences)
    return TransformersEngine(config or quickstart_config(), TOKENIZER, sampling, limits)


def work(weights: Weights = None, prompts: Sequence[Sequence[int]] = PROMPTS, n: int = 1) -> Work:
    """n completions of each prompt, from seeds that a prompt keeps whatever its place."""
    seeds = [[seed_of(0, "x", "task", str(p), k) for k in range(n)] for p in prompts]
    return Work([Request(*pair) for pair in zip(prompts, seeds, strict=True)], weights)


def complete(
    engine: TransformersEngine, *works: Work, logprobs: bool = False
) -> list[list[list[Completion]]]:
    return [done for _, done in engine.generate(works, logprobs=logprobs)]


def ids(groups: list[list[Completion]]) -> list[list[list[int]]]:
    return [[c.token_ids for c in group] for group in groups]


def base_model(dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=dtype)


# What a completion depends on


def test_a_completion_depends_on_its_seed_not_on_its_batch() -> None:
    (together,) = complete(engine(), work(n=3))
    (in_fives,) = complete(engine(max_sequences=5), work(n=3))
    assert in_fives == together
    order = random.Random(0).sample(range(len(PROMPTS)), len(PROMPTS))
    (shuffled,) = complete(engine(), work(prompts=[PROMPTS[i] for i in order], n=3))
    assert [shuffled[order.index(i)] for i in range(len(PROMPTS))] == together
    (one_by_one,) = complete(engine(max_sequences=1), work(prompts=PROMPTS[:3], n=3))
    assert one_by_one == together[:3]
    other = [Request(r.prompt, [seed + 1 for seed in r.seeds]) for r in work(n=3).requests]
    assert complete(engine(), Work(other)) != [together]


def test_more_completions_of_a_prompt_begin_with_the_same() -> None:
    (few,) = complete(engine(), work(n=2))
    (many,) = complete(engine(), work(n=6))
    assert [group[:2] for group in many] == few
    assert len({str(c.token_ids) for c in many[0]}) > 1


def test_each_work_and_request_comes_back_in_its_place() -> None:
    uneven = [Request(p, range(i % 3)) for i, p in enumerate(PROMPTS)]  # 0, 1 or 2 completions
    advanced: list[int] = []
    works = [Work(uneven, label="first"), Work(uneven[:2], label="second"), Work([], label="none")]
    done = list(engine(max_sequences=4).generate(works, advance=advanced.append))
    assert [w.label for w, _ in done] == ["first", "second", "none"]
    assert [len(group) for group in done[0][1]] == [len(r.seeds) for r in uneven]
    assert done[1][1] == done[0][1][:2]
    assert sum(advanced) == sum(len(r.seeds) for r in uneven) + 1


def test_seeds_differ_in_every_argument() -> None:
    arguments = [0, "checkpoint-2", "gsm8k", "17", 3]
    changes = [1, "checkpoint-4", "math500", "18", 4]
    seeds = {seed_of(*arguments)}
    for i, change in enumerate(changes):
        seeds.add(seed_of(*arguments[:i], change, *arguments[i + 1 :]))
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)  # what vLLM and torch accept


def test_draws_follow_the_probabilities_of_the_model() -> None:
    """Pearson's chi-square of 10,000 first tokens; tokens of fewer than five are one class."""
    draws, temperature = 10_000, 1.5
    hot = replace(SAMPLING, temperature=temperature, max_tokens=1)
    (((*drawn,),),) = complete(engine(hot), Work([Request(PROMPTS[0], range(draws))]))
    with torch.no_grad():
        logits = base_model()(torch.tensor([PROMPTS[0]])).logits[0, -1].double()
    expected = (logits / temperature).softmax(-1).numpy() * draws
    counts = np.bincount([c.token_ids[0] for c in drawn], minlength=len(expected))
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    freedom = len(wanted) - 1
    assert freedom >= 3
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5  # mean + 4 standard deviations


@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-24, 1.0])
def test_no_number_draws_a_token_of_probability_zero(number: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.3, 0.1, -torch.inf]])
    sampler = TokenSampler(replace(SAMPLING, max_tokens=1), [0], torch.device("cpu"))
    sampler._numbers.fill_(number)
    assert sampler(logits, torch.tensor([0]), 0).item() in (1, 2)


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_narrow_sampling_is_greedy(narrow: dict) -> None:
    assert complete(engine(replace(SAMPLING, **narrow)), work()) == complete(engine(GREEDY), work())


def test_greedy_completions_are_those_of_transformers_generate() -> None:
    (found,) = complete(engine(GREEDY), work())
    padded = TOKENIZER.pad({"input_ids": PROMPTS}, return_tensors="pt")
    generated = base_model().generate(**padded, max_new_tokens=48, do_sample=False)
    expected = [
        row[: row.index(1) + 1] if 1 in row else row
        for row in generated[:, padded["input_ids"].shape[1] :].tolist()
    ]
    assert [c.token_ids for (c,) in found] == expected


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_attention_of_shared_keys_is_sdpa(length: int, scaling: float | None) -> None:
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, length, 8, generator=rng)
    key, value = (torch.randn(2, 2, 5, 8, generator=rng) for _ in range(2))  # 2 heads share a key
    mask = torch.rand(2, 1, length, 5, generator=rng) < 0.7
    mask[..., 0] = True
    module = SimpleNamespace(num_key_value_groups=2, is_causal=False, training=False)
    settings = {"scaling": scaling, "dropout": 0.0}
    ours, _ = grouped_attention(module, query, key, value, mask, **settings)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, **settings)
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_the_models_under_the_sampling_temperature(temperature: float) -> None:
    """Before top-k, as TRL's trainer takes them."""
    cool = replace(SAMPLING, temperature=temperature, top_k=5)
    (found,) = complete(engine(cool), work(prompts=PROMPTS[:4], n=3), logprobs=True)
    model = base_model()
    for prompt, group in zip(PROMPTS, found, strict=False):
        for c in group:
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *c.token_ids]])).logits[0, len(prompt) - 1 :]
            expected = (logits[:-1] / (temperature or 1)).log_softmax(-1)
            expected = expected.gather(1, torch.tensor(c.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(c.logprobs), expected, atol=1e-4, rtol=0)
    assert complete(engine(cool), work(prompts=PROMPTS[:1]))[0][0][0].logprobs is None


# How a completion ends


def test_lengths_count_the_end_token_and_clipped_completions_have_none() -> None:
    (whole,) = complete(engine(GREEDY), work())
    place, ended = next((i, c) for i, (c,) in enumerate(whole) if not c.clipped)
    assert ended.token_ids[-1] == TOKENIZER.eos_token_id
    (cut,) = complete(engine(replace(GREEDY, max_tokens=len(ended.token_ids) - 1)), work())
    assert cut[place] == [Completion(ended.token_ids[:-1], clipped=True)]
    (exact,) = complete(engine(replace(GREEDY, max_tokens=len(ended.token_ids))), work())
    assert exact[place] == [ended]


def test_every_end_token_of_the_model_ends_a_completion(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "model")
    (end,) = TOKENIZER.encode("=", add_special_tokens=False)
    settings = {"eos_token_id": [end, TOKENIZER.eos_token_id]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
    config = quickstart_config(f"model.path={tmp_path / 'model'}")
    assert policy.end_tokens(config.model.path, TOKENIZER) == [TOKENIZER.eos_token_id, end]
    (found,) = complete(engine(config=config), work(n=4))
    last = {c.token_ids[-1] for group in found for c in group if not c.clipped}
    assert last == {TOKENIZER.eos_token_id, end}
    assert not any(end in c.token_ids[:-1] for group in found for c in group)
    (tmp_path / "model" / "generation_config.json").unlink()
    assert policy.end_tokens(config.model.path, TOKENIZER) == [TOKENIZER.eos_token_id]


@pytest.mark.parametrize("stop", [("=",), ("</think>", "<answer>"), ("1-", "zzz", "=1")])
def test_a_stop_string_ends_a_completion_and_leaves_its_text(stop: tuple[str, ...]) -> None:
    (whole,) = complete(engine(), work(n=4))
    (stopped,) = complete(engine(replace(SAMPLING, stop=stop)), work(n=4))
    ended = 0
    for group, short in zip(whole, stopped, strict=True):
        said = TOKENIZER.batch_decode([c.token_ids for c in group], skip_special_tokens=True)
        cuts = [min([s.find(x) for x in stop if x in s], default=None) for s in said]
        assert texts(TOKENIZER, short, stop) == [s[:cut] for s, cut in zip(said, cuts, strict=True)]
        for long, brief, cut in zip(group, short, cuts, strict=True):
            assert brief.token_ids == long.token_ids[: len(brief.token_ids)]
            assert brief.clipped == (long.clipped and cut is None)
            ended += cut is not None
    assert ended >= 10


# Which policy completes


def test_adapters_equal_a_merged_model_and_leave_the_base_as_it_was(
    checkpoints: list[Path],
) -> None:
    one = engine(GREEDY)
    order = [None, *checkpoints, None, *reversed(checkpoints), None]
    done = dict(enumerate(complete(one, *map(work, order))))
    assert done[0] == done[4] == done[8] == complete(engine(GREEDY), work())[0]
    assert [done[1], done[2], done[3]] == [done[7], done[6], done[5]]
    assert done[1] != done[2]
    for place, path in enumerate(checkpoints, start=1):
        merged = stupid_greedy(PeftModel.from_pretrained(base_model(), path).merge_and_unload())
        same = sum(a == b for a, b in zip(merged, ids(done[place]), strict=True))
        assert same >= len(PROMPTS) - 1, path  # merging rounds


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # it is the point
def test_an_adapter_on_weights_that_are_shared_is_scored_as_it_was_trained(tmp_path: Path) -> None:
    """The embedding is the output layer too: adding the adapter to it would change both."""
    torch.manual_seed(0)
    lora = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    trained = get_peft_model(base_model(), lora).eval()
    trained.save_pretrained(tmp_path, save_embedding_layers=False)
    assert not can_be_merged(trained)
    one = engine(GREEDY)
    before, found, after = complete(one, work(), work(tmp_path), work())
    assert ids(found) == stupid_greedy(trained)
    assert before == after != found
    assert complete(one, work(LivePolicy(trained, 0))) == [found]


def stupid_greedy(model: Any) -> list[list[list[int]]]:
    """One prompt and one token at a time, without a cache."""
    completions = []
    for prompt in PROMPTS:
        drawn: list[int] = []
        while len(drawn) < 48 and drawn[-1:] != [TOKENIZER.eos_token_id]:
            with torch.no_grad():
                drawn.append(int(model(torch.tensor([prompt + drawn])).logits[0, -1].argmax()))
        completions.append([drawn])
    return completions


@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`")  # gc looks at every object
def test_memory_does_not_grow_with_the_number_of_checkpoints(
    checkpoints: list[Path],
) -> None:
    def tensors() -> tuple[int, int]:
        gc.collect()
        held = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
        return len(held), sum(t.numel() for t in held)

    one = engine(replace(GREEDY, max_tokens=2))
    complete(one, *map(work, checkpoints))
    before = tensors()
    complete(one, *map(work, checkpoints * 4))
    assert tensors() == before


def test_full_parameter_checkpoints_load_one_after_the_other(tmp_path: Path) -> None:
    full = [add_checkpoint(tmp_path, step, scale=0.01, full=True) for step in (2, 4)]
    base, first, second, again = complete(engine(GREEDY), *map(work, (None, *full, None)))
    assert base == again
    assert first != base
    assert first != second
    config = quickstart_config(f"model.path={full[0]}")
    assert complete(engine(GREEDY, config=config), work()) == [first]


# The policy in training


def test_the_live_policy_is_sampled_and_left_as_it_was(checkpoints: list[Path]) -> None:
    model = live_model(checkpoints[0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    (live,) = complete(engine(), work(LivePolicy(model, 1), n=3))
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys()
    assert torch.equal(torch.get_rng_state(), random_states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == random_states[1:]
    assert all(module.training for module in model.modules())
    model(torch.tensor([PROMPTS[0]])).logits.sum().backward()  # it can still be trained
    assert complete(engine(), work(checkpoints[0], n=3)) == [live]


def test_a_new_version_is_sampled_and_an_old_one_is_not_added_again(
    checkpoints: list[Path],
) -> None:
    model, one = live_model(checkpoints[0]), engine(GREEDY)
    (first,) = complete(one, work(LivePolicy(model, 1)))
    layer = model.get_base_model().model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.mul_(-3)
    same, new, base = complete(one, work(LivePolicy(model, 1)), work(LivePolicy(model, 2)), work())
    assert same == first
    assert new != first
    assert new == complete(engine(GREEDY), work(LivePolicy(model, 0)))[0]
    assert base == complete(engine(GREEDY), work())[0]


def test_only_adapted_weights_are_copied(checkpoints: list[Path]) -> None:
    model, one = live_model(checkpoints[0]), engine(replace(GREEDY, max_tokens=1))
    complete(one, work(LivePolicy(model, 1)))
    live = {p.data_ptr() for p in model.parameters()}
    copied = [name for name, p in one._live.model.named_parameters() if p.data_ptr() not in live]
    assert len(copied) == 3 * 7  # the weights of 7 adapted projections in each of 3 layers
    assert all(name.endswith("_proj.weight") for name in copied)


@pytest.mark.parametrize("saved_whole", [False, True])
def test_a_policy_that_cannot_be_added_decodes_with_its_adapter_beside(saved_whole: bool) -> None:
    torch.manual_seed(0)
    dtype = torch.float32 if saved_whole else torch.bfloat16
    whole = ["lm_head"] if saved_whole else None
    lora = LoraConfig(target_modules=["q_proj"], modules_to_save=whole, init_lora_weights=False)
    model = get_peft_model(base_model(dtype), lora, autocast_adapter_dtype=False)
    model.enable_input_require_grads()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(20 if "lora_B" in name else 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not can_be_merged(model)
    few = PROMPTS[:4]
    (found,) = complete(engine(GREEDY), work(LivePolicy(model.train(), 1), few))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    (base,) = complete(engine(GREEDY), work(prompts=few))
    assert found != base
    if saved_whole:  # in bfloat16 a cache and padding round otherwise
        assert ids(found) == stupid_greedy(model.eval())[:4]


def test_every_parameter_of_a_live_policy(tmp_path: Path) -> None:
    model = base_model().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.ones_like(parameter))
    model.save_pretrained(tmp_path)
    live, saved = complete(engine(GREEDY), work(LivePolicy(model, 0)), work(tmp_path))
    assert live == saved
    assert model.training


def test_the_end_of_the_block_frees_the_models(checkpoints: list[Path]) -> None:
    with engine(replace(GREEDY, max_tokens=1)) as one:
        complete(one, work(), work(LivePolicy(live_model(checkpoints[0]), 1)))
    assert vars(one)["_live"] is vars(one)["_loaded"] is vars(one)["_disk"] is None


@pytest.mark.parametrize(
    ("noted", "path", "same"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct", True),
        ("/home/me/models/qwen", "../models/qwen", True),
        ("~/qwen", "/data/qwen", True),
        ("/data/qwen", "qwen", True),
        ("/data/models/qwen", "/data/others/qwen", False),
        ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct", False),
        ("unsloth/qwen2.5-3b-instruct-unsloth-bnb-4bit", "Qwen/Qwen2.5-3B-Instruct", True),
        ("unsloth/qwen2.5-3b-instruct-unsloth-bnb-4bit", "Qwen/Qwen2.5-7B-Instruct", False),
        ("unsloth/qwen2.5-3b-instruct-unsloth-bnb-4bit", "Qwen/Qwen2.5-3B", False),
        ("unsloth/qwen2.5-3b-bnb-4bit", "Qwen/Qwen2.5-3B", True),
        ("unsloth/Qwen2.5-3B-bnb-4bit", "unsloth/Qwen2.5-3B-bnb-4bit", True),
        ("/home/unsloth/x-bnb-4bit", "/home/unsloth/x-bnb-4bit", True),
        ("..", "a/b", False),
        ("unsloth/qwen2.5-3b", "..", False),
        ("a/b", "..", False),
    ],
)
def test_the_base_that_an_adapter_notes_may_have_lain_elsewhere(noted, path, same):
    assert same_model(noted, path) is same
