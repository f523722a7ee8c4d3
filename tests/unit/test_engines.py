"""The transformers engine on the tiny policy: completions depend on weights and seed alone.

It alone guards, by real generation: equality with transformers' generate, stop strings, and an
adapter beside or inside its base."""

import gc
import json
import random
import shutil
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from scipy import stats
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from pods.batch import Completion
from pods.config.errors import RunFailed
from pods.engines import Limits, LivePolicy, Request, Sampling, Work, decoding, seed_of, texts
from pods.engines.decoding import TokenSampler
from pods.engines.transformers import TransformersEngine, can_be_merged
from pods.models import policy
from pods.tasks import encode_prompts
from tests.fake_run import TINY, add_checkpoint, live_model, logps_of, make_run, quickstart_config

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=48, max_prompt_length=512)
GREEDY = replace(SAMPLING, temperature=0.0)
HOT = replace(SAMPLING, temperature=2.0)  # at 1 the policy hesitates at few tokens
QUESTIONS = [f"{a}+{b}-{c}{'+1' * (a % 3)}=?" for a in range(1, 9) for b in (3, 7) for c in (1, 2)]
TOKENIZER = policy.load_tokenizer(str(TINY))
PROMPTS = encode_prompts([f"<user>{q}<assistant>" for q in QUESTIONS], TOKENIZER)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("run"), steps=(2, 4), scale=0.05)
    return sorted(run.glob("checkpoint-*"))


def engine(sampling=SAMPLING, size=None, *keys):
    config = quickstart_config(*keys)
    return TransformersEngine(config, TOKENIZER, sampling, Limits(max_sequences=size))


def work(weights=None, prompts=PROMPTS, n=1):
    """n completions of each prompt, from seeds that a prompt keeps whatever its place."""
    seeds = [[seed_of(0, "x", "task", str(p), k) for k in range(n)] for p in prompts]
    return Work([Request(*pair) for pair in zip(prompts, seeds, strict=True)], weights)


def complete(engine, *works, logprobs=False):
    return [groups for _, groups in engine.generate(works, logprobs=logprobs)]


def greedy(*weights):
    return complete(engine(GREEDY), *map(work, weights))


def ids(groups):
    return [[c.token_ids for c in group] for group in groups]


def base_model(dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=dtype)


def generated(model, prompts=PROMPTS):
    """Greedy completions by transformers' own generate."""
    padded = TOKENIZER.pad({"input_ids": prompts}, return_tensors="pt")
    sampled = model.generate(**padded, max_new_tokens=48, do_sample=False)
    rows = sampled[:, padded["input_ids"].shape[1] :].tolist()
    return [[row[: row.index(1) + 1] if 1 in row else row] for row in rows]


def test_a_completion_depends_on_its_seed_not_on_its_batch():
    (together,) = complete(engine(HOT), work(n=3))
    assert len({str(c.token_ids) for c in together[0]}) > 1
    assert complete(engine(HOT, 5), work(n=3)) == [together]
    order = random.Random(0).sample(range(len(PROMPTS)), len(PROMPTS))
    (shuffled,) = complete(engine(HOT), work(prompts=[PROMPTS[i] for i in order], n=4))
    assert [group[:3] for group in shuffled] == [together[i] for i in order]
    assert complete(engine(HOT, 1), work(prompts=PROMPTS[:2], n=3)) == [together[:2]]
    other = [Request(r.prompt, [seed + 1 for seed in r.seeds]) for r in work(n=3).requests]
    assert complete(engine(HOT), Work(other)) != [together]


def test_each_work_and_request_comes_back_in_its_place():
    uneven = [Request(p, range(i % 3)) for i, p in enumerate(PROMPTS)]  # 0, 1 or 2 completions
    works = [Work(uneven), Work(uneven[:2]), Work([])]
    done = list(engine(size=4).generate(works))
    assert [w for w, _ in done] == works
    assert [len(group) for group in done[0][1]] == [len(r.seeds) for r in uneven]
    assert done[1][1] == done[0][1][:2]


def test_samples_follow_the_probabilities_of_the_model():
    """Pearson's chi-square of 10,000 first tokens; tokens of fewer than five are one class."""
    samples, temperature = 10_000, 4.0
    hot = replace(SAMPLING, temperature=temperature, max_tokens=1)
    (((*completions,),),) = complete(engine(hot), Work([Request(PROMPTS[0], range(samples))]))
    with torch.no_grad():
        logits = base_model()(torch.tensor([PROMPTS[0]])).logits[0, -1].double()
    expected = (logits / temperature).softmax(-1).numpy() * samples
    counts = np.bincount([c.token_ids[0] for c in completions], minlength=len(expected))
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    assert len(wanted) >= 4
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-24, 1.0])
def test_no_number_samples_a_token_of_probability_zero(number):
    logits = torch.tensor([[-torch.inf, 0.3, 0.1, -torch.inf]])
    sampler = TokenSampler(replace(SAMPLING, max_tokens=1), [0], torch.device("cpu"))
    sampler._numbers.fill_(number)
    assert sampler(logits, torch.tensor([0]), 0).item() in (1, 2)


