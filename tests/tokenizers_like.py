"""Small tokenizers with chat templates of the shape of Qwen 2.5's and Llama 3's; no download."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

QWEN_TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nA default.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_HEADER = "<|start_header_id|>{role}<|end_header_id|>\n\n"
LLAMA_TEMPLATE = (
    "{{ bos_token }}"
    "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% set system = '' %}{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content | trim %}{% set messages = messages[1:] %}"
    "{% endif %}" + LLAMA_HEADER.format(role="system") + "Cutting Knowledge Date: December 2023\n"
    "Today Date: {{ date_string }}\n\n{{ system }}<|eot_id|>"
    "{% for message in messages %}"
    + LLAMA_HEADER.format(role="{{ message.role }}")
    + "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}" + LLAMA_HEADER.format(role="assistant") + "{% endif %}"
)
SPECIAL = {
    "qwen": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    "llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}


def like(family: str) -> PreTrainedTokenizerFast:
    """One token a character, besides the special ones; "llama" puts a BOS before any text."""
    characters = {chr(code): code for code in range(256)}
    inner = Tokenizer(models.WordLevel({**characters, "<unk>": 256}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(SPECIAL[family])
    bos = SPECIAL["llama"][0] if family == "llama" else None
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, inner.token_to_id(bos))]
        )
    template = {"qwen": QWEN_TEMPLATE, "llama": LLAMA_TEMPLATE}[family]
    eos = {"qwen": "<|im_end|>", "llama": "<|eot_id|>"}[family]
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=bos, eos_token=eos, chat_template=template
    )
