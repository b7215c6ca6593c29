"""Build the tokenizer of a GGUF file: its vocabulary, merges, special tokens and chat template.

Byte-level BPE is built here, because the file only names the rule that splits text before the merges
(``tokenizer.ggml.pre``). A wrong rule would silently give other tokens, so an unknown name is an error.
SentencePiece vocabularies are built by transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checkpoints.gguf_reader import GGUFFile
from ..checkpoints.weights import ModelError

# The patterns by which text is split before the merges, as the published tokenizers have them.
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "default": None,
    "gpt-2": None,
    "smollm": None,
    "refact": None,
    "smaug-bpe": LLAMA3,
    "dbrx": LLAMA3,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}
SINGLE_DIGITS = {"smollm", "refact"}
OPENED = {
    "llama-bpe",
    "llama3",
    "llama-v3",
}  # a BOS token unless the file says otherwise; a word that is one token is not split by merges
COMPOSED = {"qwen2", "deepseek-r1-qwen"}  # text is brought to NFC first
NORMAL = 1  # kinds of tokens in a GGUF file
UNKNOWN = 2
CONTROL = 3
USER = 4
# Tokens that end an answer in llama.cpp, which goes by their names, whatever type a file gives them.
ENDS = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<turn|>",
        "<end_of_utterance>",
        "<eos>",
        "</s>",
        "<EOT>",
        "< EOT >",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)
HARMONY = {"<|return|>", "<|call|>"}  # beside these <|end|> ends one message of several (gpt-oss)
NO_SPLIT = (None, "default")  # values of tokenizer.ggml.pre that name no rule
NOTES_FILE = "gguf_notes.json"  # of the folder made for a file: what its metadata lack
NOTES = {
    "split": "its file does not say how text is split before the merges (tokenizer.ggml.pre): GPT-2's way is used, and another "
    "way would give other tokens",
    "ends": "its file does not mark {names} as control tokens; they are, by their names",
}


def end_names(tokens: list[str]) -> frozenset[str]:
    """Return the names in a vocabulary that end an answer."""
    found = ENDS & set(tokens)
    return found - {"<|end|>"} if found >= HARMONY else found


def tokenizer_notes(file: GGUFFile) -> list[str]:
    """Return what a reader must know of a GGUF file's tokenizer, each the end of a sentence."""
    tokens, kinds = _texts(file, "tokens"), file.metadata.get("tokenizer.ggml.token_type") or []
    byte_level = file.metadata.get("tokenizer.ggml.model") == "gpt2"
    notes = [NOTES["split"]] if byte_level and file.metadata.get("tokenizer.ggml.pre") in NO_SPLIT else []
    ends = end_names(tokens)
    unmarked = [token for token, kind in zip(tokens, kinds) if token in ends and kind != CONTROL]
    return [*notes, NOTES["ends"].format(names=", ".join(unmarked))] if unmarked else notes


def save_tokenizer(file: GGUFFile, folder: Path) -> frozenset[int]:
    """Write a GGUF file's tokenizer into a folder in Hugging Face format; return the token ids that end an
    answer. Raises ModelError."""
    tokens, kinds = _texts(file, "tokens"), file.metadata.get("tokenizer.ggml.token_type")
    if len(set(tokens)) != len(tokens) or len(tokens) > vocabulary_size(file):
        raise ModelError(
            f"the vocabulary of {file.name} does not fit its weights: {len(tokens)} tokens, {len(set(tokens))} different ones",
            "gguf.vocabulary",
        )
    if kinds is None:
        kinds = [NORMAL] * len(tokens)
    if len(kinds) != len(tokens) or not all(type(kind) is int for kind in kinds):
        raise ModelError(f"{file.name} does not say of which kind each token is", "gguf.token_types")
    names = end_names(tokens)
    kinds = [CONTROL if token in names else kind for token, kind in zip(tokens, kinds)]
    model = file.metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer = _byte_level(file, tokens, kinds)
    elif model == "llama":
        tokenizer = _sentencepiece(file, folder)
    else:
        raise ModelError(
            f"{file.name} has a tokenizer of the kind {str(model)[:40]!r}; gpt2 (byte-level BPE) and llama "
            "(SentencePiece) are read",
            "gguf.tokenizer_kind",
        )
    template = file.metadata.get("tokenizer.chat_template")
    if isinstance(template, str) and template:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    ends = {i for key in ("eos", "eot", "eom") if (i := _id(file, key, len(tokens))) is not None}
    return frozenset(ends | {i for i, token in enumerate(tokens) if token in names})


