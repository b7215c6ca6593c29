"""Errors of the OpenAI-compatible endpoint in OpenAI's form."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from ..engine.messages import Refused

STATUS = {
    "openai.key": 401,
    "openai.model": 404,
    "openai.route": 404,
    "openai.trace": 404,
    "run.crashed": 500,
    "run.memory": 503,
    "run.silent": 503,
    "hub.unreachable": 503,
    "models.failed": 500,
    "models.memory": 503,
}
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
PARAMS = {
    "openai.model": "model",
    "openai.messages": "messages",
    "field.conversation": "messages",
    "field.method": "speculative",
    "field.knob": "speculative",
    "prompt.ids": "prompt",
    "request.stop_length": "stop",
}
RETRY_SECONDS = "1"  # of a request that came while the queue was full


def error_object(why: Refused) -> tuple[int, dict[str, Any]]:
    """Return (HTTP status, error object in OpenAI's form) of a refusal."""
    family = why.code.partition(".")[0]
    status = STATUS.get(why.code) or {"size": 413, "queue": 429, "budget": 429}.get(family, 400)
    return status, {
        "error": {
            "message": str(why),
            "type": TYPES.get(status, "invalid_request_error"),
            "code": why.code,
            "param": why.values.get("field") or _param(why),
        }
    }


def _param(why: Refused) -> str | None:
    """Return the field of an error of the engine, where its code or the first word of its sentence names one."""
    from .openai_fields import REQUEST_FIELDS

    if why.code in PARAMS:
        return PARAMS[why.code]
    family, _, name = why.code.partition(".")
    words = str(why).split(maxsplit=1)
    for one in (name, words[0].rstrip(":").lower() if words else ""):
        if family == "request" and one in REQUEST_FIELDS:
            return one
    return "response_format" if family == "format" else None


def refusal(why: Refused) -> Response:
    """Return the HTTP response of a refusal."""
    status, body = error_object(why)
    return JSONResponse(body, status, {"retry-after": RETRY_SECONDS} if status in (429, 503) else None)
