"""What tests/unsloth_drift.py does on both sides, imported after Unsloth, which must come first."""

import copy
import functools
import inspect
import os
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import trl
from datasets import Dataset
from peft import get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, TrainerCallback, set_seed
from trl.generation import vllm_generation

from pods import PodsConfig, PodsTrainer
from pods.clock import Clock
from pods.engines import Limits, LivePolicy, Request, Work, choose
from pods.engines.choose import sampling
from pods.engines.transformers import TransformersEngine
from pods.models import unsloth
from pods.models.policy import Policy, load_tokenizer, load_transformers
from pods.runs import checkpoints
from pods.training.build import build_trainer, refuse_changes, trl_arguments
from pods.training.loop import seed_step
from pods.training.warm_up import warm_up
from tests.configs import compose
from tests.fake_run import TINY
from tests.test_trainer import adapter, rewards_of, rows
from tests.unsloth_drift import CASES

torch.set_num_threads(1)
QWEN_3B = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "layer_types": ["full_attention"] * 36,
}
METHODS = ("_generate_and_score_completions", "_generate_single_turn", "_get_train_sampler")
PARAMS = (
    "temperature",
    "max_tokens",
    "top_k",
    "logprobs",
    "stop_token_ids",
    "ignore_eos",
    "detokenize",
    "seed",
)
NAMES = [  # in Unsloth's trainer: what trl_adapter.py reads, and what turns off other kernels
    "_unsloth_seq_packing_grad_ok",
    "_unsloth_seq_packing_grad_unsafe_T",
    "UNSLOTH_GRPO_PREFIX_GROUPER",
    'and not getattr(self, "use_vllm", False)',
]
SIZES = [
    "kept_per_prompt=4",
    "prompts_per_step=2",
    "max_steps=3",
    "sampling.temperature=2",
    "optimizer.schedule=constant",
]


def parameters(function):
    return list(inspect.signature(function).parameters)


def classes(folder):
    """The trainer's class and methods; also passes the arguments of a run with a vLLM engine
    through the config class as it is now."""
    config = compose(
        "experiment=gsm8k_qwen", "model.dtype=float32", "engine=unsloth", f"output_dir={folder}"
    )
    policy = Policy(None, None, None, "cpu", [1])
    wanted = trl_arguments(config, policy)
    refuse_changes(PodsConfig(**wanted), wanted)  # raises
    return {
        "class": trl.GRPOTrainer.__name__,
        "signatures": {name: parameters(getattr(trl.GRPOTrainer, name)) for name in METHODS},
    }


def policy_as_unsloth_loads_it(config):
    """What load_unsloth returns on a GPU: the adapter applied, two methods on the model."""
    policy = load_transformers(config, load_tokenizer(config.model.path))
    set_seed(config.seed)
    policy.model = get_peft_model(policy.model, policy.peft_config)
    policy.model.for_training = lambda *_, **__: policy.model.train()
    policy.model.for_inference = lambda *_, **__: policy.model.eval()
    policy.model.max_seq_length = 512
    policy.model._unsloth_gradient_checkpointing = False
    policy.peft_config = None
    return policy


def trainer_of(config, policy, folder, engine=None):
    """A trainer with train.py's warm-up where warm_up says so, and what each of its steps will have
    kept and checked."""
    steps: list[dict] = []

    class Loop(TrainerCallback):
        def on_train_begin(self, *_, **__):
            if config.warm_up:
                warm_up(trainer, config, lambda name: nullcontext())

        def on_step_begin(self, args, state, *_, **__):
            if state.global_step % config.updates_per_generation == 0:
                seed_step(config, state.global_step)

        def on_step_end(self, args, state, *_, **__):
            guard = trainer.sampler.guard
            guarded = guard.metrics if guard else {}
            steps.append({"kept": trainer.newest.selection.kept.tolist(), **guarded})
            if state.global_step == 2 and not (folder / "checkpoint-2").is_dir():
                checkpoints.write(trainer, folder, {})

    rewards = rewards_of()
    if config.micro_batch_size == 2:  # of the cases with groups without signal
        rewards.functions, rewards.weights = [correctness], {"correctness": 1.0}
    trainer = build_trainer(config, policy, rows(), rewards, engine, Clock())
    trainer.add_callback(Loop())
    return trainer, steps


