"""The JSON edge: strict, canonical, free of keys and of text that cannot be encoded."""

from __future__ import annotations

import json
import math

import pytest

from trinity_core import wire
from trinity_core.errors import InputError
from trinity_core.types import (
    AgentSpec,
    AnyJobEvent,
    AnyRunEvent,
    Decision,
    Generation,
    JobNote,
    Mode,
    Note,
    Role,
    RunParams,
    Sampling,
    TurnStarted,
)


def test_numbers_that_json_lacks_become_null() -> None:
    text = wire.line({"reward": math.nan, "logprob": -math.inf, "up": math.inf, "fine": 0.5})
    assert json.loads(text, parse_constant=lambda c: pytest.fail(c)) == {
        "reward": None,
        "logprob": None,
        "up": None,
        "fine": 0.5,
    }


def test_a_line_is_one_line_for_every_reader() -> None:
    assert wire.line("a\u2028b\u0085c\r\nd").splitlines() == [wire.line("a\u2028b\u0085c\r\nd")]


def test_half_an_emoji_is_replaced_and_encodes() -> None:
    assert wire.plain("ok \ud83d end") == "ok \ufffd end"
    wire.canonical({"\udc00": "\ud83d"}).encode("utf-8")


def test_equal_values_have_equal_digests_whatever_their_key_order() -> None:
    a, b = {"x": 1, "y": [1.5, None]}, {"y": (1.5, None), "x": 1}
    assert wire.digest(a) == wire.digest(b)
    assert wire.digest(a) != wire.digest({**a, "x": 2})
    assert wire.digest(json.loads(json.dumps(a, indent=3))) == wire.digest(a)


def test_things_without_a_json_form_are_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        wire.plain({"x": object()})


def test_ids_sort_by_time() -> None:
    ids = [wire.new_id() for _ in range(50)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("for url https://host/v1beta/models/m:generateContent?key=AIza-placeholder&alt=sse", "AIza"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("key sk-proj-abcdefgh12345678 refused", "sk-proj"),
        ("gsk_abcdefghijkl and hf_abcdefghijkl", "abcdefghijkl"),
    ],
)
def test_redaction(text: str, secret: str) -> None:
    assert secret not in wire.redact(text)
    assert wire.REDACTED in wire.redact(text)


def test_redaction_keeps_the_rest() -> None:
    text = wire.redact("https://host/m:generate?key=AIza-placeholder&alt=sse")
    assert text == "https://host/m:generate?key=[redacted]&alt=sse"
    assert wire.redact("a task-oriented sketch at 10:30?") == "a task-oriented sketch at 10:30?"


def test_members_named_like_credentials_are_dropped_at_any_depth() -> None:
    value = {
        "provider": {"api_key": "x", "name": "p", "headers": [{"Authorization": "y"}]},
        "max_tokens": 3,
        "token_count": 4,
        "keyboard": "qwerty",
        "usage": {"input": 1},
    }
    assert wire.drop_secrets(value) == {
        "provider": {"name": "p", "headers": [{}]},
        "max_tokens": 3,
        "token_count": 4,
        "keyboard": "qwerty",
        "usage": {"input": 1},
    }


@pytest.mark.parametrize("kind", [*AnyRunEvent.__args__, *AnyJobEvent.__args__], ids=lambda k: k.__name__)
def test_event_names_are_unique_within_their_family(kind: type) -> None:
    family = AnyRunEvent if issubclass(kind, tuple(AnyRunEvent.__args__)) else AnyJobEvent
    name = kind.__dataclass_fields__["event"].default  # type: ignore[attr-defined]
    assert [k for k in family.__args__ if k.__dataclass_fields__["event"].default == name] == [kind]


def test_events_round_trip() -> None:
    made = Decision("a", Role.WORKER, "a", Role.WORKER, Mode.SAMPLE, {"a": 1.0}, draws=(0.25, 0.5))
    for event in (
        TurnStarted(run_id="r", seq=0, at=1.5, turn=1, attempt=1, agent="a", decision=made, hidden=b"\x00\xff"),
        Note(run_id="r", seq=1, at=1.5, kind="trimmed", message="m"),
        JobNote(job_id="j", seq=0, at=1.5, kind="k", message="m"),
        Generation(job_id="j", seq=1, at=1.5, number=1, fitness=(0.5, 1.0)),
    ):
        assert wire.event(json.loads(wire.line(event))) == event


def test_unknown_events_and_bad_fields_are_named() -> None:
    with pytest.raises(InputError, match="unknown event 'nope'"):
        wire.event({"run_id": "r", "event": "nope"})
    with pytest.raises(InputError, match="AgentSpec: name"):
        wire.record(AgentSpec, {"kind": "x"})
    assert (
        wire.record(RunParams, wire.plain(RunParams(sampling=Sampling(temperature=0.5)))).sampling.temperature == 0.5
    )


@pytest.mark.parametrize("value", ["worker", "WORKER", " Worker ", "Role.WORKER", Role.WORKER])
def test_roles_are_read_in_any_spelling(value: str) -> None:
    assert Role(value) is Role.WORKER
    assert (
        wire.record(Decision, {**wire.plain(Decision("a", Role.WORKER, "a", Role.WORKER, Mode.ARGMAX))}).role
        == "worker"
    )
