"""Sentences of `specviz labs`, by identifier."""

from __future__ import annotations

TEXTS = {
    "sandbox.time": "{name} did not answer within {seconds} seconds: look for a loop that does not end.",
    "sandbox.memory": "{name}{where} asked for more memory than a submission gets.",
    "sandbox.network": "{name} opened a network connection: a submission runs without network.",
    "sandbox.program": "{name} started another program: a submission is one process.",
    "sandbox.process": "{name} sent a signal to a process: a submission is alone.",
    "sandbox.ctypes": "{name} called a library through ctypes: plain Python, numpy and torch are enough.",
    "sandbox.import": "{name} imported {detail}: the part is to be written, not imported.",
    "sandbox.file": "{name} opened a file ({detail}): everything that is needed comes as an argument.",
    "sandbox.write": "{name} wrote to a file ({detail}): results are returned, not written.",
    "sandbox.missing": "{name} has no function {function}.",
    "sandbox.answer": "{name} returned something that cannot be sent back ({why}): numbers, lists and tensors can.",
    "sandbox.exception": "{name}{where}: {kind}: {message}",
    "sandbox.ended": "{name} ended its process (status {status}): most often too much memory or processor time.",
}
TEXTS |= {
    "answer.chain": "{name}: verify returned {answer}; it returns (number of accepted tokens, next token).",
    "answer.tree": "{name}: verify returned {answer}; it returns (list of accepted nodes, next token).",
    "answer.path": "{name}: verify returned {answer}; accepted nodes lead from a child of the root down, each below the one before.",
    "answer.range": "{name}: verify returned {answer}, but there are {nodes} drafted tokens, and token ids go from 0 to {last}.",
    "answer.none": "ANSWER is to hold {count} numbers.",
    "answer.wrong": "Number {which} of {count} in ANSWER is not right.",
    "answer.right": "All {count} numbers in ANSWER are right.",
    "greedy.equal": "At temperature 0 it writes the {tokens} tokens of plain decoding.",
    "greedy.differs": "At temperature 0 it differs from plain decoding at token {at}.",
    "small.equal": "On the small target, too, it writes the {tokens} tokens of plain decoding.",
    "small.differs": "On the small target it differs from plain decoding at token {at}.",
    "certificate.pass": "{tokens} sampled tokens follow the target's distribution (p = {p:.2g}).",
    "certificate.fail": "{tokens} sampled tokens do not follow the target's distribution (p = {p:.2g}).",
    "certificate.not_run": "Not tested, since decisions are wrong already.",
    "decisions.right": "{calls} drafts were accepted and rejected as the rule says ({tokens} tokens).",
    "decisions.known": "Yours behaves like {sentence}. Found after {tokens} tokens.",
    "decisions.impossible": "It wrote a token that the rule gives probability 0; found after {tokens} tokens.",
    "decisions.unknown": "It accepts, rejects or corrects with other probabilities than the rule, and like none of the known mistakes; "
    "found after {tokens} tokens.",
}
TEXTS |= {
    "answer.draft": "{name}: propose returned {answer}; it returns a list of token ids.",
    "answer.rates": "{name}: predict and choose returned {answer}; they return one rate for each draft length, and one of the lengths.",
    "drafts.right": "All drafts on {texts} texts are right.",
    "drafts.known": "Yours behaves like {sentence}. {wrong} of {texts} drafts differ.",
    "drafts.unknown": "{wrong} of {texts} drafts are wrong, and not in the way of a known mistake; the shortest one is in the figures.",
    "rates.right": "All predictions on {tables} machines are right.",
    "rates.known": "Yours behaves like {sentence}.",
    "rates.unknown": "Predictions on {wrong} of {tables} machines are wrong, and not in the way of a known mistake.",
    "choice.right": "The best draft length was chosen on all {tables} machines.",
    "choice.wrong": "On one machine the chosen draft length reaches {share} of the best rate.",
    "measured.right": "On the tiny models {gamma} is as fast as the best; {inside} of {count} predictions lie in their intervals.",
    "measured.wrong": "Measured on the tiny models, {gamma} is slower than {best}, beyond chance.",
}
TEXTS |= {
    "answer.feature": "{name}: feature returned {answer}; it returns one of the states, with its shape.",
    "answer.token_of": "{name}: token_of returned {answer}; it returns token ids.",
    "answer.whole": "{name}: {function} returns one whole number.",
    "answer.chat": "{name}: chat returned {answer}; it returns the text that the target reads.",
    "answer.heads": "{name}: predict returned {answer}; it returns whole numbers [n, {heads}].",
    "target.missing": "The small target cannot be loaded: {why}",
    "text.differs": "The text is not that of plain decoding.",
    "acceptance.right": "{rate:.2f} tokens per pass; the right wiring reaches {aim:.2f}.",
    "acceptance.low": "{rate:.2f} tokens per pass; the right wiring reaches {aim:.2f}.",
    "acceptance.known": "Yours behaves like {sentence}. {rate:.2f} tokens per pass; the right wiring reaches {aim:.2f}.",
    "heads.right": "Accuracy on new texts {right}; asked for: {aims}.",
    "heads.low": "Accuracy on new texts {right}; asked for: {aims}.",
    "heads.known": "Yours behaves like {sentence}. Accuracy on new texts {right}; asked for: {aims}.",
}
TEXTS |= {
    "start.name": "{name!r} is not a name: letters, digits, spaces and . @ + - are.",
    "start.exists": "{path} exists already: start in another folder.",
    "check.read": "{path} cannot be read: {why}.",
    "check.which": "{path} does not say which exercise it is of: keep the first line of the starter, or name one with --lab ({names}).",
    "labs.unknown": "There is no lab {name}; there are {names}.",
}
TEXTS |= {
    "wrong.none": "nothing",
    "wrong.yours": "Yours",
    "wrong.rule": "The rule",
    "wrong.page": "The first wrong decision",
    "wrong.round": "Of the draft {draft}, yours accepts {kept} and writes {token} in {yours} of {calls} calls, the rule in {share:.1%} of "
    "calls. The rule accepts {rule_kept} and writes {rule_token} in {rule_share:.1%}, yours in {rule_yours} of {calls}.",
    "wrong.greedy": "At temperature 0 the texts part in round {round}.",
    "wrong.draft": "After the text {text}, with {gamma} tokens asked for, yours drafts {draft}; the rule drafts {right}.",
    "wrong.wiring": "On the small target your wiring and the right one part in round {round}: the text stays the same, the draft does not.",
}