def correctness(completions, **_):
    """Correct now and then, so that some groups have no signal."""
    return [float(sum(map(ord, text)) % 4 == 0) for text in completions]


def logged(trainer, name):
    return [line[name] for line in trainer.state.log_history if "loss" in line]


def case(side, name, folder):
    """Three steps of a case, generated by transformers."""
    folder = folder / name / side
    folder.mkdir(parents=True)
    sizes = ["rollouts_per_prompt=16", "sampling.max_completion_length=24", "engine=trl"]
    config = compose(*SIZES, *sizes, f"output_dir={folder}", *CASES[name])
    config.backend = "unsloth" if side == "unsloth" else "transformers"
    policy = policy_as_unsloth_loads_it(config)
    trainer, steps = trainer_of(config, policy, folder)
    # A sampled pad would leave Unsloth's loss (masks are rebuilt as ids != pad), not TRL's.
    trainer.generation_config.suppress_tokens = [policy.tokenizer.pad_token_id]
    generated, generate = [], trainer._generate_single_turn

    @functools.wraps(generate)  # its signature says what it takes
    def spy(prompt_ids, *rest, **named):
        generated.append(len(prompt_ids))
        return generate(prompt_ids, *rest, **named)

    trainer._generate_single_turn = spy
    logprobs = trainer.token_logprobs([22, 17, 23, 35], [23, 6, 24, 25, 1]).tolist()
    before = adapter(trainer)
    trainer.train()
    after = adapter(trainer)
    return {
        "generated": generated,
        "kept": [step["kept"] for step in steps],
        "logprobs": logprobs,
        "loss": logged(trainer, "loss"),
        "grad_norm": logged(trainer, "grad_norm"),
        "moved": sum((after[k] - v).abs().sum().item() for k, v in before.items()),
        "saved": sorted(path.name for path in folder.glob("checkpoint-2/adapter_*")),
        "arguments": {key: repr(value) for key, value in trainer.args.to_dict().items()},
    }


class Vllm:
    """In place of Unsloth's vLLM: samples under the adapter in the request; notes the calls."""

    shared_weights = True  # as Unsloth marks its engine

    def __init__(self, policy, config):
        self.copy = copy.deepcopy(policy.model)
        self.engine = TransformersEngine(config, policy.tokenizer, sampling(config), Limits())
        self.calls: list[Any] = []
        self.events: list[str] = []
        model = SimpleNamespace(enable_sleep_mode=config.vllm.standby)
        self.llm_engine = SimpleNamespace(vllm_config=SimpleNamespace(model_config=model))

    def wake_up(self):
        self.events.append("wake")

    def sleep(self, level=1):
        self.events.append("sleep")

    def generate(self, prompts, params, use_tqdm, lora_request):
        self.events.append("generate")
        assert all(lora is lora_request[0] for lora in lora_request)
        call = {"params": params[-1], "lora": lora_request[0], "prompts": prompts}
        self.calls.append(SimpleNamespace(**call))
        tensors = lora_request[0].lora_tensors.items()
        weights = {name.replace(".weight", ".default.weight"): value for name, value in tensors}
        assert not self.copy.load_state_dict(weights, strict=False).unexpected_keys
        pairs = zip(prompts, params, strict=True)
        asked = [Request(prompt["prompt_token_ids"], [p.seed]) for prompt, p in pairs]
        work = Work(asked, LivePolicy(self.copy, len(self.calls)), None, params[0].ignore_eos)
        ((_, groups),) = self.engine.generate([work], logprobs=True)
        return [self._output(*group) for group in groups]

    def _output(self, completion):
        ids, reason = completion.token_ids, "length" if completion.clipped else "stop"
        likely = zip(ids, completion.logprobs, strict=True)
        logprobs = [{token: SimpleNamespace(logprob=p, rank=1)} for token, p in likely]
        answer = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=reason)
        return SimpleNamespace(outputs=[answer])


class NotebookVllm(Vllm):
    """As TRL's own generation calls it, with one SamplingParams for all prompts and no seeds."""

    earlier = 0  # steps before a resume

    def generate(self, prompts, sampling_params, use_tqdm, lora_request):
        first = 1000 * (self.earlier + len(self.calls))
        params = [SimpleNamespace(seed=first + i, ignore_eos=False) for i in range(len(prompts))]
        outputs = super().generate(prompts, params, use_tqdm, [lora_request])
        for prompt, output in zip(prompts, outputs, strict=True):
            output.prompt_token_ids = prompt["prompt_token_ids"]
        return outputs


