"""The engines on the tiny policy: what a completion may depend on, and what it may not."""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from pods.evaluation.engines import Completion, Sampling, Unit
from pods.evaluation.engines.decoding import Draw
from pods.evaluation.engines.transformers_engine import TransformersEngine
from pods.evaluation.engines.unsloth_engine import UnslothEngine
from pods.evaluation.evaluation import sampling_seed
from pods.policy import load_tokenizer
from pods.tasks import encode_prompt
from tests.fake_run import TINY, add_checkpoint, make_run, quickstart_config

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=48, max_prompt_length=512)
GREEDY = replace(SAMPLING, temperature=0.0)
QUESTIONS = [f"{a}+{b}-{c}{'+1' * (a % 3)}=?" for a in range(1, 9) for b in (3, 7) for c in (1, 2)]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    run = make_run(tmp_path_factory.mktemp("run"), steps=(2, 4, 6), scale=0.05)
    return sorted(run.glob("checkpoint-*"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(str(TINY))
    return [encode_prompt(f"<user>{q}<assistant>", tokenizer) for q in QUESTIONS]


def engine(sampling: Sampling = SAMPLING, batch_size: int = 256) -> TransformersEngine:
    return TransformersEngine(quickstart_config(), sampling, batch_size)


def unit(prompts: list[list[int]], weights: Path | None = None, name: str = "x") -> Unit:
    seeds = [sampling_seed(0, name, "task", str(prompt), 0) for prompt in prompts]
    return Unit(name, weights, "task", 0, prompts, seeds)


def complete(engine: TransformersEngine, units: Sequence[Unit]) -> list[list[Completion]]:
    return [done for _, done in engine.generate(units, lambda _: None)]


def test_a_completion_depends_on_its_seed_not_on_its_batch(prompts: list[list[int]]) -> None:
    (together,) = complete(engine(), [unit(prompts)])
    (in_threes,) = complete(engine(batch_size=3), [unit(prompts)])
    order = random.Random(0).sample(range(len(prompts)), len(prompts))
    (shuffled,) = complete(engine(), [unit([prompts[i] for i in order])])
    assert in_threes == together
    assert [shuffled[order.index(i)] for i in range(len(prompts))] == together
    again = Unit("x", None, "task", 0, prompts, [s + 1 for s in unit(prompts).seeds])
    assert complete(engine(), [again]) != [together]


def test_seeds_differ_in_every_argument() -> None:
    arguments = [0, "checkpoint-2", "gsm8k", "17", 3]
    changes = [1, "checkpoint-4", "math500", "18", 4]
    seeds = {sampling_seed(*arguments)}
    for i, change in enumerate(changes):
        seeds.add(sampling_seed(*arguments[:i], change, *arguments[i + 1 :]))
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)  # what vLLM and torch accept


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([[0.1, 2.0, -1.0, 0.7, -torch.inf]])
    rows = 20_000
    draw = Draw(replace(SAMPLING, temperature=2.0, max_tokens=1), range(rows), "cpu")
    chosen = draw(logits.expand(rows, -1), torch.arange(rows), 0)
    shares = torch.bincount(chosen, minlength=5) / rows
    torch.testing.assert_close(shares, (logits / 2).softmax(-1)[0], atol=0.012, rtol=0)
    assert shares[4] == 0


@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-24, 1.0])
def test_no_number_draws_a_token_of_probability_zero(number: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.3, 0.1, -torch.inf]])
    draw = Draw(replace(SAMPLING, max_tokens=1), [0], "cpu")
    draw._draws.fill_(number)
    assert draw(logits, torch.tensor([0]), 0).item() in (1, 2)


def test_unsloths_generate_is_forced_to_the_same_tokens(prompts: list[list[int]]) -> None:
    """The engine's own loop and transformers' generate, on a model that Unsloth did not load."""

    class OnPlainModel(UnslothEngine):
        _load = TransformersEngine._load

    same = [
        complete(kind(quickstart_config(), SAMPLING, 256), [unit(prompts)])
        for kind in (TransformersEngine, OnPlainModel)
    ]
    assert same[0] == same[1]


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_narrow_sampling_is_greedy(prompts: list[list[int]], narrow: dict) -> None:
    (sampled,) = complete(engine(replace(SAMPLING, **narrow)), [unit(prompts)])
    (greedy,) = complete(engine(GREEDY), [unit(prompts)])
    assert sampled == greedy


