"""Known mistakes of the three verification exercises, each in the interface of the exercise, and the sentence that a
submission gets which behaves like it."""

from __future__ import annotations

from .exercise import Mistake


def chain(
    accept: str = "rng.flip(min(1.0, float(p[i, x] / q[i, x])))", bonus: str = "p[-1]", left: str = ""
) -> str:
    """Return the source of a chain rule with one line changed. accept: the test of token x at position i; bonus: the
    distribution after an accepted draft; left: that after the rejection at position i."""
    left = left or "norm((p[i] - q[i]).clamp(min=0), p[i])"
    return f"""
def norm(rest, other):
    return rest / rest.sum() if float(rest.sum()) > 0 else other

def verify(p, q, draft, rng):
    for i, x in enumerate(draft):
        if not {accept}:
            return i, rng.pick({left})
    return len(draft), rng.pick({bonus})
"""


TOKEN = (
    Mistake(
        "no_residual",
        "the residual left out: after a rejection the token comes from p itself, so the rejected token gets a second chance",
        chain(left="p[i]"),
    ),
    Mistake(
        "wrong_sign",
        "the residual turned round: (q - p)+ in place of (p - q)+",
        chain(left="norm((q[i] - p[i]).clamp(min=0), p[i])"),
    ),
    Mistake(
        "absolute_residual",
        "the residual without its cut at 0: |p - q| also gives tokens that the draft proposes too often",
        chain(left="norm((p[i] - q[i]).abs(), p[i])"),
    ),
    Mistake(
        "inverted_ratio",
        "the ratio turned round: it accepts with min(1, q/p)",
        chain("rng.flip(min(1.0, float(q[i, x] / p[i, x])) if float(p[i, x]) > 0 else 0.0)"),
    ),
    Mistake(
        "threshold",
        "a threshold in place of a coin: it accepts exactly if p >= q",
        chain("(float(p[i, x]) >= float(q[i, x]))"),
    ),
    Mistake("always_accept", "no test at all: whatever was drafted is kept", chain("True")),
    Mistake(
        "bonus_from_draft",
        "the bonus from the wrong model: after an accepted draft the token comes from q",
        chain(bonus="q[-1]"),
    ),
    Mistake(
        "bonus_row",
        "the bonus one row too early: after an accepted draft the token comes from the distribution of the last drafted position",
        chain(bonus="p[-2]"),
    ),
    Mistake(
        "residual_of_first",
        "the residual of the first position at every position",
        chain(left="norm((p[0] - q[0]).clamp(min=0), p[0])"),
    ),
    Mistake(
        "accepts_by_p",
        "naive sampling: it accepts with p(x) alone. The text follows the target, but the ratio p/q accepts more",
        chain(
            "rng.flip(float(p[i, x]))",
            left="norm(torch.where(torch.arange(len(p[i])) == x, 0.0, p[i]), p[i])",
        ).replace("\ndef norm", "import torch\n\ndef norm", 1),
    ),
    Mistake(
        "all_or_nothing",
        "the draft kept or dropped as a whole: one rejection throws away the accepted tokens before it",
        """
def verify(p, q, draft, rng):
    for i, x in enumerate(draft):
        if not rng.flip(min(1.0, float(p[i, x] / q[i, x]))):
            return 0, rng.pick(p[0])
    return len(draft), rng.pick(p[-1])
""",
    ),
    Mistake(
        "top_correction",
        "the most probable token of the residual in place of a sample from it",
        chain(left="top((p[i] - q[i]).clamp(min=0))")
        + """
def top(rest):
    out = rest * 0
    out[int(rest.argmax())] = 1
    return out
""",
    ),
)


def walk(
    test: str = "rng.flip(min(1.0, float(left[x] / q[c, x])))",
    after: str = "left = norm((left - q[c]).clamp(min=0), left)",
    begin: str = "left = p[node + 1]",
    end: str = "left",
    order: str = "[c for c in range(len(tokens)) if parents[c] == node]",
) -> str:
    """Return the source of a walk down a tree with one line changed."""
    return f"""
def norm(rest, other):
    return rest / rest.sum() if float(rest.sum()) > 0 else other

def verify(p, q, tokens, parents, rng):
    node, path, first, left = -1, [], True, None
    while True:
        if first or {"True" if begin == "left = p[node + 1]" else "False"}:
            left = p[node + 1]
        first = False
        hit = None
        for c in {order}:
            x = tokens[c]
            if {test}:
                hit = c
                break
            {after}
        if hit is None:
            return path, rng.pick({end})
        node = hit
        path.append(hit)
        {"" if begin == "left = p[node + 1]" else begin}
"""