def vocabulary_size(file: GGUFFile) -> int:
    """Return the number of tokens in a GGUF file's vocabulary."""
    return file.tensors["token_embd.weight"].shape[0]


def _texts(file: GGUFFile, key: str) -> list[str]:
    found = file.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise ModelError(f"{file.name} has no tokenizer.ggml.{key}", "gguf.lacks_field")
    return found


def _id(file: GGUFFile, key: str, count: int) -> int | None:
    """Return the id of a special token (bos, eos, ...); None if the file names none."""
    found = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
    if found is not None and not (type(found) is int and 0 <= found < count):
        raise ModelError(
            f"{file.name} says tokenizer.ggml.{key}_token_id is {str(found)[:40]}, which is no token",
            "gguf.token_id",
        )
    return found


def _byte_level(file: GGUFFile, tokens: list[str], kinds: list[int]) -> Any:
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import PreTrainedTokenizerFast

    pre = file.metadata.get("tokenizer.ggml.pre", "default")
    if pre not in SPLITS:
        raise ModelError(
            f"{file.name} splits text in the way {str(pre)[:40]!r}; {', '.join(SPLITS)} are known",
            "gguf.pretokenizer",
        )
    merges: list[Any] = [tuple(merge.split(" ")) for merge in _texts(file, "merges")]  # pairs, or it raises
    try:
        raw = Tokenizer(
            models.BPE({token: i for i, token in enumerate(tokens)}, merges, ignore_merges=pre in OPENED)
        )
    except Exception as error:  # a merge that is no pair, or of tokens that are not there
        raise ModelError(
            f"the merges of {file.name} do not fit its tokens: {str(error)[:100]}", "gguf.merges"
        ) from None
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=SPLITS[pre] is None)
    first = [pre_tokenizers.Digits(individual_digits=True)] if pre in SINGLE_DIGITS else []
    first += [pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated")] if SPLITS[pre] else []
    raw.pre_tokenizer = pre_tokenizers.Sequence([*first, bytes_]) if first else bytes_
    raw.decoder = decoders.ByteLevel()
    if pre in COMPOSED:
        raw.normalizer = normalizers.NFC()
    raw.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds)
            if kind == CONTROL
        ]
    )
    raw.add_tokens(
        [
            AddedToken(token, special=False, normalized=False)
            for token, kind in zip(tokens, kinds)
            if kind == USER
        ]
    )
    bos = _id(file, "bos", len(tokens))
    if bos is not None and file.metadata.get("tokenizer.ggml.add_bos_token", pre in OPENED) is True:
        raw.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], pair=[tokens[bos], "$A", "$B"], special_tokens=[(tokens[bos], bos)]
        )
    named = {
        f"{name}_token": tokens[i]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (i := _id(file, key, len(tokens))) is not None
    }
    return PreTrainedTokenizerFast(tokenizer_object=raw, clean_up_tokenization_spaces=False, **named)


def _sentencepiece(file: GGUFFile, folder: Path) -> Any:
    """Return transformers' conversion of a SentencePiece vocabulary; the folder holds a link to the file."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return AutoTokenizer.from_pretrained(
            folder, gguf_file=file.name, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # it has no error of its own
        words = (str(error).splitlines() or [""])[0][:100]
        raise ModelError(
            f"the tokenizer of {file.name} cannot be read ({words or type(error).__name__})", "gguf.tokenizer"
        ) from None
    finally:
        if bars:
            logging.enable_progress_bar()
