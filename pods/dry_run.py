"""Dry run of the reward functions, rows and algorithm of a training, before the model loads."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pods import ranks
from pods.advantages import Advantage
from pods.batch import (
    NO_FRESH,
    Algorithm,
    AlgorithmError,
    Completion,
    Prompt,
    Rollout,
    Row,
    Step,
    prompt_of,
)
from pods.config.errors import UserError
from pods.history import History, remember
from pods.requirements import requirements_of
from pods.rollouts import Driver

if TYPE_CHECKING:  # TRL and datasets: a mistake in a config waits for neither
    from datasets import Dataset, IterableDataset

    from pods.pods_config import PodsConfig

CORRECT_SHARES = (1.0, 0.5, 0.0, 0.5)  # share of the correct rollouts of made-up prompts, in turn


def refuse_multi_turn(**arguments: object) -> None:
    """Raise ValueError for an argument of GRPOTrainer that PodsTrainer does not have."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name}: PodsTrainer has no multi-turn rollouts; use GRPOTrainer")


def refuse_rows(args: "PodsConfig", train_dataset: object, eval_dataset: object) -> None:
    """Raise ValueError for an object that is no data set, or that has no column prompt. One for
    evaluation counts if there are evaluations."""
    sets = {"train_dataset": train_dataset}
    if args.eval_strategy != "no":
        sets |= eval_dataset if isinstance(eval_dataset, dict) else {"eval_dataset": eval_dataset}
    for name, dataset in sets.items():
        if dataset is None:
            raise ValueError(f"{name}=None: a Dataset or an IterableDataset is required")
        if isinstance(dataset, dict) or not hasattr(dataset, "column_names"):
            raise ValueError(
                f"{name}={type(dataset).__name__}: must be a Dataset or an IterableDataset; "
                "of a DatasetDict take one split"
            )
        row = next(iter(dataset), {})
        if "prompt" not in row:
            columns = f"no column prompt, but {', '.join(row)}" if row else "no rows"
            raise ValueError(f"{name}: has {columns}")


def refuse_frozen(args: "PodsConfig", model: object, peft_config: object) -> None:
    """Raise ValueError for a training that cannot change a weight; say if the learning rate of LoRA
    is TRL's default."""
    from torch import nn

    loaded = isinstance(model, nn.Module)
    if loaded and peft_config is None and not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            f"model={type(model).__name__}: has no trainable parameter, so nothing would change; "
            "load its adapter with PeftModel.from_pretrained(..., is_trainable=True), or "
            "give peft_config"
        )
    if args.learning_rate == 0:
        raise ValueError(
            "learning_rate=0: no step would change a weight; set one above 0, or GRPOTrainer's "
            "evaluate() for scores alone"
        )
    warms_up = args.warmup_steps > 0 and args.lr_scheduler_type != "constant"
    if args.max_steps == 1 and warms_up:
        ranks.say(
            f"warmup_steps={args.warmup_steps}: the only step has the learning rate 0, "
            "so it changes no weight"
        )
    default = type(args).__dataclass_fields__["learning_rate"].default
    if args.learning_rate == default and (peft_config or hasattr(model, "peft_config")):
        ranks.say(
            f"learning_rate={default:g} is TRL's default, for training all weights; with LoRA "
            "5e-6 (PODS on 3B) to 1e-4 is usual, and a tiny model needs 1e-3"
        )


def refuse_wrong_gradients(args: "PodsConfig", model: Any) -> None:
    """Raise ValueError if the loss would pass the adapter a wrong gradient, or none.

    Liger's kernel multiplies the last hidden states with the output matrix and knows nothing of a
    model that then scales or caps its logits: gradients were 1.6 to 15.6 times too long (TRL 1.13,
    liger-kernel 0.8.5). Layers that quantise their input, too, pass no gradient to layers below
    (torchao 0.18: 8 of 12 adapter weights had none)."""
    import torch

    parameter = next(model.parameters())
    if hasattr(parameter, "ds_id"):  # ZeRO-3: this rank holds a part of each weight
        return
    if args.use_liger_kernel:
        tokens = torch.arange(8, device=parameter.device)[None]  # one may be the pad, which is 0
        with torch.no_grad():
            output = model(input_ids=tokens, output_hidden_states=True)
            plain = model.get_output_embeddings()(output.hidden_states[-1])
        if not torch.allclose(plain, output.logits.to(plain.dtype), rtol=1e-2, atol=1e-3):
            raise ValueError(
                "use_liger_kernel=true: the model scales or caps its logits, which Liger's loss "
                "leaves out; leave it out"
            )
    quantised = getattr(model.config, "quantization_config", None)
    if getattr(quantised, "quant_method", None) != "torchao":
        return
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            row = torch.ones(1, layer.in_features, device=layer.weight.device, requires_grad=True)
            if not layer(row.to(layer.weight.dtype)).requires_grad:
                raise ValueError(
                    f"model: its layer {name} quantises its input, and passes no gradient to the "
                    "adapters below it; load it in 16 bits, in 4 bits by bitsandbytes, or with a "
                    "weight-only configuration of torchao"
                )


