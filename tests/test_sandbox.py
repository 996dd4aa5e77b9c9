"""The box that code runs in: what it cannot reach, what it may use, and that nothing survives it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trinity_core.errors import ConfigError
from trinity_core.tasks import sandbox
from trinity_core.tasks.sandbox import Limits, Outcome, Program

ROOT = Path(__file__).parents[1]


@pytest.fixture
def box() -> None:
    """Skips without bubblewrap, unless TRINITY_REQUIRE_BWRAP is set."""
    missing = sandbox.available()
    if missing and os.environ.get("TRINITY_REQUIRE_BWRAP"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


def run(source: str, stdin: bytes = b"", **limits: Any) -> Outcome:
    return sandbox.run(Program(source, stdin), Limits(**{"seconds": 5.0, **limits}))


def said(source: str, **limits: Any) -> str:
    outcome = run(source, **limits)
    assert outcome.status == 0, outcome
    return outcome.stdout.decode().strip()


def alive(marker: str) -> list[str]:
    """Processes of this machine that have the marker in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(entry.name)
    return found


def test_a_missing_bwrap_says_how_to_install_it_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("something was started"))
    assert "apt install bubblewrap" in (sandbox.available() or "")
    with pytest.raises(ConfigError, match="apt install bubblewrap"):
        sandbox.run(Program("print(1)"))


def test_a_bwrap_that_makes_no_box_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where user namespaces are forbidden."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(fake))
    first = sandbox.available() or ""
    assert "No permissions to create new namespace" in first
    assert ("SYS_ADMIN" if os.geteuid() == 0 else "user namespaces") in first
    fake.unlink()
    assert sandbox.available() == first


@pytest.mark.usefixtures("box")
class TestInside:
    def test_it_is_an_ordinary_main_program(self) -> None:
        source = "import sys\nif __name__ == '__main__':\n    print(int(input()) * 2, sys.argv, sorted(globals()))"
        outcome = run(source, stdin=b"21\n")
        names = "['__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__', 'sys']"
        assert outcome.stdout.decode() == f"42 ['program.py'] {names}\n"
        assert (outcome.status, outcome.stopped, outcome.stderr) == (0, "", b"")

    def test_status_and_errors_come_back(self) -> None:
        assert run("import sys; sys.exit(7)").status == 7
        outcome = run("1 / 0")
        assert outcome.status == 1
        assert b"ZeroDivisionError" in outcome.stderr

    def test_it_is_not_root_and_has_no_capability(self) -> None:
        words = said(
            "import os; print(os.getuid(), os.getgid(), os.getgroups()); print(open('/proc/self/status').read())"
        )
        ids, status = words.split("\n", 1)
        assert "0" not in ids.split()[:2]
        values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(values["CapEff"], 16) == int(values["CapPrm"], 16) == int(values["CapAmb"], 16) == 0
        assert values["NoNewPrivs"] == "1"
        assert values["Seccomp"] == "2"

    def test_the_environment_is_empty_also_in_proc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "hidden-value-in-the-environment")
        source = (
            "import os\nprint(dict(os.environ))\nfor p in os.listdir('/proc'):\n    if p.isdigit():\n"
            "        try: print(open(f'/proc/{p}/environ').read())\n        except OSError: pass"
        )
        assert "hidden-value" not in said(source)

    def test_home_and_repository_are_not_there(self) -> None:
        source = "import os\nprint([p for p in {!r} if os.path.exists(p)])"
        hidden = [
            str(ROOT / "pyproject.toml"),
            str(Path.home() / ".ssh"),
            "/etc/passwd",
            "/etc/shadow",
            "/bin/sh",
            "/home",
        ]
        assert said(source.format(hidden)) == "[]"
        assert str(ROOT) not in said("import sys; print(sys.path)")

    def test_packages_are_not_there(self) -> None:
        source = "import glob, sys\nprint([glob.glob(p + '/*-packages/*') for p in sys.path[1:2]])"
        assert said(source) == "[[]]"
        assert b"ModuleNotFoundError" in run("import pytest").stderr

    @pytest.mark.parametrize("place", ["/x", "/dev/x", "/dev/shm/x", "/proc/x", "/usr/lib/x", "/etc/x"])
    def test_only_tmp_can_be_written(self, place: str) -> None:
        assert run(f"open({place!r}, 'w')").status == 1
        assert said("open('/tmp/x', 'w').write('1'); print(open('/tmp/x').read())") == "1"

    def test_there_is_no_network(self) -> None:
        source = (
            "import socket\nfor place in (('127.0.0.1', {port}), ('1.1.1.1', 80)):\n"
            "    try: socket.create_connection(place, 1); print('reached')\n    except OSError: print('no')"
        )
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            assert said(source.format(port=server.getsockname()[1])) == "no\nno"

    def test_new_namespaces_and_uncounted_memory_are_refused(self) -> None:
        source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def errno(result):
    return ctypes.get_errno() if result == -1 else 0
print(errno(libc.unshare(0x10000000)), errno(libc.shmget(0, 4096, 0o1600)), errno(libc.ptrace(0, 0, 0, 0)))
print(errno(libc.syscall({clone}, 0x10000000 | 17, 0, 0, 0, 0)))
try:
    os.memfd_create("x")
except OSError as error:
    print(error.errno)
