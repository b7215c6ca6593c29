"""The gate before lookups, and what a visitor's runs leave behind: compatible, learned from drafts that
were never checked, bounded."""

from __future__ import annotations

import itertools

from specviz.core import Budget, Clock, Drafter, DraftTree, Origin, Outcome, State, Verdict
from specviz.drafters.lookup import cost_gate as rules
from specviz.drafters.lookup.cost_gate import AGREE, RIGHT, CostGate, DraftCost, first_nodes
from specviz.indexes.earlier_answers import TABLES, Memory
from specviz.methods.lookup import token_recycling

from .toys import kit, play_all

PLAIN, ROW = 1.0, 0.1  # seconds of a pass, and of each further row


class Told(Drafter):
    """Proposes what it is told to."""

    matched = 3

    def __init__(self, right):
        self.right, self.asked = right, 0

    def propose(self, state, budget):
        self.asked += 1
        count = len(state.tokens)
        return DraftTree.chain([(count + i) % 7 if self.right else 9 for i in range(min(8, budget.gamma))])


def write(gate, rounds, price=ROW, tick=0.0):
    """Nodes let through each round, while the text counts 0, 1, ... 6, 0, ...; a proposal takes ``tick``
    seconds."""
    ticks = itertools.count()
    state, out = State([0], clock=Clock(lambda: tick * next(ticks))), []
    gate.start(state, None, None)
    for _ in range(rounds):
        tree = gate.propose(state, Budget(8))
        path = []
        for i, token in enumerate(tree.tokens):
            if token != len(state.tokens) % 7:
                break
            path.append(i)
            state.tokens.append(token)
        state.tokens.append(len(state.tokens) % 7)
        seconds = {"verify": PLAIN + price * len(tree)}
        gate.observe(state, Outcome(tree, None, Verdict(tuple(path), 0, "bonus"), Budget(8), (), (), seconds))
        out.append(len(tree))
    return out


def test_good_drafts_pass_and_bad_ones_are_held_back():
    assert write(CostGate(Told(True)), 40)[-20:] == [8] * 20
    assert (
        sum(write(CostGate(Told(False)), 400)[50:]) <= 8
    )  # and what it costs to look again now and then is little


def test_with_free_rows_everything_passes():
    assert sum(write(CostGate(Told(False)), 400, price=0.0)) > sum(write(CostGate(Told(False)), 400))
    assert write(CostGate(Told(False), caution=0.0), 20) == [8] * 20


def test_it_learns_from_drafts_it_held_back():
    """A drafter that was wrong for long and is right from now on is let through again, although nothing of
    it was checked."""
    drafter = Told(False)
    gate = CostGate(drafter)
    write(gate, 100)
    rates = gate.success_rate(3).value
    start, gate.start = gate.start, lambda *args: None  # the run goes on
    drafter.right = True
    passed = write(gate, 100)
    assert rates < 0.1 and passed[0] == 0 and passed[-20:] == [8] * 20
    gate.start = start


def test_a_costly_lookup_that_finds_nothing_rests():
    for right, tick, asked in ((False, 0.001, (100, 100)), (False, 0.5, (8, 40)), (True, 0.5, (100, 100))):
        drafter = Told(right)
        write(CostGate(drafter), 100, tick=tick)
        assert asked[0] <= drafter.asked <= asked[1]


def test_a_price_measured_in_a_bad_moment_is_doubted():
    price = DraftCost()
    for nodes, seconds in ((0, 1.0), (8, 100.0)):
        price.learn(nodes, seconds)
    steep = price.first + 8 * price.row
    for _ in range(300):
        price.learn(0, 1.0)
    assert steep > 2 and price.first + 8 * price.row < 1.2 * (rules.FIRST + 8 * rules.ROW)


