"""A tiny loaded pair: a byte-level tokenizer of 300 tokens and two scripted nets, one close to the other."""

from __future__ import annotations

import copy
from functools import lru_cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.zoo.codec import TextCodec
from specviz.zoo.requirements import unsupported_reason

TEMPLATE = """{% for m in messages %}<|{{ m['role'] }}|>
{{ m['content'] }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
SPECIALS = ["<|pad|>", "<|bos|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEXT = [
    "the cat sat on the mat and the cat sat on the hat",
    "write a story about the sea\n\nthe sea is deep and the sea is blue",
]


@lru_cache
def byte_level(vocab: int = 300) -> PreTrainedTokenizerFast:
    """GPT-2's kind: every byte has a token."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        extra_special_tokens=["<|user|>", "<|assistant|>", "<|system|>"],
        chat_template=TEMPLATE,
    )


@lru_cache
def pieces() -> PreTrainedTokenizerFast:
    """Llama-2's kind: pieces with U+2581 for a space, and a token for each byte."""
    plain = ["\u2581", "\u2581the", "\u2581cat", "s", "at", "!", "\u2581\u2581"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + plain
    raw = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(names)}, merges=[], unk_token="<unk>", byte_fallback=True
        )
    )
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@lru_cache
def metaspace() -> PreTrainedTokenizerFast:
    """T5's kind, by the Metaspace decoder."""
    names = ["<unk>", "</s>", "\u2581the", "\u2581cat", "s", "at"]
    raw = Tokenizer(models.Unigram([(t, -1.0) for t in names], unk_id=0))
    raw.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", eos_token="</s>")


@lru_cache
def wordpiece() -> PreTrainedTokenizerFast:
    """Neither bytes nor pieces: the fallback."""
    names = ["[UNK]", "the", "cat", "##s", "sat", "!"]
    raw = Tokenizer(models.WordPiece({t: i for i, t in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    raw.decoder = decoders.WordPiece(cleanup=False)
    raw.add_special_tokens([AddedToken("[SEP]", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", sep_token="[SEP]")


class FakeKit:
    def __init__(self, loaded):
        self.loaded, self.vocab = loaded, loaded.vocab
        self.target = TinyTarget(loaded.net, loaded.context)
        self.opened = [self.target]
        self.predicted = ()
        self.weight_folders = []
        self.codec = loaded.codec
        self.context = loaded.context

    def open(self, role, required=False):
        self.opened.append(TinyTarget(self.loaded.draft, self.loaded.context))
        return self.opened[-1]

    def draft_ready(self):
        return True

    def draft_problems(self):
        return []

    def open_store(self, name):
        raise ValueError(f"there is no store {name}")

    def piece(self, token):
        return self.loaded.token_bytes(token)

    def encode(self, text):
        return self.loaded.tokenizer.encode(text, add_special_tokens=False)

    def close(self):
        for model in self.opened:
            model.close()


class FakeLoaded:
    """What specviz.zoo.load gives, around scripted nets."""

    name = "scripted"
    draft_name = "scripted-draft"
    capabilities = TinyTarget.capabilities | TextCodec.capabilities | {"middle:half"}
    generation_defaults: dict = {}
    loop, conversation = None, name  # the ordinary loop; unguided
    compiled = False

    def __init__(self, context: int = 128, seed: int = 0, ends: bool = False):
        self.tokenizer = byte_level()
        self.vocab, self.context = len(self.tokenizer), context
        self.net = TinyNet(self.vocab, seed)
        self.draft = self.net.interpolate(TinyNet(self.vocab, seed + 1), 0.1)
        self.codec = TextCodec(byte_level)
        self.token_bytes = self.codec.table
        self.end_tokens = frozenset({self.tokenizer.eos_token_id} if ends else ())
        self.facts = {
            "target": {"name": self.name},
            "draft": None,
            "tokenizer": "tiny",
            "env": {"machine": "none", "device": "cpu", "dtype": "float64"},
        }
        self.kits = []

    def trace_facts(self, method):
        return self.facts

    def kit(self):
        self.kits.append(FakeKit(self))
        return self.kits[-1]

    def unsupported_reason(self, method):
        return unsupported_reason(method, self.name, self.capabilities, has_draft=True)

    def knob_limits(self, method):
        return {}


def with_tokens(*added: AddedToken, context: int = 128) -> FakeLoaded:
    """A tiny pair with an end token, and a tokenizer of its own that also holds these tokens."""
    found = FakeLoaded(context, ends=True)
    tokenizer = found.tokenizer = copy.deepcopy(found.tokenizer)
    tokenizer.add_tokens(list(added))
    found.codec = TextCodec(lambda: tokenizer)
    found.token_bytes = found.codec.table
    found.vocab = len(tokenizer)
    found.net = TinyNet(found.vocab, 0)
    found.draft = found.net.interpolate(TinyNet(found.vocab, 1), 0.1)
    return found
