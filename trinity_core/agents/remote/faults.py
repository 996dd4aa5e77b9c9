"""What a provider's failure means: one table from any status and any body to a typed AgentError.

Error bodies come as objects, texts, lists, web pages or nothing, in any language, from the provider or from a proxy
before it. `fault` never raises: what it cannot read it shows as it came. Its order is: a prompt too long, money, the
key, too many requests, a passing failure, a request that will never do. Codes and types count before the status,
because providers send spent credit as 429 and a wrong key as 400; words count only where no provider uses them for
something else.

Invariants: a message never holds a key, gives at most 300 characters of the provider's words, and ends with what to
do. Only too many requests and passing failures are retryable, and a server's `x-should-retry: false` is believed.
Not covered: what one provider alone says in its own way (Google's `retryDelay`); its format adds that.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from trinity_core import wire
from trinity_core.errors import AgentError

SHOWN = 300
"""Most characters of a provider's own words in a message."""
_EXCERPT = 120
_READ = 20_000
"""Characters of a body in which words are looked for: an error needs fewer, a web page may have millions."""

# --- Codes and words -------------------------------------------------------------------------------------------

_CONTEXT_CODES = re.compile(r"context_length_exceeded|exceed_context_size_error|contextwindowexceedederror")
_CONTEXT_WORDS = re.compile(
    r"maximum context length|context[ _](?:length|size|window)\b.{0,60}\b(?:exceed|overflow|only|too)"
    r"|exceed\w*\b.{0,60}\bcontext\b|(?:prompt|input) (?:is )?too long|input token count\b.{0,40}\bexceeds"
    r"|context the overflows|longer than the model['’]?s? context|contextwindowexceeded",
    re.IGNORECASE | re.DOTALL,
)
_BILLING_CODES = re.compile(
    r"insufficient_(?:quota|balance|credits?|funds)|credit_balance_exhausted|\w*spend_limit_(?:exceeded|reached)"
    r"|organization_usage_limit_exceeded|billing_(?:error|hard_limit_reached|not_active)|budget_exceeded"
)
_BILLING_WORDS = re.compile(
    r"credit balance is too low|insufficient (?:balance|credits?|funds)|budget has been exceeded"
    r"|reached your specified api usage limits",
    re.IGNORECASE,
)
_AUTH_CODES = re.compile(
    r"invalid_api_key|api_key_invalid|authentication_error|auth_error|unauthenticated|invalid_authentication"
    r"|permission_(?:error|denied)|token_not_found_in_db|unauthorized|forbidden"
)
_AUTH_WORDS = re.compile(
    r"no connected db|(?:invalid|incorrect|missing|malformed|wrong|expired) (?:api[ -]?key|authentication)"
    r"|api[ -]?key (?:is )?(?:not valid|invalid|missing|required|expired)|no auth credentials",
    re.IGNORECASE,
)
_RATE_CODES = re.compile(
    r"rate_limit\w*|throttling_error|too_many_requests|resource_exhausted|ratelimiterror|in_flight_budget_exhausted"
)
_BAD_CODES = re.compile(
    r"invalid_request\w*|bad_request\w*|badrequesterror|invalid_argument|unsupported_\w+|unknown_parameter|not_found\w*"
    r"|model_not_found|failed_precondition"
)
_REFUSED_CODES = re.compile(r"unsupported_parameter|unsupported_value|unknown_parameter|extra_forbidden")
_REFUSED_WORDS = re.compile(
    r"unsupported (?:parameter|value|field)|(?:unrecogni[sz]ed|unknown|unexpected|invalid) (?:request )?"
    r"(?:argument|parameter|field|name|property|keyword)|extra inputs are not permitted|does(?: not|n['’]t) support"
    r"|(?:is|are|was) (?:unsupported|deprecated|not allowed|not permitted)|\bnot supported\b",
    re.IGNORECASE,
)
_OPTIONAL = (
    *("max_completion_tokens", "max_tokens", "temperature", "top_p", "topP", "top_k", "topK", "seed", "stop"),
    *("stop_sequences", "stopSequences", "reasoning_effort", "reasoning", "thinking", "thinkingConfig"),
    *("thinkingLevel", "thinkingBudget", "output_config", "stream_options", "logprobs", "response_format"),
    *("presence_penalty", "frequency_penalty", "parallel_tool_calls"),
)
"""Body fields that may be left out; a name found only in a sentence counts when it is one of these."""
_ESSENTIAL = frozenset(("model", "messages", "contents", "input", "prompt", "stream", "system"))
_NAMED = re.compile(rf"(?<![\w.])({'|'.join(_OPTIONAL)})(?!\w)")
_PAGE = re.compile(r"<[!?a-z]", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_CODE_KEYS = ("code", "type", "status", "error_type", "error_code", "reason")
_TEXT_KEYS = ("message", "error", "detail", "details", "msg", "error_message", "error_description", "errors", "title")

_NEXT = {
    "rate_limit": "Wait a little, or lower the member's concurrency or requests_per_minute.",
    "billing": "Add credit or raise the spending limit at the provider, or use another member.",
    "transient": "The provider is overloaded or failing; try again later.",
    "auth": "Check the member's key, and that it may use this model.",
    "context_length": "Ask something shorter, or use a model or server setting with a larger context.",
    "bad_request": "Check the member's model and options.",
}
_RETRYABLE = ("rate_limit", "transient")


@dataclass(frozen=True, slots=True)
class Said:
    """What an error body says: its words, its codes and types (lower case), a status it names, the field it blames.

    `page` says that it is a web page (or other markup) instead of an API's answer."""

    text: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None
    param: str | None = None
    page: bool = False

    def has(self, codes: re.Pattern[str]) -> bool:
        return any(codes.fullmatch(code) for code in self.codes)


def fault(status: int, headers: Mapping[str, str], body: bytes, *, provider: str) -> AgentError:
    """The error that an answer with `status` of 400 or more means. `provider` names it in the message, as in
    "HTTP 429 from {provider}". Never raises."""
    said = read(body)
    kind = _kind(status, said)
    retryable = kind in _RETRYABLE and _header(headers, "x-should-retry").lower() != "false"
    return AgentError(
        f"HTTP {status} from {provider}: {_words(said)} {_next_step(kind, status, said)}",
        kind=kind,
        retryable=retryable,
        retry_after=retry_after(headers, cap=math.inf) if kind in _RETRYABLE else None,
        drop=_refused_field(said) if kind == "bad_request" else None,
    )


def in_band(error: Any, *, provider: str) -> AgentError:
    """The error that a value inside an answer with status 200 means: an object, a text or anything else.

    Without a status or a known code it is a passing failure, since the request itself had been accepted. A server
    that says `should_retry: false` (another Trinity, which has tried again itself) is believed."""
    said = _said(error)
    kind = _kind(said.status, said)
    final = isinstance(error, Mapping) and error.get("should_retry") is False
    return AgentError(
        f"{provider} reported an error in its answer: {_words(said)} {_next_step(kind, said.status, said)}",
        kind=kind,
        retryable=kind in _RETRYABLE and not final,
        drop=_refused_field(said) if kind == "bad_request" else None,
    )


def parse_json(data: str | bytes) -> Any:
    """The JSON value in `data`, blank lines and a byte order mark around it and bare control characters in it
    allowed.

    Raises AgentError of kind protocol: for a web page it is not retryable, for anything else it is."""
    text = (data.decode("utf-8", "replace") if isinstance(data, bytes) else data).strip("\ufeff \t\r\n")
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    if _PAGE.match(text):
        raise AgentError(
            f"The server sent {_page(text)}. Check the base URL (it usually ends in /v1).", kind="protocol"
        )
    what = f"that is no JSON ({_shown(text, _EXCERPT)})." if text else "that is empty."
    raise AgentError(
        f"The server sent an answer {what} Try again; if it stays so, check the base URL (it usually ends in /v1).",
        kind="protocol",
        retryable=True,
    )


def odd_answer(said: str | None) -> AgentError:
    """The error for an answer with status 200 that is JSON and yet no reply; `said` are its words, if it has some.
    None: nothing came at all."""
    if said is None:
        return AgentError(
            "The server closed its answer before anything came. Try again.", kind="truncated", retryable=True
        )
    words = f": {_shown(said, SHOWN)}" if said.strip() else ""
    return AgentError(
        f"The server answered without any reply in it{words}. Try again; if it stays so, check the base URL (it "
        "usually ends in /v1) and the model.",
        kind="protocol",
        retryable=True,
    )


def retry_after(headers: Mapping[str, str], *, now: float | None = None, cap: float = 60.0) -> float | None:
    """Seconds to wait at least, from retry-after-ms or Retry-After (seconds or a date), at most `cap`.

    `now` is in UTC epoch seconds. None when the headers say nothing that can be read."""
    wait = _number(_header(headers, "retry-after-ms"), 0.001)
    value = _header(headers, "retry-after")
    if wait is None:
        wait = _number(value)
    if wait is None:
        wait = duration(value)
    if wait is None and value:
        try:
            wait = _moment(value).timestamp() - (time.time() if now is None else now)
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return None if wait is None else min(max(0.0, wait), cap)


def _moment(text: str) -> datetime:
    """A date as HTTP writes it, or as ISO 8601 does; UTC where it names no zone. Raises ValueError and others."""
    found = datetime.fromisoformat(text) if re.match(r"\d{4}-", text) else parsedate_to_datetime(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def duration(text: str) -> float | None:
    """Seconds in a text such as 17s, 1m30.5s, 2h or 250ms; None when it is none."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, ms = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + ms / 1000


def read(body: bytes) -> Said:
    """What an error body says, whatever it is. Never raises."""
    text = body.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return Said(_page(text), page=True) if _PAGE.match(text) else Said(text[:_READ])
    return _said(value)


# --- Reading a body --------------------------------------------------------------------------------------------


def _said(value: Any) -> Said:
    if isinstance(value, list) and len(value) == 1:
        return _said(value[0])
    codes: set[str] = set()
    status = param = None
    for name, found in _pairs(value):
        if name in _CODE_KEYS:
            if isinstance(found, str):
                codes.add(found.strip().lower())
            number = _status(found)
            status = number if status is None else status
        elif name == "param" and isinstance(found, str) and found:
            param = param or found
        elif name == "loc" and isinstance(found, list) and found:
            param = param or str(found[1] if len(found) > 1 and found[0] == "body" else found[0])
    return Said(_text(value)[:_READ], frozenset(codes), status, param)


def _pairs(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every member of `value` and of what it holds, outer ones first; a JSON text inside is looked into."""
    if depth > 5:
        return
    if isinstance(value, str) and depth and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    if isinstance(value, Mapping):
        yield from value.items()
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from _pairs(part, depth + 1)


def _status(value: Any) -> int | None:
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else 0
    except ValueError:
        return None
    return number if 400 <= number < 600 else None


def names_status(body: Mapping[str, Any]) -> bool:
    """Whether the outermost members of a JSON object name the HTTP status of a failure."""
    return any(_status(body.get(name)) is not None for name in ("code", "status", "status_code", "statusCode"))


def _text(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if depth > 5 or value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(text for part in value[:3] if (text := _text(part, depth + 1)))
    if not isinstance(value, Mapping):
        return json.dumps(value)
    text = next((text for key in _TEXT_KEYS if (text := _text(value.get(key), depth + 1))), "")
    if isinstance(value.get("loc"), list):
        text = f"{'.'.join(str(part) for part in value['loc'])}: {text}"
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None  # a router's upstream, in its own words
    if isinstance(raw, str) and raw.strip():
        inner = read(raw.encode("utf-8", "replace")).text
        text = f"{text}: {inner}" if text else inner
    return text or (json.dumps(wire.drop_secrets(value), ensure_ascii=False) if depth == 0 and value else "")


def _page(text: str) -> str:
    title = _TITLE.search(text[:_READ])
    named = f' ("{_shown(title[1], _EXCERPT)}")' if title and title[1].strip() else ""
    return f"a web page{named}, not an API answer"


def _shown(text: str, most: int) -> str:
    """`text` for a message: on one line, without keys and control characters, cut at `most` characters."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in wire.redact(wire.clean_text(text))).split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


def _words(said: Said) -> str:
    words = _shown(said.text, SHOWN) or "no explanation"
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((str(value).strip() for key, value in headers.items() if key.lower() == name), "")


def _number(text: str, unit: float = 1.0) -> float | None:
    try:
        value = float(text) * unit
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# --- Deciding --------------------------------------------------------------------------------------------------


def _kind(status: int | None, said: Said) -> str:
    """The kind of error; `status` None: it came inside an answer and named no status."""
    if status not in (401, 403, 429) and (said.has(_CONTEXT_CODES) or _CONTEXT_WORDS.search(said.text)):
        return "context_length"
    if "in_flight_budget_exhausted" in said.codes:
        return "rate_limit"
    if status == 402 or said.has(_BILLING_CODES) or _BILLING_WORDS.search(said.text):
        return "billing"
    if status in (401, 403) or (status in (400, None) and (said.has(_AUTH_CODES) or _AUTH_WORDS.search(said.text))):
        return "auth"
    if status == 429 or (status is None and said.has(_RATE_CODES)):
        return "rate_limit"
    if status in (408, 409, 425) or (status is not None and status >= 500):
        return "transient"
    return "bad_request" if status is not None or said.has(_BAD_CODES) else "transient"


def _next_step(kind: str, status: int | None, said: Said) -> str:
    if "no models loaded" in said.text.lower():
        return "Load a model in the server first."
    if kind in ("bad_request", "auth") and said.page:
        return "Check the base URL (it usually ends in /v1), and the member's key."
    if status is not None and 300 <= status < 400:
        return "Redirects are not followed: use the final address as base URL."
    if kind == "bad_request" and status in (404, 405):
        return "Check the member's model and its base URL (it usually ends in /v1)."
    if kind == "bad_request" and status == 413:
        return "Ask something shorter, or allow fewer tokens."
    return _NEXT[kind]


def _refused_field(said: Said) -> str | None:
    """The optional body field that the server does not take, when the error is about one."""
    if not (said.has(_REFUSED_CODES) or _REFUSED_WORDS.search(said.text)):
        return None
    if said.param:
        name = re.split(r"[.\[/]", said.param.strip("'\"` /"))[0]
        if name in _ESSENTIAL:
            return None
        if name in _OPTIONAL or (said.has(_REFUSED_CODES) and re.fullmatch(r"[A-Za-z_]\w*", name)):
            return name
    # The first one named: what follows is advice ("Use 'max_completion_tokens' instead").
    named = _NAMED.search(said.text)
    return named[1] if named else None
