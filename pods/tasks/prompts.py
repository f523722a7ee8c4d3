"""The text a policy sees: a question, a system text, and the model's own chat template.

The system text of `instruct` mathematics renders to the published prompts; the others are ours. A
text is passed with its outer newlines: templates differ in trimming them (Qwen keeps, Llama trims).
"""

from typing import TYPE_CHECKING

from pods.cli import UserError

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from pods.config import Task

FORMAT = """
Respond in the following format:
<think>
Reason here. Decide to answer when you are confident as your response length is limited.
</think>
<answer>
{answer}
</answer>
"""
MATH = """
You will be given a math question.
Reason about the question and correct your own mistakes if you make any.
""" + FORMAT.format(answer="Answer here.")
CHOICE = """
You will be given a multiple-choice question.
Work out which option is right, checking every step.
""" + FORMAT.format(answer="Only the letter of the right option.")
BASE_MATH = """
A careful assistant solves the problem below. It first writes its working between <think> and
</think>, then its final answer, and nothing else, between <answer> and </answer>.
"""
BASE_CHOICE = """
A careful assistant solves the multiple-choice problem below. It first writes its working between
<think> and </think>, then only the letter of the right option between <answer> and </answer>.
"""
SYSTEM_TEXTS = {
    ("instruct", "math"): MATH,
    ("instruct", "choice"): CHOICE,
    ("base", "math"): BASE_MATH,
    ("base", "choice"): BASE_CHOICE,
}
STYLES = ("instruct", "base")


def render_prompt(
    question: str,
    *,
    tokenizer: "PreTrainedTokenizerBase",
    style: str = "instruct",
    system: str | None = None,
    date: str | None = None,
) -> str:
    """The prompt as text. `system` None: the published mathematics text; "": none at all.

    `date` is what a template that prints today's date prints, so that runs agree across days.
    """
    if style not in STYLES:
        raise UserError(f"task.style={style}: unknown; one of {', '.join(STYLES)}")
    if system is None:
        system = SYSTEM_TEXTS[style, "math"]
    if style == "base":
        return f"{system}Problem: {question}\nSolution: "
    if not tokenizer.chat_template:
        raise UserError(
            "task.style=instruct: the tokenizer has no chat template; use task.style=base"
        )
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    pinned = {} if date is None else {"date_string": date}
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **pinned
    )


def encode_prompt(prompt: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Token ids of a rendered prompt: the tokenizer's BOS, where it has one, exactly once.

    Llama's template writes the BOS as text and its tokenizer adds another; the published evaluation
    had two and the training one.
    """
    ids = list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    bos = tokenizer.bos_token_id
    wants_bos = bos is not None and list(tokenizer("")["input_ids"])[:1] == [bos]
    return [bos, *ids] if wants_bos and ids[:1] != [bos] else ids


def within_length(
    dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase", max_prompt_length: int, task: "Task"
) -> "tuple[Dataset, int]":
    """The rows whose prompt has at most `max_prompt_length` tokens, with a column `prompt`, and how
    many rows were too long. Training and evaluation both come through here.
    """
    prompts = []
    for row in dataset:
        system = SYSTEM_TEXTS[task.style, row["kind"]] if task.system is None else task.system
        prompts.append(
            render_prompt(
                row["question"],
                tokenizer=tokenizer,
                style=task.style,
                system=system,
                date=task.date,
            )
        )
    short = [
        index
        for index, prompt in enumerate(prompts)
        if len(encode_prompt(prompt, tokenizer)) <= max_prompt_length
    ]
    kept = dataset.select(short).add_column("prompt", [prompts[index] for index in short])
    return kept, len(prompts) - len(short)
