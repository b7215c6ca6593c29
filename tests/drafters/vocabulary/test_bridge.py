"""Two tokenizers side by side: bytes in and out, the text so far, the way back, and a draft that speaks the
other one."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specviz import load
from specviz.core import Budget, Sampling, State, open_run, play
from specviz.drafters.vocabulary import chains as bridge_chains
from specviz.drafters.vocabulary.bridge import Bridge, DraftTokenization, IntersectionModel, whole_characters
from specviz.drafters.vocabulary.chains import (
    Intersection,
    StringMatch,
    StringRejection,
    TwoTokenProposal,
    to_target_probs,
)
from specviz.methods import catalogue
from specviz.run.session import Session, SessionError
from specviz.training import tokenizer
from specviz.training.data import Row
from specviz.verifiers import TokenRejection
from specviz.zoo.other_vocabulary import TokenizerBytes
from specviz.zoo.text import TokenBytes

from ...exactness.rounds import World
from ...message_codes import refuses
from ...methods.toys import Rows, distance, round_probs, target_probs
from ...zoo import checkpoints
from . import toys

TEXT = "The old lighthouse said: \u201cna\u00efve\u201d \U0001f600 1234  two  spaces\n\tand a tab, Zo\u00eb!"
LINES = [
    "The old lighthouse keeper counted 1234 shells.",
    "two spaces and a tab",
    "lighthouse lighthouse keeper",
    "def add(a, b):\n    return a + b",
]


def learnt(size: int, digits: bool) -> TokenizerBytes:
    words = tokenizer.train_bpe((Row("chat", "s", line, line) for line in LINES * 3), size, digits)
    return TokenizerBytes(words, TokenBytes(words))


def pieces() -> TokenizerBytes:
    """A vocabulary of words with a mark for the space in front, and single bytes for everything else."""
    vocab = {
        "<unk>": 0,
        "\u2581": 1,
        "\u2581the": 2,
        "\u2581old": 3,
        "\u2581ligh": 4,
        "t": 5,
        "house": 6,
        "a": 7,
        "ligh": 8,
    }
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    words = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    return TokenizerBytes(words, TokenBytes(words))


@pytest.fixture(scope="module")
def pair():
    return Bridge(learnt(420, True), learnt(330, False), 430, 340)


def said(words, tokens) -> bytes:
    return b"".join(words(token) for token in tokens)


def test_what_is_encoded_says_the_same_bytes(pair):
    rng = random.Random(3)
    for words in (pair.ours, pair.theirs):
        for data in (
            TEXT.encode(),
            b"",
            b"\xff\xfe",
            TEXT.encode()[:27],
            *(rng.randbytes(12) for _ in range(20)),
        ):
            assert said(words, words.encode(data)) == data
        assert not set(words.encode(b"<|end|> and <|user|>")) & words.special, (
            "what is written is never a control token"
        )
    assert said(pieces(), pieces().encode("a \u00e9".encode())) == "a \u00e9".encode(), (
        "no space is put in front"
    )


def test_tokens_meet_by_bytes_and_control_tokens_by_name(pair):
    for token, other in enumerate(pair.to_theirs):
        if other >= 0:
            assert pair.ours(token) == pair.theirs(other) != b"" and (token in pair.ours.special) == (
                other in pair.theirs.special
            )
    ours, theirs = pair.shared.tolist()
    assert len(set(ours)) == len(ours) and len(set(theirs)) == len(theirs) and 0.5 < pair.overlap <= 1
    names = {pair.ours(t): pair.to_theirs[t] for t in pair.ours.special}
    assert pair.theirs(names[b"<|end|>"]) == b"<|end|>" and pair.to_theirs[425] == -1
    fake = Bridge(toys.Letters([b"a", b"<|end|>"], special=[1]), toys.Letters([b"<|end|>", b"a"]), 2, 2)
    assert fake.to_theirs == [1, -1], "text that looks like a control token is none"


def test_the_text_so_far_is_followed_and_rewound(pair):
    rng, follower = random.Random(1), DraftTokenization(pair)
    end = next(t for t in pair.ours.special if pair.ours(t) == b"<|end|>")
    tokens = [end, *pair.ours.encode((TEXT * 4).encode()), end, *pair.ours.encode(b"two spaces")]
    for _ in range(40):
        ids = follower.follow(tokens)
        assert said(pair.theirs, ids) == said(pair.ours, tokens)
        assert [i for i, t in enumerate(ids) if t in pair.theirs.special] and follower._num_final <= len(
            tokens
        )
        if rng.random() < 0.25:
            tokens = tokens[: rng.randrange(1, len(tokens))]
        tokens = tokens + pair.ours.encode(TEXT.encode()[: rng.randrange(1, 60)])
    assert follower._num_final > 0, "a long text is not encoded from its beginning each time"


def test_a_draft_is_spelled_as_our_tokenizer_would_behind_the_text(pair):
    text = "The old lighthouse keeper counted 1234 shells."
    for cut in range(1, len(text)):
        before, after = pair.ours.encode(text[:cut].encode()), pair.theirs.encode(text[cut:].encode())
        tokens = pair.decode(before, after)
        assert said(pair.ours, tokens) == text[cut:].encode()
        whole = pair.ours.encode(text.encode())
        if said(pair.ours, whole[: len(before)]) == text[:cut].encode():  # a token begins there
            assert tokens == whole[len(before) :]


def test_half_a_character_waits_and_a_control_token_ends_the_draft(pair):
    smile = "\U0001f600".encode()
    for kept in (1, 2, 3):
        assert said(pair.ours, pair.decode([], pair.theirs.encode(b"tab" + smile[:kept]))) == b"tab"
        assert whole_characters(b"a" + smile[:kept]) == b"a"
    assert pair.decode([], pair.theirs.encode(smile)) == pair.ours.encode(smile)
    assert (
        whole_characters(b"ab") == b"ab"
        and whole_characters(smile) == smile
        and whole_characters(b"\x80" * 4) == b"\x80" * 4
    )
    end = next(t for t in pair.theirs.special if pair.theirs(t) == b"<|end|>")
    tokens = pair.decode([], [*pair.theirs.encode(b"tab"), end, *pair.theirs.encode(b"more")])
    assert (
        said(pair.ours, tokens[:-1]) == b"tab"
        and pair.ours(tokens[-1]) == b"<|end|>"
        and tokens[-1] in pair.ours.special
    )


def test_tokenizers_of_other_kinds_meet_too():
    bridge = Bridge(learnt(330, True), pieces(), 330, pieces().size)
    context = bridge.ours.encode(b"the old lighthouse")
    assert said(bridge.theirs, bridge.encode(context)) == b"the old lighthouse"
    drafted = bridge.theirs.encode(b" old lighthouse")
    assert said(bridge.ours, bridge.decode(context, drafted)) == b" old lighthouse"


# --- distributions --------------------------------------------------------------------------------------------------------------
def other(draft, bridge):
    """A model of the other vocabulary whose distribution is a function of the text, told in its own
    tokens."""
    return Rows(lambda tokens: draft(tuple(tokens)), bridge.their_vocab)


def proposed(kind, draft, bridge, gamma):
    def propose(state):
        state.tokens = [0]
        return kind(other(draft, bridge), bridge).propose(state, Budget(gamma=gamma))

    return propose


@pytest.mark.parametrize("kind", [StringMatch, Intersection, StringRejection], ids=lambda k: k.__name__)
@pytest.mark.parametrize("vocab, seed", [(3, 1), (4, 2)])
def test_the_output_distribution_is_the_targets(kind, vocab, seed):
    bridge = toys.bridge(vocab)
    world = World(vocab, seed)
    their = World(toys.theirs(vocab).size, seed + 50)
    probs, accepted, _ = round_probs(
        proposed(kind, their.draft, bridge, 2), TokenRejection(), lambda rows: world.target(tuple(rows)), 3
    )
    assert (
        distance(probs, target_probs(lambda rows: world.target(tuple(rows)), vocab, 3)) < 1e-12
        and accepted > 0.1
    )


def test_first_acceptance_is_the_overlap_of_the_distributions():
    """TLI: of the draft's distribution over shared tokens; SLRS: of its distribution of first tokens, which
    counts all of the draft's, and both of two that are one of ours."""
    for seed in range(4):
        check_first_acceptance(seed)


