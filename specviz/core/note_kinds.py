"""All kinds of notes (annotations of a round in the trace, written by ``state.note``), each declared once.

A new kind is one entry of NOTES: ``"kind": _note("lens file", "One sentence for people.", field=("what it
means", an example))``, with as many fields as needed; a field whose name ends in ``_`` is optional. Kinds
of lookup drafters are in note_kinds_lookup.py. Then draw it in assets/viewer/lens/<lens file>.js, as
``SpecViz.lens.kind = {title, draw}``, and regenerate the table of docs/TRACE.md: ``python -m specviz list
--write`` (``make docs``).

Tests check that the table of docs/TRACE.md equals this one, that the viewer draws exactly these kinds, each
from its example, and that some method writes each. Fields that hold token ids are called ``tok``,
``tokens``, ``top``, ``top_p`` or ``resid``: the recorder then also emits the tokens' bytes. Positions count
tokens of prompt and output, or of the datastore that is named; lists about nodes are in the order of the
round's draft tree.
"""

from __future__ import annotations

from typing import Any

from .errors import InvalidUse
from .note_kind import IDS as _IDS
from .note_kind import Note
from .note_kind import note as _note
from .note_kinds_lookup import LOOKUPS


def register_notes(notes: dict[str, Note]) -> None:
    """Add the kinds of notes that a method declares for itself to NOTES. Raises InvalidUse (a ValueError)
    if two methods declare one kind differently."""
    for kind, note in notes.items():
        if NOTES.setdefault(kind, note) != note:
            raise InvalidUse(f"the note {kind!r} is declared twice", "note.twice")


PER_NODE = {  # fields that list the draft's nodes, and those that list the root before them
    "masks": ("chances",),
    "diffusion": ("steps",),
    "reach": ("reached", "alone"),
    "groups": ("group",),
    "fused": ("by",),
    "suffix": ("chances",),
    "search": ("visits", "priors"),
}


def keep_nodes(kind: str, data: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    """Return a note's data with its lists about nodes cut to the nodes ``kept`` of the round's draft."""
    cut = {}
    for name in PER_NODE.get(kind, ()):
        before = data[name][: 1 * (name == "group")]  # the root's
        after = data[name][len(before) :]
        cut[name] = before + [after[node] for node in kept if node < len(after)]
    return data | cut


def check(kind: str, data: dict[str, Any]) -> None:
    """Check a note before it is written. Raises InvalidUse (a ValueError) for a kind that is not declared,
    an unknown field, or a missing one."""
    note = NOTES.get(kind)
    if note is None:
        raise InvalidUse(
            f"there is no note {kind!r}; specviz/core/note_kinds.py declares each kind", "note.unknown"
        )
    if data.keys() == note.needed.keys():
        return
    for name in data:
        if name not in note.needed and name not in note.maybe:
            raise InvalidUse(
                f"the note {kind!r} has no field {name!r}; it has {', '.join([*note.needed, *note.maybe])}",
                "note.field",
            )
    for name in note.needed:
        if name not in data:
            raise InvalidUse(f"the note {kind!r} lacks {name!r}", "note.lacks")


def with_table(text: str) -> str:
    """Return ``text``, the content of docs/TRACE.md, with its table of kinds of notes replaced by the
    current one."""
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if line.startswith("| kind |")][0]
    end = next(i for i in range(at, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:at], *table().splitlines(), *lines[end:]])


def table() -> str:
    """Return the table of all kinds of notes for docs/TRACE.md, in Markdown."""
    return (
        "\n".join(
            ["| kind | shows | data |", "|---|---|---|", *(note.row(kind) for kind, note in NOTES.items())]
        )
        + "\n"
    )


_CHAIN = [{"tokens": _IDS, "chance": 0.6}, {"tokens": _IDS[::-1], "chance": 0.4}]