def test_greedy_completions_are_those_of_transformers_generate():
    (groups,) = greedy(None)
    assert ids(groups) == generated(base_model())


def llama_like():
    """SmolLM2's shape with two layers, and biases, which Qwen2 has at other places."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "attention_bias": True}
    size = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**heads, **size, vocab_size=len(TOKENIZER)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.normal_()
    return model


@pytest.mark.parametrize("family", [base_model, llama_like])
@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS[:8]], ids=["unpadded", "padded"])
def test_the_lean_decoder_equals_the_model_to_the_bit(monkeypatch, family, prompts):
    """Logits of every step, with finished rows removed, and so the completions, too."""
    model = decoding.speed_up(family().eval())
    assert decoding.LeanDecoder.computes(model)
    requests = [Request(p, range(8 * i, 8 * i + 8)) for i, p in enumerate(prompts)]
    sampling = replace(HOT, ends=tuple(range(0, len(TOKENIZER), 8)))
    own, logits = decoding.NextInput.logits, []

    def completions():
        logits.append([])
        return decoding.decode(model, TOKENIZER, requests, sampling, logprobs=True)

    def recorded(batch):
        logits[-1].append(own(batch))
        return logits[-1][-1]

    monkeypatch.setattr(decoding.NextInput, "logits", recorded)
    lean = completions()
    monkeypatch.setattr(decoding.LeanDecoder, "computes", lambda _: False)
    assert completions() == lean
    assert len({len(step) for step in logits[0]}) > 2  # one row a prompt, all rows, fewer rows
    assert all(map(torch.equal, *logits))


def test_models_beyond_the_lean_decoder_are_computed_by_themselves(checkpoints):
    computes = decoding.LeanDecoder.computes
    assert computes(decoding.speed_up(base_model()))
    assert not computes(base_model())  # another attention
    assert not computes(decoding.speed_up(base_model(torch.bfloat16)))
    adapted = PeftModel.from_pretrained(decoding.speed_up(base_model()), checkpoints[0])
    assert not computes(adapted.get_base_model())  # an adapter beside its weights


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}], ids=str)
def test_narrow_sampling_gives_the_greedy_completions(narrow):
    assert complete(engine(replace(SAMPLING, **narrow)), work()) == greedy(None)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_the_models_under_the_sampling_temperature(temperature):
    """Before top-k, as TRL's trainer takes them."""
    cool = replace(SAMPLING, temperature=temperature, top_k=5)
    (groups,) = complete(engine(cool), work(prompts=PROMPTS[:4], n=3), logprobs=True)
    model = base_model()
    expected = [
        [logps_of(model, prompt, c.token_ids, temperature or 1) for c in group]
        for prompt, group in zip(PROMPTS[:4], groups, strict=True)
    ]
    logprobs = [[torch.tensor(c.logprobs) for c in group] for group in groups]
    torch.testing.assert_close(logprobs, expected, atol=1e-4, rtol=0)  # names the completion
    assert complete(engine(cool), work(prompts=PROMPTS[:1]))[0][0][0].logprobs is None


def test_lengths_count_the_end_token_and_clipped_completions_have_none():
    (whole,) = greedy(None)
    ended = next(c for (c,) in whole if not c.clipped)
    prompt = [PROMPTS[whole.index([ended])]]
    length = len(ended.token_ids)
    assert ended.token_ids[-1] == TOKENIZER.eos_token_id
    cut = Completion(ended.token_ids[:-1], clipped=True)
    for limit, expected in ((length - 1, cut), (length, ended)):
        short = engine(replace(GREEDY, max_tokens=limit))
        assert complete(short, work(prompts=prompt)) == [[[expected]]]
    (full,) = complete(engine(GREEDY), replace(work(), full_length=True))
    assert {(len(c.token_ids), c.clipped) for (c,) in full} == {(48, True)}