def said_first(bridge, their, ahead):
    """SLRS's distribution of the first token by going through all pairs that the draft could draw."""
    begin = tuple(bridge.encode([0]))
    q, probs = their.draft(begin), torch.zeros(bridge.vocab, dtype=torch.float64)
    likely = q.topk(ahead).indices.tolist() if ahead else []
    for one in range(bridge.their_vocab):
        then = their.draft((*begin, one))
        for two in range(bridge.their_vocab):
            both = bridge.theirs(one) + bridge.theirs(two)
            whole = [t for t in range(bridge.vocab) if bridge.ours(t) == both and bridge.to_theirs[t] < 0]
            probs[whole[0] if whole and one in likely else bridge.spelled[one][0]] += q[one] * then[two]
    return probs


def check_first_acceptance(seed):
    bridge = toys.bridge(4)
    world = World(4, seed)
    their = World(toys.theirs(4).size, seed + 50)
    p, q = world.target(()), their.draft(tuple(bridge.encode([0])))
    ours, theirs = bridge.shared
    shared = torch.zeros_like(p).index_put_((ours,), q[theirs])
    one, two = (partial(StringRejection, ahead=ahead) for ahead in (0, 4))
    assert (
        torch.allclose(said_first(bridge, their, 0), to_target_probs(q, bridge))
        and float(said_first(bridge, their, 4)[3]) > 0.001
    )
    for kind, probs in (
        (Intersection, shared / shared.sum()),
        (one, to_target_probs(q, bridge)),
        (two, said_first(bridge, their, 4)),
    ):
        _, _, first = round_probs(
            proposed(kind, their.draft, bridge, 1),
            TokenRejection(),
            lambda rows: world.target(tuple(rows)),
            1,
        )
        assert float(probs.sum()) == pytest.approx(1) and first == pytest.approx(
            float(torch.minimum(p, probs).sum()), abs=1e-12
        )


