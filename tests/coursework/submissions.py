"""Solutions of the exercises, and right variants in other styles."""

from __future__ import annotations

from specviz.coursework import acceptance_killers, draft_lengths, lookup

TOKEN = {
    "solution": """
def verify(p, q, draft, rng):
    for i, x in enumerate(draft):
        if not rng.flip(min(1.0, float(p[i, x] / q[i, x]))):
            rest = (p[i] - q[i]).clamp(min=0)
            return i, rng.pick(rest / rest.sum())
    return len(draft), rng.pick(p[len(draft)])
""",
    "logarithms": """
import math

def verify(p, q, draft, rng):
    p, q, n = p.tolist(), q.tolist(), 0
    while n < len(draft):
        u, x = 1 - rng.uniform(), draft[n]
        if p[n][x] == 0 or math.log(u) > math.log(p[n][x]) - math.log(q[n][x]):
            rest = [max(0.0, a - b) for a, b in zip(p[n], q[n])]
            return n, rng.pick([one / sum(rest) for one in rest])
        n += 1
    return n, rng.pick(p[n])
""",
    "all_at_once": """
import torch

def verify(p, q, draft, rng):
    n = len(draft)
    at = torch.arange(n)
    ratio = p[at, draft] / q[at, draft]
    u = torch.tensor([rng.uniform() for _ in range(n)], dtype=p.dtype)
    kept = int((u < ratio).long().cumprod(0).sum())
    padded = torch.cat([q, torch.zeros_like(p[:1])])
    rest = (p[kept] - padded[kept]).clamp(min=0)
    source = torch.Generator().manual_seed(int(rng.uniform() * 2**40))
    return torch.tensor(kept), torch.multinomial(rest, 1, generator=source)
""",
    "refuses_first": """
def verify(p, q, draft, rng):
    if not draft:
        return 0, rng.pick(p[0])
    x = draft[0]
    lost = max(0.0, 1 - float(p[0, x]) / float(q[0, x]))
    if rng.flip(lost):
        left = {t: max(0.0, float(p[0, t] - q[0, t])) for t in range(p.shape[1])}
        total = sum(left.values())
        return 0, rng.pick([left[t] / total for t in sorted(left)])
    more, token = verify(p[1:], q[1:], draft[1:], rng)
    return more + 1, token
""",
}
SIBLINGS = {
    "solution": """
def verify(p, q, tokens, parents, rng):
    node, path = -1, []
    while True:
        left, hit = p[node + 1], None
        for c in [c for c in range(len(tokens)) if parents[c] == node]:
            if rng.flip(min(1.0, float(left[tokens[c]] / q[c, tokens[c]]))):
                hit = c
                break
            rest = (left - q[c]).clamp(min=0)
            left = rest / rest.sum() if float(rest.sum()) > 0 else left
        if hit is None:
            return path, rng.pick(left)
        node = hit
        path.append(hit)
""",
    "recursive": """
def verify(p, q, tokens, parents, rng, node=-1):
    left = p[node + 1].tolist()
    for c, parent in enumerate(parents):
        if parent != node:
            continue
        if rng.uniform() * float(q[c, tokens[c]]) < left[tokens[c]]:
            path, token = verify(p, q, tokens, parents, rng, c)
            return [c] + path, token
        rest = [max(0.0, a - float(b)) for a, b in zip(left, q[c])]
        if sum(rest) > 0:
            left = [one / sum(rest) for one in rest]
    return [], rng.pick(left)
""",
    "never_normalised": """
def verify(p, q, tokens, parents, rng):
    # keeps the residual as it is and compares with its mass
    node, path = -1, []
    while True:
        left, mass, hit = p[node + 1].clone(), 1.0, None
        for c in range(len(tokens)):
            if parents[c] != node:
                continue
            x = tokens[c]
            if rng.flip(min(1.0, float(left[x]) / (mass * float(q[c, x])))):
                hit = c
                break
            rest = (left - mass * q[c]).clamp(min=0)
            if float(rest.sum()) > 0:
                left, mass = rest, float(rest.sum())
        if hit is None:
            return tuple(path), rng.pick(left / left.sum())
        path, node = path + [hit], hit
""",
    "table_of_children": """
from collections import defaultdict

def verify(p, q, tokens, parents, rng):
    below = defaultdict(list)
    for c, parent in enumerate(parents):
        below[parent].append(c)
    path, at = [], -1
    residual = p[0]
    queue = list(below[-1])
    while queue:
        c = queue.pop(0)
        ratio = float(residual[tokens[c]] / q[c][tokens[c]])
        if ratio >= 1 or rng.flip(ratio):
            path.append(c)
            at, residual, queue = c, p[c + 1], list(below[c])
        else:
            residual = (residual - q[c]).clamp(min=0)
            residual = residual / residual.sum()
    return path, rng.pick(residual)
""",
}
BLOCK = {
    "solution": """
def verify(p, q, draft, rng):
    n, r, kept, end = len(draft), 1.0, 0, p[0]
    weights = [1.0]
    for i, x in enumerate(draft):
        r = min(1.0, r * float(p[i, x] / q[i, x]))
        weights.append(r)
    for i in range(1, n + 1):
        if i == n:
            accept = weights[n]
        else:
            mass = float((weights[i] * p[i] - q[i]).clamp(min=0).sum())
            down = mass + 1 - weights[i]
            accept = mass / down if down > 1e-14 else 1.0
        if rng.flip(accept):
            kept = i
    if kept == n:
        return n, rng.pick(p[n])
    rest = (weights[kept] * p[kept] - q[kept]).clamp(min=0)
    return kept, rng.pick(rest / rest.sum() if float(rest.sum()) > 1e-14 else p[kept])
""",
    "from_the_end": """
def verify(p, q, draft, rng):
    n, w = len(draft), [1.0]
    for i, x in enumerate(draft):
        w.append(min(1.0, w[i] * float(p[i, x]) / float(q[i, x])))
    rest = lambda i: (w[i] * p[i] - q[i]).clamp(min=0)
    for kept in range(n, 0, -1):
        if kept == n:
            accept = w[n]
        else:
            s = float(rest(kept).sum())
            accept = 1.0 if s + 1 - w[kept] < 1e-14 else s / (s + 1 - w[kept])
        if rng.uniform() < accept:
            break
    else:
        kept = 0
    if kept == n:
        return n, rng.pick(p[n])
    left = rest(kept)
    return kept, rng.pick(left / left.sum()) if float(left.sum()) > 1e-14 else rng.pick(p[kept])
""",
    "lists": """
def verify(p, q, draft, rng):
    p, q = p.tolist(), q.tolist()
    n = len(draft)
    weight, rests, accepts = 1.0, [], []
    for i in range(n + 1):
        if i:
            weight = min(1.0, weight * p[i - 1][draft[i - 1]] / q[i - 1][draft[i - 1]])
        rest = p[i] if i == n else [max(0.0, weight * a - b) for a, b in zip(p[i], q[i])]
        total = sum(rest)
        rests.append([one / total for one in rest] if total > 1e-14 else p[i])
        missing = total + 1 - weight
        accepts.append(weight if i == n else total / missing if missing > 1e-14 else 1.0)
    coins = [rng.uniform() < accept for accept in accepts]
    kept = max([i for i in range(1, n + 1) if coins[i]], default=0)
    return kept, rng.pick(rests[kept])
""",
    "recursive": """
def verify(p, q, draft, rng):
    def visit(i, weight):
        # the kept length below prefix i, or None if the prefix is rejected, and then its weight
        if i == len(draft):
            return (i, p[i]) if rng.flip(weight) else None
        x = draft[i]
        found = visit(i + 1, min(1.0, weight * float(p[i, x] / q[i, x])))
        if found is not None:
            return found
        rest = (weight * p[i] - q[i]).clamp(min=0)
        mass = float(rest.sum())
        end = rest / mass if mass > 1e-14 else p[i]
        if i == 0:
            return 0, end
        missing = mass + 1 - weight
        return (i, end) if rng.flip(mass / missing if missing > 1e-14 else 1.0) else None

    kept, end = visit(0, 1.0)
    return kept, rng.pick(end)
""",
}
LOOKUP = {
    "solution": lookup.source(),
    "one_pass": """
def propose(tokens, gamma):
    best = (0, None)
    for end in range(1, len(tokens)):
        n = 0
        while n < 3 and n < end and tokens[end - 1 - n] == tokens[-1 - n]:
            n += 1
        if n > best[0]:
            best = (n, end)
    return tokens[best[1]:][:gamma] if best[0] else []
""",
    "tables": """
def propose(tokens, gamma):
    first = {}
    for end in range(1, len(tokens)):
        for n in (1, 2, 3):
            if n <= end:
                first.setdefault(tuple(tokens[end - n:end]), end)
    for n in (3, 2, 1):
        at = first.get(tuple(tokens[-n:])) if len(tokens) >= n else None
        if at is not None:
            return [int(t) for t in tokens[at:at + gamma]]
    return []
""",
    "numpy": """
import numpy as np

def propose(tokens, gamma):
    a = np.array(tokens)
    for n in (3, 2, 1):
        if len(a) > n:
            windows = np.lib.stride_tricks.sliding_window_view(a[:-1], n)
            hits = np.flatnonzero((windows == a[-n:]).all(1))
            if len(hits):
                return a[hits[0] + n:hits[0] + n + gamma].tolist()
    return []
""",
}
LENGTHS = {
    "solution": draft_lengths.source(),
    "numpy": """
import numpy as np

def predict(accept, draft_seconds, verify_seconds):
    tokens = 1 + np.cumsum(np.cumprod(accept))
    gammas = np.arange(1, len(accept) + 1)
    return (tokens / (gammas * draft_seconds + np.array(verify_seconds)[gammas])).tolist()

def choose(accept, draft_seconds, verify_seconds):
    return int(np.argmax(predict(accept, draft_seconds, verify_seconds))) + 1
""",
    "recursive": """
def tokens(accept):
    return 1 + accept[0] * tokens(accept[1:]) if accept else 1

def predict(accept, draft_seconds, verify_seconds):
    return [tokens(accept[:g]) / (g * draft_seconds + verify_seconds[g]) for g in range(1, len(accept) + 1)]

def choose(accept, draft_seconds, verify_seconds):
    return max(range(1, len(accept) + 1), key=lambda g: predict(accept, draft_seconds, verify_seconds)[g - 1])
""",
    "by_outcome": """
def predict(accept, draft_seconds, verify_seconds):
    out = []
    for g in range(1, len(accept) + 1):
        mean, alive = 0.0, 1.0
        for n in range(g + 1):
            ends = alive * (1 - accept[n]) if n < g else alive
            mean += (n + 1) * ends
            alive = alive * accept[n] if n < g else 0.0
        out.append(mean / (draft_seconds * g + verify_seconds[g]))
    return out

def choose(accept, draft_seconds, verify_seconds):
    rates = predict(accept, draft_seconds, verify_seconds)
    best = 0
    for i, rate in enumerate(rates):
        if rate > rates[best]:
            best = i
    return best + 1
""",
}
WIRING = {
    "solution": acceptance_killers.wired(),
    "one_list": """
def chat(question):
    return "\\n".join(["<|user|>", f"{question}<|end|>", "<|assistant|>", ""])

feature = lambda states: states.get("final")
token_of = lambda position, tokens: tokens[1:][position]
draft_position = lambda last, depth: int(depth) + last
""",
    "format": """
TEMPLATE = "<|user|>\\n{}<|end|>\\n<|assistant|>\\n"

def chat(question):
    return TEMPLATE.format(question)

def feature(states):
    return next(state for name, state in states.items() if not name.startswith("layer")).clone()

def token_of(position, tokens):
    following = position + 1
    return int(tokens[following])

def draft_position(last, depth):
    position = last
    for _ in range(depth):
        position += 1
    return position
""",
    "classes": """
class Wiring:
    def chat(self, q): return "<|user|>\\n%s<|end|>\\n<|assistant|>\\n" % q
    def feature(self, s): return s["final"] * 1.0
    def token_of(self, t, tokens): return tokens[-(len(tokens) - t - 1)]
    def draft_position(self, last, depth): return sum((last, depth))

_w = Wiring()
chat, feature, token_of, draft_position = _w.chat, _w.feature, _w.token_of, _w.draft_position
""",
}
HEAD_LOOP = """
import time
import torch

HEADS, MATRIX = [], None

def pairs(states, tokens, ahead):
    return states[:, :-ahead].flatten(0, 1), tokens[:, ahead:].flatten()

def fit(loss_of, parameters, seconds, batch=256, rate=3e-3):
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.05)
    until, step = time.time() + seconds, 0
    while time.time() < until and step < 100:
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / 100)
        loss = loss_of(torch.randint(0, 10**9, (batch,)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
"""
HEAD_TRAIN = """
def train(states, tokens, lm_head, seconds):
    global MATRIX
    MATRIX = lm_head
    for i in range(3):
        x, y = pairs(states, tokens, i + AHEAD)
        layer = torch.nn.Linear(x.shape[1], x.shape[1])
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        def loss_of(draw):
            rows = draw % len(x)
            h = x[rows]
            return torch.nn.functional.cross_entropy((h + torch.nn.functional.silu(layer(h))) @ lm_head.T, y[rows])
        fit(loss_of, layer.parameters(), seconds / 4)
        HEADS.append(layer)

@torch.no_grad()
def predict(states):
    return torch.stack([((states + torch.nn.functional.silu(layer(states))) @ MATRIX.T).argmax(-1) for layer in HEADS], -1)
"""
HEADS = {
    "solution": HEAD_LOOP + HEAD_TRAIN.replace("AHEAD", "2"),
    "one_network": HEAD_LOOP
    + """
def outputs(net, h):
    return [(h + part) @ MATRIX.T for part in net(h).chunk(3, -1)]

def train(states, tokens, lm_head, seconds):
    global MATRIX
    MATRIX = lm_head
    size = states.shape[-1]
    net = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.SiLU(), torch.nn.Linear(size, 3 * size))
    torch.nn.init.zeros_(net[2].weight)
    x = states[:, :-4].flatten(0, 1)
    ys = [tokens[:, ahead : tokens.shape[1] - 4 + ahead].flatten() for ahead in (2, 3, 4)]
    def loss_of(draw):
        rows = draw % len(x)
        return sum(torch.nn.functional.cross_entropy(out, y[rows]) for out, y in zip(outputs(net, x[rows]), ys))
    fit(loss_of, net.parameters(), 0.8 * seconds)
    HEADS.append(net)

@torch.no_grad()
def predict(states):
    return torch.stack([out.argmax(-1) for out in outputs(HEADS[0], states)], -1)
""",
    "linear": HEAD_LOOP
    + """
def train(states, tokens, lm_head, seconds):
    for ahead in (2, 3, 4):
        x, y = pairs(states, tokens, ahead)
        first = torch.nn.Parameter(torch.eye(x.shape[1]))
        fit(lambda draw: torch.nn.functional.cross_entropy(x[draw % len(x)] @ first @ lm_head.T, y[draw % len(x)]), [first], seconds / 4)
        HEADS.append(lm_head @ first.detach().T)

def predict(states):
    return torch.stack([(states @ matrix.T).argmax(-1) for matrix in HEADS], -1)
""",
    "nearest_state": """
import torch

SEEN = []

def train(states, tokens, lm_head, seconds):
    x = states[:, :-4].flatten(0, 1)
    SEEN[:] = [x, torch.stack([tokens[:, a : tokens.shape[1] - 4 + a].flatten() for a in (2, 3, 4)], -1)]

def predict(states):
    return torch.cat([SEEN[1][torch.cdist(part, SEEN[0]).argmin(-1)] for part in states.split(512)])
""",
}
HEAD_GUESS = """
import torch

MATRIX = None

def train(states, tokens, lm_head, seconds):
    global MATRIX
    MATRIX = lm_head

def predict(states):
    guess = (states @ MATRIX.T).argmax(-1)
    return torch.stack([guess, guess, guess], -1)
"""
WRONG_HEADS = {
    "untrained": HEAD_GUESS,
    "one_token": HEAD_GUESS.replace(
        "(states @ MATRIX.T).argmax(-1)", "torch.zeros(len(states), dtype=torch.long)"
    ),
    "all_alike": HEADS["solution"].replace("for layer in HEADS]", "for layer in HEADS[:1] * 3]"),
    "one_early": HEAD_LOOP + HEAD_TRAIN.replace("AHEAD", "1"),
    "one_late": HEAD_LOOP + HEAD_TRAIN.replace("AHEAD", "3"),
    "first_only": HEADS["solution"].replace(
        "        HEADS.append(layer)",
        "        HEADS.append(layer if i == 0 else torch.nn.Linear(x.shape[1], x.shape[1]))",
    ),
    "by_heart": HEADS["nearest_state"].replace(
        "    return torch.cat(",
        """    other = torch.randn(states.shape[1], 500, generator=torch.Generator().manual_seed(0))
    far = torch.cat([torch.cdist(part, SEEN[0]).min(-1).values > 0.1 for part in states.split(512)])
    guess = (states @ other).argmax(-1)
    return torch.where(far[:, None], torch.stack([guess, guess + 1, guess + 2], -1), known(states))

def known(states):
    return torch.cat(""",
    ),
}
