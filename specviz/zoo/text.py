"""Encode prompts to token ids, and decode token ids to bytes.

Output: a token is bytes, not characters. The text of a run is the UTF-8 decoding of all its bytes, so an
emoji that spans three tokens is decoded correctly. Input: text that somebody typed never becomes a control
token.
"""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

from .chat_template import render

Message = dict[str, Any]  # {"role", "content"}
TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
)  # marks that readers of an answer look for: text, also where a vocabulary holds them as control tokens


def _alphabet() -> dict[str, int]:
    """Return GPT-2's printable stand-ins for the 256 bytes: character -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = (b for b in range(256) if b not in printable)
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(spare)}


class TokenTable(Protocol):
    """Maps token ids to the bytes that they add to the output; see ``TokenBytes``. special: ids of control
    tokens."""

    special: frozenset[int]

    def __call__(self, token: int) -> bytes: ...

    def output_bytes(self, token: int, first: bool = False) -> bytes: ...


class TokenBytes:
    """Maps token ids to bytes, for byte-level BPE, SentencePiece-like vocabularies, and (by decoding)
    anything else.

    Calling it with an id returns the token's bytes; for a special token, its name. ``output_bytes`` returns
    the bytes that a token adds to the text: none for a special token. TAGS are never special. Ids outside
    the vocabulary have no bytes."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._added = {int(i): str(t) for i, t in tokenizer.added_tokens_decoder.items()}
        marked = {int(i) for i, t in tokenizer.added_tokens_decoder.items() if getattr(t, "special", False)}
        marked |= {int(i) for i in tokenizer.all_special_ids}
        self.special = frozenset(i for i in marked if self._added.get(i) not in TAGS)
        self._known: dict[int, bytes] = {}
        kinds = self._decoders()
        self._alphabet = _alphabet() if "ByteLevel" in kinds else {}
        self._pieces = not self._alphabet and bool(kinds & {"ByteFallback", "Metaspace"})

    def _decoders(self) -> set[str]:
        """Return the names of the tokenizer's decoding steps; guessed from the vocabulary if it lists
        none."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None and backend.decoder is not None:
            state = json.loads(backend.decoder.__getstate__())
            return {step["type"] for step in state.get("decoders", [state])}
        if backend is not None:
            return set()
        vocab = self._tokenizer.get_vocab()
        return {"ByteFallback"} if "<0x0A>" in vocab or any(t.startswith("\u2581") for t in vocab) else set()

    def __call__(self, token: int) -> bytes:
        if token not in self._known:
            self._known[token] = self._bytes(token)
        return self._known[token]

    def output_bytes(self, token: int, first: bool = False) -> bytes:
        """Return the bytes that this token adds to the text. first: it begins the text, where all but
        byte-level tokenizers drop a leading space."""
        if token in self.special:
            return b""
        data = self(token)
        if first and not self._alphabet and data.startswith(b" "):
            return self._tokenizer.decode(
                [token], skip_special_tokens=True, clean_up_tokenization_spaces=False
            ).encode()
        return data

    def _bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode("utf-8", "replace")
        if not 0 <= token < len(self._tokenizer):
            return b""
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            return b""
        if self._alphabet:
            known = all(c in self._alphabet for c in piece)
            return bytes(self._alphabet[c] for c in piece) if known else piece.encode("utf-8", "replace")
        if self._pieces:
            is_byte = len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
            return (
                bytes([int(piece[3:5], 16)])
                if is_byte
                else piece.replace("\u2581", " ").encode("utf-8", "replace")
            )
        return self._decoded(token)

    def _decoded(self, token: int) -> bytes:
        """Decode the token after an anchor token, so that the space in front of a word is kept."""
        anchor, both = self._decode([self._anchor]), self._decode([self._anchor, token])
        return (both[len(anchor) :] if both.startswith(anchor) else self._decode([token])).encode(
            "utf-8", "replace"
        )

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)

    @cached_property
    def _anchor(self) -> int:
        return next(
            (
                i
                for i in range(len(self._tokenizer))
                if i not in self._added and self._decode([i]).strip().isalpha()
            ),
            0,
        )


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8; broken bytes become U+FFFD, as in tokenizers."""
    return data.decode("utf-8", "replace")


