"""The text that the policy sees: a system text, a question, and the model's chat template."""

from typing import TYPE_CHECKING

from pods.config.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Kind of answers -> task.style -> system text. math, instruct renders to the published prompts. A
# text keeps its outer newlines: chat templates differ in trimming them (Qwen keeps, Llama trims).
FORMAT = """
Respond in the following format:
<think>
Reason here. Decide to answer when you are confident as your response length is limited.
</think>
<answer>
{answer}
</answer>
"""
SYSTEM = {
    "math": {
        "instruct": """
You will be given a math question.
Reason about the question and correct your own mistakes if you make any.
"""
        + FORMAT.format(answer="Answer here."),
        "base": """
A careful assistant solves the problem below. It first writes its working between <think> and
</think>, then its final answer, and nothing else, between <answer> and </answer>.
""",
    },
    "choice": {
        "instruct": """
You will be given a multiple-choice question.
Work out which option is right, checking every step.
"""
        + FORMAT.format(answer="Only the letter of the right option."),
        "base": """
A careful assistant solves the multiple-choice problem below. It first writes its working between
<think> and </think>, then only the letter of the right option between <answer> and </answer>.
""",
    },
}


def render_prompt(
    question: str, *, tokenizer: "PreTrainedTokenizerBase", style: str = "instruct",
    system: str | None = None, date: str | None = None,
) -> str:  # fmt: skip
    """The prompt as text; system None: the published text, "": none; date: in place of today's."""
    if style not in SYSTEM["math"]:
        raise UserError(f"task.style={style}: unknown; one of {', '.join(SYSTEM['math'])}")
    system = SYSTEM["math"][style] if system is None else system
    if style == "base":
        return f"{system}Problem: {question}\nSolution: "
    if not tokenizer.chat_template:
        line = "the tokenizer has no chat template; use task.style=base"
        raise UserError(f"task.style=instruct: {line}")
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    options = {} if date is None else {"date_string": date}
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **options
    )


def encode_prompt(prompt: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Token ids of a rendered prompt."""
    return encode_prompts([prompt], tokenizer)[0]


def encode_prompts(prompts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[list[int]]:
    """Token ids of rendered prompts, with one BOS each if the tokenizer has one. Llama's template
    writes it and its tokenizer adds another: the published evaluation had two."""
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"] if prompts else []
    bos = [tokenizer.bos_token_id]
    if list(tokenizer("")["input_ids"])[:1] != bos:
        return encoded
    return [ids if ids[:1] == bos else bos + ids for ids in encoded]