def refuse_few_rows(args: "PodsConfig", dataset: object) -> None:
    """Raise ValueError for a data set with fewer rows than a step has prompts: TRL would
    sample none of them."""
    P = args.generation_batch_size // args.num_generations
    if hasattr(dataset, "__len__") and len(dataset) < P:
        raise ValueError(
            f"train_dataset: has {len(dataset)} rows, and a step needs {P} (generation_batch_size="
            f"{args.generation_batch_size} / num_generations={args.num_generations}); "
            "lower per_device_train_batch_size or gradient_accumulation_steps"
        )


def dry_run_on_first_rows(
    args: "PodsConfig",
    function: Algorithm,
    advantage: Advantage,
    reward_names: list[str],
    train_dataset: "Dataset | IterableDataset",
    eval_dataset: object,
    gives_logprobs: bool,
) -> None:
    """Run the algorithm on rows of the data set before a model loads; raises ValueError with what
    is wrong with it, or with the data sets."""
    refuse_rows(args, train_dataset, eval_dataset)
    P = args.generation_batch_size // args.num_generations
    dry_run(
        function,
        advantage,
        weights=dict.fromkeys(reward_names, 1.0),
        correct=args.correct,
        P=P,
        n=args.rollouts_per_prompt,
        m=args.num_generations,
        rows=list(islice(train_dataset, 4 * P)),
        streamed=not hasattr(train_dataset, "__len__"),
        gives_logprobs=gives_logprobs,
    )


def names_of(reward_funcs: Any, correct: str | None) -> list[str]:
    """The names of reward functions, those of one name with their numbers; ValueError if there is
    no function, or `correct` is none of them."""
    if reward_funcs in (None, []):
        raise ValueError(f"reward_funcs={reward_funcs}: a reward function is required")
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    names = [name_of(reward) for reward in rewards]
    names = [f"{name}_{i}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    if correct is not None and correct not in names:
        raise ValueError(
            f"correct={correct}: no reward function; one of {', '.join(names)}, or None"
        )
    return names


def name_of(reward: Any) -> str:
    """The name that TRL gives a reward function or model."""
    from torch import nn
    from trl.trainer.utils import get_callable_name, get_config_model_id

    if isinstance(reward, nn.Module):
        reward = get_config_model_id(reward.config)
    return reward.split("/")[-1] if isinstance(reward, str) else get_callable_name(reward)


def take(prompts: Iterator[Prompt], streamed: bool, count: int) -> list[Prompt]:
    """The next prompts, as step.fresh gives them."""
    if streamed and count:
        raise ValueError(NO_FRESH)
    return list(islice(prompts, count))


def fake_rollouts(
    rng: np.random.Generator, logprobs: bool, prompts: list[Prompt], indices: list[int]
) -> list[Rollout]:
    """A rollout of each prompt, of 1 to 49 tokens; the longest are clipped."""
    rollouts = []
    for length in rng.integers(1, 50, len(prompts)).tolist():
        values = [-0.5] * length if logprobs else None
        completion = Completion([0] * length, length == 49, values)
        rollouts.append(Rollout([0], completion, ""))
    return rollouts


def dry_run(
    algorithm: Algorithm,
    advantage: Advantage,
    *,
    weights: dict[str, float],
    correct: str | None,
    P: int,
    n: int,
    m: int,
    rows: Sequence[Row],
    streamed: bool = False,
    gives_logprobs: bool = True,
) -> None:
    """Try a user's functions on made-up rollouts, before a model loads: UserError if one fails.

    Four steps of the run's sizes: in turn all rollouts of a prompt are right, some, none and some,
    so that there are groups without signal and, if an algorithm asks again, of unlike size; from
    the second step on there is a history. rows: of the data set, which the prompts have in turn;
    a streamed one has no fresh prompts. gives_logprobs: whether those of the run will have
    log-probabilities where an algorithm reads them.
    """
    rng = np.random.default_rng(0)
    history: History = {}
    prompt_numbers: dict[int, int] = {}  # by identity: a question may be in a step twice

    def score(prompts: list[Prompt], rollouts: list[Rollout]) -> np.ndarray:
        shares = []
        for prompt in prompts:
            in_step = prompt_numbers.setdefault(id(prompt), len(prompt_numbers))
            shares.append(CORRECT_SHARES[(in_step + number) % len(CORRECT_SHARES)])
        right = rng.random(len(prompts)) < shares
        return np.repeat(right[:, None], len(weights), axis=1).astype(np.float32)

    reads_logprobs = gives_logprobs and requirements_of(algorithm).reads_logprobs
    driver = Driver(
        algorithm=algorithm,
        advantage=advantage,
        sample=partial(fake_rollouts, rng, reads_logprobs),
        score=score,
        weights=weights,
        correct=correct,
    )
    for number in range(len(CORRECT_SHARES)):
        prompt_numbers.clear()
        every = (prompt_of(row, i) for i, row in enumerate(cycle(rows)))
        step = Step(
            number=number,
            P=P,
            n=n,
            m=m,
            prompts=list(islice(every, P)),
            fresh=partial(take, every, streamed),
            history=MappingProxyType(history),
            rng=rng,
        )
        try:
            record = driver(step)
        except AlgorithmError as error:
            raise UserError(f"{error} (made-up rollouts, before the model loads)") from error
        remember(history, record.visits())