def on_the_engine(folder, correction):
    """Our trainer in Unsloth's, with the class above where Unsloth puts vLLM."""
    from unsloth_zoo import vllm_utils

    config = compose(
        *SIZES,
        "warm_up=true",
        "rollouts_per_prompt=8",
        "engine=unsloth",
        f"output_dir={folder}",
        "sampling.max_completion_length=24",
        "sampling.max_prompt_length=32",
        "optimizer.name=adamw_8bit",
        f"trl.vllm_importance_sampling_correction={correction}",
        f"vllm.standby={correction}",
    )
    config.backend = "unsloth"
    policy = policy_as_unsloth_loads_it(config)
    policy.model.vllm_engine = vllm = Vllm(policy, config)
    policy.model.load_lora = functools.partial(vllm_utils.load_lora, policy.model)
    engine = choose.build_for_training(config, policy)
    trainer, steps = trainer_of(config, policy, folder, engine)
    return trainer, vllm, steps


def notebook(folder):
    """PodsTrainer alone, as in a notebook, on a model with Unsloth's vLLM and beta > 0: rows
    sampled and trained on, adapters handed over and saved, and the difference to the same training
    resumed in the middle."""
    from unsloth_zoo import vllm_utils

    runs = []
    for start in (None, str(folder / "checkpoint-2")):
        config = compose(*SIZES, "sampling.max_completion_length=8", f"output_dir={folder}")
        policy = policy_as_unsloth_loads_it(config)
        policy.model.vllm_engine = vllm = NotebookVllm(policy, config)
        vllm.earlier = 2 if start else 0
        policy.model.load_lora = functools.partial(vllm_utils.load_lora, policy.model)
        trained: list[int] = []

        class Watch(PodsTrainer):
            def build_trl_batch(self, record, trained=trained):
                batch, record = super().build_trl_batch(record)
                trained.append(len(batch["completion_ids"]))
                return batch, record

        trainer = Watch(
            policy.model,
            lambda completions, **_: [float(len(text)) for text in completions],
            PodsConfig(
                str(folder),
                rollouts_per_prompt=8,
                num_generations=4,
                max_completion_length=8,
                beta=0.04,  # for which TRL makes a second adapter
                per_device_train_batch_size=4,
                max_steps=3,
                save_steps=2,
                report_to="none",
                learning_rate=1e-3,
                optim="adamw_torch",
                use_cpu=True,
                bf16=False,
                logging_steps=1,
                disable_tqdm=True,
                lr_scheduler_type="constant",
                gradient_checkpointing=False,
                seed=0,
            ),
            Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(8)]}),
            processing_class=policy.tokenizer,
        )
        fresh = adapter(trainer)  # equal in both runs
        trainer.train(resume_from_checkpoint=start)
        runs.append((adapter(trainer), vllm, trained))
    (whole, vllm, trained), (again, _, _) = runs
    ids = [call.lora.lora_int_id for call in vllm.calls]
    return {
        "sampled": [len(call.prompts) for call in vllm.calls],
        "trained": trained,
        "lora_ids": [number - ids[0] for number in ids],
        "moved": max((whole[k] - fresh[k]).abs().max().item() for k in whole),
        "saved": sorted(path.parent.name for path in folder.rglob("adapter_config.json")),
        "resumed_differs_by": max((whole[k] - again[k]).abs().max().item() for k in whole),
    }


def training(folder, correction):
    """Three steps; uncorrected, the third again from the checkpoint of the second."""
    folder.mkdir()
    trainer, vllm, steps = on_the_engine(folder, correction)
    fresh = adapter(trainer)
    trainer.train()
    again = whole = adapter(trainer)
    if not correction:
        resumed, *_ = on_the_engine(folder, correction)
        resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
        again = adapter(resumed)
    moments = [state for state in trainer.optimizer.state.values() if "state1" in state]
    return {
        "steps": steps,
        "losses": logged(trainer, "loss"),
        "moved": max((whole[k] - fresh[k]).abs().max().item() for k in whole),
        "resumed_differs_by": max((whole[k] - again[k]).abs().max().item() for k in whole),
        "moment_types": sorted({str(state["state1"].dtype) for state in moments}),
        "packing": trainer.packing(),
        "lora_ids": [call.lora.lora_int_id for call in vllm.calls],
        "lora_shape": [vllm.calls[0].lora.lora_config[k] for k in ("r", "lora_alpha")],
        "params": [{n: getattr(call.params, n) for n in PARAMS} for call in vllm.calls],
        "events": vllm.events,
    }


