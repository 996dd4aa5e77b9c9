"""The event decoder: line ends, cuts anywhere, the odd things servers send, and the bound on one event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_core.agents.remote.sse import Decoder, Event
from trinity_core.errors import AgentError


def decoded(*chunks: bytes | str) -> list[Event]:
    decoder = Decoder()
    events: list[Event] = []
    for chunk in chunks:
        events += decoder.feed(chunk.encode() if isinstance(chunk, str) else chunk)
    return events + decoder.end()


def data(*chunks: bytes | str) -> list[str]:
    return [event.data for event in decoded(*chunks)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_line_end_ends_a_line(end: str) -> None:
    assert data(f"data: one{end}data: two{end}{end}data: three{end}{end}") == ["one\ntwo", "three"]


def test_crlf_cut_in_two_is_one_line_end() -> None:
    assert data("data: K\r", "\ndata: L\r\n\r", "\n") == ["K\nL"]
    assert data("data: K\r", "", "\n", "data: L\r", "\n\r", "\n") == ["K\nL"]


def test_lone_cr_ends_the_event_without_waiting_for_more() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: now\r\r") == [Event("now")]
    assert decoder.feed(b"\ndata: next\n\n") == [Event("next")]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e"])
def test_other_separators_end_nothing(mark: str) -> None:
    assert data(f"data: a{mark}b\n\n") == [f"a{mark}b"]


def test_character_cut_in_the_middle() -> None:
    raw = "data: hé✓🙂\n\n".encode()
    assert data(*(raw[i : i + 1] for i in range(len(raw)))) == ["hé✓🙂"]


def test_wrong_bytes_are_replaced_and_spoil_nothing_else() -> None:
    assert data(b"data: a\xffb\ndata: \xe2\x9c\n\ndata: c\n\n") == ["a\ufffdb\n\ufffd", "c"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("data:close\n\n", ["close"]),
        ("data:  two blanks\n\n", [" two blanks"]),
        ("data\n\n", [""]),
        ("data:\n\n", [""]),
        ("data:\ndata:\n\n", ["\n"]),
        (": comment\n\n:\n\ndata: x\n: between\ndata: y\n\n", ["x\ny"]),
        ("id: 7\nretry: 10\nunknown: z\ndata: x\n\n", ["x"]),
        ("datax: no\n data: no\nDATA: no\n\n", []),
        ("event: ping\n\n", []),
        ("\n\n\n", []),
        ("", []),
    ],
)
def test_fields(raw: str, expected: list[str]) -> None:
    assert data(raw) == expected


def test_name_belongs_to_one_event() -> None:
    raw = "event: a\ndata: 1\n\ndata: 2\n\nevent: lost\n\ndata: 3\n\nevent:b\ndata: 4"
    assert decoded(raw) == [Event("1", "a"), Event("2"), Event("3"), Event("4", "b")]


@pytest.mark.parametrize("tail", ["", "\n", "\r", "\r\n", "\n\n"])
def test_last_event_needs_no_blank_line(tail: str) -> None:
    assert data('data: {"finish": "stop"}\n\n', "data: [DONE]" + tail) == ['{"finish": "stop"}', "[DONE]"]


def test_byte_order_mark_counts_only_at_the_very_start() -> None:
    assert data(b"\xef", b"\xbb\xbfdata: a\n\n", b"\xef\xbb\xbfdata: b\n\n", b"data: \xef\xbb\xbfc\n\n") == [
        "a",
        "\ufeffc",
    ]


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 90, b": " + b"x" * 110, b"data: xx\n" * 40, b"data:\n" * 101])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_event_without_end_is_an_error(raw: bytes, step: int) -> None:
    decoder = Decoder(max_event_bytes=95)

    def feed_all() -> None:
        for i in range(0, len(raw), step):
            decoder.feed(raw[i : i + step])

    with pytest.raises(AgentError, match="longer than 95 bytes") as caught:
        feed_all()
    assert caught.value.kind == "protocol"


def test_bound_is_per_event() -> None:
    decoder = Decoder(max_event_bytes=95)
    assert len(decoder.feed(b"data: 0123456789\n\n" * 500)) == 500


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
_EVENTS = st.lists(st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=3)), max_size=5)


@given(_EVENTS, st.data())
def test_cuts_change_nothing(events: list[tuple[str, list[str]]], draw: st.DataObject) -> None:
    raw, expected = "", []
    for name, lines in events:
        end = draw.draw(st.sampled_from(["\n", "\r\n", "\r"]))
        raw += f": c{end}event: {name}{end}" + "".join(f"data: {line}{end}" for line in lines) + end
        expected.append(Event("\n".join(lines), name))
    sent = raw.encode()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    chunks = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert decoded(*chunks) == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_bytes_give_the_same_events_however_cut(raw: bytes, places: list[int]) -> None:
    cuts = sorted(min(place, len(raw)) for place in places)
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(*chunks) == decoded(raw)


def test_json_with_every_separator_survives() -> None:
    value = {"t": "a\u2028b\u0085c\u2029"}
    assert json.loads(data(f"data: {json.dumps(value, ensure_ascii=False)}\n\n")[0]) == value
