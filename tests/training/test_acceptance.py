import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.training import acceptance
from specviz.training.text_answers import Answer

VOCAB = 12


def model(seed, scale):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
        initializer_range=scale,
    )
    return LlamaForCausalLM(config).eval()


@torch.inference_mode()
def probs(net, ids):
    return net(torch.tensor([ids])).logits[0, -1].float().softmax(-1)


def answer(ids, start, distributions, greedy):
    top = [p.log().topk(VOCAB) for p in distributions]
    return Answer(
        torch.tensor(ids),
        start,
        "chat",
        0.0 if greedy else 1.0,
        torch.stack([t.indices for t in top]),
        torch.stack([t.values for t in top]),
    )


def greedy_answer(net, prompt, count):
    ids, distributions = list(prompt), []
    for _ in range(count):
        distributions.append(probs(net, ids))
        ids.append(int(distributions[-1].argmax()))
    return answer(ids, len(prompt), distributions, True)


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_greedy_replay_is_the_real_loop(gamma):
    target, draft = model(0, 0.4), model(3, 0.4)
    rounds = committed = 0
    answers = [greedy_answer(target, [first, 1], 24) for first in range(VOCAB)]
    for a in answers:
        ids, place = a.ids.tolist(), a.start
        while place < len(ids):
            drafted = ids[:place]
            for _ in range(gamma):
                drafted.append(int(probs(draft, drafted).argmax()))
            taken = 0
            while taken < gamma and place + taken < len(ids) and drafted[place + taken] == ids[place + taken]:
                taken += 1
            committed += min(taken + 1, len(ids) - place)
            rounds += 1
            place += taken + 1
    found = acceptance.replay_rounds(acceptance.accepted_tokens(draft, answers), gamma)
    assert found["block_efficiency"] == pytest.approx(committed / rounds, abs=1e-4)


def test_a_draft_that_is_the_target_is_always_accepted():
    target = model(0, 0.4)
    rows = acceptance.accepted_tokens(target, [greedy_answer(target, [2, 1], 20)])
    assert all(rows[0])
    assert acceptance.replay_rounds(rows, 4) == {
        "block_efficiency": 5.0,
        "acceptance_rate": 1.0,
        "by_position": [1.0] * 4,
    }


def test_at_temperature_one_the_share_accepted_is_the_overlap_of_the_distributions():
    target, draft = model(0, 0.6), model(3, 0.6)
    p, q = probs(target, [2, 1]), probs(draft, [2, 1])
    tokens = torch.multinomial(p, 1500, replacement=True, generator=torch.Generator().manual_seed(0))
    answers = [answer([2, 1, int(token)], 2, [p], False) for token in tokens]
    share = sum(row[0] for row in acceptance.accepted_tokens(draft, answers)) / len(answers)
    assert share == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.04)


def test_the_mean_counts_every_task_once():
    target = model(0, 0.4)
    one = greedy_answer(target, [2, 1], 9)
    two = Answer(one.ids, one.start, "math", 0.0, one.top_ids, one.top_logp)
    found = acceptance.tables(model(3, 0.4), [one, one, one, two], 4)["greedy"]
    assert found["mean"]["block_efficiency"] == pytest.approx(found["chat"]["block_efficiency"])
    assert set(found) == {"chat", "math", "mean"}