def engine_settings(folder):
    """What Unsloth asks of vLLM for gsm8k_qwen, and what vLLM makes of our own engine's arguments
    at temperature 1, on a made-up card of 48 GB."""
    from unsloth_zoo import vllm_utils
    from vllm.config import vllm as vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    from pods.engines import vllm as engine

    sys.modules["vllm._C_stable_libtorch"] = ModuleType("kernels")
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    class Card(NonNvmlCudaPlatform):
        get_device_capability = classmethod(lambda *_: DeviceCapability(8, 9))
        get_device_total_memory = classmethod(lambda *_: 48 * 2**30)
        get_device_name = classmethod(lambda *_: "L40S")

    current_platform.__class__, vllm_config.HAS_TRITON = Card, True
    torch.cuda.get_device_capability = lambda *_: (8, 9)
    vllm_utils.get_mem_info = lambda: (44 * 2**30, 48 * 2**30)
    shape = AutoConfig.for_model("qwen2", **QWEN_3B, architectures=["Qwen2ForCausalLM"])
    shape.save_pretrained(folder / "shape")
    keys = [f"model.path={folder / 'shape'}", "rollouts_per_prompt=256", "sampling.temperature=1"]
    config = compose("experiment=gsm8k_qwen", *keys)
    unsloths = vllm_utils.load_vllm(
        config.model.path,
        shape,
        max_seq_length=1024,
        dtype=torch.bfloat16,
        use_bitsandbytes=False,
        return_args=True,
        **unsloth.engine_arguments(config),
    )
    engine.LLM = lambda **arguments: SimpleNamespace(
        config=EngineArgs(**arguments).create_engine_config(),
        llm_engine=SimpleNamespace(engine_core=None),
    )
    parts = SimpleNamespace(eos_token_id=1), sampling(config), Limits(gpu_memory_utilization=0.5)
    ours = engine.VllmEngine(config, *parts, config.lora.rank)._llm.config
    names = ("max_num_seqs", "max_loras", "max_lora_rank", "max_logprobs", "logprobs_mode")
    model = ours.model_config.quantization, ours.model_config.logprobs_mode
    return {
        "unsloths": [unsloths[name] for name in names],
        "ours": [ours.use_v2_model_runner, *model, ours.lora_config.max_lora_rank],
    }


def four_bit():
    """How many matrices vLLM's plugin quantises, those that only transformers does with our
    settings, and those that differ."""
    from bitsandbytes.nn import Linear4bit
    from vllm.model_executor.models.utils import WeightsMapper
    from vllm_bnb_plugin import bitsandbytes_loader as plugin

    config = compose("model.load_in_4bit=true", "model.dtype=bfloat16")
    tokenizer = load_tokenizer(config.model.path, config.model.pad_token)
    modules = load_transformers(config, tokenizer).model.named_modules()
    weights = {f"{n}.weight": m.weight for n, m in modules if isinstance(m, Linear4bit)}
    plugin.current_platform = SimpleNamespace(device_type="cpu")
    plugin.get_tensor_model_parallel_world_size = lambda: 1
    plugin.get_tensor_model_parallel_rank = lambda: 0
    loader, states = object.__new__(plugin.BitsAndBytesModelLoader), {}
    loader._get_bnb_target_modules = loader._classify_module_sharding = lambda _: None
    renamed = torch.nn.Module()
    renamed.hf_to_vllm_mapper = WeightsMapper()  # its methods differ between versions of vLLM
    loader._initialize_loader_state(renamed, None)
    loader.target_modules = [name.removesuffix(".weight") for name in weights]
    loader.tp_disabled_modules = loader.unsharded_weights_modules = []
    loader.column_sharded_weights_modules, loader.maybe_fused_weights_modules = [], {}
    plain = load_transformers(compose("model.dtype=bfloat16"), tokenizer).model.state_dict()
    loader._hf_weight_iter = lambda *_: ((name, name, value) for name, value in plain.items())
    differ = []
    for name, ours in dict(loader._unquantized_generator([], True, states)).items():
        if name in states:
            state, own = states[name], weights.pop(name)
            pairs = [(ours.flatten(), own.flatten()), (state.absmax, own.quant_state.absmax)]
            pairs += [(state.state2.absmax, own.quant_state.state2.absmax)]
            differ += [name] * (not all(torch.equal(*pair) for pair in pairs))
    return [len(states), [*weights], differ]


