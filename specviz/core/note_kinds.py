"""All kinds of notes that a round can carry (``state.note``), each declared once.

A new kind is one entry of NOTES: ``"kind": _note("lens file", "One sentence for people.", field=("what it means", an example))``,
with as many fields as there are; one whose name ends in ``_`` may be left out when the note is written. Lookups' are in
notes_of_lookups.py. Then draw it in assets/viewer/lens/<lens file>.js, as ``SpecViz.lens.kind = {title, draw}``, and write
docs/TRACE.md's table anew: ``python -m specviz list --write`` (``make docs``).

Tests hold that the table is this one, that the viewer draws these kinds and no others, each from its example, and that each is
noted somewhere. Fields that hold token ids are called ``tok``, ``tokens``, ``top``, ``top_p`` or ``resid``: the recorder then
tells the tokens' bytes too. Positions count tokens of prompt and output, or of the store that is named; lists about nodes are
in the order of the round's draft.
"""
from __future__ import annotations

from typing import Any

from .errors import InvalidUse
from .note_kind import IDS as _IDS
from .note_kind import Note
from .note_kind import note as _note
from .note_kinds_lookup import LOOKUPS


def register_notes(notes: dict[str, Note]) -> None:
    """Add the kinds that a method declares for itself. Raise ValueError where two declare one kind differently."""
    for kind, note in notes.items():
        if NOTES.setdefault(kind, note) != note:
            raise InvalidUse(f"the note {kind!r} is declared twice", "note.twice")


def check(kind: str, data: dict[str, Any]) -> None:
    """Raise ValueError with a sentence for a kind that is not declared, an unknown field, or a missing one."""
    note = NOTES.get(kind)
    if note is None:
        raise InvalidUse(f"there is no note {kind!r}; specviz/core/note_kinds.py declares each kind", "note.unknown")
    if data.keys() == note.needed.keys():
        return
    for name in data:
        if name not in note.needed and name not in note.maybe:
            raise InvalidUse(f"the note {kind!r} has no field {name!r}; it has {', '.join([*note.needed, *note.maybe])}",
                             "note.field")
    for name in note.needed:
        if name not in data:
            raise InvalidUse(f"the note {kind!r} lacks {name!r}", "note.lacks")


def with_table(text: str) -> str:
    """Return the text of docs/TRACE.md with its table replaced."""
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if line.startswith("| kind |")][0]
    end = next(i for i in range(at, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:at], *table().splitlines(), *lines[end:]])


def table() -> str:
    """Return the table of docs/TRACE.md."""
    return "\n".join(["| kind | shows | data |", "|---|---|---|", *(note.row(kind) for kind, note in NOTES.items())]) + "\n"


_CHAIN = [{"tokens": _IDS, "chance": 0.6}, {"tokens": _IDS[::-1], "chance": 0.4}]

