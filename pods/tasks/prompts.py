"""The text that the policy sees: a system text, a question, and the model's chat template."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import TemplateError

from pods.config.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# kind -> style -> text
SYSTEM = yaml.safe_load(Path(__file__).with_name("system.yaml").read_text())


def render_prompt(
    question: str, *, tokenizer: "PreTrainedTokenizerBase", style: str = "instruct",
    system: str | None = None, date: str | None = None, **variables: Any,
) -> str:  # fmt: skip
    """The prompt as text; system None: the published text, "": none; date: for templates that show
    today's; variables: others of the chat template, such as enable_thinking."""
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
    settings = {"tokenize": False, "add_generation_prompt": True}
    settings |= {"date_string": date} if date is not None else {}
    try:
        return tokenizer.apply_chat_template(messages, **settings | variables)
    except TemplateError as error:
        remedy = 'set the text that it needs, or "" where it takes none'
        line = f"task.system: the chat template refuses the messages ({error}); {remedy}"
        raise UserError(line) from None


def encode_prompt(prompt: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    return encode_prompts([prompt], tokenizer)[0]


def encode_prompts(prompts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[list[int]]:
    """Token ids of rendered prompts, with one BOS each if the tokenizer has one. Llama's template
    writes it and its tokenizer adds another: the published evaluation had two."""
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"] if prompts else []
    bos = [tokenizer.bos_token_id]
    if list(tokenizer("")["input_ids"])[:1] != bos:
        return encoded
    return [ids if ids[:1] == bos else bos + ids for ids in encoded]