def test_wrong_masses_are_caught():
    """TLI with the draft's distribution not renormalised over the shared tokens is biased."""
    bridge = toys.bridge(3)
    world = World(3, 1)
    their = World(toys.theirs(3).size, 51)

    def propose(state):
        tree = proposed(Intersection, their.draft, bridge, 1)(state)
        ours, theirs = bridge.shared
        tree.probs[:, ours] = their.draft(tuple(bridge.encode([0])))[theirs]
        return tree

    probs, _, _ = round_probs(propose, TokenRejection(), lambda rows: world.target(tuple(rows)), 1)
    assert distance(probs, target_probs(lambda rows: world.target(tuple(rows)), 3, 1)) > 1e-3


class KeepsTheFirst(TwoTokenProposal):
    """What goes to two tokens is not taken from the first of them, and the distribution made whole again:
    OmniDraft as it is published."""

    def __init__(self, *args):
        super().__init__(*args)
        for token, token_probs in self.joined.items():
            self.probs[self.bridge.first[token]] += self.first[token] * token_probs.sum()
        self.probs /= self.probs.sum()


def test_a_joined_tokens_chance_that_the_first_one_keeps_is_caught(monkeypatch):
    bridge = toys.bridge(3)
    world = World(3, 0)
    their = World(toys.theirs(3).size, 50)
    for wrong in (False, True):
        if wrong:
            monkeypatch.setattr(bridge_chains, "TwoTokenProposal", KeepsTheFirst)
        probs, _, _ = round_probs(
            proposed(StringRejection, their.draft, bridge, 1),
            TokenRejection(),
            lambda rows: world.target(tuple(rows)),
            1,
        )
        off = distance(probs, target_probs(lambda rows: world.target(tuple(rows)), 3, 1))
        assert (off > 1e-3) if wrong else (off < 1e-12)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)], ids=["greedy", "sampled"])
def test_two_of_theirs_are_one_of_ours(sampling):
    """The draft says a, b, a, b; "ab" is a token of the target alone, and is proposed whole where the draft
    looks ahead."""
    bridge = toys.bridge(4)
    a, b = (bridge.theirs.pieces.index(piece) for piece in (b"a", b"b"))

    def sure(tokens):
        return torch.zeros(bridge.their_vocab, dtype=torch.float64).index_fill_(
            0, torch.tensor([a if tokens[-1] == b else b]), 1.0
        )

    for ahead, want in ((0, [b"a", b"b", b"a"]), (2, [b"ab"] * 3)):
        state = State([1], sampling)
        tree = StringRejection(other(sure, bridge), bridge, ahead).propose(state, Budget(gamma=3))
        assert [bridge.ours(t) for t in tree.tokens] == want and {tree.label(i) for i in range(3)} == {"iid"}
        assert all(
            float(tree.draft_probs(i)[t]) == pytest.approx(1)
            and float(tree.draft_probs(i).sum()) == pytest.approx(1)
            for i, t in enumerate(tree.tokens)
        )
    assert [span[1:] for span in state.notes[-1][1]["theirs"]] == [[i, i + 1] for i in range(6)]
    assert state.notes[-1][1]["ours"] == [[0, 2], [2, 4], [4, 6]]