NOTES: dict[str, Note] = {
    **LOOKUPS,
    # how long a draft, and whose
    "threshold": _note(
        "stopping",
        "The draft probability below which drafting stops.",
        value=("the limit of this round", 0.4),
    ),
    "predicted": _note(
        "stopping",
        "Acceptance probabilities predicted for the drafted tokens (SpecDec++, DISCO, adaptive verification).",
        line=("predicted acceptance probability of each token evaluated", [0.9, 0.8, 0.4]),
        survival_=("true where `line` is the probability that a token and all before it are accepted", True),
        limit=("where drafting stops", 0.3),
        refused_=(
            "predicted probability of a rejection so far; where present, drafting stops above the limit, else below",
            [0.1, 0.28, 0.71],
        ),
    ),
    "overlap": _note(
        "overlap",
        "The overlap sum min(p, q) of the two distributions (DistillSpec, FastDraft, TVD++, online learning).",
        line=("at each verified position, the acceptance probability of a draft token", [0.9, 0.7, 0.4]),
        waiting_=("rejected positions collected for the next training step", 5),
        every_=("collected positions per training step", 8),
        updates_=("training steps so far", 3),
        before_=("mean overlap since the last step with the original draft", 0.55),
        now_=("and with the current draft", 0.7),
    ),
    "entropy": _note(
        "stopping",
        "The entropy after each drafted token (SVIP).",
        line=("sqrt(scale x entropy) of each token, in nats", [0.1, 0.2, 0.5]),
        limit=("above it drafting stops", 0.3),
    ),
    "length": _note(
        "length",
        "The draft length that the policy chose.",
        gamma=("draft length", 4),
        acceptance_=("acceptance rate used for the choice", 0.7),
        predicted_=("accepted tokens predicted by a trained network", 3.6),
    ),
    "arms": _note(
        "length",
        "The candidates of a bandit (BanditSpec).",
        arm=("index of the candidate used", 1),
        gammas=("draft length of each", [2, 4, 8]),
        pulls=("uses of each so far", [3, 4, 1]),
        means=("mean reward of each", [0.5, 0.7, 0.2]),
        names_=("names of the candidates", ["lookup", "chain of 4", "tree of 8"]),
    ),
    "arm": _note(
        "length",
        "Which of several drafters proposed the draft (SAM-Decoding and CopySpec with another drafter).",
        arm=("index of the drafter", 1),
        of=("number of drafters", 2),
    ),
    # many requests at once
    "rows": _note(
        "rows",
        "How many tokens of the forward pass each request of a batch got, and why (BASS, EMS-SD, SmartSpec, TETRIS).",
        request=("index of this request in the batch", 1),
        asked=("tokens of each request's draft, including the root", [4, 6, 3]),
        given=("tokens of the pass that each got", [3, 6, 2]),
        padded=("tokens of the pass if padded to the longest", 18),
        why=("the reason for this one's", "5 of its 5 drafted tokens are among the batch's top 8"),
        reasons_=(
            "the reason for each one's, where there are several",
            ["it doubted", "it never doubted", "it doubted"],
        ),
        gamma_=("draft length chosen for all", 5),
        budget_=("draft tokens available to the batch", 8),
        acceptance_=("acceptance rate used for the choice", 0.7),
        speeds_=(
            "expected tokens per second with drafts of 0, 1, ... tokens; empty before anything was measured",
            [40.0, 52.0, 47.0],
        ),
    ),
    "class": _note(
        "rows",
        "Progress of the prompts that a lane decodes in one batch; the prompt shown comes first.",
        prompts=("beginning of each prompt", ["Tell me a story", "Repeat this text", "Hello"]),
        written=("tokens that each has generated", [12, 9, 14]),
        rows=("tokens of the pass per prompt, 0 for finished ones", [4, 4, 0]),
        done=("whether each has finished", [False, False, True]),
        seconds=("seconds since the prefill, on the engine's clock", 0.25),
    ),
    # trees and stages
    "confidence": _note(
        "confidence",
        "The tree grown by the draft's probabilities.",
        expected=("expected accepted tokens", 1.4),
        grown=("nodes grown", 9),
        kept=("nodes kept", 4),
    ),
    "expert_union": _note(
        "expert_union",
        "Which experts each token of the pass used, and the bytes that were read for them (BlockFFN).",
        experts=("number of experts in each layer", 4),
        used=(
            "by layer and token, the root first: the experts that the token used",
            [[[0, 2], [0], [0, 3]], [[1], [1, 2], [1]]],
        ),
        bytes=("of the experts that the pass read: the union over its tokens", 6000),
        whole=("bytes of all experts", 8000),
        separately=("bytes of the experts that passes of one token each would have read", 8000),
        other=("bytes of all other weights of the pass", 9000),
        line=("bytes that the first 1, 2, ... tokens of this pass read", [3000, 4000, 6000]),
        mean=("the same, mean over the passes so far", [2900, 4100, 5800]),
    ),
    "block": _note(
        "block",
        "A block drafted in one pass, and the predicted acceptance of each position (DSpark, blockwise decoding).",
        block=("positions of the whole block", 4),
        drafted=("drafted tokens, the first positions of the block", 2),
        confidence=(
            "predicted acceptance probability of each position evaluated, given that those before it are accepted",
            [0.9, 0.6, 0.2],
        ),
    ),
    "reach": _note(
        "block",
        "Nodes of a tree over a block, whose probabilities follow the path above each (TAPS, DARTree, TreeFlash).",
        reached=("estimated probability that verification reaches and accepts each node", [0.8, 0.5, 0.1]),
        alone=("the same by the block's independent positions", [0.8, 0.6, 0.3]),
    ),
    "masks": _note(
        "block",
        "Tokens drafted in one pass, independently of each other (PARD, P-EAGLE).",
        places=("positions predicted in the pass", 4),
        chances=("draft probability of the token sampled at each drafted position", [0.9, 0.5, 0.3]),
    ),
    "lattice": _note(
        "ahead",
        "The top tokens of independent heads, and the path through them that was drafted (refined block drafts).",
        rows=(
            "`[{tokens, chances}]` of each position, most probable first",
            [{"tokens": _IDS[:2], "chances": [0.5, 0.2]}, {"tokens": _IDS[2:], "chances": [0.4, 0.3]}],
        ),
        plain=("rank per position of the heads' own draft", [0, 0]),
        path=("rank per position of the actual draft", [0, 1]),
        scores=("combined log-probabilities of heads and language model along the path", [-1.2, -2.5]),
        paths=("paths drafted", 2),
    ),
    "ahead": _note(
        "ahead",
        "Tokens after this root, predicted by probes (rows that are scored and never accepted) in the previous pass (PaSS, PPD).",
        rows=(
            "`[{tokens, chances}]`, one row per step ahead, most probable first; empty without predictions",
            [{"tokens": _IDS[:2], "chances": [0.5, 0.2]}, {"tokens": _IDS[2:], "chances": [0.4, 0.3]}],
        ),
        probes=("probes in this round's pass", 6),
        behind=("tokens followed by probes, including the root", 2),
        layers=("layer at which each step's rows enter, from 0", [3, 4]),
        chains=("rows per step after one token", 1),
        dropped_=("candidates pruned", 3),
    ),
    "sequoia": _note(
        "sequoia",
        "The plan behind the tree's shape (Sequoia).",
        accept=("probability that the k-th child is accepted", [0.6, 0.2]),
        nodes=("nodes of the tree", 3),
        depth=("depth of the tree", 2),
        table=(
            "expected tokens by depth and size, `null` where there is none",
            [[1.0, 1.5, None], [1.0, 1.6, 1.9]],
        ),
    ),
    "survival": _note(
        "survival",
        "How much of the committed recurrent state each row of the tree still reads after its decay (STree).",
        share=("share of the state, for the root and each node", [0.9, 0.8, 0.5]),
        state_bytes=("bytes of all states", 147_456),
        replayed=("accepted rows that the commit added to the state", 2),
    ),
    "groups": _note(
        "groups",
        "The group of positions of each row: local attention within it, linear attention to earlier ones.",
        group=("group of the root and of each node", [2, 2, 3]),
        size=("positions of a group", 32),
        at=("position of the root", 94),
        complete=("groups that the state has summed", 2),
    ),
    "sizes": _note(
        "sizes",
        "Which sub-model of the draft model drafted each token (S2D).",
        layers=("layers of each sub-model, smallest first", [2, 3, 4]),
        used=("index of each token's sub-model", [0, 0, 1, 2]),
        sure=("its top-1 probability", [0.9, 0.7, 0.65, 0.4]),
        least=("below it the next sub-model is used; 0: one for all", 0.6),
    ),
    "second_path": _note(
        "path",
        "The rows of the pass in which the target drafted for itself through a second path (Uno, Orthrus).",
        tokens=("tokens that filled the rows after the root: noise, or masks", _IDS),
        first=("first row that took the path; a row before it ran with the target's own weights", 1),
        both=("whether the rows attend to each other in both directions", False),
        masked=("whether the rows hold mask tokens instead of noise", False),
    ),
    "staged": _note(
        "staged",
        "Rounds of the inner speculative run of the draft model.",
        rounds=("number of inner rounds", 2),
        sizes=("tokens of each", [2, 2]),
    ),
    # parallel decoding
    "grid": _note(
        "grid",
        "The guesses of one pass (Jacobi, Gauss-Seidel-Jacobi, speculative Jacobi, FastCoT).",
        block=("`[id, ...]`", _IDS),
        carried=("guesses from the previous pass; the others are fill", 2),
        at=("position of the first", 9),
        number=("index of the block, when decoded block by block", 0),
    ),
    "unit": _note(
        "unit",
        "Tokens committed by one pass (lexical units).",
        tokens=("tokens committed unverified", _IDS),
        chances=("probability of each", [0.9, 0.5, 0.4, 0.2]),
        blanks=("positions predicted ahead", 3),
    ),
    "superposed": _note(
        "branches",
        "Continuations drafted in superposition.",
        drafts=("`[{tokens, chance}]`, the chosen one first", _CHAIN),
        weights=("`[[0..1, ...], ...]` of the drafts in each input mixture", [[0.6, 0.4]]),
        passes=("target passes for this proposal", 4),
    ),
    "branches": _note(
        "branches",
        "Sections of an answer decoded in parallel; each begins with its number and title.",
        titles=("`[{tokens}]`", [{"tokens": _IDS}]),
        parts=("`[{tokens}]`", [{"tokens": _IDS}]),
        passes=("target passes for all of them", 3),
    ),
    "timeline": _note(
        "timeline",
        "When each of the two models ran (PEARL).",
        mode=("`pre-verify` or `post-verify`", "post-verify"),
        clock=("`measured` or `simulated`", "simulated"),
        draft=("`[start, end]`, seconds", [0.1, 0.12]),
        verify=("`[start, end]`", [0.1, 0.14]),
        waiting=("tokens pending for the target", 3),
        written=("tokens drafted meanwhile", 4),
        kept=("tokens of these kept", 2),
    ),
    # the target's own layers
    "layers": _note(
        "layers",
        "Which layers of the target were used to draft.",
        count=("layers of the target", 8),
        skipped=("sublayers left out, 2i the attention and 2i + 1 the feed-forward of layer i", [3, 5, 6]),
        reused_=("layers that verification does not run again", 2),
        matched_=("agreement of the best set of layers so far", 0.8),
        trials_=("sets tried", 9),
        at_=("position of the token, where nothing is verified", 9),
    ),
    "side_by_side": _note(
        "layers",
        "Layers that run in parallel on one hidden state (EasySpec).",
        layers=("of the draft", 8),
        size=("layers per group", 3),
        groups=("number of groups", 2),
        exact=("layers at each end that run sequentially", 1),
        steps=("sequential steps in all", 4),
    ),
    "own_cache": _note(
        "layers",
        "How much of its KV cache the target drafted with (MagicDec, QuantSpec).",
        kept=("cached tokens used", 36),
        of=("tokens there are", 90),
        bits=("bits per cached value, 0 if not quantised", 4),
    ),
    # two models that write together
    "fallback": _note(
        "together",
        "The small model's confidence, and why it fell back to the large one (BiLD).",
        at=("position", 9),
        sure=("its top-1 probability at each token", [0.9, 0.8, 0.4]),
        least=("fallback threshold", 0.6),
        why=("`unsure` or `full`", "unsure"),
    ),
    "rollback": _note(
        "together",
        "Tokens that the large model rolls back (BiLD).",
        at=("position", 9),
        nats=("-log p of each token under the large model", [0.2, 6.5]),
        bound=("rollback threshold", 5.0),
        back=("whether tokens were rolled back", True),
        gone=("tokens rolled back", 2),
    ),
    "switch": _note(
        "together",
        "Which model generates, by the entropy of recent positions in nats (entropy-adaptive decoding).",
        writer=("`small` or `large`", "small"),
        entropy=("entropy of the last distribution", 0.4),
        mean=("mean entropy of the window", 0.9),
        limit=("above it the large model generates", 1.5),
    ),
    "combined": _note(
        "together",
        "The distribution combined from both models (contrastive decoding, proxy tuning).",
        tokens=("committed", _IDS),
        asked=("whether the second model was used", [True, False, True, True]),
        large=("probability of each under the large model", [0.5, 0.2, 0.9, 0.1]),
        small=("the same under the small model", [0.4, 0.9, 0.8, 0.1]),
        combined=("the same under the combined distribution", [0.6, 0.9, 1.0, 0.2]),
    ),
    "grade": _note(
        "together",
        "The grade of a reasoning step (SpecReason; reward-guided decoding).",
        grade=("the grade", 7.4),
        least=("smallest grade that passes", 7.0),
        passed=("whether the step passed", True),
        length=("tokens of the step", 9),
        of_=("largest possible grade, if not 9", 9.0),
        coin_=("true: the grade is the acceptance probability", False),
    ),
    "judge": _note(
        "judge",
        "The judge's probability for each drafted token (Judge decoding).",
        nodes=("tested nodes of the draft", [0, 1, 2]),
        chances=("probability of being good, for each", [0.9, 0.7, 0.2]),
        least=("above it a rejected token is kept", 0.5),
        forgiven=("indices of rejected tokens that were kept", [1]),
    ),
    "step": _note(
        "together",
        "Which model generated a reasoning step (SpecReason).",
        step=("its number, from 0", 2),
        writer=("`small` or `large`", "small"),
        tokens=("of the step", _IDS),
    ),
    "drift": _note(
        "drift",
        "Deviation from the target's distribution at each tested token, in nats (lossy rules).",
        nats=("deviation at each", [0.01, 0.2]),
        threshold_=("limit of the rule, if it has one", 0.09),
    ),
    "exchange": _note(
        "exchange",
        "What a lossy rule accepts and how far its text strays, at each tested token.",
        accepted=("probability that a draft token is accepted", [0.93, 0.86]),
        strays=("total variation between the text's distribution and the target's", [0.03, 0.06]),
        apart=("total variation between the draft's distribution and the target's", [0.1, 0.2]),
    ),
    "relaxed": _note(
        "relaxed",
        "Neighbours in the codebook whose probability a drafted token borrowed (LANTERN).",
        delta=("bound on what is borrowed", 0.2),
        tests=(
            "`[{node, added, mass, tv}]`: neighbours counted, their probability, and the total variation between the output "
            "distribution and the target's",
            [{"node": 0, "added": 3, "mass": 0.12, "tv": 0.05}],
        ),
    ),
    "scale": _note(
        "scales",
        "A scale of a picture that one pass painted (next-scale prediction, CoDe).",
        scale=("its number, from 0", 1),
        of=("scales of a whole picture", 5),
        grid=("patches of its side", 2),
        writer=("`small` or `large`", "large"),
        seconds=("duration of the pass", 0.002),
        parameters=("number of parameters of the model that painted it", 3_000_000),
        kv_bytes=("keys and values that this model holds after the pass", 46_080),
        probs=("probability of each patch drawn", [0.9, 0.8, 0.7, 0.2]),
    ),
    "enriched": _note(
        "branches",
        "The mixture of target and draft that tokens are verified against (RAPID).",
        weight=("of the draft's", 0.3),
        tests=(
            "`[{tok, p, q, moved}]`: probability under target, draft and mixture",
            [{"tok": 11, "p": 0.4, "q": 0.5, "moved": 0.45}],
        ),
    ),
    # verification, vocabularies
    "optimum": _note(
        "optimum",
        "Acceptance rate of a multi-draft rule compared with the optimum.",
        drafts=("at the first position", 3),
        accept=("probability that one of them is accepted", 0.7),
        best=("that of the optimal rule", 0.8),
        gap=("between the two", 0.1),
    ),
    "alignment": _note(
        "alignment",
        "One text in two tokenisations.",
        theirs=("`[[text, start, end], ...]`: the draft's tokens, in bytes", [["The s", 0, 5], ["ky", 5, 7]]),
        tokens=("the target's", _IDS[:2]),
        ours=("`[[start, end], ...]` of them", [[0, 3], [3, 7]]),
        shared=("whether the draft's vocabulary has the token", [True, False]),
        overlap=("share of the target's vocabulary that the draft has", 0.6),
    ),
    "ngrams": _note(
        "ngrams",
        "Target tokens in the n-gram cache of a draft of another vocabulary, and what was accepted (OmniDraft).",
        known=("tokens of the target that the cache holds", 7),
        tokens=("those that this round added", _IDS[:2]),
        lacking=("committed tokens of this round without an equal draft token", 3),
        hits=("of these, in the cache before", 1),
        drafted=("tokens proposed", 4),
        merged=("of these, merged from several draft tokens", 1),
        accepted=("tokens accepted", 2),
        waiting=("generated tokens collected for the next training step", 9),
        every=("collected positions per training step", 16),
        updates=("training steps so far", 3),
    ),
    # structured output
    "grammar": _note(
        "grammar",
        "What the grammar allowed and forbade at each committed token (structured output).",
        tokens=("committed", _IDS[:2]),
        allowed=("number of tokens allowed at each position", [1, 40]),
        removed=("probability of the forbidden tokens under the unmasked distribution", [0.8, 0.1]),
        top=("`[[id, probability], ...]`: unmasked top-1 token at each position", [[13, 0.7], [12, 0.6]]),
    ),
    "forced": _note(
        "grammar", "Tokens drafted because the grammar leaves no choice.", tokens=("drafted", _IDS)
    ),
    # servers
    "message": _note(
        "server_messages",
        "Content of one server message, shown in place of a round (servers).",
        tokens=("number of tokens, `null` if not reported", 3),
        bytes=("of text", 14),
        drafted_=("drafted tokens of this answer so far, as reported", 40),
        accepted_=("accepted ones of these", 25),
    ),
}