def kept_by_the_loss(folder):
    """What the log-probabilities of Unsloth's loss keep for its backward pass: bytes for each
    completion token, without and with UNSLOTH_GRPO_LOGPROB_RECOMPUTE, and whether the gradients
    are equal. Hidden states and logits have 1/32 of the bytes of Qwen2.5-3B's in bfloat16."""
    from unsloth_zoo import rl_replacements

    folder.mkdir()
    config = compose(f"model.path={folder}", *SIZES, "rollouts_per_prompt=8", "engine=trl")
    config.output_dir, config.backend = str(folder), "unsloth"
    tokenizer = load_tokenizer(str(TINY))
    tokenizer.save_pretrained(folder)
    shape = AutoConfig.from_pretrained(TINY, hidden_size=32, vocab_size=4748)
    AutoModelForCausalLM.from_config(shape).save_pretrained(folder)
    policy = policy_as_unsloth_loads_it(config)
    core = policy.model.get_base_model()
    head = core.lm_head.forward

    def hidden_states_or_logits(hidden):  # as Unsloth's own forward passes
        return hidden if os.environ.get("UNSLOTH_RETURN_HIDDEN_STATES") == "1" else head(hidden)

    core.lm_head.forward = hidden_states_or_logits
    trainer, _ = trainer_of(config, policy, folder)
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, int] = {}  # bytes by storage

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def noted(function):
        def call(*args, **named):
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                return function(*args, **named)

        return call

    loss_of, bytes_of_a_token, gradients = trainer.compute_loss, [], []

    def both(model, inputs, *rest, **named):
        for value in ("0", "1"):
            os.environ["UNSLOTH_GRPO_LOGPROB_RECOMPUTE"] = value
            kept.clear()
            loss = loss_of(model, inputs, *rest, **named)
            bytes_of_a_token.append(sum(kept.values()) / int(inputs["completion_mask"].sum()))
            gradients.append(torch.autograd.grad(loss, trained, retain_graph=True))
        return loss

    trainer.compute_loss = both
    # The generated trainer imports these at each call. Its loss refuses the hooks, and the
    # log-probabilities are all of it that has the vocabulary's size.
    names = [f"chunked_hidden_states_selective_log_softmax{end}" for end in ("", "_recompute")]
    functions = {name: noted(getattr(rl_replacements, name)) for name in names}
    with mock.patch.multiple(rl_replacements, **functions):
        trainer.train()
    before, after = gradients[:2]
    return {
        "bytes": bytes_of_a_token[:2],
        "equal": all(map(torch.equal, before, after)),
        "gradient": max(float(gradient.abs().max()) for gradient in before),
        "packed": trainer.packing()["update/packed"],
    }


def unsloth_alone(folder):
    """What only Unsloth's side has: its loaders, and training on its engine."""
    import vllm
    from unsloth import FastLanguageModel
    from unsloth_zoo.vllm_utils import load_vllm, patch_vllm, patch_vllm_enable_sleep_mode

    patch_vllm(debug=False)
    vllm.LLM.generate = Vllm.generate
    patch_vllm_enable_sleep_mode()
    Vllm.generate = vllm.LLM.generate  # woken first
    source = inspect.getsource(sys.modules[trl.GRPOTrainer.__module__])
    vllm_generation.DistributedBackend = lambda accelerator: None
    loaders = (FastLanguageModel.from_pretrained, FastLanguageModel.get_peft_model, load_vllm)
    return {
        "loader": {f.__name__: parameters(f) for f in loaders},
        "default_sequences": inspect.signature(load_vllm).parameters["max_num_seqs"].default,
        "training": [training(folder / f"corrected-{yes}", yes) for yes in (False, True)],
        "missing_names": [name for name in NAMES if name not in source],
        "notebook": notebook(folder / "notebook"),
        "four_bit": four_bit(),
        "kept_by_the_loss": kept_by_the_loss(folder / "loss"),
        "settings": engine_settings(folder),
    }