SIBLINGS = (
    Mistake(
        "same_p",
        "the residual left out between siblings: every sibling is tested against p, as if none had been rejected before",
        walk("rng.flip(min(1.0, float(p[node + 1, x] / q[c, x])))"),
    ),
    Mistake(
        "correction_from_p",
        "the residual left out at the end: after the last rejection the token comes from p itself",
        walk(end="p[node + 1]"),
    ),
    Mistake(
        "no_residual",
        "no residual anywhere: siblings are tested against p, and the last token comes from p",
        walk(after="pass"),
    ),
    Mistake(
        "only_first",
        "one sibling only: the text follows the target, but the other siblings are never tested",
        walk(order="[c for c in range(len(tokens)) if parents[c] == node][:1]"),
    ),
    Mistake(
        "first_q",
        "the first sibling's q for all of them: after a draw without replacement each sibling has its own",
        walk(
            "rng.flip(min(1.0, float(left[x] / q[parents.index(node), x]) if float(q[parents.index(node), x]) > 0 else 0.0))",
            after="left = norm((left - q[parents.index(node)]).clamp(min=0), left)",
        ),
    ),
    Mistake(
        "not_normalised",
        "the residual not normalised before the next sibling is tested, which accepts too seldom",
        walk(
            "rng.flip(min(1.0, float(left[x] / q[c, x])))",
            after="left = (left - q[c]).clamp(min=0)",
            end="norm(left, p[node + 1])",
        ),
    ),
    Mistake(
        "best_first",
        "siblings tested in the order of p: they must be tested in the order in which they were drawn",
        walk(
            order="sorted((c for c in range(len(tokens)) if parents[c] == node), key=lambda c: -float(p[node + 1, tokens[c]]))"
        ),
    ),
    Mistake(
        "match_then_redraw",
        "a second draw: a token is drawn from p and looked for among the siblings; where it is not there, another one is drawn",
        """
def verify(p, q, tokens, parents, rng):
    node, path = -1, []
    while True:
        drawn = rng.pick(p[node + 1])
        below = [c for c in range(len(tokens)) if parents[c] == node]
        hit = next((c for c in below if tokens[c] == drawn), None)
        if hit is None:
            return path, rng.pick(p[node + 1]) if below else drawn
        node = hit
        path.append(hit)
""",
    ),
    Mistake(
        "match",
        "naive sampling: a token is drawn from p and looked for among the siblings. The text follows the target, but fewer "
        "siblings are accepted",
        """
def verify(p, q, tokens, parents, rng):
    node, path = -1, []
    while True:
        drawn = rng.pick(p[node + 1])
        hit = next((c for c in range(len(tokens)) if parents[c] == node and tokens[c] == drawn), None)
        if hit is None:
            return path, drawn
        node = hit
        path.append(hit)
""",
    ),
    Mistake(
        "wrong_row",
        "the row of the wrong node: row i of p is the root's for i = 0, and node i - 1's above it",
        walk().replace("p[node + 1]", "p[max(0, node)]"),
    ),
)


def block(body: str) -> str:
    """Return the source of block verification with another body."""
    return f"""
def norm(rest, other):
    return rest / rest.sum() if float(rest.sum()) > 1e-14 else other

def weights(p, q, draft):
    r = [1.0]
    for i, x in enumerate(draft):
        r.append(min(1.0, r[-1] * float(p[i, x] / q[i, x])))
    return r

def keep(r, p, q, i, n):
    if i == n:
        return r[n]
    mass = float((r[i] * p[i] - q[i]).clamp(min=0).sum())
    return mass / (mass + 1 - r[i]) if mass + 1 - r[i] > 1e-14 else 1.0

def rest(r, p, q, i, n):
    return p[n] if i == n else norm((r * p[i] - q[i]).clamp(min=0), p[i])

def verify(p, q, draft, rng):
    n, r = len(draft), weights(p, q, draft)
{body}
"""


LONGEST = """
    kept = 0
    for i in range(1, n + 1):
        if rng.flip({test}):
            kept = i
    return kept, rng.pick({end})
"""
BLOCK = (
    Mistake(
        "token_rejection",
        "token rejection: the text follows the target, but block verification accepts more of the same drafts",
        chain(),
    ),
    Mistake(
        "first_failure",
        "block verification that stops at the first test that fails: the longest prefix that passes is kept, whatever failed before",
        block("""
    kept = 0
    for i in range(1, n + 1):
        if not rng.flip(keep(r, p, q, i, n)):
            break
        kept = i
    return kept, rng.pick(rest(r[kept], p, q, kept, n))
"""),
    ),
    Mistake(
        "plain_residual",
        "the residual of token rejection: here p is multiplied by the prefix's weight before q is subtracted",
        block(LONGEST.format(test="keep(r, p, q, i, n)", end="rest(1.0, p, q, kept, n)")),
    ),
    Mistake(
        "no_residual",
        "the residual left out: after the kept prefix the token comes from p itself",
        block(LONGEST.format(test="keep(r, p, q, i, n)", end="p[kept]")),
    ),
    Mistake(
        "own_ratio",
        "each token's own ratio in place of the prefix's weight, the product of all of them up to it",
        block(
            LONGEST.format(
                test="min(1.0, float(p[i - 1, draft[i - 1]] / q[i - 1, draft[i - 1]]))",
                end="rest(r[kept], p, q, kept, n)",
            )
        ),
    ),
    Mistake(
        "weight_as_test",
        "the prefix's weight as its acceptance probability everywhere: that is so for the whole draft only",
        block(LONGEST.format(test="r[i]", end="rest(r[kept], p, q, kept, n)")),
    ),
    Mistake(
        "weight_not_cut",
        "the weight not cut at 1 at each step: a product of ratios above 1 pays for later ratios below 1",
        block(LONGEST.format(test="keep(r, p, q, i, n)", end="rest(r[kept], p, q, kept, n)")).replace(
            "r.append(min(1.0, r[-1] * float(p[i, x] / q[i, x])))",
            "r.append(r[-1] * float(p[i, x] / q[i, x]))\n    r = [min(1.0, one) for one in r]",
        ),
    ),
    Mistake(
        "mass_only",
        "the mass of the residual as the acceptance probability, not divided by mass + 1 - weight",
        block(LONGEST.format(test="keep(r, p, q, i, n)", end="rest(r[kept], p, q, kept, n)")).replace(
            "return mass / (mass + 1 - r[i]) if mass + 1 - r[i] > 1e-14 else 1.0", "return min(1.0, mass)"
        ),
    ),
)
