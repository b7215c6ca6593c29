"""The run for programs: the same frames, the same limits, and a sentence for everything that cannot be
run."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from specviz.engine.messages import TEXTS
from specviz.lab.compare import OVER

from ..message_codes import codes
from .fake import FakeBackend


@pytest.fixture(scope="module")
def client(_server):
    return Client(_server.url, verbose=False)


def test_a_run_streams_the_frames_of_the_trace(client, backend):
    job = client.submit(
        prompt="tell of the fox", methods=["chain", "tree"], max_new_tokens=30, api_name="/run"
    )
    job.result(timeout=60)
    frames = [json.loads(line) for line in job.outputs()]
    told = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    assert frames[-1]["snap"] and frames[-1]["e"] == told and frames[-1]["status"]["state"] == "done"
    assert [r for f in frames[:-1] for r in f["e"]] == told
    assert [key for key, _ in backend.runs[0].lanes] == ["chain", "tree", "autoregressive"]


def test_a_cancelled_job_ends_the_run(client, backend):
    backend.hold(4)
    job = client.submit(prompt="tell of the fox", methods=["chain"], api_name="/run")
    for frame in job:
        if json.loads(frame)["e"]:
            break
    job.cancel()
    assert backend.idle()
    backend.hold(None)
    assert client.predict(prompt="again", methods=["chain"], max_new_tokens=5, api_name="/run")


@pytest.mark.parametrize(
    "given, code",
    [
        ({"prompt": ""}, "field.empty"),
        ({"prompt": None}, "field.empty"),
        ({"prompt": {"a": 1}}, "size.values"),
        ({"prompt": "x" * 5000}, "size.text"),
        ({"max_new_tokens": -1}, "field.range"),
        ({"max_new_tokens": 1e9}, "field.range"),
        ({"max_new_tokens": "abc"}, "field.number"),
        ({"max_new_tokens": None}, "field.number"),
        ({"temperature": 9}, "field.range"),
        ({"temperature": "hot"}, "field.number"),
        ({"methods": ["../../x"]}, "field.method"),
        ({"methods": None, "knobs": {"chain": 3}}, "field.knobs"),
        ({"target": "../../x"}, None),
        ({"repeats": 99}, "field.range"),
        ({"messages": [{"role": "root"}]}, "field.turns"),
    ],
)
def test_bad_values_get_a_sentence(client, backend, given, code):
    with pytest.raises(AppError) as refused:
        client.predict(**({"prompt": "hello", "methods": ["chain"]} | given), api_name="/run")
    assert code is None or code in codes(str(refused.value), TEXTS)
    assert backend.runs == [] or "target" in given


def test_null_for_everything_is_a_sentence_too(client):
    with pytest.raises(AppError) as refused:
        client.predict(*[None] * 11, api_name="/run")
    assert "field.empty" in codes(str(refused.value), TEXTS)


def test_the_methods_are_listed_with_their_knobs(client, backend):
    listed = client.predict(api_name="/methods")
    assert [m["key"] for m in listed] == list(backend.cards)
    assert "secret" not in json.dumps(listed)
    assert listed[1]["knobs"][0] == {
        "name": "gamma",
        "default": 4,
        "low": 1,
        "high": 8,
        "choices": [],
        "help": "draft tokens a round",
    }


def test_methods_are_compared_in_one_answer(client, backend):
    found = client.predict(
        prompt="tell of the fox",
        methods=["chain", {"method": "chain", "knobs": {"gamma": 1}}],
        max_new_tokens=30,
        api_name="/compare",
    )
    assert [(row["key"], row["knobs"].get("gamma")) for row in found["rows"]] == [
        ("chain", 4),
        ("chain", 1),
        ("autoregressive", None),
    ]
    assert (
        found["rows"][0]["walltime_speedup"] > 1
        and found["rows"][0]["block_efficiency"] > found["rows"][1]["block_efficiency"] > 1
    )
    assert found["same_text"] and [row["lane"] for row in found["rows"]] == [0, 1, 2]
    assert found["text"].startswith("You said: tell of the fox") and found["sentence"].startswith(
        "Draft chain is fastest: "
    )
    assert backend.runs[0].repeats == 3 and OVER.format(runs=3) in found["sentence"]
    with pytest.raises(AppError) as refused:
        client.predict(prompt="x", methods=["nope"], api_name="/compare")
    assert "field.method" in codes(str(refused.value), TEXTS)


def test_only_three_endpoints_are_offered(client):
    named = client.view_api(return_format="dict", print_info=False)
    assert (
        set(named["named_endpoints"]) == {"/run", "/compare", "/methods"} and not named["unnamed_endpoints"]
    )
    assert [p["parameter_name"] for p in named["named_endpoints"]["/run"]["parameters"]][:4] == [
        "prompt",
        "methods",
        "max_new_tokens",
        "temperature",
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"data": null}',
        b'{"data": []}',
        b'{"data": [NaN]}',
        b'{"data": ["x", ["chain"], 5, 0, 1, 0, {}, "", [], "", "more", 7]}',
        b'{"fn_index": "x", "data": []}',
    ],
)
def test_a_broken_body_never_gives_a_traceback(server, backend, body):
    for path in ("/gradio_api/call/run", "/gradio_api/queue/join", "/gradio_api/run/run"):
        code, said = _post(server.url.rstrip("/") + path, body)
        assert code < 500 or "Traceback" not in said, (path, code, said)
        assert "Traceback" not in said and "site-packages" not in said
    assert (
        _post(server.url.rstrip("/") + "/gradio_api/call/methods", json.dumps({"data": []}).encode())[0]
        == 200
    )


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "app.py", "../../../etc/passwd", "http://127.0.0.1:1/x", "http://169.254.169.254/"],
)
def test_no_file_of_ours_is_served(server, path):
    assert _get(server.url.rstrip("/") + "/gradio_api/file=" + path) in (403, 404)


def _get(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def _post(url, body):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
