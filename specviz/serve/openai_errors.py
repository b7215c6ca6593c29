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
            "param": why.values.get("field") or _param(why.code),
        }
    }


def _param(code: str) -> str | None:
    """Return the field of an error of the engine, where its code names one."""
    from .openai_fields import REQUEST_FIELDS

    family, _, name = code.partition(".")
    if family == "request" and name in REQUEST_FIELDS:
        return name
    return "response_format" if family == "format" else None


def refusal(why: Refused) -> Response:
    """Return the HTTP response of a refusal."""
    status, body = error_object(why)
    return JSONResponse(body, status, {"retry-after": RETRY_SECONDS} if status in (429, 503) else None)