def test_the_price_is_the_line_through_what_was_measured():
    """A first row may cost much more than each further one, as on a CPU, or nothing more."""
    for first, row in ((0.3, 0.05), (0.0, 0.1), (0.0, 0.0), (0.6, 0.01)):
        price = DraftCost()
        for i in range(200):
            nodes = (0, 1, 4, 15, 31)[i % 5]
            price.learn(nodes, 0.004 * (1 + (first + row * nodes) * (nodes > 0)))
        for nodes in (1, 8, 31):
            assert abs(price.first + nodes * price.row - first - row * nodes) < 0.02
        assert price.first >= 0 and price.row >= 0
    falling = DraftCost()
    for i in range(60):
        falling.learn((0, 2, 30)[i % 3], (1.0, 3.0, 1.1)[i % 3])
    assert falling.first >= 0 and falling.row == 0


def test_expected_tokens_are_weighed_against_the_price():
    """Against every count tried by hand: a chain whose next token is right with the chance of as many
    tokens that agree."""
    gate = CostGate(Told(True))
    gate.start(State([0]), None, None)
    for agree in (0, 1, 2, 3, 6, 12, 40):
        rates = [RIGHT[max(i for i, n in enumerate(AGREE) if n <= agree + deep)] for deep in range(20)]
        paces = [1.0]
        prob = 1.0
        hoped = 0.0
        for count, rate in enumerate(rates, 1):
            prob *= min(0.995, rate)
            hoped += prob
            paces.append((1 + hoped) / (1 + rules.FIRST + rules.ROW * count))
        best = max(range(21), key=lambda n: paces[n])
        assert gate.best_count(DraftTree.chain(range(20)), agree) == best
    assert (
        gate.best_count(DraftTree.chain(range(20)), 40) == 20
        and gate.best_count(DraftTree.chain(range(20)), 0) == 0
    )
    gate.caution = 4.0
    assert gate.best_count(DraftTree.chain(range(20)), 2) == 0


def test_agreement_is_counted_in_the_text_and_believed_elsewhere():
    def tree(source, start):
        return DraftTree((7,), (-1,), (-1,), origin=(Origin(source, start, start + 1),))

    gate = CostGate(Told(True))
    text = [5, 1, 2, 3, 4, 7, 9, 1, 2, 3, 4]
    assert gate.matching_tokens(tree("context", 5), text) == 4  # the drafter said 3: it looks no further back
    assert (
        gate.matching_tokens(tree("context", 1), [4, 7, 4]) == 1
        and gate.matching_tokens(tree("context", 2), text) == 0
    )
    assert (
        gate.matching_tokens(tree("text", 5), text) == 1
        and gate.matching_tokens(DraftTree.chain([7]), text) == 3
    )
    assert gate.matching_tokens(tree("context", 99), [3] * 100) == AGREE[-1]


def test_trees_are_cut_at_their_end_and_followed_to_a_leaf():
    gate = CostGate(Told(True))
    gate.start(State([0]), None, None)
    tree = DraftTree((1, 2, 3), (-1, -1, 1), (-1, -1, -1))
    before = gate.success_rate(3).value, gate.success_rate(4).value
    assert (
        not gate.compare_with_text([tree, -1, 1, 3], [0, 2, 3, 5])
        and gate.success_rate(3).value > before[0]
        and gate.success_rate(4).value > before[1]
    )
    assert gate.compare_with_text([tree, -1, 1, 3], [0, 2])
    before = gate.success_rate(4).value
    assert not gate.compare_with_text([tree, -1, 1, 3], [0, 2, 4]) and gate.success_rate(4).value < before
    assert not gate.compare_with_text([tree, -1, 1, 3], [0, 4])


def test_a_cut_keeps_the_front_of_the_draft_and_says_so():
    gate = CostGate(Told(True))
    gate.start(State([0]), None, None)
    state = State([0])
    gate.best_count = lambda tree, agree: 3
    tree = gate.propose(state, Budget(8))
    assert tree.tokens == (1, 2, 3) and state.notes[-1][1]["kept"] == 3 and state.notes[-1][1]["found"] == 8
    assert {tree.label(i) for i in range(3)} == {"chosen"} and tree.depths == (1, 2, 3)
    assert (
        first_nodes(DraftTree((7,), (-1,), (-1,), origin=(Origin("text", 4, 5),)), 1).origin[0].start == 4
        and len(first_nodes(tree, 0)) == 0
    )
    assert len(gate.waiting[0][0]) == 8  # all of it is compared with what is written


