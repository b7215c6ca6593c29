"""The heads that ship: one that has attention looks at the text with it."""
import pytest
import torch

from specviz import load
from specviz.training import attention
from specviz.zoo import forget
from specviz.zoo.registry import register

TEXT = " ".join(f"{who} went to {where} and found {what} there." for who, where, what in (
    ("Lena", "the old mill", "a red button"), ("The owl", "the market", "a basket of pears"), ("Tom", "the harbour", "a letter"),
    ("A small grey cat", "the bridge", "nothing at all"), ("Clara", "the edge of the wood", "a lantern"), ("The fox", "the well", "Tom")))
SHIPPED = [entry for entry in register().entries.values()
           if entry.role == "head" and entry.kind in ("eagle", "fspad", "jakiro", "falcon", "mtp") and (entry.path / "config.json").is_file()]


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_what_it_says_after_the_same_last_pair_changes_when_those_between_it_and_the_first_are_shuffled(entry):
    """Attention with all its weight on the first row fails, as orthogonal updates make it where nothing holds the scores; and attention
    that weighs all rows alike, as a limit that is too low makes it."""
    loaded = load(entry.target, "none")
    head, target = loaded.kit().head(entry.kind), loaded.open_target()
    target.tap(frozenset({"final"}))
    ids = loaded.tokenizer.encode(TEXT)
    with torch.inference_mode():
        states = target.sync([*ids, 0]).taps["final"]  # the state of each token of the text
        embeds = target.embed(ids[1:])

        def said(at):
            return head.logits(head.open().read(embeds[at], states[:-1][at])[-1:], target.head).softmax(-1)

        def moved():
            """By how much of the probability, on average over places of the text."""
            shares = []
            for end in range(len(embeds) // 2, len(embeds)):
                between = 1 + torch.randperm(end - 2, generator=torch.Generator().manual_seed(end))
                order = torch.cat([torch.tensor([0]), between, torch.tensor([end - 1])])
                shares.append(float((said(torch.arange(end)) - said(order)).abs().sum() / 2))
            return sum(shares) / len(shares)

        seeing = moved()
        (part, rows, angles), = attention.rows_of(head, lambda: head(embeds[None].float(), states[:-1][None].float(), 1))
        first = float(part.weights(rows.float(), angles)[..., 1:, 0].mean())
        part.q_proj.weight.data.zero_()  # every row weighs alike now
        head.__dict__.pop("fused", None)
        blind = moved()
    assert seeing > 0.05 and first < 0.5, f"it moves by {seeing:.3f}, and {first:.0%} of its weight is on the first row"
    assert blind < 0.05, "what takes the text for a bag of words is found"
    forget()


def test_there_are_some():
    assert any(entry.kind == "eagle" for entry in SHIPPED)