class Transcript:
    """The text of a run, extended token by token, up to a stop string.

    ``add`` returns the trace's piece (token, bytes, start, end), with spans in bytes. ``stopped``: whether
    a stop string was completed; then ``text`` ends before it, and ``tokens`` with the token that completed
    it. A special token adds nothing to the text, but its name matches a stop string. The first
    ``min_tokens`` tokens do not complete a stop string.
    """

    def __init__(self, table: TokenTable, stops: Iterable[str] = (), min_tokens: int = 0):
        self._table, self._stops = table, tuple(replace_lone_surrogates(s).encode() for s in stops)
        self._beginnings = [(k, stop[:k]) for stop in self._stops for k in range(1, len(stop))]
        self.tokens: list[int] = []
        self.data = bytearray()
        self.cut: int | None = None
        self._min_tokens = min_tokens
        self._named = bytearray()  # the text with names of special tokens
        self._starts: list[tuple[int, int]] = []  # of each token in the named text, and in the text

    def add(self, token: int) -> tuple[int, bytes, int, int]:
        """Append a token; return the trace's piece for it."""
        start = len(self.data)
        added = self._table.output_bytes(token, first=not self.data)
        self.data += added
        self.tokens.append(token)
        if self._stops:
            self._match(token, added, start)
        return token, added, start, len(self.data)

    def _match(self, token: int, added: bytes, start: int) -> None:
        """Look for stop strings that this token completes, in the text and in the text with names of
        special tokens."""
        begin = len(self._named)
        self._starts.append((begin, start))
        self._named += self._table(token) if token in self._table.special else added
        if len(self.tokens) <= self._min_tokens:
            return
        for stop in self._stops:
            places = [self.data.find(stop, max(0, start - len(stop) + 1))]
            named = self._named.find(stop, max(0, begin - len(stop) + 1))
            if named >= 0:
                places.append(self._shown(named))
            found = min((at for at in places if at >= 0), default=None)
            if found is not None and (self.cut is None or found < self.cut):
                self.cut = found

    def _shown(self, named: int) -> int:
        """Map a position in the text with special-token names to the text; inside such a name, to the
        token's position."""
        at = bisect_right(self._starts, named, key=lambda starts: starts[0]) - 1
        begin, start = self._starts[at]
        return start if self.tokens[at] in self._table.special else start + named - begin

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed."""
        return self.cut is not None

    @property
    def length(self) -> int:
        """Length of the text in bytes."""
        return len(self.data) if self.cut is None else self.cut

    @property
    def text(self) -> str:
        """The text so far, without the stop string that ended it."""
        return decode_utf8(bytes(self.data[: self.length]))

    @property
    def stable_length(self) -> int:
        """Number of bytes that no later token can remove. The possible beginning of a stop string is not
        counted."""
        end = self.length
        if self.cut is None:
            end -= max((k for k, part in self._beginnings if self.data.endswith(part)), default=0)
            named = max((k for k, part in self._beginnings if self._named.endswith(part)), default=0)
            end = (
                min(end, self._shown(len(self._named) - named)) if named else end
            )  # it may reach back over a special token
        return end


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def encode_plain(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a raw prompt. The text of a special token stays plain text; the tokenizer's
    BOS token is added if it has one."""
    ids = _ids(tokenizer.encode(replace_lone_surrogates(text), split_special_tokens=True))
    found = _ids(
        tokenizer.encode(replace_lone_surrogates(text), add_special_tokens=False, split_special_tokens=True)
    )
    if not _controls(tokenizer).keys() & set(found):
        return ids
    at = next((i for i in range(len(ids)) if ids[i : i + len(found)] == found), 0)
    return ids[:at] + _spelt(tokenizer, found) + ids[at + len(found) :]


def _controls(tokenizer: Any) -> dict[int, str]:
    """Return the names of the control tokens by id, without the unknown token."""
    return {i: name for i, name in _specials(tokenizer) if i != tokenizer.unk_token_id}


def _spelt(tokenizer: Any, ids: list[int]) -> list[int]:
    """Replace control tokens in the ids of plain text by the tokens of their letters, because some
    vocabularies contain such a name as a piece."""
    controls, out = _controls(tokenizer), []
    for i in ids:
        spelt = [
            _ids(tokenizer.encode(c, add_special_tokens=False, split_special_tokens=True))
            for c in controls.get(i, "")
        ]
        out += [j for letter in spelt for j in letter if j not in controls] if i in controls else [i]
    return out


