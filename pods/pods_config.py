"""PodsConfig: GRPOConfig with the choice of rollouts."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import trl
from trl.trainer.utils import get_callable_name

from pods.batch import Algorithm
from pods.requirements import conflicts, requirements_of

Kwargs = dict | str | None  # name -> value; a command line has it as JSON
# What a loss divides by, for the rows that only fill a step: TRL 1.13 to 1.16 have these eight.
MEAN_OVER_ROWS = ("grpo", "dr_grpo", "sapo", "luspo")
MEAN_OVER_MICRO_BATCHES = ("bnpo",)
MEAN_OVER_TOKENS = ("dapo", "cispo", "vespo")  # that count; other rows have none
LOSSES = (*MEAN_OVER_ROWS, *MEAN_OVER_MICRO_BATCHES, *MEAN_OVER_TOKENS)


@dataclass(init=False)
class PodsConfig(trl.GRPOConfig):
    """Configuration class for the [`PodsTrainer`].

    It has every parameter of [`~trl.GRPOConfig`]. Before a model loads, PodsTrainer raises
    ValueError if values clash, and UserError if an algorithm fails on made-up rollouts.

    Parameters:
        num_generations (`int`, *optional*, defaults to `8`):
            The number kept, not generated: m, the rollouts of a prompt that are trained on.
            `rollouts_per_prompt` is the number generated.
        rollouts_per_prompt (`int`, *optional*, defaults to `64`):
            n, the rollouts of a prompt that are sampled and scored; at least `num_generations`.
            Algorithms that sample m of each prompt (grpo, dapo, greso) do not read it.
        algorithm (`str`, *optional*, defaults to `"pods"`):
            What is sampled and what is trained on: a name of `pods.algorithms.ALGORITHMS`, or
            `"path/to/file.py:function"`.
        algorithm_kwargs (`dict[str, Any]`, *optional*):
            Its parameters after `step`.
        rule (`str`, *optional*, defaults to `"max_variance"`):
            Which m of the n rollouts an algorithm with a parameter `rule` keeps, such as pods: a
            name of `pods.rules.RULES`, or `"path/to/file.py:function"`.
        rule_kwargs (`dict[str, Any]`, *optional*):
            Its parameters after `rewards`, `m` and `rng`.
        advantage (`str`, *optional*, defaults to `"kept"`):
            The advantages of what is kept: a name of `pods.advantages.ADVANTAGES`, or
            `"path/to/file.py:function"`. Algorithms with advantages of their own do not read it.
        advantage_kwargs (`dict[str, Any]`, *optional*):
            Its parameters after `batch` and `kept`.
        correct (`str`, *optional*):
            The name of the reward function that grades: values above 0 mean correct. If `None`,
            algorithms go by equal rewards.
        lean_update (`bool`, *optional*, defaults to `False`):
            Whether the update leaves out what has no gradient (rows with an advantage of 0, rows
            that only fill the step, padding) and computes each prompt once. Weights equal those
            without it but for rounding; docs/trl.md says when it applies.
    """

    _VALID_DICT_FIELDS = [  # that transformers reads from JSON  # noqa: RUF012 - its own is a list
        *trl.GRPOConfig._VALID_DICT_FIELDS,
        *("algorithm_kwargs", "rule_kwargs", "advantage_kwargs"),
    ]

    rollouts_per_prompt: int = field(
        default=64,
        metadata={"help": "A whole number: n, the rollouts of a prompt that are sampled."},
    )
    algorithm: str = field(
        default="pods",
        metadata={"help": "What is sampled and trained on: a name, or path/to/file.py:function."},
    )
    algorithm_kwargs: Kwargs = field(
        default=None,
        metadata={"help": "A dictionary: parameters of the algorithm after `step`."},
    )
    rule: str = field(
        default="max_variance",
        metadata={"help": "Which m of n are kept: a name, or path/to/file.py:function."},
    )
    rule_kwargs: Kwargs = field(
        default=None,
        metadata={"help": "A dictionary: parameters of the rule after `rewards`, `m` and `rng`."},
    )
    advantage: str = field(
        default="kept",
        metadata={"help": "Advantages of what is kept: a name, or path/to/file.py:function."},
    )
    advantage_kwargs: Kwargs = field(
        default=None,
        metadata={"help": "A dictionary: parameters of the advantage after `batch` and `kept`."},
    )
    correct: str | None = field(
        default=None,
        metadata={"help": "The reward function that grades: values above 0 mean correct."},
    )
    lean_update: bool = field(
        default=False,
        metadata={"help": "true or false: the update computes only what has a gradient."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in PodsConfig.__annotations__:
            setattr(self, name, kwargs.pop(name, getattr(PodsConfig, name)))
        self.typed_scale_rewards = kwargs.get("scale_rewards", "group")
        super().__init__(*args, **kwargs)  # not the generated one: Unsloth's sets more than fields

    def __post_init__(self) -> None:
        # For dr_grpo Unsloth's constructor turns it off; a dataclass made of this one has its own.
        self.scale_rewards = getattr(self, "typed_scale_rewards", self.scale_rewards)
        super().__post_init__()
        for name, kind in PodsConfig.__annotations__.items():
            allowed = dict | None if kind == Kwargs else kind
            value = getattr(self, name)
            if not isinstance(value, allowed):
                described = PodsConfig.__dataclass_fields__[name].metadata["help"]
                raise ValueError(f"{name}={value!r}: {described}")
        if self.loss_type not in LOSSES:
            raise ValueError(f"loss_type={self.loss_type}: must be one of {', '.join(LOSSES)}")
        if self.n_gpu > 1 and not trl.GRPOTrainer.__name__.startswith("Unsloth"):  # it takes one
            raise ValueError(
                f"n_gpu={self.n_gpu}: a process on several GPUs samples and trains that many times "
                "the rollouts; start one process a GPU with accelerate launch, or set "
                "CUDA_VISIBLE_DEVICES=0"
            )

    def problems(self, algorithm: Algorithm, **changed: bool) -> Iterator[str]:
        """One line for each value that does not fit the algorithm, some of whose
        `Requirements` may be changed."""
        return conflicts(
            replace(requirements_of(algorithm), **changed),
            get_callable_name(algorithm),
            n=self.rollouts_per_prompt,
            m=self.num_generations,
            m_key="num_generations",
            rule=None if self.rule == "max_variance" else self.rule,
            advantage=self.advantage,
            arguments=vars(self),
        )