def test_every_end_token_of_the_model_ends_a_completion(tmp_path):
    shutil.copytree(TINY, tmp_path / "model")
    (end,) = TOKENIZER.encode("1", add_special_tokens=False)
    settings = {"eos_token_id": [end, TOKENIZER.eos_token_id]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
    (groups,) = complete(engine(SAMPLING, None, f"model.path={tmp_path / 'model'}"), work(n=4))
    last = {c.token_ids[-1] for group in groups for c in group if not c.clipped}
    assert last == {TOKENIZER.eos_token_id, end}
    completions = [c.token_ids for group in groups for c in group]
    assert [tokens for tokens in completions if end in tokens[:-1]] == []


@pytest.mark.parametrize("stop", [("=",), ("</think>", "<answer>"), ("1-", "zzz", "=1")])
def test_a_stop_string_ends_a_completion_and_leaves_its_text(stop):
    (whole,) = complete(engine(), work(n=4))
    (stopped,) = complete(engine(replace(SAMPLING, stop=stop)), work(n=4))
    found = 0
    for long, short in zip(chain(*whole), chain(*stopped), strict=True):
        text = TOKENIZER.decode(long.token_ids, skip_special_tokens=True)
        cut = min((text.find(string) for string in stop if string in text), default=None)
        assert texts(TOKENIZER, [short], stop) == [text[:cut]]
        assert short.token_ids == long.token_ids[: len(short.token_ids)]
        assert short.clipped == (long.clipped and cut is None)
        found += cut is not None
    assert found >= 10


def test_adapters_equal_a_merged_model_and_leave_the_base_as_it_was(checkpoints):
    first, second = checkpoints
    base, one, two, again, back, last = greedy(None, first, second, None, first, None)
    assert base == again == last
    assert one == back
    assert len({str(ids(groups)) for groups in (base, one, two)}) == 3
    merged = PeftModel.from_pretrained(base_model(), second).merge_and_unload()
    pairs = zip(generated(merged, PROMPTS[:8]), ids(two)[:8], strict=True)
    assert sum(a == b for a, b in pairs) >= 7  # merging rounds


@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`")  # gc looks at every object
def test_memory_does_not_grow_and_the_end_of_the_block_frees_it(checkpoints):
    def tensors():
        gc.collect()
        return sorted(o.numel() for o in gc.get_objects() if isinstance(o, torch.Tensor))

    with engine(replace(GREEDY, max_tokens=2)) as one:
        complete(one, *map(work, checkpoints))
        before = tensors()
        complete(one, *map(work, checkpoints * 4))
        assert tensors() == before
        complete(one, work(LivePolicy(live_model(checkpoints[0]), 1)))
    assert vars(one)["_merged"] is vars(one)["_disk"].model is None


@pytest.mark.parametrize("sampling", [SAMPLING, GREEDY], ids=["sampled", "greedy"])
def test_weights_that_are_no_numbers_end_in_one_line(sampling, checkpoints):
    model = live_model(checkpoints[0])
    with torch.no_grad():
        next(p for p in model.parameters() if p.requires_grad).fill_(float("nan"))
    with (
        pytest.raises(RunFailed, match=r"not finite.*optimizer.learning_rate") as error,
        engine(sampling) as transformers,
    ):
        complete(transformers, work(LivePolicy(model, 0), PROMPTS[:2]))
    assert error.type is RunFailed, "at an EngineError a run saves its weights"


def test_full_parameter_checkpoints_load_one_after_the_other(tmp_path):
    full = [add_checkpoint(tmp_path, step, scale=0.01, full=True) for step in (2, 4)]
    base, first, second, again = greedy(None, *full, None)
    assert base == again
    assert first not in (base, second)
    live = AutoModelForCausalLM.from_pretrained(full[0]).train()  # every parameter is trained
    assert greedy(LivePolicy(live, 0)) == [first]
    assert live.training


def test_the_live_policy_is_sampled_and_left_as_it_was(checkpoints):
    model = live_model(checkpoints[0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    (live,) = complete(engine(), work(LivePolicy(model, 1), n=3))
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == random_states[1:]
    assert all(module.training for module in model.modules())
    model(torch.tensor([PROMPTS[0]])).logits.sum().backward()  # it can still be trained
    assert complete(engine(), work(checkpoints[0], n=3)) == [live]


def test_a_new_version_is_sampled_and_an_old_one_is_not_added_again(checkpoints):
    model, one = live_model(checkpoints[0]), engine(GREEDY)
    (first,) = complete(one, work(LivePolicy(model, 1)))
    layer = model.get_base_model().model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.mul_(-3)
    same, new, base = complete(one, *map(work, (LivePolicy(model, 1), LivePolicy(model, 2), None)))
    assert same == first
    assert new != first
    assert [new, base] == greedy(LivePolicy(model, 0), None)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # it is the point
@pytest.mark.parametrize(
    ("dtype", "lora"),
    [
        (torch.bfloat16, {"target_modules": ["q_proj"]}),
        (torch.float32, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
        # The embedding is the output layer too: adding the adapter to it would change both.
        (torch.float32, {"target_modules": ["q_proj", "lm_head"]}),
    ],
)
def test_a_policy_that_cannot_be_merged_decodes_with_its_adapter_beside(tmp_path, dtype, lora):
    torch.manual_seed(0)
    config, few = LoraConfig(**lora, init_lora_weights=False), PROMPTS[:4]
    model = get_peft_model(base_model(dtype), config, autocast_adapter_dtype=False)
    model.enable_input_require_grads()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(20 if "lora_B" in name else 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not can_be_merged(model)
    weights = None, LivePolicy(model.train(), 1), None
    base, adapted, after = complete(engine(GREEDY), *(work(w, few) for w in weights))
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert model.training
    assert base == after != adapted
    if dtype == torch.float32:  # in bfloat16 a cache and padding round otherwise
        assert ids(adapted) == generated(model.eval(), few)
    if "lm_head" in lora["target_modules"]:
        model.save_pretrained(tmp_path, save_embedding_layers=False)
        assert complete(engine(GREEDY), work(tmp_path, few)) == [adapted]
