"""Replay a draft model on text the target already generated: expected mean accepted length and acceptance
rate without running the engine.

Greedy: a draft token is accepted iff the draft's argmax is the target's token, and up to its first mistake
the draft has the target's own text as context; one forward pass over that text decides every round. At
temperature 1: given that the target emits y, speculative sampling accepts it from the draft with
probability min(1, q(y) / p(y)) (Leviathan et al., 2211.17192), so the replay has the distribution of the
real run. Both are exact for chains of a draft model, up to rounding.
"""

from typing import Any

import torch

from .data import TASKS


def tables(model, answers: list, gamma: int, seed: int = 0, layers: int | None = None) -> dict[str, dict]:
    """Replay a draft model on stored answers, by mode and task.

    Return {"greedy" or "sampled": {task or "mean": figures}} with the figures of ``replay_rounds``; "mean"
    is the mean over tasks. layers: use only the model's first layers (None: all)."""
    found = {}
    for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        by_task = {}
        for task in TASKS:
            chosen = [a for a in answers if a.task == task and a.temperature == temperature]
            if chosen:
                by_task[task] = replay_rounds(accepted_tokens(model, chosen, seed, layers), gamma)
        keys = next(iter(by_task.values())).keys() - {"by_position"} if by_task else ()
        mean: dict[str, Any] = {
            key: round(sum(t[key] for t in by_task.values()) / len(by_task), 4) for key in keys
        }
        if by_task:
            mean["by_position"] = [
                round(sum(t["by_position"][i] for t in by_task.values()) / len(by_task), 4)
                for i in range(gamma)
            ]
            found[mode] = by_task | {"mean": mean}
    return found


@torch.inference_mode()
def accepted_tokens(model, answers: list, seed: int = 0, layers: int | None = None) -> list[list[bool]]:
    """Return, for each answer, one flag per token: whether a draft token proposed at its position would be
    accepted."""
    rng, device = torch.Generator().manual_seed(seed), next(model.parameters()).device
    found = []
    for a in answers:
        hidden = states(model, a.ids[None, :-1].to(device), layers)[0, a.start - 1 :]
        logits = model.lm_head(hidden).float().cpu()  # [answer, vocab]
        tokens = a.ids[a.start :]
        if a.greedy:
            found.append((logits.argmax(-1) == tokens).tolist())
            continue
        q = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        # A token drawn from outside the stored leaders is at most as likely as the last of them.
        match = a.top_ids.long() == tokens[:, None]
        p = torch.where(match.any(1), (a.top_logp.float() * match).sum(1), a.top_logp[:, -1].float())
        found.append((torch.rand(len(q), generator=rng) < (q - p).exp()).tolist())
    return found


def states(model, ids: torch.Tensor, layers: int | None = None) -> torch.Tensor:
    """Return hidden states [rows, length, hidden] after the first ``layers`` layers of a transformers
    model, with its final norm applied. layers None: all."""
    if layers in (None, len(model.model.layers)):
        return model.model(ids).last_hidden_state
    return model.model.norm(model.model(ids, output_hidden_states=True).hidden_states[layers])


def replay_rounds(rows: list[list[bool]], gamma: int) -> dict:
    """Replay rounds of ``gamma`` draft tokens. Return {"block_efficiency", "acceptance_rate", "by_position"}.

    answers: for each answer, one flag per token: whether a draft token at its position would be accepted."""
    rounds = committed = accepted = tried = 0
    at = [[0, 0] for _ in range(gamma)]  # accepted, tried at each position
    for marks in rows:
        place = 0
        while place < len(marks):
            rounds += 1
            taken = 0
            for position in range(min(gamma, len(marks) - place)):
                at[position][1] += 1
                if not marks[place + position]:
                    break
                at[position][0] += 1
                taken += 1
            tried += min(taken + 1, gamma, len(marks) - place)
            accepted += taken
            committed += min(taken + 1, len(marks) - place)
            place += taken + 1
    return {
        "block_efficiency": round(committed / max(1, rounds), 4),
        "acceptance_rate": round(accepted / max(1, tried), 4),
        "by_position": [round(hit / max(1, all), 4) for hit, all in at],
    }
