"""What the endpoint under /v1 says when something went wrong: one envelope, for every path and every failure.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

| Status | When |
|---|---|
| 400 | the request cannot be used; it went round in a circle; it is too long for a member |
| 401 | the API key is missing or wrong |
| 402 | a budget of the run or the day was reached before there was an answer |
| 403, 404, 405, 408, 413 | another site; unknown path or model; wrong method; body too slow; body too large |
| 429 | too many runs at once here, or a provider's rate limit |
| 500 | a fault of this program |
| 502, 504 | members failed; they did not answer in time |
| 503 | the coordinator did not load, the run was stopped, or a member rests after failures |

Invariants: a message never holds a key or an address, and an exception that nobody foresaw is named by its run alone.
`x-should-retry: false` stands on every failure that was already retried here, or that no retry can mend.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from trinity_core import wire
from trinity_core.types import RunFinished, Status, StopReason, TurnFinished

PREFIX = "/v1"
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>)\]]+", re.IGNORECASE)
_LONGEST = 1200
"""Characters of a message; what members said is cut there."""
_OWN = {"BackboneError", "CheckpointError"}
_UPSTREAM: Mapping[str, tuple[int, str]] = {
    "rate_limit": (429, "upstream_rate_limit"),
    "resting": (503, "upstream_resting"),
    "timeout": (504, "upstream_timeout"),
    "budget": (402, "budget_exceeded"),
    "context_length": (400, "context_length_exceeded"),
}
_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A request that gets no answer. `str(error)` is the message for the client."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def type(self) -> str:
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def envelope(self) -> dict[str, Any]:
        """The body of the error, also inside a stream."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}

    def response(self, request_id: str) -> Response:
        """The whole answer. A client is told to try again only where it is sent a time to wait."""
        headers = {"x-request-id": request_id, **self.headers}
        if "retry-after" not in headers:
            headers["x-should-retry"] = "false"
        return json_response(self.envelope(), self.status, headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as an ASCII JSON body, which no client can cut at an odd line separator."""
    return Response(wire.line(value).encode("ascii"), status, dict(headers or {}), "application/json")


def is_api(path: str) -> bool:
    """Whether a path, without the prefix of a proxy, belongs to the endpoint."""
    return path == PREFIX or path.startswith(PREFIX + "/")


def safe_words(text: str) -> str:
    """What a member or a library said, on one line, without keys and addresses."""
    return " ".join(_URL.sub("[address]", wire.redact(text)).split())


def run_failed(end: RunFinished, turns: Sequence[TurnFinished]) -> ApiError:
    """The error of a run that ended without an answer; `turns` are its finished calls, failed ones included."""
    where = f"The run is stored as {end.run_id}; Traces shows it in full."
    if end.status is Status.CANCELLED:
        return ApiError(f"The run was stopped before it had an answer. {where}", 503, code="run_cancelled")
    if end.stop_reason is StopReason.BUDGET:
        return ApiError(
            f"A budget was reached before there was an answer. Raise it, or ask for less. {where}",
            402,
            code="budget_exceeded",
        )
    kind = end.error.kind if end.error is not None else ""
    if kind in _OWN and end.error is not None:
        return coordinator_missing(f"{end.error.message} {where}")
    failed = [turn for turn in turns if turn.error is not None and turn.error.kind != "cancelled"]
    failed = [turn for turn in failed if turn.turn == failed[-1].turn]
    if failed:
        return _upstream(failed, where)
    if kind == "budget" and end.error is not None:
        return ApiError(f"{safe_words(end.error.message)} {where}", 402, code="budget_exceeded")
    if end.status is Status.DONE:
        return ApiError(f"upstream error: no member gave an answer. {where}", 502, code="no_answer")
    return ApiError(f"Trinity itself failed; its log says how. {where}", 500, code="internal_error")


def coordinator_missing(message: str) -> ApiError:
    return ApiError(
        f"The coordinator is not ready: {safe_words(message)} Ask a single member by its name instead.",
        503,
        code="coordinator_unavailable",
    )


def _upstream(failed: Sequence[TurnFinished], where: str) -> ApiError:
    """Every attempt of the last turn failed."""
    said = []
    kinds = set()
    for turn in failed:
        assert turn.error is not None
        kinds.add(turn.error.kind)
        who = f"{turn.agent} as {turn.role.value}" if turn.role else turn.agent
        foreseen = turn.error.kind != "internal"
        said.append(f"{who}: {safe_words(turn.error.message).rstrip('.') if foreseen else 'an unforeseen fault'}")
    status, code = _UPSTREAM.get(kinds.pop(), (502, "upstream_error")) if len(kinds) == 1 else (502, "upstream_error")
    message = f"upstream error in turn {failed[-1].turn}: {'; '.join(said)}"
    if len(message) > _LONGEST:
        message = message[: _LONGEST - 1] + "…"
    return ApiError(f"{message}. {where}", status, code=code)
