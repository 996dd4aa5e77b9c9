"""What the Anthropic and Gemini formats share: strict turns, checked options, and a reply collected in order.
How a count of tokens is read is the same in all three formats.

Both want system text apart from the conversation, a user's turn first, and turns that alternate. Both take options
from the pool file, where a typo must be named. Nothing here does input or output.

Not covered: the rest of the OpenAI family, whose servers differ in more than this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from trinity_core.errors import AgentError, PoolError, did_you_mean
from trinity_core.types import AgentSpec, Message, Piece, Request, Sampling, Usage
from trinity_core.wire import clean_text

OPENING = "(The conversation begins.)"
"""The user's turn put first where a conversation has none there, because both providers insist on one."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The words of `Sampling.effort`, least first."""

MOST_TOKENS = 10**12
"""A higher count is a slip of the provider; no call has so many."""

Rule = Callable[[Any], str | None]
"""Given an option's value: what it must be, or None when it fits."""


def strict(messages: Sequence[Message]) -> tuple[str, tuple[Message, ...]]:
    """All system texts joined by a blank line, and the turns: blank ones left out, neighbours of one role joined,
    a user first, no blanks at the end of a last assistant turn."""
    system: list[str] = []
    turns: list[Message] = []
    for message in messages:
        text = clean_text(message.content)
        if not text.strip():
            continue
        if message.role == "system":
            system.append(text)
        elif turns and turns[-1].role == message.role:
            turns[-1] = replace(turns[-1], content=f"{turns[-1].content}\n\n{text}")
        else:
            turns.append(Message(message.role, text))
    if not turns or turns[0].role != "user":
        turns.insert(0, Message("user", OPENING))
    if turns[-1].role == "assistant":
        turns[-1] = replace(turns[-1], content=turns[-1].content.rstrip())
    return "\n\n".join(system), tuple(turns)


def settled(request: Request) -> Sampling:
    """The settings of one call: the request's own, else the member's options; of two caps on tokens the smaller.

    Raises AgentError (bad_request, no call made) for an effort that is no known word."""
    asked, options = request.sampling, request.agent.options
    names = ("temperature", "top_p", "seed", "effort")
    chosen = {name: options.get(name) if getattr(asked, name) is None else getattr(asked, name) for name in names}
    if chosen["effort"] is not None and chosen["effort"] not in EFFORTS:
        raise AgentError(
            f"The effort {chosen['effort']!r} is unknown.{did_you_mean(str(chosen['effort']), EFFORTS)} "
            f"Use one of: {', '.join(EFFORTS)}.",
            kind="bad_request",
            calls=0,
        )
    return Sampling(max_tokens=min(asked.max_tokens, options.get("max_tokens", asked.max_tokens)), **chosen)


# --- Options ---------------------------------------------------------------------------------------------------


def check_options(spec: AgentSpec, rules: Mapping[str, Rule]) -> None:
    """Raises PoolError, naming member, option and fix, when there is no model, an option is unknown or its value
    does not fit."""
    if not (spec.model or "").strip():
        raise PoolError(f'Agent {spec.name}: kind {spec.kind} needs a model. Add model = "...".')
    for name, value in spec.options.items():
        if name not in rules:
            raise PoolError(
                f"Agent {spec.name}: unknown option {name!r}.{did_you_mean(name, rules)} "
                f"Kind {spec.kind} knows: {', '.join(rules)}."
            )
        if wanted := rules[name](value):
            raise PoolError(f"Agent {spec.name}: option {name} must be {wanted}, not {value!r}. Correct it.")


def whole(least: int) -> Rule:
    """A whole number of at least `least`."""

    def rule(value: Any) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if fits else f"a whole number of at least {least}"

    return rule


def number(low: float, high: float) -> Rule:
    """A number in [low, high]; whole ones count."""

    def rule(value: Any) -> str | None:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a number from {low:g} to {high:g}"

    return rule


def word(known: Sequence[str]) -> Rule:
    """One of the `known` words."""

    def rule(value: Any) -> str | None:
        if isinstance(value, str) and value in known:
            return None
        near = did_you_mean(value, known).strip() if isinstance(value, str) else ""
        return f"one of {', '.join(known)}{f' ({near})' if near else ''}"

    return rule


def flag(value: Any) -> str | None:
    """A Rule: true or false."""
    return None if isinstance(value, bool) else "true or false"


def table(value: Any) -> str | None:
    """A Rule: a table."""
    return None if isinstance(value, Mapping) else "a table"


def stops(most: int | None = None) -> Rule:
    """A text, or a list of at most `most` texts, none of them blank (providers refuse those)."""

    def rule(value: Any) -> str | None:
        texts = [value] if isinstance(value, str) else value
        fits = isinstance(texts, list | tuple) and all(isinstance(text, str) and text.strip() for text in texts)
        if fits and (most is None or len(texts) <= most):
            return None
        return f"a text or a list of {f'at most {most} ' if most else ''}texts that are not blank"

    return rule


def stop_list(options: Mapping[str, Any]) -> list[str]:
    """The texts of the option `stop`, which may be a single text."""
    value = options.get("stop", [])
    return [value] if isinstance(value, str) else list(value)


def check_extra(spec: AgentSpec, owned: Mapping[str, str], inside: str | None = None) -> None:
    """Raises PoolError when `extra_body`, or the table `inside` it, sets a field that the format writes itself;
    `owned` says for each what to do instead."""
    extra = spec.options.get("extra_body", {})
    fields = extra if inside is None else extra.get(inside, {})
    where = "extra_body" if inside is None else f"extra_body.{inside}"
    if wanted := table(fields):
        raise PoolError(f"Agent {spec.name}: {where} must be {wanted}, not {fields!r}. Correct it.")
    for name in fields:
        if name in owned:
            raise PoolError(f"Agent {spec.name}: {where} may not set {name!r}. {owned[name]}")


def merge_extra(body: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with the fields of `extra_body`; a table in both is merged, the extra fields winning."""
    for name, value in options.get("extra_body", {}).items():
        mine = body.get(name)
        body[name] = {**mine, **value} if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return body


# --- Reading ---------------------------------------------------------------------------------------------------


def token_count(value: Any) -> int | None:
    """A count of tokens as providers and the gateways before them write it: a number, also with a decimal point or in
    quotes. None for what can be no count."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,13}\s*", value):
        value = int(value)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return int(value) if fits else None


class Collected:
    """What has come of one answer so far; the readers of both formats build on it."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.started = False
        self.text: list[str] = []
        self.thought: list[str] = []
        self.counts: dict[str, int] = {}

    def take(self, text: Any, channel: Literal["text", "reasoning"] = "text") -> list[Piece]:
        """One more part of the answer; anything but a text with characters in it is none."""
        if not isinstance(text, str) or not text:
            return []
        self.started = True
        (self.text if channel == "text" else self.thought).append(text)
        return [Piece(text, channel)]

    def count(self, usage: Any, names: Sequence[str]) -> None:
        """Keep the newest count of each of `names`. Counts are cumulative, so a later 0 is a gap, not a count."""
        for name in names if isinstance(usage, Mapping) else ():
            value = token_count(usage.get(name))
            if value is not None and (value > 0 or name not in self.counts):
                self.counts[name] = value


def changed(error: AgentError, message: str | None = None, **changes: Any) -> AgentError:
    """`error` with another message or other fields."""
    fields = {
        name: getattr(error, name) for name in ("kind", "retryable", "retry_after", "drop", "calls", "unpriced")
    }
    return AgentError(str(error) if message is None else message, **{**fields, **changes})
