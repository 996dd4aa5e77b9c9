"""The command line as a user calls it: real processes, the real model, exit codes, and bad input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault_server import FaultServer

ROOT = Path(__file__).resolve().parent.parent


def app(*arguments: str, home: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """`python app.py ARGUMENTS --home HOME`, finished."""
    return run(*arguments, "--home", str(home), **options)


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "app.py"), *arguments]
    return subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, **options
    )


def rows(home: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(home / "trinity.db") as db:
        return list(db.execute(sql))


@pytest.mark.model
def test_ask_prints_one_event_a_line_and_stores_the_run(home: Path) -> None:
    done = app("ask", "What is 17 times 23?", "--json", home=home)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert (events[0]["event"], events[-1]["event"]) == ("run_started", "run_finished")
    assert "391" in events[-1]["answer"]
    decisions = [event["decision"] for event in events if event["event"] == "turn_started"]
    assert all(set(d["agent_logits"]) == {"smollm2", "symbolic", "lexical", "calendar"} for d in decisions)
    assert all(set(d["role_logits"]) == {"worker", "thinker", "verifier"} for d in decisions)
    ((run_id, status),) = rows(home, "select id, status from runs")
    assert (run_id, status) == (events[0]["run_id"], "done")
    turns = len([event for event in events if event["event"] == "turn_finished"])
    assert rows(home, "select count(*) from turns") == [(turns,)]


@pytest.mark.model
def test_ask_without_json_prints_the_answer_on_stdout_only(home: Path) -> None:
    done = app("ask", "How many letters are in the word banana?", home=home)
    assert done.returncode == 0, done.stderr
    assert "6" in done.stdout
    assert "turn 1" not in done.stdout
    assert "turn 1" in done.stderr


def test_ask_without_an_answer_fails_and_says_why(home: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text('[budget.run]\ncalls = 0\n[[agents]]\nname = "maths"\nkind = "symbolic"\n')
    done = app("ask", "What is 6 times 7?", "--method", "single:maths", "--pool", str(pool), home=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert "may make 0 call(s)" in done.stderr
    assert "error: there is no answer: the budget ended the run first" in done.stderr


@pytest.mark.model
def test_interrupting_ask_cancels_the_run_with_130(home: Path) -> None:
    command = [sys.executable, str(ROOT / "app.py"), "ask", "Tell me about the sea.", "--json", "--home", str(home)]
    command += ["--method", "single:smollm2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] in ("delta", "turn_started"):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read().split("\n")
        assert process.wait(timeout=20) == 130
    last = json.loads([line for line in rest if line][-1])
    assert (last["event"], last["status"]) == ("run_finished", "cancelled")
    assert rows(home, "select status, stop_reason from runs") == [("cancelled", "cancelled")]


@pytest.mark.parametrize(
    ("question", "part"),
    [("", "empty"), ("   ", "empty"), ("x" * 100_001, "100,001 characters"), ("a\x01b", "binary")],
    ids=["nothing", "blanks", "too-long", "binary"],
)
def test_unusable_questions_exit_with_2_and_name_the_fix(question: str, part: str, home: Path) -> None:
    done = app("ask", question, home=home)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unknown_method_lists_the_known_ones(home: Path) -> None:
    done = app("ask", "Hi?", "--method", "single:nobody", home=home)
    assert done.returncode == 2
    assert "single:symbolic" in done.stderr


def test_an_unknown_agent_in_the_pool_file_names_the_file_and_the_kinds(home: Path) -> None:
    (home / "pool.toml").write_text('[[agents]]\nname = "x"\nkind = "symbolix"\n')
    done = app("ask", "Hi?", home=home)
    assert done.returncode == 2
    assert "pool.toml" in done.stderr
    assert "symbolic" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.model
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"../../etc/passwd"], ids=["empty", "bytes", "path"])
def test_an_unreadable_choice_of_checkpoint_is_named_and_the_run_says_untrained(content: bytes, home: Path) -> None:
    (home / "deployed.txt").write_bytes(content)
    done = app("ask", "What is 2 + 2?", "--turns", "1", home=home)
    assert done.returncode == 0
    assert "deployed.txt does not name a checkpoint" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.model
def test_a_corrupt_deployed_checkpoint_is_named_and_the_run_says_untrained(home: Path) -> None:
    (home / "checkpoints").mkdir()
    (home / "checkpoints" / f"{'0' * 64}.safetensors").write_bytes(b"not a checkpoint")
    (home / "deployed.txt").write_text("0" * 64)
    done = app("ask", "What is 2 + 2?", "--json", home=home)
    assert "Traceback" not in done.stderr
    notes = [json.loads(line) for line in done.stdout.splitlines() if '"note"' in line]
    assert any(note["kind"] == "untrained" and "0000" in note["message"] for note in notes)


def test_a_missing_backbone_is_named(home: Path) -> None:
    done = app("ask", "What is 2 + 2?", "--backbone", str(home / "nowhere"), home=home)
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named_with_the_fix(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = app("serve", "--port", str(taken.getsockname()[1]), home=home)
    assert done.returncode == 2
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_host_needs_a_login(home: Path) -> None:
    done = app("serve", "--host", "0.0.0.0", "--port", "0", home=home)
    assert done.returncode == 2
    assert "--auth-env" in done.stderr
    done = app("serve", "--host", "0.0.0.0", "--port", "0", "--auth-env", "NOT_SET_ANYWHERE", home=home)
    assert done.returncode == 2
    assert "NOT_SET_ANYWHERE" in done.stderr


def test_a_database_that_is_no_database_is_named_and_kept(home: Path) -> None:
    (home / "trinity.db").write_bytes(b"this is no database" * 100)
    done = app("export", str(home / "out.jsonl"), home=home)
    assert done.returncode == 1
    assert "trinity.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert (home / "trinity.db").read_bytes().startswith(b"this is no database")
    assert not (home / "out.jsonl").exists()


def test_import_reports_bad_lines_by_number_and_keeps_the_rest(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"id":"t1","text":"a"}\r\nnot json\r\n\r\n{"id":"t2","text":"b"}\r\n')
    first, second = app("import", str(source), home=home), app("import", str(source), home=home)
    assert first.returncode == 1
    assert "line 2:" in first.stderr
    assert "2 imported" in first.stderr
    assert "0 imported, 2 already there" in second.stderr
    out = app("export", "-", home=home)
    assert out.returncode == 0
    assert [json.loads(line)["id"] for line in out.stdout.splitlines()] == ["t1", "t2"]


def test_files_that_cannot_be_used_exit_with_2(home: Path, tmp_path: Path) -> None:
    assert app("import", str(tmp_path / "missing.jsonl"), home=home).returncode == 2
    assert app("export", str(tmp_path / "no" / "folder.jsonl"), home=home).returncode == 2
    assert app("ask", home=home).returncode == 2
    assert app("nonsense", home=home).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", ""),
        ("import", ""),
        ("export", "."),
        ("serve", "--port", "99999"),
        ("serve", "--port", "-1"),
        ("ask", "Hi?", "--turns", "0"),
        ("ask", "Hi?", "--turns", "many"),
        ("ask", "Hi?", "--seed", "9" * 30),
        ("ask", "Hi?", "--method", ""),
        ("export", "-", "--home", "~no-such-user-here/x"),
    ],
    ids=" ".join,
)
def test_odd_arguments_exit_with_2_and_no_traceback(arguments: tuple[str, ...], home: Path) -> None:
    done = run(*arguments, *(() if "--home" in arguments else ("--home", str(home))))
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        ("<&-", "ask -", 2),
        ("<&-", "import -", 2),
        (">&-", "export -", 2),
        (">&-", "ask 2+2? --method single:symbolic", 0),
        ("<&- >&- 2>&-", "ask 2+2? --method single:symbolic", 0),
    ],
)
def test_closed_standard_streams(closed: str, arguments: str, code: int, home: Path) -> None:
    command = f'"{sys.executable}" "{ROOT / "app.py"}" {arguments} --home "{home}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if arguments.startswith("ask 2"):
        assert rows(home, "select status from runs") == [("done",)]


@pytest.mark.parametrize(
    ("given", "code", "part"),
    [
        (b"\xef\xbb\xbfWhat is 2+2?", 0, b"Answer: 4"),
        (b"caf\xe9", 2, b"UTF-8"),
        (b"x" * 1_000_000, 2, b"at most 100,000"),
        ("é".encode() * 300_000, 2, b"at most 100,000"),
        (b"", 2, b"empty"),
    ],
    ids=["bom", "latin-1", "too long", "cut in a character", "nothing"],
)
def test_the_question_may_come_from_standard_input(given: bytes, code: int, part: bytes, home: Path) -> None:
    command = [sys.executable, str(ROOT / "app.py"), "ask", "-", "--method", "single:symbolic", "--home", str(home)]
    done = subprocess.run(command, input=given, capture_output=True, cwd=ROOT, timeout=60)
    assert done.returncode == code
    assert part in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def test_export_writes_through_links_and_into_pipes_and_replaces_neither(home: Path, tmp_path: Path) -> None:
    app("import", "-", home=home, input='{"id":"t1","text":"a"}\n')
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "target")
    assert app("export", str(link), home=home).returncode == 0
    assert link.is_symlink()
    whole = (tmp_path / "target").read_bytes()
    assert json.loads(whole)["id"] == "t1"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert app("export", str(pipe), home=home).returncode == 0
        assert reader.communicate(timeout=30)[0] == whole
    assert pipe.is_fifo()
    assert not list(tmp_path.glob("*part")) + list(tmp_path.glob(".*part"))


def test_every_bad_line_is_counted_though_not_listed(home: Path) -> None:
    done = app("import", "-", home=home, input="no\n" * 1003)
    assert done.returncode == 1
    assert "1003 bad" in done.stderr
    assert sum(line.startswith("line ") for line in done.stderr.splitlines()) == 1000


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2secret@h/db",
        "postgresql://u:hunter2secret@127.0.0.1:1/db",
        "postgresql://u:hunter2secret@127.0.0.1:port/db",
        "postgresql+nodriver://u:hunter2secret@h/db",
        "hunter2secret",
    ],
)
def test_a_database_that_cannot_be_used_is_told_without_its_password(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_DB_URL", url)
    done = app("export", "-", home=home)
    assert done.returncode == 1
    assert "TRINITY_DB_URL" in done.stderr or "postgresql+psycopg://" in done.stderr
    assert "hunter2secret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_two_processes_share_a_home(home: Path) -> None:
    asks = [
        subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "app.py"),
                "ask",
                f"{n} + 2",
                "--method",
                "single:symbolic",
                "--home",
                str(home),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in (1, 2)
    ]
    for n, process in enumerate(asks, 1):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, f"Answer: {n + 2}" in out) == (0, True), err
    assert rows(home, "select status, count(*) from runs group by status") == [("done", 2)]


@pytest.mark.model
def test_killing_the_process_keeps_every_finished_turn(home: Path) -> None:
    command = [sys.executable, str(ROOT / "app.py"), "ask", "What is 6 * 7? Write the result backwards.", "--json"]
    command += ["--home", str(home), "--method", "fixed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "turn_finished":
                process.kill()
                break
    assert app("export", str(home / "out.jsonl"), home=home).returncode == 0
    done = app("ask", "What is 1 + 1?", "--method", "single:symbolic", home=home)  # starts, and recovers
    assert done.returncode == 0, done.stderr
    assert ("interrupted",) in rows(home, "select status from runs")
    assert rows(home, "select count(*) from turns where turn = 1 and finish is not null") != [(0,)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(home: Path) -> None:
    app("import", "-", home=home, input='{"id":"t1","text":"a"}\n')
    with open("/dev/full", "wb") as full:
        command = [sys.executable, str(ROOT / "app.py"), "export", "-", "--home", str(home)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr


def test_a_closed_pipe_is_no_traceback(home: Path) -> None:
    app("import", "-", home=home, input='{"id":"t1","text":"a"}\n')
    command = [sys.executable, str(ROOT / "app.py"), "export", "-", "--home", str(home)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    os.close(write)
    assert "Traceback" not in done.stderr


@pytest.mark.model
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_before_the_model_is_ready_and_stops_when_told(home: Path, how: signal.Signals) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(ROOT / "app.py"), "--port", str(port), "--home", str(home)]  # serve by default
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # A shell's background job ignores SIGINT and hands that down; the test must not depend on how it was started.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"http://127.0.0.1:{port}" in said
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        process.send_signal(how)
        _, rest = process.communicate(timeout=30)
        assert process.returncode in (0, 130)
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()


_THREE_TASKS = """\
{"question":"What is 6 times 7?","reference":"42","grader":"numeric","family":"arithmetic","split":"test"}
{"question":"What is the capital of France?","reference":"Paris","family":"knowledge","split":"test"}
{"question":"What is 5 plus 6?","reference":"11","grader":"numeric","family":"arithmetic","split":"train"}
"""


@pytest.mark.model
def test_eval_prints_a_table_and_a_second_one_calls_nobody(home: Path, tmp_path: Path) -> None:
    tasks = _written(tmp_path / "tasks.jsonl", _THREE_TASKS)
    arguments = ("eval", "shipped", "--tasks", tasks, "--local-tokens", "48", "--turns", "2")
    first, second = app(*arguments, home=home), app(*arguments, "--json", home=home)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    for part in ("coordinator", "single smollm2", "random policy", "best agent per question", "inconclusive"):
        assert part in first.stdout
    found = json.loads(second.stdout)
    assert (found["tasks"], found["rows"][0]["n"]) == (2, 2)  # the training task is left out
    assert [row["calls"] for row in found["rows"]] == [0] * 7
    caps = rows(home, "select distinct json_extract(request, '$.options.max_tokens') from agent_replies")
    assert {cap for (cap,) in caps} == {None, 48, 96}  # in turns, and alone with twice as much


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("nowhere",), 2, "begins with 'nowhere'"),
        (("shipped", "--family", "letters", "--leave-out", "letters"), 2, "There are no tasks"),
        (("shipped", "--tasks", "/nowhere/tasks.jsonl"), 2, "cannot be read"),
        (("shipped", "--tasks", __file__), 2, "Line 1 is no task"),
        (("shipped", "--turns", "0"), 2, "whole number"),
        ((str(ROOT / "README.md"),), 1, "is not a Trinity checkpoint"),
    ],
    ids=["name", "nothing-left", "no-file", "no-tasks", "turns", "no-checkpoint"],
)
def test_eval_names_what_cannot_be_used(arguments: tuple[str, ...], code: int, part: str, home: Path) -> None:
    done = app("eval", *arguments, home=home)
    assert done.returncode == code
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_eval_names_the_members_that_a_checkpoint_does_not_fit(home: Path, tmp_path: Path) -> None:
    pool = _written(tmp_path / "pool.toml", '[[agents]]\nname = "maths"\nkind = "symbolic"\n')
    done = app("eval", "shipped", "--pool", pool, home=home)
    assert done.returncode == 1
    assert "no trained row for maths" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.model
def test_interrupting_eval_is_130(home: Path) -> None:
    command = [sys.executable, str(ROOT / "app.py"), "eval", "shipped", "--family", "knowledge", "--home", str(home)]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("coordinator "):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(timeout=30) == 130
    assert "Traceback" not in rest


async def test_ask_says_that_a_reply_starts_again(home: Path, tmp_path: Path) -> None:
    async with FaultServer(choose=lambda _, asked: "ok" if asked else "truncated") as server:
        entry = f'[[agents]]\nname = "ada"\nkind = "openai"\nmodel = "m"\nbase_url = "{server.url("openai")}"\n'
        pool = await asyncio.to_thread(_written, tmp_path / "one.toml", entry)
        arguments = ("ask", "Hello?", "--method", "single:ada", "--turns", "1", "--pool", pool)
        done = await asyncio.to_thread(app, *arguments, home=home)
        before, _, after = done.stderr.partition("the reply starts again: ")
        assert done.returncode == 0, done.stderr
        assert "finish reason" in after
        assert server.text in after
        assert server.text not in before


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
