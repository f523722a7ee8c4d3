"""Small tokenizers with chat templates of tests/templates, by default of the shape of Qwen 2.5's or
Llama 3's; no download."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.conftest import ROOT

SPECIAL = {
    "qwen": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    "llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}


def like(family: str, template: str | None = None) -> PreTrainedTokenizerFast:
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
    text = (ROOT / "tests" / "templates" / f"{template or family}.jinja").read_text()
    eos = {"qwen": "<|im_end|>", "llama": "<|eot_id|>"}[family]
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=bos, eos_token=eos, chat_template=text
    )
