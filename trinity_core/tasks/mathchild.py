"""The process in which formulas are compared, so that none can hang, bloat or break the server.

One warm child reads a JSON line with two structures (`mathgrade`) and answers with one word: "same", "different",
"unreadable" or "limit". Its limits on processor time and memory are the system's, so neither a huge power nor a
library that never returns outlasts them; callers queue. A child that was ended is started anew at the next question.

Formulas are read by the LaTeX parser that math-verify uses and compared by `math_verify.verify`; neither evaluates
text as code. Not covered: systems without such limits (there the wall clock alone ends a question).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

from trinity_core.errors import TrinityError

CPU_SECONDS = 2
"""Processor time that one comparison may take; what needs more counts as not shown equal."""
WALL_SECONDS = 60.0
"""Wall time after which the machine is too busy, and nothing is graded. Also for starting the child."""
MEMORY = 2 << 30
"""Bytes of address space."""
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);from trinity_core.tasks.mathchild import serve; serve()"
)
_ANSWERS = ("same", "different", "unreadable", "limit")


class _Child:
    """The one child. Thread-safe; a second caller waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., _Child] | None = None

    def ask(self, message: bytes) -> str:
        with self._lock:
            for _ in range(2):  # a child that somebody ended is no fault of the question
                if self._process is None or self._process.poll() is not None:
                    self._start()
                reply = self._exchange(message)
                if reply in _ANSWERS:
                    return reply
                assert self._process is not None
                status = self._process.wait()
                self._stop()
                if status == -getattr(signal, "SIGXCPU", 0):
                    break
            return "limit"

    def stop(self) -> None:
        with self._lock:
            self._stop()

    def _start(self) -> None:
        self._stop()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the parent's to handle
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise TrinityError(f"No process can be started for the math grader ({error.strerror}).") from None
        self._process = process
        self._end = weakref.finalize(self, _finish, process)
        if self._exchange(b"") != "ready":
            self._stop()
            raise TrinityError("The math grader does not start; check that the package math-verify is installed.")

    def _exchange(self, data: bytes) -> str:
        """Send a line (or nothing), read one; "" when the child is gone. TrinityError when the clock runs out."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(WALL_SECONDS, end)
        timer.daemon = True
        timer.start()
        try:
            if data:
                process.stdin.write(data)
                process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):
            line = b""
        finally:
            timer.cancel()
        if late.is_set() and not line.endswith(b"\n"):
            self._stop()
            raise TrinityError("The machine is too busy to compare formulas, so nothing was graded. Try again later.")
        return str(json.loads(line)) if line.endswith(b"\n") else ""

    def _stop(self) -> None:
        if self._end:
            self._end()
        self._process = self._end = None


def _finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            if pipe:
                pipe.close()


_CHILD = _Child()


def ask(said: list[Any], wanted: list[Any], tolerance: str = "0") -> str:
    """Compare two structures. Returns "same", "different", "unreadable" or "limit"; raises TrinityError."""
    return _CHILD.ask(json.dumps([said, wanted, tolerance]).encode("ascii") + b"\n")


def stop() -> None:
    """End the child; the next question starts another one."""
    _CHILD.stop()


# --- In the child -------------------------------------------------------------------------------------------------


def serve() -> None:
    """The child's life: answer lines until stdin ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # whatever a library prints must not reach the protocol
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from trinity_core.tasks.mathcompare import Comparison, Unreadable

    sys.setrecursionlimit(3_000)
    out.write(b'"ready"\n')
    for line in sys.stdin.buffer:
        _limit()
        said, wanted, tolerance = json.loads(line)
        try:
            answer = "same" if Comparison(tolerance).same(said, wanted) else "different"
        except Unreadable:
            answer = "unreadable"
        except Exception:  # the process boundary: whatever a library raised, nothing was shown to be equal
            answer = "limit"
        out.write(json.dumps(answer).encode("ascii") + b"\n")


def _limit() -> None:
    """Let the system end this process when the next question takes more than CPU_SECONDS."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + CPU_SECONDS, hard))
