"""Chat templates of a model's folder that attack: they reach nothing of Python, and end."""

from __future__ import annotations

import copy

import pytest

from specviz import load
from specviz.run.request import SessionError
from specviz.zoo import chat_template
from specviz.zoo.chat_template import TemplateBound
from specviz.zoo.text import encode_chat

TALK = [{"role": "user", "content": "hi"}]
ATTACKS = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ self.__init__.__globals__ }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}{{ m.__globals__ }}",
    "globals of a helper": "{{ raise_exception.__globals__ }}{{ strftime_now.__globals__ }}",
    "a message changed": "{{ messages.append(1) }}",
    "a namespace of Python": "{{ namespace.__init__.__globals__ }}",
    "a file": "{% include '/etc/passwd' %}",
    "another template": "{% import 'x' as x %}",
    "a huge range": "{% for i in range(10 ** 10) %}x{% endfor %}",
    "a macro without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a namespace that doubles": "{% set n = namespace(a='aaaaaaaa') %}{% for i in range(20) %}{% set n.a = n.a ~ n.a %}"
    "{% endfor %}{{ n.a }}",
    "format strings": "{{ '{0.__class__}'.format(messages) }}",
    "attributes by name": "{{ messages | attr('__class__') }}",
    "attributes by map": "{{ messages | map(attribute='__class__') | list }}",
}


@pytest.fixture(scope="module")
def tokenizer():
    return copy.deepcopy(load("Llama-specviz-16M", device="cpu").tokenizer)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_template_reaches_nothing_and_ends(tokenizer, monkeypatch, name):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    tokenizer.chat_template = ATTACKS[name]
    given = copy.deepcopy(TALK)
    try:
        shown = tokenizer.decode(encode_chat(tokenizer, given))
    except Exception as error:  # a run reports it by its message, as "prompt.template"
        shown = str(error)
    assert given == TALK
    assert not any(word in shown for word in ("<class", "<module", "builtins", "root:", "subprocess"))


@pytest.mark.parametrize("name", ["nested loops", "a namespace that doubles"])
def test_what_a_template_may_take_is_bounded(tokenizer, monkeypatch, name):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    tokenizer.chat_template = ATTACKS[name]
    with pytest.raises(TemplateBound):
        encode_chat(tokenizer, TALK)


def test_a_run_is_refused_by_its_code(monkeypatch):
    from specviz import Session

    loaded = load("Llama-specviz-16M", device="cpu")
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    monkeypatch.setattr(loaded.tokenizer, "chat_template", ATTACKS["nested loops"])
    with pytest.raises(SessionError) as refused:
        Session(loaded, "autoregressive").encode(TALK)
    assert refused.value.code == "prompt.template"