""".format(clone={"x86_64": 56, "aarch64": 220}[os.uname().machine])
        assert said(source).split() == ["1"] * 5


@pytest.mark.usefixtures("box")
class TestLimits:
    def test_an_endless_loop(self) -> None:
        outcome = run("print('begun', flush=True)\nwhile True: pass", seconds=0.5)
        assert (outcome.status, outcome.stopped, outcome.stdout) == (None, "time", b"begun\n")
        assert 0.4 < outcome.seconds < 3

    def test_processor_time(self) -> None:
        """Set inside too, should the parent be held up."""
        assert said("import resource; print(resource.getrlimit(resource.RLIMIT_CPU))", seconds=3) == "(5, 5)"

    def test_a_process_that_wants_too_much_memory(self) -> None:
        assert b"MemoryError" in run("bytearray(300 << 20)", memory=200 << 20).stderr

    def test_processes_that_together_want_too_much_memory(self) -> None:
        source = (
            "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        data = b'x' * (60 << 20)\n"
            "        time.sleep(20)\ntime.sleep(20)"
        )
        outcome = run(source, memory=150 << 20, seconds=10)
        assert outcome.stopped == "memory"
        assert outcome.seconds < 8

    def test_a_fork_bomb(self) -> None:
        source = (
            "import os, time\nn = 1\ntry:\n    while True:\n        os.fork() or time.sleep(60)\n        n += 1\n"
            "except OSError: print(n)"
        )
        assert 4 <= int(said(source, processes=8)) <= 8
        bomb = run("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", seconds=0.5)
        assert bomb.stopped == "time"
        assert bomb.seconds < 3

    def test_too_much_output_on_either_pipe(self) -> None:
        for pipe in ("stdout", "stderr"):
            outcome = run(f"import sys\nwhile True: sys.{pipe}.write('x' * 4096)", output=10_000)
            assert outcome.stopped == "output"
            assert outcome.status is None
            assert len(outcome.stdout) + len(outcome.stderr) == 10_001
        assert len(run("print('x' * 9_999)", output=10_000).stdout) == 10_000

    def test_a_file_and_all_files_together_are_bounded(self) -> None:
        assert b"OSError" in run("open('/tmp/a', 'wb').write(b'x' * (2 << 20))", scratch=1 << 20).stderr
        source = "for i in range(20):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(b'x' * 100_000)"
        assert b"No space left" in run(source, scratch=1 << 20).stderr

    def test_open_files_are_bounded(self) -> None:
        assert b"Too many open files" in run("a = [open('/dev/null') for _ in range(100)]").stderr


@pytest.mark.usefixtures("box")
class TestTheEnd:
    @staticmethod
    def child(marker: str, more: str = "") -> str:
        """Source that starts a process which sleeps."""
        return (
            "import subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60) # {marker}']{more})\n"
        )

    def test_a_grandchild_that_holds_the_pipe_is_ended_with_the_time(self) -> None:
        began = time.monotonic()
        outcome = run(self.child("marker-held") + "time.sleep(60)", seconds=1)
        assert outcome.stopped == "time"
        assert time.monotonic() - began < 6
        assert alive("marker-held") == []

    def test_a_daemon_is_ended_when_its_parent_is_done(self) -> None:
        began = time.monotonic()
        outcome = run(self.child("marker-daemon", ", start_new_session=True") + "print('done')", seconds=10)
        assert outcome.status == 0
        assert outcome.stdout == b"done\n"
        assert time.monotonic() - began < 6
        assert alive("marker-daemon") == []

    def test_all_ends_with_the_program_that_started_the_box(self) -> None:
        """Killed at once, so that it cannot clean up."""
        outer = (
            "from trinity_core.tasks.sandbox import *\n"
            f"run(Program({self.child('marker-orphan') + 'time.sleep(60)'!r}), Limits(seconds=60))"
        )
        parent = subprocess.Popen([sys.executable, "-c", outer], cwd=ROOT)

        def inside() -> list[str]:
            return [number for number in alive("marker-orphan") if int(number) != parent.pid]

        try:
            deadline = time.monotonic() + 20
            while not inside() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert inside()
        finally:
            parent.kill()
            parent.wait()
        deadline = time.monotonic() + 5
        while inside() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert inside() == []

    def test_it_works_in_a_worker_thread(self) -> None:
        got: list[Outcome] = []
        thread = threading.Thread(target=lambda: got.append(run("print(1)")))
        thread.start()
        thread.join()
        assert got[0].stdout == b"1\n"

    def test_no_descriptor_is_left_open(self) -> None:
        run("print(1)")
        before = len(os.listdir("/proc/self/fd"))
        reading, writing = os.pipe()
        outcome = sandbox.run(Program("import os, sys; os.write(int(sys.argv[1]), b'told')", descriptors=(writing,)))
        assert outcome.status == 0
        assert os.read(reading, 10) == b"told"
        assert os.read(reading, 10) == b""
        os.close(reading)
        assert len(os.listdir("/proc/self/fd")) == before

    def test_several_boxes_end_with_the_first(self) -> None:
        first, second = sandbox.run_together((Program("print(1)"), Program("while True: pass")), Limits(seconds=10))
        assert (first.status, first.stdout, first.stopped) == (0, b"1\n", "")
        assert (second.status, second.stopped) == (None, "")
        assert second.seconds < 5