def test_joins_are_what_two_tokens_say():
    bridge = Bridge(learnt(330, True), learnt(290, False), 430, 340)
    found = [
        (first, int(second), int(token))
        for first, (seconds, tokens) in bridge.joins.items()
        for second, token in zip(seconds, tokens)
    ]
    assert len(found) > 5 and len({token for *_, token in found}) == len(found)
    for first, second, token in found:
        assert bridge.to_theirs[token] < 0 and bridge.theirs(first) + bridge.theirs(second) == bridge.ours(
            token
        )


def test_a_token_of_two_is_judged_and_then_matched():
    """The draft's "ba" has no token of ours: "b" is drawn under a distribution, "a" follows by its
    spelling; both are told to the lens."""
    bridge = toys.bridge(4)
    merged = bridge.theirs.pieces.index(b"ba")
    one_hot = torch.zeros(bridge.their_vocab, dtype=torch.float64).index_fill_(0, torch.tensor([merged]), 1.0)
    state = State([0], Sampling(1.0))
    tree = StringRejection(other(lambda tokens: one_hot, bridge), bridge).propose(state, Budget(gamma=4))
    assert [bridge.ours(t) for t in tree.tokens] == [b"b", b"a", b"b", b"a"]
    assert [tree.label(i) for i in range(4)] == ["iid", "chosen"] * 2 and float(
        tree.draft_probs(0)[tree.tokens[0]]
    ) == 1
    kind, data = state.notes[-1]
    assert (
        kind == "alignment"
        and data["theirs"] == [["ba", 0, 2], ["ba", 2, 4]]
        and data["ours"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
    )


def test_the_view_in_our_vocabulary_has_nothing_but_shared_tokens():
    bridge, draft = toys.bridge(4), World(toys.theirs(4).size, 3)
    view = IntersectionModel(other(draft.draft, bridge), bridge)
    view.sync([0, 1])
    logits = view.score(
        State([0]) and StringMatch(view.model, bridge).propose(State([0]), Budget(gamma=0))
    ).logits
    assert logits.shape == (1, 4) and torch.isinf(logits[0]).nonzero().flatten().tolist() == [
        3
    ]  # "ab" is the target's alone


# --- the zoo -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny pair, and a draft of another vocabulary beside it."""
    folder = tmp_path_factory.mktemp("zoo")
    book = checkpoints.register(folder)
    words = tokenizer.train_bpe((Row("chat", "s", line, line) for line in LINES), 320, digits=False)
    checkpoints.write(folder / "other", layers=1, vocab=320, seed=4, tokenizer=False)
    words.save_pretrained(folder / "other")
    book.write_text(
        book.read_text()
        + "  strange: {path: other, role: other_draft, for: tiny}\n  absent: {path: gone, role: other_draft, for: missing}\n"
    )
    return book


def test_the_methods_run_on_a_loaded_pair(home, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(home))
    loaded = load("tiny", device="cpu")
    plain, _ = write(loaded, "autoregressive", Sampling(0.0))
    for key in ("slem", "tli", "slrs"):
        assert loaded.unsupported_reason(catalogue()[key]) is None
        tokens, drafted = write(loaded, key, Sampling(0.0))
        assert tokens == plain and drafted > 0
    assert write(loaded, "tli", Sampling(1.0, seed=3))[1] > 0


def write(loaded, key, sampling):
    kit, method = loaded.kit(), catalogue()[key]
    parts, drafted = method.build(kit, **method.read_knobs({})), 0
    state = State([1, 60, 70, 80, 61], sampling, limit=30)
    with torch.inference_mode():
        open_run(parts, kit.target, state)
        while not state.done:
            drafted += len(play(parts, kit.target, state).tree)
    kit.close()
    return state.tokens, drafted


def test_without_such_a_draft_one_sentence_says_how_to_make_it(home, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(home))
    loaded = load(str(home.parent / "draft"), draft="none", device="cpu")
    with refuses(SessionError, "method.missing", "specviz.training other_draft"):
        Session(loaded, "tli")
