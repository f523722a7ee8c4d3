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
    question: str,
    *,
    tokenizer: "PreTrainedTokenizerBase",
    style: str = "instruct",
    system: str | None = None,
    date: str | None = None,
    **variables: Any,
) -> str:
    """The prompt as text; system None: the published text, "": none; date: for templates that show
    today's; variables: others of the chat template, such as enable_thinking."""
    if style not in SYSTEM["math"]:
        raise UserError(f"task.style={style}: unknown; one of {', '.join(SYSTEM['math'])}")
    if system is None:
        system = SYSTEM["math"][style]
    if style == "base":
        return f"{system}Problem: {question}\nSolution: "
    if not tokenizer.chat_template:
        raise UserError(
            "task.style=instruct: the tokenizer has no chat template; use task.style=base"
        )
    messages = [{"role": "user", "content": question}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    if date is not None:
        variables = {"date_string": date, **variables}
    try:
        return tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            **variables,
        )
    except TemplateError as error:
        raise UserError(
            f"task.system: the chat template refuses the messages ({error}); "
            'set the text that it needs, or "" where it takes none'
        ) from None


def encode_prompts(prompts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[list[int]]:
    """Token ids of rendered prompts, with one BOS each if the tokenizer has one. Llama's template
    writes it and its tokenizer adds another: the published evaluation had two."""
    if not prompts:
        return []
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    bos = [tokenizer.bos_token_id]
    if list(tokenizer("")["input_ids"])[:1] != bos:
        return encoded
    return [ids if ids[:1] == bos else bos + ids for ids in encoded]