def test_adapters_equal_a_merged_model_and_leave_the_base_as_it_was(
    checkpoints: list[Path], prompts: list[list[int]]
) -> None:
    one = engine(GREEDY)
    order = [None, *checkpoints, None, *reversed(checkpoints), None]
    done = dict(zip(range(9), complete(one, [unit(prompts, w) for w in order]), strict=False))
    assert done[0] == done[4] == done[8] == complete(engine(GREEDY), [unit(prompts)])[0]
    assert [done[1], done[2], done[3]] == [done[7], done[6], done[5]]
    assert done[1] != done[2]
    for place, path in enumerate(checkpoints, start=1):
        merged = stupid_greedy(path, prompts)
        same = sum(a == b.text for a, b in zip(merged, done[place], strict=True))
        assert same >= len(prompts) - 1, path  # merging rounds


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # it is the point
def test_an_adapter_on_weights_that_are_shared_is_scored_as_it_was_trained(
    tmp_path: Path, prompts: list[list[int]]
) -> None:
    """The embedding is the output layer too: adding the adapter to it would change both."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(TINY)
    lora = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    trained = get_peft_model(base, lora).eval()
    trained.save_pretrained(tmp_path, save_embedding_layers=False)
    one = engine(GREEDY)
    before, found, after = complete(
        one, [unit(prompts), unit(prompts, tmp_path), unit(prompts, None, "again")]
    )
    expected = greedy_texts(trained, prompts)
    assert [c.text for c in found] == expected
    assert [c.text for c in before] == [c.text for c in after] != expected


def stupid_greedy(adapter: Path, prompts: list[list[int]]) -> list[str]:
    """The merged model."""
    base = AutoModelForCausalLM.from_pretrained(TINY)
    model = PeftModel.from_pretrained(base, adapter).merge_and_unload().eval()
    return greedy_texts(model, prompts)


def greedy_texts(model: torch.nn.Module, prompts: list[list[int]]) -> list[str]:
    """One prompt and one token at a time, without a cache."""
    tokenizer = load_tokenizer(str(TINY))
    texts = []
    for prompt in prompts:
        ids: list[int] = []
        while len(ids) < 48 and ids[-1:] != [tokenizer.eos_token_id]:
            with torch.no_grad():
                logits = model(torch.tensor([prompt + ids])).logits[0, -1]
            ids.append(int(logits.argmax()))
        texts.append(tokenizer.decode(ids, skip_special_tokens=True))
    return texts


@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`")  # gc looks at every object
def test_memory_does_not_grow_with_the_number_of_checkpoints(
    checkpoints: list[Path], prompts: list[list[int]]
) -> None:
    def tensors() -> tuple[int, int]:
        gc.collect()
        held = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
        return len(held), sum(t.numel() for t in held)

    one = engine(replace(GREEDY, max_tokens=2))
    complete(one, [unit(prompts, path) for path in checkpoints])
    before = tensors()
    complete(one, [unit(prompts, path) for path in checkpoints * 4])
    assert tensors() == before


def test_full_parameter_checkpoints_load_one_after_the_other(
    tmp_path: Path, prompts: list[list[int]]
) -> None:
    full = [add_checkpoint(tmp_path, step, scale=0.01, full=True) for step in (2, 4)]
    one = engine(GREEDY)
    base, first, second, base_again = complete(
        one, [unit(prompts, weights) for weights in (None, *full, None)]
    )
    assert base == base_again
    assert first != base
    assert first != second
    config = quickstart_config()
    alone = TransformersEngine(
        replace(config, model=replace(config.model, path=str(full[0]))), GREEDY, 256
    )
    assert complete(alone, [unit(prompts)]) == [first]


def test_lengths_count_the_end_token_and_cuts_are_told(prompts: list[list[int]]) -> None:
    (whole,) = complete(engine(GREEDY), [unit(prompts)])
    ended = next(c for c in whole if not c.truncated)
    (cut,) = complete(engine(replace(GREEDY, max_tokens=ended.tokens - 1)), [unit(prompts)])
    assert cut[whole.index(ended)] == Completion(ended.text, ended.tokens - 1, True)