NOTES: dict[str, Note] = {
    **LOOKUPS,
    # how long a draft, and whose
    "threshold": _note("stopping", "The sureness below which drafting stops.", value=("the limit of this round", 0.4)),
    "predicted": _note(
        "stopping", "What a trained network thought of the drafted tokens (SpecDec++, DISCO).",
        line=("predicted chance of acceptance of each token it judged", [0.9, 0.8, 0.4]), limit=("where drafting stops", 0.3),
        refused_=("predicted chance that something was refused so far; it stops above the limit, else below", [0.1, 0.28, 0.71])),
    "overlap": _note(
        "overlap", "What the distributions of draft and target have in common (DistillSpec, FastDraft, TVD++, online learning).",
        line=("at each judged place: the chance that a token of the draft passes there", [0.9, 0.7, 0.4]),
        waiting_=("refused places gathered for the next step of learning", 5), every_=("with so many the draft learns", 8),
        updates_=("steps learned so far", 3),
        before_=("the same over the places since the last step, as the draft was before it ever learned", 0.55),
        now_=("and as it drafted them", 0.7)),
    "entropy": _note(
        "stopping", "The doubt after each drafted token (SVIP).",
        line=("sqrt(scale x entropy) of each token, in nats", [0.1, 0.2, 0.5]), limit=("above it drafting stops", 0.3)),
    "length": _note(
        "length", "How many tokens the policy asked for.",
        gamma=("tokens asked for", 4), acceptance_=("rate the choice was made with", 0.7),
        predicted_=("tokens that a trained network expected to pass", 3.6)),
    "arms": _note(
        "length", "The arms of a bandit (BanditSpec).",
        arm=("the one pulled, from 0", 1), gammas=("draft length of each", [2, 4, 8]), pulls=("of each so far", [3, 4, 1]),
        means=("mean reward of each", [0.5, 0.7, 0.2]), names_=("of the arms", ["lookup", "chain of 4", "tree of 8"])),
    "arm": _note(
        "length", "Which of several drafters answered (SAM-Decoding and CopySpec with another drafter).",
        arm=("whose proposal it is, from 0", 1), of=("how many there are", 2)),
    # many requests at once
    "rows": _note(
        "rows", "Which request of a batch got how many rows of the pass, and why (BASS, EMS-SD, SmartSpec, TETRIS).",
        request=("which of the batch this one is, from 0", 1), asked=("rows each request drafted for, its root included", [4, 6, 3]),
        given=("rows of the pass that each got", [3, 6, 2]), padded=("rows the pass would have if each took as many as the longest", 18),
        why=("the reason for this one's", "5 of its 5 drafted tokens are among the batch's top 8"),
        reasons_=("the reason for each one's, where there are several", ["it doubted", "it never doubted", "it doubted"]),
        gamma_=("the draft length chosen for all", 5), budget_=("draft rows there were for the batch", 8),
        acceptance_=("rate the choice was made with", 0.7),
        speeds_=("tokens a second expected with drafts of 0, 1, ... tokens; none before anything was measured", [40.0, 52.0, 47.0])),
    "class": _note(
        "rows", "How far several prompts are that a lane decodes at once; the one that the lane shows comes first.",
        prompts=("how each begins", ["Tell me a story", "Repeat this text", "Hello"]), written=("tokens each has written", [12, 9, 14]),
        rows=("rows each had of the pass, 0 for who was done before", [4, 4, 0]), done=("whether each is", [False, False, True]),
        seconds=("since the prompts were read, on the engine's clock", 0.25)),
    # trees and stages
    "confidence": _note(
        "confidence", "The tree grown by the draft's own probabilities.",
        expected=("accepted tokens the draft expects", 1.4), grown=("nodes grown", 9), kept=("and kept", 4)),
    "block": _note(
        "block", "A block drafted in one pass, and how far the drafter trusts each of its places (DSpark, blockwise decoding).",
        block=("places of the whole block", 4), drafted=("tokens sent, the first so many places", 2),
        confidence=("expected chance to pass of each place looked at, given that those before it pass", [0.9, 0.6, 0.2])),
    "masks": _note(
        "block", "Tokens drafted in one pass, none knowing the one before it (PARD, P-EAGLE).",
        places=("of the pass", 4), chances=("the drafter's probability of the token drawn at each place that was sent", [0.9, 0.5, 0.3])),
    "lattice": _note(
        "ahead", "The top guesses of independent heads, and the path through them that was checked (refined block drafts).",
        rows=("`[{tokens, chances}]` of each place, most probable first",
              [{"tokens": _IDS[:2], "chances": [0.5, 0.2]}, {"tokens": _IDS[2:], "chances": [0.4, 0.3]}]),
        plain=("place in its row of what the heads alone would draft", [0, 0]), path=("and of what was drafted", [0, 1]),
        scores=("log-chances of the path's steps, heads and language model together", [-1.2, -2.5]), paths=("that were checked", 2)),
    "ahead": _note(
        "ahead", "Tokens after this root as predicted by the probe rows of the pass before (PaSS, PPD and the like).",
        rows=("`[{tokens, chances}]`, a row a step further ahead, most probable first; none where nothing was guessed",
              [{"tokens": _IDS[:2], "chances": [0.5, 0.2]}, {"tokens": _IDS[2:], "chances": [0.4, 0.3]}]),
        probes=("such rows in this round's pass", 6), behind=("tokens they hang on, the root among them", 2),
        layers=("where each step's rows enter, 0 the first", [3, 4]), chains=("rows of a step after one token", 1),
        dropped_=("candidates pruned before", 3)),
    "sequoia": _note(
        "sequoia", "The plan behind the tree's shape (Sequoia).",
        accept=("chance that the k-th child is accepted", [0.6, 0.2]), nodes=("of the tree", 3), depth=("of the tree", 2),
        table=("expected tokens by depth and size, `null` where there is none", [[1.0, 1.5, None], [1.0, 1.6, 1.9]])),
    "sizes": _note(
        "sizes", "Which size inside the draft model wrote each token (S2D).",
        layers=("of each size, the smallest first", [2, 3, 4]), used=("the size of each token, from 0", [0, 0, 1, 2]),
        sure=("its chance of its top token", [0.9, 0.7, 0.65, 0.4]),
        least=("below it the next size is asked; 0: one size for all", 0.6)),
    "staged": _note(
        "staged", "The rounds in which the draft model itself was drafted for.",
        rounds=("how many", 2), sizes=("tokens of each", [2, 2])),
    # parallel decoding
    "grid": _note(
        "grid", "The guesses of one pass (Jacobi, Gauss-Seidel-Jacobi, speculative Jacobi, FastCoT).",
        block=("`[id, ...]`", _IDS), carried=("of them come from the pass before, the others are fill", 2),
        at=("position of the first", 9), number=("of the block, when it is solved block by block", 0)),
    "unit": _note(
        "unit", "What was written in one pass (lexical units).",
        tokens=("written unchecked", _IDS), chances=("the model's certainty of each", [0.9, 0.5, 0.4, 0.2]),
        blanks=("places read ahead", 3)),
    "superposed": _note(
        "branches", "Continuations drafted in superposition.",
        drafts=("`[{tokens, chance}]`, the written one first", _CHAIN),
        weights=("`[[0..1, ...], ...]` of the drafts in each blend that was fed", [[0.6, 0.4]]),
        passes=("of the target for this proposal", 4)),
    "branches": _note(
        "branches", "Parts of an answer written side by side; a part begins with its number and title.",
        titles=("`[{tokens}]`", [{"tokens": _IDS}]), parts=("`[{tokens}]`", [{"tokens": _IDS}]),
        passes=("in which all were written", 3)),
    "timeline": _note(
        "timeline", "When the two models worked (PEARL).",
        mode=("`pre-verify` or `post-verify`", "post-verify"), clock=("`measured` or `simulated`", "simulated"),
        draft=("`[start, end]`, seconds", [0.1, 0.12]), verify=("`[start, end]`", [0.1, 0.14]),
        waiting=("tokens that were waiting for the target", 3), written=("drafted meanwhile", 4), kept=("of them", 2)),
    # the target's own layers
    "layers": _note(
        "layers", "Which layers of the target drafted.",
        count=("layers of the target", 8),
        skipped=("sublayers left out, 2i the attention and 2i + 1 the feed-forward of layer i", [3, 5, 6]),
        reused_=("layers whose work the check continues", 2), matched_=("agreement of the best set found", 0.8),
        trials_=("sets tried", 9), at_=("position of the token written with them, where nothing checks it", 9)),
    "side_by_side": _note(
        "layers", "Layers that work side by side on one state (EasySpec).",
        layers=("of the draft", 8), size=("layers a group", 3), groups=("of layers", 2),
        exact=("layers at each end that run as they are", 1), steps=("one after the other that are left", 4)),
    "own_cache": _note(
        "layers", "How much of its own keys and values the target drafted with (MagicDec, QuantSpec).",
        kept=("tokens whose keys and values it read", 36), of=("tokens there are", 90),
        bits=("of each rounded number, 0 where nothing is rounded", 4)),
    # two models that write together
    "fallback": _note(
        "together", "How sure the small model was, and why it handed over (BiLD).",
        at=("position", 9), sure=("chance of each of its tokens", [0.9, 0.8, 0.4]), least=("it hands over below", 0.6),
        why=("`unsure` or `full`", "unsure")),
    "rollback": _note(
        "together", "What the large model takes back (BiLD).",
        at=("position", 9), nats=("how unlikely it finds each token", [0.2, 6.5]), bound=("taken back above", 5.0),
        back=("whether it was", True), gone=("tokens taken back", 2)),
    "switch": _note(
        "together", "Which model writes, by the entropy of the last places (entropy-adaptive decoding); nats.",
        writer=("`small` or `large`", "small"), entropy=("of the last distribution", 0.4), mean=("of the last few", 0.9),
        limit=("above it the large one writes", 1.5)),
    "combined": _note(
        "together", "The distribution combined from both models (contrastive decoding, proxy tuning).",
        tokens=("written", _IDS), asked=("whether the second model was", [True, False, True, True]),
        large=("chance of each by the large model", [0.5, 0.2, 0.9, 0.1]), small=("by the small one", [0.4, 0.9, 0.8, 0.1]),
        combined=("by the combined distribution", [0.6, 0.9, 1.0, 0.2])),
    "grade": _note(
        "together", "How a step is graded (SpecReason; reward-guided decoding).",
        grade=("the grade", 7.4), least=("what passes", 7.0), passed=("whether it did", True), length=("tokens of the step", 9),
        of_=("the greatest grade there is, where it is not 9", 9.0), coin_=("true: the grade is a step's chance to pass", False)),
    "judge": _note(
        "judge", "What a judge thought of each drafted token (Judge decoding).",
        nodes=("tokens of the draft that were tested", [0, 1, 2]), chances=("of being good, for each of them", [0.9, 0.7, 0.2]),
        least=("above it a refused token stands", 0.5), forgiven=("which of them were refused and stand, counted from 0", [1])),
    "step": _note(
        "together", "Who wrote a step of the reasoning (SpecReason).",
        step=("its number, from 0", 2), writer=("`small` or `large`", "small"), tokens=("of the step", _IDS)),
    "drift": _note(
        "drift", "What each tested token gave up against the target's distribution (lossy rules).",
        nats=("of each", [0.01, 0.2]), threshold_=("of the rule, where it has one", 0.09)),
    "enriched": _note(
        "branches", "The distribution between target and draft that tokens are tested against (RAPID).",
        weight=("of the draft's", 0.3),
        tests=("`[{tok, p, q, moved}]`: chance by the target, the draft and the distribution in between",
               [{"tok": 11, "p": 0.4, "q": 0.5, "moved": 0.45}])),
    # verification, vocabularies
    "optimum": _note(
        "optimum", "How near a multi-draft rule comes to the best there can be.",
        drafts=("at the first place", 3), accept=("chance that one of them is accepted", 0.7), best=("by the best rule", 0.8),
        gap=("between the two", 0.1)),
    "alignment": _note(
        "alignment", "One text in two vocabularies.",
        theirs=("`[[text, start, end], ...]`: the draft's tokens, in bytes", [["The s", 0, 5], ["ky", 5, 7]]),
        tokens=("the target's", _IDS[:2]),
        ours=("`[[start, end], ...]` of them", [[0, 3], [3, 7]]),
        shared=("whether the draft has such a token", [True, False]),
        overlap=("share of the target's vocabulary that the draft has", 0.6)),
    "ngrams": _note(
        "ngrams", "How many of the target's words a draft of another vocabulary can spell by now, and how much passes (OmniDraft).",
        known=("tokens of the target that the cache holds", 7), tokens=("those that this round added", _IDS[:2]),
        lacking=("tokens of this round's text that the draft has in several pieces only", 3), hits=("of these, known before", 1),
        drafted=("tokens proposed", 4), merged=("of these, put together from several of the draft's", 1), accepted=("tokens accepted", 2),
        waiting=("written tokens gathered for the next step of learning", 9), every=("with so many the draft learns", 16),
        updates=("steps learned so far", 3)),
    # structured output
    "grammar": _note(
        "grammar", "What the grammar of the request allowed at each token written, and what it forbade (structured output).",
        tokens=("written", _IDS[:2]), allowed=("tokens allowed at each place", [1, 40]),
        removed=("probability of the forbidden tokens, by the model alone", [0.8, 0.1]),
        top=("`[[id, probability], ...]`: the model's own first choice at each place", [[13, 0.7], [12, 0.6]])),
    "forced": _note(
        "grammar", "Tokens drafted because the grammar leaves no choice.", tokens=("drafted", _IDS)),
    # servers
    "message": _note(
        "server_messages", "What came with one message of a server, which stands in place of a round (servers).",
        tokens=("in it, `null` where the server does not say", 3), bytes=("of text", 14),
        drafted_=("tokens of this answer so far, as the server counts", 40), accepted_=("of them", 25)),
}
