"""Export and import: nothing is lost on the way round, and no line of a file can do harm."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage import exchange
from storage.exchange import ImportReport, epoch, export_jsonl, import_jsonl, parse_run, run_line
from storage.records import Label, RunQuery, StoredNote, StoredRun, StoredTurn
from storage.store import Store
from tests.bench_storage import sample_run
from tests.pg import db_url, postgres_server, postgres_url
from tests.test_store import keep, started, turn_events, whole
from trinity_core.errors import InputError
from trinity_core.types import AgentSpec, Failure, Finish, Message, Role, Status, Totals, Usage

__all__ = ["db_url", "postgres_server", "postgres_url"]

ALL = RunQuery(all_owners=True)


@pytest.fixture
def store(db_url: str) -> Iterator[Store]:
    opened = Store.open(db_url)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """A second, empty database, always SQLite: files move between engines."""
    opened = Store.open(f"sqlite:///{tmp_path / 'other.db'}")
    yield opened
    opened.close()


def exported(store: Store, query: RunQuery = ALL) -> bytes:
    out = io.BytesIO()
    export_jsonl(store, out, query)
    return out.getvalue()


def imported(store: Store, data: bytes | str | dict[str, Any], **options: Any) -> ImportReport:
    if isinstance(data, dict):
        data = json.dumps(data)
    return import_jsonl(store, io.BytesIO(data.encode() if isinstance(data, str) else data), **options)


def only(store: Store) -> StoredRun:
    (run,) = store.every_run(ALL)
    return run


# --- Round ------------------------------------------------------------------------------------------------


async def test_out_in_out_gives_the_same_bytes(store: Store, other: Store) -> None:
    await keep(store, whole("r1", "Odd \u2028 \ud83d \x00 text", owner="ann"))
    await keep(store, [started("r2", at=999.0), *turn_events("r2", 1, None, "no role")])  # ends without a word
    run = store.run("r1", "ann")
    assert run is not None
    store.set_label("r1", "thumb", "up", owner="ann", labeller="ann")
    store.set_label("r1", "note", "x\u0085y", owner="ann", turn_id=run.turns[1].id)
    store.add_runs(sample_run(n) for n in range(120))  # more than one batch
    first = exported(store)
    report = imported(other, first)
    assert report == ImportReport(122, 0)
    assert exported(other) == first
    assert other.run("r1", "ann") == store.run("r1", "ann")
    assert [r.id for r in other.list_runs(replace(ALL, search="text")).rows] == ["r1"]
    row, again = store.list_runs(ALL).rows[0], other.list_runs(ALL).rows[0]
    assert row == again


async def test_every_line_is_strict_ascii_json(store: Store) -> None:
    await keep(store, whole("r1", "a\u2028b ü"))
    data = exported(store)
    assert data.isascii()
    assert data.count(b"\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    value = json.loads(data, parse_constant=refuse)
    fields = {*StoredRun.__dataclass_fields__, "schema"} - {"deleted_at"} - {"deleted_at"}
    assert set(value) == fields
    assert set(value["turns"][0]) == set(StoredTurn.__dataclass_fields__)


async def test_export_takes_what_the_query_shows(store: Store) -> None:
    await keep(store, whole("a", at=1.0))
    await keep(store, whole("b", at=2.0, owner="ann"))
    await keep(store, whole("c", at=3.0))
    store.delete_runs(["c"])
    for query, ids in ((ALL, ["a", "b"]), (RunQuery(), ["a"]), (RunQuery(owner="bob"), ["a"])):
        lines = exported(store, query).splitlines()
        assert [json.loads(line)["id"] for line in lines] == ids


async def test_equal_times_page_in_order(store: Store) -> None:
    names = [f"{n:03}" for n in range(120)]
    store.add_runs(replace(sample_run(int(n)), id=n, created_at=5.0, turns=()) for n in reversed(names))
    assert [run.id for run in store.every_run(ALL)] == names


def test_a_run_that_goes_on_is_exported_as_interrupted(store: Store, other: Store) -> None:
    cut = StoredTurn("t", 1, agent="a", raw="so far")
    store.add_runs([StoredRun("r1", status=Status.RUNNING, turns=(cut,), created_at=1.0)])
    data = exported(store)
    imported(other, data)
    run = other.run("r1")
    assert run is not None
    assert (run.status, run.turns[0].text, run.turns[0].finish) == (Status.INTERRUPTED, "so far", Finish.INCOMPLETE)
    assert exported(other) == data


def test_calls_and_unknown_costs_go_out_and_in(store: Store, other: Store) -> None:
    turns = (
        StoredTurn("t1", 1, agent="a", text="x", finish=Finish.STOP, cost=0.5, calls=3, unpriced=2),
        StoredTurn("t2", 2, agent="b", text="y", finish=Finish.STOP, calls=0, reused=True),
    )
    spec = AgentSpec("a", "openai", "m", base_url="http://127.0.0.1/v1", key_env="A_KEY", service={"retries": 0})
    run = StoredRun("r1", turns=turns, created_at=1.0, totals=Totals(2, 3, cost=0.5, unpriced=2), pool=(spec,))
    store.add_runs([run])
    data = exported(store)
    imported(other, data)
    assert exported(other) == data
    assert other.run("r1") == run
    assert [(row.cost, row.unpriced) for row in other.list_runs(ALL).rows] == [(0.5, 2)]


def test_an_older_export_has_no_such_fields(store: Store) -> None:
    value = json.loads(run_line(replace(sample_run(3), id="old")))
    for part in (value["totals"], *value["turns"]):
        for name in ("calls", "unpriced", "reused"):
            part.pop(name, None)
    for name in ("base_url", "key_env", "service"):
        for spec in value["pool"]:
            spec.pop(name, None)
    value["params"].pop("reuse")
    assert imported(store, value).errors == ()
    run = only(store)
    assert {(t.calls, t.unpriced, t.reused) for t in run.turns} == {(1, 0, False)}
    assert run.totals is not None
    assert run.totals.unpriced == 0


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ({"id": "x", "turns": [{"calls": -1}]}, "turns.0.calls"),
        ({"id": "x", "turns": [{"unpriced": 2**40}]}, "turns.0.unpriced"),
        ({"id": "x", "turns": [{"reused": "perhaps"}]}, "turns.0.reused"),
        ({"id": "x", "totals": {"unpriced": -1}}, "totals.unpriced"),
        ({"id": "x", "totals": {"unpriced": 1.5}}, "totals.unpriced"),
    ],
)
def test_counts_that_cannot_be_are_named(store: Store, line: dict[str, Any], where: str) -> None:
    (error,) = imported(store, line).errors
    assert where in error.message
    assert store.list_runs(ALL).total == 0


def test_an_export_does_not_know_what_a_call_under_way_costs(store: Store, other: Store) -> None:
    turns = (
        StoredTurn("t1", 1, agent="a", finish=Finish.STOP, cost=0.5),
        StoredTurn("t2", 2, agent="a", request={"kind": "openai"}),
    )
    store.add_runs([StoredRun("r1", status=Status.RUNNING, turns=turns, created_at=1.0, totals=Totals(1, 1))])
    imported(other, exported(store))
    assert [(row.cost, row.unpriced) for row in other.list_runs(ALL).rows] == [(0.5, 1)]


# --- Lines ------------------------------------------------------------------------------------------------


def test_minimal_records(store: Store) -> None:
    assert imported(store, '{"id":"t1","text":"a\u2028bc"}\n{"id":"t2","text":"d\u0085e"}\n').imported == 2
    for name, answer in (("t1", "a\u2028bc"), ("t2", "d\u0085e")):
        run = store.run(name)
        assert run is not None
        assert (run.answer, run.status, run.owner) == (answer, Status.DONE, None)


def test_byte_order_mark_and_crlf(store: Store) -> None:
    report = imported(store, bytes.fromhex("efbbbf7b226964223a227431227d0d0a"))
    assert (report.imported, report.errors) == (1, ())
    assert only(store).id == "t1"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"id": "x", "question": "q", "answer": "a"}, ("x", "q", "a")),
        ({"trace_id": "x", "prompt": "q", "final_answer": "a"}, ("x", "q", "a")),
        ({"id": "x", "answer": "a", "text": "b", "output": "c"}, ("x", "", "a")),
        ({"id": "x", "messages": [{"role": "user", "content": "m"}], "question": "q"}, ("x", "m", None)),
        ({"id": "x", "answer": None, "turns": None, "messages": None}, ("x", "", None)),
    ],
)
def test_usual_names(line: dict[str, Any], expected: tuple[str, str, str | None]) -> None:
    run = parse_run(json.dumps(line).encode())
    assert run is not None
    assert (run.id, run.question, run.answer) == expected


def test_a_record_without_an_id_gets_the_same_one_each_time(store: Store) -> None:
    line = {"question": "q", "answer": "a"}
    assert imported(store, line).imported == 1
    assert imported(store, line) == ImportReport(0, 1)
    assert imported(store, line | {"answer": "b"}).imported == 1


async def test_importing_twice_adds_nothing(store: Store, other: Store) -> None:
    await keep(store, whole("r1"))
    store.set_label("r1", "thumb", "up")
    data = exported(store)
    assert imported(other, data + data) == ImportReport(1, 1)
    assert imported(other, data) == ImportReport(0, 1)
    assert exported(other) == data


async def test_importing_what_is_in_the_bin_takes_it_out(store: Store) -> None:
    await keep(store, whole("r1"))
    data = exported(store)
    store.delete_runs(["r1"])
    assert imported(store, data) == ImportReport(1, 0)
    assert exported(store) == data


GOOD = {"id": "good", "answer": "kept"}


BAD: list[tuple[bytes | dict[str, Any], str]] = [
    (b"{", "JSON"),
    (b"[1]", "object"),
    (b'"id"', "object"),
    (b"null", "object"),
    (b"\xff\xfe{}", "UTF-8"),
    (b"[" * 100_000, "JSON"),
    (b'{"id":"x","a":' + b"[" * 500 + b"]" * 500 + b"}", "deep"),
    (b'{"id":"x","seed":' + b"9" * 5000 + b"}", "JSON"),
    ({}, "no id"),
    ({"unknown": 1}, "no id"),
    ({"id": 5}, "id: .*string"),
    ({"id": ""}, "no id"),
    ({"id": " ", "answer": "x"}, "id: .*empty"),
    ({"id": "x" * 1000}, "id: .*300"),
    ({"id": "x", "answer": 5}, "answer: .*string"),
    ({"id": "x", "question": ["q"]}, "question: .*string"),
    ({"id": "x", "messages": "hi"}, "messages: "),
    ({"id": "x", "messages": [{"role": "robot", "content": ""}]}, r"messages\.0\.role: "),
    ({"id": "x", "status": "sleeping"}, "status: "),
    ({"id": "x", "created_at": "yesterday"}, "created_at: .*ISO"),
    ({"id": "x", "created_at": True}, "created_at: "),
    ({"id": "x", "created_at": [1]}, "created_at: "),
    ({"id": "x", "seed": 2**64}, "seed: .*64"),
    ({"id": "x", "answer_turn": 2**40}, "answer_turn: "),
    ({"id": "x", "turns": {}}, "turns: .*list"),
    ({"id": "x", "turns": ["a"]}, r"turns\.0: .*object"),
    ({"id": "x", "turns": [{}, {"text": 1}]}, r"turns\.1\.text: .*string"),
    ({"id": "x", "turns": [{"role": "boss"}]}, r"turns\.0\.role: "),
    ({"id": "x", "turns": [{"usage": {"input": "many"}}]}, r"turns\.0\.usage\.input: "),
    ({"id": "x", "turns": [{"hidden": "***"}]}, r"turns\.0\.hidden: .*base64"),
    ({"id": "x", "turns": [{"turn": 1}, {"turn": 1}]}, "turn 1, attempt 1 is there twice"),
    ({"id": "x", "turns": [{"id": "t"}, {"id": "t"}]}, "."),
    ({"id": "x", "labels": [{"kind": "thumb", "value": 1}]}, r"labels\.0\.value: .*string"),
    ({"id": "x", "labels": [{"kind": "thumb", "value": "1", "turn_id": "no"}]}, r"labels\.0\.turn_id: "),
    ({"id": "x", "totals": {"usage": {"input": 2**70}}}, "."),
    ({"id": "x", "schema": 2}, "newer version"),
    ({"event": "delta", "seq": 3, "run_id": "x", "text": "y"}, "event"),
]


def test_bad_lines_are_named_and_the_rest_is_kept(store: Store) -> None:
    """One file with a good line after each bad one, and blank lines between."""
    lines: list[bytes] = []
    for n, (bad, _) in enumerate(BAD):
        good = json.dumps({"id": f"good{n}", "answer": "kept"}).encode()
        lines += [b"", json.dumps(bad).encode() if isinstance(bad, dict) else bad, b"\r", good]
    report = imported(store, b"\n".join(lines))
    assert (report.imported, report.skipped, report.failed) == (len(BAD), 0, len(BAD))
    assert [error.number for error in report.errors] == [4 * n + 2 for n in range(len(BAD))]
    for error, (bad, said) in zip(report.errors, BAD, strict=True):
        assert re.search(said, error.message), (bad, error.message)
    assert store.list_runs(ALL).total == len(BAD)
    assert all(row.id.startswith("good") for row in store.list_runs(ALL).rows)


def test_a_line_that_is_too_long_is_skipped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_LINE", 1000)
    largest: list[int] = []

    class Watched(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            data = super().readline(size)
            largest.append(len(data))
            return data

    long = json.dumps({"id": "long", "answer": "x" * 10_000})
    exact = json.dumps({"id": "exact", "answer": "x" * (999 - len(json.dumps({"id": "exact", "answer": ""})))})
    data = f"{long}\n{exact}\n{json.dumps(GOOD)}\n{long}"
    report = import_jsonl(store, Watched(data.encode()))
    assert [error.number for error in report.errors] == [1, 4]
    assert report.imported == 2
    assert max(largest) <= 1001


def test_many_bad_lines_are_counted_not_all_listed(store: Store) -> None:
    report = imported(store, "{\n" * (exchange.MAX_ERRORS + 5))
    assert (len(report.errors), report.failed) == (exchange.MAX_ERRORS, exchange.MAX_ERRORS + 5)


# --- Distrust ---------------------------------------------------------------------------------------------


def test_keys_are_dropped_and_markup_is_kept_as_text(store: Store) -> None:
    script, key = "<script>alert(1)</script>", "sk-placeholder"
    line = {
        "final_answer": script,
        "provider": {"api_key": key},
        "api_key": key,
        "pool": [{"name": "a", "kind": "gguf", "api_key": key, "options": {"token": key, "n": 1}}],
        "turns": [
            {"agent": "a", "text": script, "request": {"headers": {"x-api-key": key}}, "error": f"at ?key={key}"}
        ],
    }
    assert imported(store, line).imported == 1
    run = only(store)
    assert (run.answer, run.turns[0].text) == (script, script)
    assert run.pool[0].options == {"n": 1}
    assert key.encode() not in exported(store)
    assert b"provider" not in exported(store)


def test_not_finite_numbers_become_null(store: Store) -> None:
    line = '{"id":"x","reward":NaN,"finished_at":Infinity,"totals":{"cost":-Infinity,"seconds":NaN},"seed":null}'
    turn = ',"turns":[{"cost":NaN,"decision":{"agent":"a","role":"worker","own_agent":"a","own_role":"worker",'
    turn += '"mode":"argmax","agent_logits":{"a":1e999,"b":1}}}]}'
    assert imported(store, line[:-1] + turn).errors == ()
    run = only(store)
    assert run.finished_at is None
    assert run.totals is not None
    assert run.totals.cost is None
    assert run.turns[0].decision is not None
    assert run.turns[0].decision.agent_logits == {"b": 1.0}
    for word in (b"NaN", b"Infinity", b"reward"):
        assert word not in exported(store)


@pytest.mark.parametrize("schema", [2, 1.5, "2", 10**400])
def test_a_later_schema_is_refused_however_it_is_written(store: Store, schema: Any) -> None:
    report = imported(store, {"id": "x", "schema": schema})
    assert (report.imported, report.failed) == (0, 1)
    assert "newer version" in report.errors[0].message


@pytest.mark.parametrize("schema", [1, "1", 0, None, True, "openai/traces"])
def test_the_schema_of_another_program_is_no_hindrance(store: Store, schema: Any) -> None:
    assert imported(store, {"id": "x", "schema": schema}).imported == 1


def test_ids_that_are_taken_are_told_in_words(store: Store) -> None:
    twice = imported(store, {"id": "x", "turns": [{"id": "t", "text": "a"}, {"id": "t", "text": "b"}]})
    assert [e.message for e in twice.errors] == ["turns: two have the same id"]
    lines = [{"id": "y", "turns": [{"id": "t"}]}, {"id": "z", "turns": [{"id": "t"}]}, {"id": "u"}]
    other = imported(store, "\n".join(map(json.dumps, lines)))
    assert (other.imported, [e.number for e in other.errors]) == (2, [2])
    assert other.errors[0].message == "Another run has a turn or label with the same id."


def test_surrogates_and_nul_in_a_file(store: Store) -> None:
    assert imported(store, r'{"id":"x","answer":"ok \ud83d end\u0000","question":"\udc00"}').errors == ()
    assert only(store).answer == "ok \ufffd end\ufffd"


async def test_the_importer_may_decide_whose_runs_they_are(store: Store) -> None:
    imported(store, {"id": "x", "owner": "bob"}, owner="ann")
    assert store.run("x", "bob") is None
    assert store.run("x", "ann") is not None


def test_defaults_of_turns(store: Store) -> None:
    line = {
        "id": "x",
        "turns": [
            {"agent": "a", "role": "Role.WORKER", "content": "one"},
            {"agent": "b", "role": "THINKER", "text": "two", "usage": {"input": 3}},
            {"turn": 2, "attempt": 2, "error": "it broke"},
        ],
        "notes": [{"kind": "trimmed", "message": "m", "at": "1970-01-01T00:00:09Z"}],
        "labels": [{"kind": "thumb", "value": "up"}],
    }
    assert imported(store, line).errors == ()
    run = only(store)
    assert [(t.turn, t.attempt, t.role, t.text, t.finish) for t in run.turns] == [
        (1, 1, Role.WORKER, "one", Finish.STOP),
        (2, 1, Role.THINKER, "two", Finish.STOP),
        (2, 2, None, "", Finish.ERROR),
    ]
    assert run.turns[2].error == Failure("internal", "it broke")
    assert run.notes == (StoredNote("trimmed", "m", 9.0),)
    assert isinstance(run.labels[0], Label)
    assert run.totals is not None
    assert run.totals.usage == Usage(3)
    (row,) = store.list_runs(ALL).rows
    assert (row.roles, row.agents, row.turn_count) == ("W·T", "a · b", 2)


# --- Times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T09:00:00+09:00", 1767225600.0),
        ("2026-01-01T00:00:00", 1767225600.0),
        ("2026-01-01 00:00:00.5", 1767225600.5),
        ("2026-01-01", 1767225600.0),
        (1767225600, 1767225600.0),
        (0.25, 0.25),
        ("1767225600", 1767225600.0),
        ("1767225600.5", 1767225600.5),
        ("1960-01-01T00:00:00Z", -315619200.0),
        ("2026-03-29T02:30:00+01:00", 1774747800.0),
        (1767225600000, 1767225600.0),
        ("1767225600000", 1767225600.0),
        (1767225600000000, 1767225600.0),
        (1767225600000000000, 1767225600.0),
    ],
)
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_times_do_not_depend_on_the_host(
    value: Any, seconds: float, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert epoch(value) == seconds
        run = parse_run(json.dumps({"id": "x", "timestamp": value}).encode())
        assert run is not None
        assert run.created_at == seconds
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("value", ["", "soon", "2026-13-01", None, True, {}, 10**400, 1e300])
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises(InputError, match="when: "):
        epoch(value, "when")


def test_a_line_reads_back_as_the_run_it_was_written_from() -> None:
    run = replace(sample_run(3), messages=(Message("system", "s"), Message("user", "u")))
    assert parse_run(run_line(run)) == run