class Long(Told):
    """A drafter that copies as far as it may, and tells what it did."""

    def propose(self, state, budget):
        self.asked += 1
        state.note("threshold", value=budget.gamma)
        count = len(state.tokens)
        return DraftTree.chain([(count + i) % 7 if self.right else 9 for i in range(budget.gamma)])


def test_a_long_draft_is_asked_for_where_a_short_one_promises():
    for right, agree, asked in ((True, 20, (8, 30)), (True, 1, (8,)), (False, 1, (8,))):
        drafter = Long(right)
        drafter.matched = agree
        gate, state = CostGate(drafter), State([0])
        gate.start(state, None, None)
        tree = gate.propose(state, Budget(30))
        notes = [data["value"] for kind, data in state.notes if kind == "threshold"]
        assert drafter.asked == len(asked) and notes == [
            asked[-1]
        ]  # the short one is not told when it was asked again
        assert len(tree) > 8 if len(asked) == 2 else len(tree) <= 8
    drafter.asked = 0
    gate.propose(State([0]), Budget(8))
    assert drafter.asked == 1


def test_memory_forgets_the_oldest_and_never_grows():
    memory = Memory(capacity=100)
    for i in range(300):
        memory.add([i] * (i % 40 + 1))
        assert sum(map(len, memory.answers)) <= 100
    assert memory.since(0) == list(memory.answers) and memory.since(memory.taken) == []
    assert memory.since(memory.taken - 2) == list(memory.answers)[-2:]
    last = memory.answers[-1]
    memory.add(last)
    memory.add([])
    assert memory.taken == 300 and list(memory.answers).count(last) == 1
    memory.add(range(1000))
    assert list(memory.answers) == [tuple(range(900, 1000))]
    for i in range(99):
        memory.table(i, list).append(i)
    assert memory.table(98, list) == [98] and memory.table(0, list) == [] and len(memory._tables) <= TABLES


def test_memory_of_another_target_is_forgotten():
    memory = Memory()
    memory.clear_unless_mark("a")
    memory.add([1, 2])
    memory.table("t", dict)["x"] = 1
    memory.clear_unless_mark("a")
    assert len(memory.answers) == 1
    memory.clear_unless_mark("b")
    assert not memory.answers and memory.table("t", dict) == {} and memory.taken == 0


def test_a_hot_table_goes_on_where_the_last_run_ended():
    """Token recycling's table after two runs is the replay of all rows of both, in order; without memory
    only the second's."""
    for start in ("hot", "empty"):
        one, table = kit(12, 1, memory=Memory()), {}
        for prompt in ([3, 7, 1], [7, 7, 2]):
            table = table if start == "hot" else {}
            for a, b in zip(prompt, prompt[1:]) if start == "hot" else ():
                table[a] = [b, *(x for x in table.get(a, []) if x != b)][:8]
            parts = token_recycling.METHOD.build(one, **token_recycling.METHOD.read_knobs({"start": start}))
            _, outcomes, state = play_all(None, one, prompt, 20, parts=parts)
            at = len(prompt)
            for outcome in outcomes:
                for token, row in zip((state.tokens[at - 1], *outcome.tree.tokens), outcome.scores.logits):
                    table[token] = row.argsort(descending=True)[:8].tolist()
                at += len(outcome.committed)
            assert parts.drafter.successors == table and len(table) <= one.vocab
        reported = [data for kind, data in state.notes if kind == "successors"]
        assert len(reported) == len(outcomes) and all(
            len(row["tokens"]) <= 8 for one_round in reported for row in one_round["rows"]
        )
