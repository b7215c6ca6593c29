"""What real servers refuse, and what they leave out unless a request asks for it, read in their sources
(vLLM 0.32, SGLang and TensorRT-LLM of autumn 2026, llama.cpp, mlx-vlm). Where a real server ignores an unknown
field or a wrong type without a word, the fake refuses it: such a field would be a silent mistake of ours."""

from __future__ import annotations

import json
from typing import Any

COMMON: dict[str, Any] = {
    "model": str,
    "messages": list,
    "max_tokens": int,
    "temperature": float,
    "top_p": float,
    "seed": int,
    "stream": bool,
    "stream_options": dict,
}
EXTRA: dict[str, dict[str, Any]] = {  # engine -> its own fields among those that we may send
    "openai": {},  # a top_k is refused there
    "vllm": {"top_k": int, "min_p": float, "repetition_penalty": float, "return_token_ids": bool},
    "sglang": {"top_k": int, "min_p": float, "return_token_ids": bool, "return_spec_tokens_details": bool},
    "trtllm": {"top_k": int, "min_p": float, "repetition_penalty": float},  # extra="forbid"
    "llamacpp": {"top_k": int, "min_p": float, "repeat_penalty": float, "timings_per_token": bool},
    "mlxvlm": {"top_k": int, "min_p": float, "repetition_penalty": float},
}


def refusal(engine: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return (status, error object in the engine's form) if it refuses the request."""
    why = _why(engine, body)
    if why is None:
        return None
    field, words = why
    if engine == "mlxvlm":  # FastAPI's own
        return 422, {"detail": [{"type": "value_error", "loc": ["body", field], "msg": words, "input": None}]}
    words = f"{field}: {words}"
    if engine in ("sglang", "trtllm"):
        return 400, {"object": "error", "message": words, "type": "BadRequestError", "code": 400}
    return 400, {"error": {"message": words, "type": "invalid_request_error", "param": field, "code": 400}}


def _why(engine: str, body: dict[str, Any]) -> tuple[str, str] | None:
    types = COMMON | EXTRA[engine]
    for name, value in body.items():
        if name not in types:
            return name, "Extra inputs are not permitted"
        right = (int, float) if types[name] is float else types[name]
        if not isinstance(value, right) or isinstance(value, bool) != (types[name] is bool):
            return name, f"Input should be a valid {types[name].__name__}"
    if any(set(message) != {"role", "content"} for message in body["messages"]):
        return "messages", "Field required"
    if body.get("stream_options") is not None and not body.get("stream"):
        return "stream_options", "can only be set if stream is true"
    if not 0 < body["top_p"] <= 1:
        return "top_p", f"must be in (0, 1], got {body['top_p']}"
    if engine == "sglang" and body.get("top_k", -1) < 1 and body.get("top_k", -1) != -1:
        return "top_k", "must be -1 (disable) or at least 1"
    if engine == "sglang" and body.get("stream") and body.get("return_token_ids"):
        return "return_token_ids", "is not supported with streaming on /v1/chat/completions"
    if (
        engine == "llamacpp" and not 0 <= body["seed"] < 2**32 - 1
    ):  # cut to 32 bits, and the largest is random
        return "seed", "is not what will be used"
    return None


def sent(engine: str, body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the engine sends of a recorded message for this request; None if nothing."""
    out = json.loads(json.dumps(message))
    usage = (body.get("stream_options") or {}).get("include_usage")
    if not usage and out.get("choices") == []:  # the last message: usage, and what comes with it
        return None
    if not usage:
        out.pop("usage", None)
    choices = [one for one in out.get("choices") or [] if isinstance(one, dict)]
    if engine == "sglang" and not body.get("return_spec_tokens_details"):
        out.pop("sglext", None)
    if engine not in ("vllm", "sglang") or not body.get("return_token_ids"):
        for choice in choices:
            choice.pop("token_ids", None)
    ends = not choices or any(one.get("finish_reason") for one in choices)
    if engine == "llamacpp" and not (body.get("timings_per_token") or ends):
        out.pop("timings", None)
    if engine == "mlxvlm" and choices and "timings" in out:
        out["timings"] = {"predicted_per_second": 1.0}
    return out


def stream(engine: str, body: dict[str, Any], answer: bytes) -> bytes:
    """Return a recorded answer as the engine sends it for this request. What is no message stays."""
    parts = []
    for part in answer.split(b"\n\n"):
        if part.startswith(b"data: {"):
            try:
                message = sent(engine, body, json.loads(part[6:]))
            except (ValueError, RecursionError):  # a broken one of another test
                message = part
            if message is None:
                continue
            part = part if isinstance(message, bytes) else b"data: " + json.dumps(message).encode()
        parts.append(part)
    return b"\n\n".join(parts)