def encode_chat(tokenizer: Any, messages: Sequence[Message], **options: Any) -> list[int]:
    """Return the token ids of a conversation in the tokenizer's chat template, up to the start of the
    answer; without a template, of the texts in order. options: what the template reads besides the messages
    ("tools", "enable_thinking"); "continue_final_message": the last message is left open, so that the
    answer continues it.

    Control tokens come from the template alone. The text of a special token inside a message or a tool is
    masked while the template runs and put back as plain text, so that nobody can end a turn by typing
    ``<|end|>``."""
    messages, options = (
        _mapped(list(messages), replace_lone_surrogates),
        _mapped(options, replace_lone_surrogates),
    )
    if not getattr(tokenizer, "chat_template", None):
        return encode_plain(tokenizer, "\n\n".join(m["content"] for m in messages))
    names = sorted({t for i, t in _specials(tokenizer)}, key=len, reverse=True)
    typed: list[str] = []
    _mapped([messages, options], lambda text: typed.append(text) or text)
    if not any(name in text for name in names for text in typed):
        shown = render(tokenizer, messages, **_opening(options))
        return _ids(tokenizer.encode(shown, add_special_tokens=False))
    hidden = {
        name: f"\ue000{secrets.token_hex(8)}\ue001" for name in names
    }  # a random key: no message holds it

    def mask(text: str) -> str:
        for name, mark in hidden.items():
            text = text.replace(name, mark)
        return text

    shown = render(tokenizer, _mapped(messages, mask), **_opening(_mapped(options, mask)))
    typed_names = {mark: name for name, mark in hidden.items()}
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        return _encode_around(tokenizer, shown, typed_names)
    return _marked(tokenizer).encode(shown, typed_names)


class _Marked:
    """A copy of a tokenizer whose control tokens have secret names. A rendered template is encoded with it
    in one pass, so that typed names change no token but their own: parts encoded one by one get other
    tokens where a tokenizer marks the start of a text, or where control tokens take spaces around them."""

    def __init__(self, tokenizer: Any):
        from tokenizers import Tokenizer

        self._tokenizer, self._controls = tokenizer, _controls(tokenizer)
        names = sorted((name for _, name in _specials(tokenizer)), key=len, reverse=True)
        self._marks = {name: f"\ue000{secrets.token_hex(8)}\ue001" for name in names}
        self._names = re.compile("|".join(map(re.escape, names)))
        stored = json.loads(tokenizer.backend_tokenizer.to_str())
        added = {one["id"]: one for one in stored["added_tokens"]}
        for one in added.values():
            one["content"] = self._marks.get(one["content"], one["content"])
        self._copy = Tokenizer.from_str(json.dumps(stored))
        self._copy.no_truncation()
        self._copy.no_padding()
        # Renamed tokens may get other ids in the copy.
        self._ids = {self._copy.token_to_id(one["content"]): number for number, one in added.items()}

    def encode(self, shown: str, typed: dict[str, str]) -> list[int]:
        """Return the ids of a rendered template. typed: {mask: name} of names that stay plain text."""
        text = self._names.sub(lambda found: self._marks[found[0]], shown)
        for mask, name in typed.items():
            text = text.replace(mask, name)
        encoded = self._copy.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for number in encoded.ids:
            if number in self._ids:
                ids.append(self._ids[number])
            else:
                ids += _spelt(self._tokenizer, [number]) if number in self._controls else [number]
        return ids


@lru_cache(maxsize=8)
def _marked(tokenizer: Any) -> _Marked:
    return _Marked(tokenizer)


def _opening(options: dict[str, Any]) -> dict[str, Any]:
    """Return a template's options with the one that begins the answer, unless it continues a message."""
    return {"add_generation_prompt": not options.get("continue_final_message")} | options


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with every text changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(inner, change) for key, inner in value.items()}
    return [_mapped(inner, change) for inner in value] if isinstance(value, (list, tuple)) else value


def _encode_around(tokenizer: Any, shown: str, typed: dict[str, str]) -> list[int]:
    """Encode a rendered template with a tokenizer of Python code: its special tokens by id, the text between
    them (masks undone) as plain text."""
    ids: list[int] = []
    special = {name: i for i, name in _specials(tokenizer)}

    def plain(text: str) -> None:
        for mark, name in typed.items():
            text = text.replace(mark, name)
        if text:
            ids.extend(
                _spelt(
                    tokenizer,
                    _ids(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)),
                )
            )

    while shown:
        found = [(shown.find(name), -len(name), name) for name in special if name in shown]
        at, _, name = min(found, default=(len(shown), 0, ""))
        plain(shown[:at])
        if name:
            ids.append(special[name])
        shown = shown[at + len(name) :]
    return ids


def _specials(tokenizer: Any) -> list[tuple[int, str]]:
    """Return (id, text) of the control tokens."""
    return [
        (int(i), str(t))
        for i, t in tokenizer.added_tokens_decoder.items()
        if getattr(t, "special", False) and str(t)
    ]


def _ids(encoded: Any) -> list[int]:
    return [int(i) for i in encoded]
