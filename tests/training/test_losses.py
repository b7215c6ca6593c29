import pytest
import torch
from torch.nn import functional as F

from specviz.training import divergences, losses
from specviz.training.losses import distil, next_token


def leaders(logits, top):
    best = logits.log_softmax(-1).topk(top)
    return best.indices, best.values


def kl(draft, target, top):
    """Through an identity head, so that the draft's logits are what is given."""
    labels = torch.zeros(len(draft), dtype=torch.long)
    return distil(draft, torch.eye(draft.shape[1]), *leaders(target, top), labels)


def plain(hidden, head, ids, logp, labels, hard_label_weight):
    """The same loss in plain operations."""
    logq_all = (hidden @ head.T).log_softmax(-1)
    q, p = logq_all.gather(1, ids), logp.exp()
    p_rest, q_rest = 1 - p.sum(-1), 1 - q.exp().sum(-1)
    soft = (p * (logp - q)).sum(-1) + p_rest * (p_rest.log() - q_rest.log())
    return soft.mean() + hard_label_weight * F.nll_loss(logq_all, labels)


@pytest.mark.parametrize("hard_label_weight", [0.0, 0.3])
def test_value_and_gradients_are_those_of_plain_operations(hard_label_weight, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK", 4)  # ten positions: two whole chunks and a part
    torch.manual_seed(0)
    hidden, head = torch.randn(10, 6), torch.randn(30, 6)
    ids, logp = leaders(torch.randn(10, 30), 5)
    labels = torch.randint(0, 30, (10,))
    found = []
    for loss in (distil, plain):
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        value = loss(h, w, ids, logp, labels, hard_label_weight)
        (3 * value).backward()
        found.append((value.detach(), h.grad, w.grad))
    for ours, theirs in zip(*found):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_cross_entropy_is_cross_entropy():
    torch.manual_seed(1)
    hidden, head = torch.randn(7, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    labels = torch.randint(0, 11, (7,))
    ours = torch.autograd.grad(next_token(hidden, head, labels), (hidden, head))
    theirs = torch.autograd.grad(F.cross_entropy(hidden @ head.T, labels), (hidden, head))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs))


def test_with_every_token_kept_it_is_the_whole_divergence():
    torch.manual_seed(0)
    target, draft = torch.randn(5, 12), torch.randn(5, 12)
    whole = F.kl_div(draft.log_softmax(-1), target.log_softmax(-1), log_target=True, reduction="batchmean")
    assert torch.allclose(kl(draft, target, 12), whole, atol=1e-4)


def test_fewer_leaders_give_a_lower_bound_that_vanishes_at_the_target():
    torch.manual_seed(1)
    target, draft = torch.randn(5, 40), torch.randn(5, 40)
    bounds = [float(kl(draft, target, top)) for top in (1, 4, 16, 40)]
    assert bounds == sorted(bounds)
    assert abs(float(kl(target, target, 4))) < 1e-5


def test_it_points_a_draft_at_the_target():
    torch.manual_seed(2)
    target, draft = torch.randn(3, 20), torch.zeros(3, 20, requires_grad=True)
    optimiser = torch.optim.Adam([draft], lr=0.1)
    for _ in range(400):
        optimiser.zero_grad()
        kl(draft, target, 6).backward()
        optimiser.step()
    q, (ids, logp) = draft.softmax(-1), leaders(target, 6)
    assert torch.allclose(q.gather(1, ids), logp.exp(), atol=1e-2)


@pytest.mark.parametrize("name", ["forward_kl", "reverse_kl", "jensen_shannon", "total_variation"])
def test_each_divergence_has_its_own_slope_and_vanishes_at_the_target(name):
    """Against plain operations on the leaders and what is left, walked back by autograd; values by what
    they are defined as."""
    torch.manual_seed(3)
    logits = torch.randn(8, 20)
    target = torch.randn(8, 20)
    head = torch.eye(20)
    ids, logp = leaders(target, 5)
    labels, p = torch.randint(0, 20, (8,)), torch.cat([logp.exp(), 1 - logp.exp().sum(-1, keepdim=True)], 1)

    def defined(logits):
        q = logits.softmax(-1).gather(1, ids)
        q = torch.cat([q, 1 - q.sum(-1, keepdim=True)], 1)
        middle, kl = (p + q) / 2, lambda a, b: (a * (a / b).log()).sum(-1)
        return {
            "forward_kl": kl(p, q),
            "reverse_kl": kl(q, p),
            "jensen_shannon": (kl(p, middle) + kl(q, middle)) / 2,
            "total_variation": 1 - torch.minimum(p, q).sum(-1),
        }[name].mean()

    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found, wanted = distil(ours, head, ids, logp, labels, divergence=name), defined(theirs)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), abs=1e-5)
    assert torch.allclose(
        *(torch.autograd.grad(value, at)[0] for value, at in ((found, ours), (wanted, theirs))), atol=1e-5
    )
    assert float(distil(target, head, ids, logp, labels, divergence=name)) == pytest.approx(0, abs=1e-5)


def test_tvdpp_climbs_as_total_variation_does():
    """Its slope, drawn, is the total variation's over the rewards' deviation; without the reward's mean it
    would be as right and noisier, so the noise is looked at, too."""
    rows = 60_000
    p, q = torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), torch.tensor([0.2, 0.25, 0.15001, 0.39999]).log()
    value, slope = divergences.tvdpp(p.expand(rows, 4), q.expand(rows, 4), torch.Generator().manual_seed(0))
    assert torch.allclose(value, (p.exp() - q.exp()).abs().sum() / 2)
    likelier = q.exp()[:2].sum()  # the reward's mean
    deviation = (likelier * (1 - likelier)).sqrt()
    by_logits = slope - q.exp() * slope.sum(-1, keepdim=True)
    whole = divergences.total_variation(p[None], q[None])[1][0]
    wanted = whole - q.exp() * whole.sum()
    assert torch.allclose(by_logits.mean(0) * deviation, wanted, atol=4e-3)
    assert abs(float(slope.sum(-1).mean())) < 1e-2, "rewards are told from their mean"
    assert float(slope.sum(-1).std()) == pytest.approx(1, abs=1e-2)


def test_drawn_negatives_stand_for_the_whole_vocabulary():
    torch.manual_seed(1)
    hidden, head = torch.randn(40, 8), torch.randn(4000, 8)
    labels = torch.randint(0, 4000, (40,))
    ids, logp = leaders(hidden @ head.T * 0.7, 6)
    whole = distil(hidden, head, ids, logp, labels, 0.2)
    every = distil(
        hidden, head, ids, logp, labels, 0.2, negatives=10**6
    )  # so many draws that each token is among them
    assert torch.allclose(whole, every, atol=1e-4)
    few = distil(hidden, head, ids, logp, labels, 0.2, negatives=1500)
    assert abs(float(few - whole)) < 0.05
    rows, log_weights = losses.sampled_rows(4000, torch.tensor([7, 3, 3999, 7]), 100)
    assert rows.tolist() == sorted(set(rows.tolist())) and {3, 7, 3999} <= set(rows.tolist())
    assert not log_weights[torch.isin(rows, torch.tensor([3, 7, 3999]))].any()
    assert 0.5 < float(log_weights.exp().sum()) / 4000 < 1.5
